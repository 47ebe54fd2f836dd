"""Arguments and options by which commands select workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click
from sluice.client import selection
from sluice.client.errors import ObjectNotFoundError, WorkloadNotFoundError
from sluice.client.watching import ENDED

from cli import completing

if TYPE_CHECKING:
    from sluice.client.api import ApiClient

    from cli.output import Json

__all__ = ["ENDED", "find", "find_many", "many_workloads", "one_workload"]

F = TypeVar("F", bound=Callable[..., Any])


def one_workload(command: F) -> F:
    """Argument WORKLOAD and option `-n NAME` of a command about one workload."""
    command = click.option("-n", "--name", help="Name instead of the id.")(command)
    return click.argument(
        "workload", required=False, metavar="[ID|NAME]", shell_complete=completing.workloads
    )(command)


def many_workloads(command: F) -> F:
    """Arguments WORKLOAD… and the filters of a command about many workloads."""
    for option in (
        click.option("-s", "--state", help="Only this phase or state."),
        click.option("-l", "--selector", help="Only with these labels (a=b,c=d)."),
        click.option(
            "-q",
            "--queue",
            help="Only of this LocalQueue (NAMESPACE/NAME or NAME).",
            shell_complete=completing.queues,
        ),
        click.option("-n", "--name", help="Only with this name."),
    ):
        command = option(command)
    return click.argument(
        "workloads", nargs=-1, metavar="[ID|NAME]...", shell_complete=completing.workloads
    )(command)


def find(api: ApiClient, reference: str | None, name: str | None, *, outcome: bool = False) -> Json:
    """The one selected workload; commands that report an outcome exit with 102 if there is none.

    If several have the name, exactly one of them must be unfinished.
    """
    if bool(reference) == bool(name):
        raise click.UsageError("name one workload: its id (or a unique prefix), or its name")
    missing = WorkloadNotFoundError if outcome else ObjectNotFoundError
    if reference:
        return selection.find(api, reference, missing=missing)
    return selection.find_by_name(api, name or "", missing=missing)


def find_many(api: ApiClient, references: Sequence[str], **filters: str) -> list[Json]:
    """The workloads selected by ids and names or by filters, each once."""
    return selection.find_many(api, references, **filters)
