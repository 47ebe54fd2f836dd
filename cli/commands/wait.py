"""`sluice wait`: waits for workloads and reports their outcome."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import click
from sluice.client.errors import WorkloadNotFoundError
from sluice.client.exit_codes import ExitCode
from sluice.client.watching import GOALS, WorkloadWatcher, outcome, reached, worst
from sluice.core.values.mistakes import mistake

from cli.app import pass_app
from cli.columns import workload_columns
from cli.errors import CommandExit
from cli.output import Json, hint, output_option, rows
from cli.parameters import DURATION
from cli.selection import find, find_many, many_workloads
from cli.watching import interruptible, live_view

if TYPE_CHECKING:
    from cli.app import App


@click.command()
@many_workloads
@click.option("--for", "goal", type=click.Choice(GOALS), default="finished", show_default=True)
@click.option("--timeout", type=DURATION, help="Give up after this time (exit code 101).")
@output_option
@pass_app
def wait(
    app: App,
    *,
    workloads: tuple[str, ...],
    goal: str,
    timeout: float | None,
    output: str,
    **filters: str,
) -> None:
    """Wait for workloads and report their outcome.

    The exit code is the outcome: 0 succeeded, 100 failed, 101 not finished in time, 102 no
    such workload, 103 cancelled, 104 rejected, 105 recovery budget exhausted.
    """
    if len(workloads) == 1 and not any(filters.values()):
        ids = [find(app.api, workloads[0], None, outcome=True)["id"]]
    else:
        ids = [each["id"] for each in find_many(app.api, workloads, **filters)]
    if not ids:
        raise WorkloadNotFoundError("no workload matches", hint="`sluice ls` lists what there is")
    follow(app, ids, goal=goal, timeout_seconds=timeout, form=output)


def follow(
    app: App,
    ids: Sequence[str],
    *,
    goal: str = "finished",
    timeout_seconds: float | None = None,
    form: str = "table",
    digests: Mapping[str, str] | None = None,
) -> None:
    """Waits, prints the final states, and ends the command with the outcome.

    `digests` are those of documents that were sent just now.
    """
    watch = WorkloadWatcher(app, ids, goal, timeout_seconds, bool(digests), digests or {})
    with interruptible(ids), live_view(app) as view:
        final = watch(view)
    rows(final, workload_columns(int(app.now() * 1_000)), form)
    codes = [outcome(workload, goal) for workload in final]
    _explain(final, goal)
    raise CommandExit(worst(codes))


def _explain(final: Sequence[Json], goal: str) -> None:
    """Prints for each workload that did not succeed what to look at."""
    for workload in final:
        message = (workload.get("result") or workload.get("reason") or {}).get("message", "")
        if not reached(workload, goal):
            hint(f"{workload['id']} is {workload['phase']}; `sluice why {workload['id']}`")
        elif outcome(workload, goal) is ExitCode.WORKLOAD_FAILED:
            hint(f"{workload['id']} failed: {message}; `sluice logs {workload['id']}`")
        elif outcome(workload, goal) is not ExitCode.OK:
            errors = workload.get("errors") or ()
            cause = "" if errors else f" {message}"  # the message is the first error
            hint(f"{workload['id']} {workload['phase'].lower()}:{cause}")
            for error in errors:
                hint(f"  {mistake(error)}")
