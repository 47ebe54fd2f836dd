"""Selects workloads: by id, unique prefix, name, or filters."""

from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import click

from cli.client import Client
from cli.errors import ObjectNotFoundError, WorkloadNotFoundError
from cli.output import Json

F = TypeVar("F", bound=Callable[..., Any])

ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"}
MANY = 10_000


def one_workload(command: F) -> F:
    """Argument ID and option `-n NAME` of a command about one workload."""
    command = click.option("-n", "--name", help="Name instead of the id.")(command)
    return click.argument("workload", required=False, metavar="[ID]")(command)


def many_workloads(command: F) -> F:
    """Arguments ID… and the filters of a command about many workloads."""
    for option in (
        click.option("-s", "--state", help="Only this phase or state."),
        click.option("-l", "--selector", help="Only with these labels (a=b,c=d)."),
        click.option("-q", "--queue", help="Only of this LocalQueue (NAMESPACE/NAME or NAME)."),
        click.option("-n", "--name", help="Only with this name."),
    ):
        command = option(command)
    return click.argument("workloads", nargs=-1, metavar="[ID]...")(command)


def find(client: Client, reference: str | None, name: str | None, *, outcome: bool = False) -> Json:
    """The one selected workload; commands that report an outcome exit with 102 if there is none.

    If several have the name, exactly one of them must be unfinished.
    """
    if bool(reference) == bool(name):
        raise click.UsageError("name one workload: its id (or a unique prefix), or -n NAME")
    missing = WorkloadNotFoundError if outcome else ObjectNotFoundError
    if reference:
        try:
            return client.workload(reference)
        except ObjectNotFoundError as error:
            if outcome and not error.ambiguous:
                raise missing(error.message, hint=error.hint) from error
            raise
    found = list(client.workloads(limit=MANY, name=name or ""))
    live = [each for each in found if each["phase"] not in ENDED]
    if len(live) == 1 or len(found) == 1:
        return client.workload((live or found)[0]["id"])
    if found:
        ids = ", ".join(each["id"] for each in (live or found)[:5])
        raise ObjectNotFoundError(
            f"{len(live or found)} workloads are named {name!r}", hint=f"take an id: {ids}"
        )
    raise missing(f"no workload is named {name!r}", hint="`sluice ls` lists them")


def find_many(client: Client, references: Sequence[str], **filters: str) -> list[Json]:
    """The workloads selected by ids or by filters, each once."""
    chosen = {name: value for name, value in filters.items() if value}
    if bool(references) == bool(chosen):
        raise click.UsageError("name workloads: ids, or a selection (-n, -q, -l, -s)")
    if references:
        found = [client.workload(reference) for reference in references]
    else:
        found = list(client.workloads(limit=MANY, **chosen))
    return list({each["id"]: each for each in found}.values())
