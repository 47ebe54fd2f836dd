"""`sluice cancel`, `hold`, `release`, `requeue`, `reprioritize`: one request for each workload."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from sluice.client.errors import SluiceClientError

from cli.app import pass_app
from cli.confirmation import require_yes
from cli.errors import CommandExit
from cli.output import Column, Json, hint, output_option, rows
from cli.selection import find_many, many_workloads

if TYPE_CHECKING:
    from cli.app import App

COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("NAME", lambda row: row["name"]),
    Column("STATUS", lambda row: row["phase"]),
    Column("RESULT", lambda row: row["result"]),
)


def _steering(command: Callable[..., Any]) -> Callable[..., Any]:
    """Selection, `--dry-run`, `-y` and `--reason`: the same for every verb."""
    for option in (
        output_option,
        click.option("--reason", default="", help="Why; shown in the timeline."),
        click.option("-y", "--yes", is_flag=True, help="Do not ask."),
        click.option("--dry-run", is_flag=True, help="Show which workloads are selected."),
    ):
        command = option(command)
    return pass_app(many_workloads(command))


@click.command()
@_steering
def cancel(app: App, **options: Any) -> None:
    """Cancel workloads: pending ones at once, running ones are stopped first."""
    _steer(app, "cancel", {}, **options)


@click.command()
@_steering
def hold(app: App, **options: Any) -> None:
    """Hold pending workloads: they are not admitted until `sluice release`."""
    _steer(app, "hold", {}, **options)


@click.command()
@_steering
def release(app: App, **options: Any) -> None:
    """Let held workloads be admitted again."""
    _steer(app, "release", {}, **options)


@click.command()
@_steering
def requeue(app: App, **options: Any) -> None:
    """Stop workloads and put them back into their queue."""
    _steer(app, "requeue", {}, **options)


@click.command()
@click.option(
    "-p", "--priority", required=True, help="A number (higher is more important) or a class."
)
@_steering
def reprioritize(app: App, *, priority: str, **options: Any) -> None:
    """Change the priority of pending workloads."""
    value: int | str = int(priority) if priority.lstrip("-").isdigit() else priority
    _steer(app, "reprioritize", {"priority": value}, **options)


def _steer(
    app: App,
    verb: str,
    body: Json,
    *,
    workloads: tuple[str, ...],
    dry_run: bool,
    yes: bool,
    reason: str,
    output: str,
    **filters: str | None,
) -> None:
    """Sends `verb` for each selected workload. A refusal is reported; the others still follow."""
    found = find_many(app.api, workloads, **{k: v or "" for k, v in filters.items()})
    if dry_run:
        _show(found, [f"would {verb}"] * len(found), output)
        return
    if not workloads and found:
        require_yes(f"{verb} {len(found)} workload(s)", yes=yes)
    changed, results, failures = [], [], []
    for workload in found:
        try:
            changed.append(
                app.api.post("workloads", workload["id"], verb, body=body | {"reason": reason})
            )
            results.append(str(changed[-1]["result"]))
        except SluiceClientError as error:
            changed.append(workload)
            results.append(error.message)
            failures.append(error)
    if len(found) == 1 and failures:
        raise failures[0]
    _show(changed, results, output)
    if failures:
        hint(f"{len(failures)} of {len(found)} refused")
        raise CommandExit(failures[0].exit_code)


def _show(found: Sequence[Json], results: Sequence[str], form: str) -> None:
    if not found and form in {"table", "wide"}:
        hint("no workload matches")
        return
    rows(
        [workload | {"result": r} for workload, r in zip(found, results, strict=True)],
        COLUMNS,
        form,
    )
