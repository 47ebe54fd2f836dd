"""`sluice status` and `sluice top`: one screen of everything."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click
from sluice.client.exit_codes import ExitCode

from cli.app import pass_app
from cli.errors import CommandExit
from cli.figures import cost, moment, span
from cli.output import Json, clean, document, output_option

if TYPE_CHECKING:
    from cli.app import App

RENEWED_SECONDS = 5.0
LABEL = 11
CLEAR = "\x1b[H\x1b[2J"


@click.command()
@output_option
@pass_app
def status(app: App, *, output: str) -> None:
    """Show a summary: states, waiting reasons, cost per hour, recoveries."""
    show(app, output)


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Refresh every five seconds.")
@output_option
@pass_app
def top(app: App, *, watch: bool, output: str) -> None:
    """Show the same as `status`; -w keeps it on the screen."""
    if not watch:
        show(app, output)
        return
    try:
        while True:
            if sys.stdout.isatty() and output == "table":
                click.echo(CLEAR, nl=False)
            show(app, output)
            app.sleep(RENEWED_SECONDS)
    except KeyboardInterrupt:
        raise CommandExit(ExitCode.INTERRUPTED) from None


def show(app: App, output: str) -> None:
    found = app.api.get("status")
    if output in {"json", "yaml"}:
        document(found, output)
        return
    for label, text in _lines(found):
        click.echo(clean(f"{label:<{LABEL}}{text}".rstrip()))


def _lines(found: Json) -> Iterator[tuple[str, str]]:
    yield "", f"{moment(found['at'])} UTC"
    yield "Now", _counts(found["states"]) or "no workload waits or runs"
    yield "Last 24 h", _counts(found["ended24h"]) or "nothing ended"
    for number, reason in enumerate(found["pending"]):
        code = reason["code"] or "not considered yet"
        yield "Waiting" if number == 0 else "", f"{reason['count']} {code}"
    if oldest := found["oldestPending"]:
        why = oldest["reason"] or {}
        cause = f": {why['code']}, {why['message']}" if why else ""
        yield "Oldest", f"{oldest['id']} {oldest['name']} for {span(oldest['seconds'])}{cause}"
    yield "Workloads", _workloads(found["workloads"])
    yield "Machines", _machines(found["machines"])
    yield "Recoveries", _recoveries(found["recoveries24h"])


def _counts(counts: Mapping[str, int]) -> str:
    return " · ".join(f"{count} {phase}" for phase, count in counts.items())


def _workloads(paid: Json) -> str:
    parts = [f"{paid['count']} on clusters", f"{cost(paid['usdPerHour'])}/h"]
    if paid["spotShare"] is not None:
        parts.append(f"{100 * paid['spotShare']:.0f} % of their CPU on spot")
    if paid["unpriced"]:
        parts.append(f"{paid['unpriced']} without a price")
    return " · ".join(parts)


def _machines(machines: Json) -> str:
    parts = [f"{machines['ready']} of {machines['nodes']} ready", f"{machines['spot']} spot"]
    parts.append(f"{cost(machines['usdPerHour'])}/h")
    if machines["unpriced"]:
        parts.append(f"{machines['unpriced']} without a price")
    return " · ".join(parts)


def _recoveries(recovered: Json) -> str:
    text = f"{recovered['count']} in 24 h"
    if recovered["count"]:
        text += f", {span(recovered['lostWorkSeconds'])} of work done again"
    if unknown := recovered["lossesUntold"]:
        text += f"; for {unknown} of them only the application knows the loss"
    return text
