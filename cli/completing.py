"""Names that the shell completes: asked of the api, silent where it does not answer."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any

import click
from click.shell_completion import CompletionItem
from sluice.client.errors import SluiceClientError

from cli.app import App

if TYPE_CHECKING:
    from sluice.client.api import ApiClient

MOST = 200

Completer = Callable[[click.Context, click.Parameter, str], list[CompletionItem]]


def _completer(names: Callable[[ApiClient], Iterable[tuple[str, str]]]) -> Completer:
    """`names`: pairs of a name and what the shell shows beside it."""

    def complete(ctx: click.Context, _: click.Parameter, incomplete: str) -> list[CompletionItem]:
        flags: dict[str, Any] = ctx.find_root().params
        app = App(profile=flags.get("profile"), api_url=flags.get("api_url"))
        try:
            found = [pair for pair in names(app.api) if pair[0] and pair[0].startswith(incomplete)]
        except SluiceClientError:
            return []  # a shell has no place for an error
        return [CompletionItem(name, help=beside) for name, beside in dict(found).items()]

    return complete


def _workloads(api: ApiClient) -> Iterable[tuple[str, str]]:
    for each in api.workloads(limit=MOST):
        beside = f"{each.get('name', '')} {each['phase']}".strip()
        yield str(each["id"]), beside
        yield str(each.get("name", "")), f"{each['id']} {each['phase']}"


def _queues(api: ApiClient) -> Iterable[tuple[str, str]]:
    for each in api.get("queues")["items"]:
        for name in each["localQueues"]:
            yield str(name), f"of {each['name']}"


def _clusters(api: ApiClient) -> Iterable[tuple[str, str]]:
    for each in api.get("catalog", "Cluster")["items"]:
        yield str(each["metadata"]["name"]), ""


workloads = _completer(_workloads)
queues = _completer(_queues)
clusters = _completer(_clusters)
