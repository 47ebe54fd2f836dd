"""`sluice why`: the reason why a workload does not run, with its arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import amounts, between
from cli.output import Json, clean, document, output_option, table
from cli.selection import find, one_workload

if TYPE_CHECKING:
    from cli.app import App

ACTIONS = {
    "WAIT": "nothing to do: it will run when its turn comes",
    "CHANGE-REQUEST": "change the request; as it is, it cannot run",
    "ASK-ADMIN": "ask who runs the platform",
    "PLATFORM-FAULT": "the platform has a fault; its operators are to look at it",
}


@click.command()
@one_workload
@output_option
@pass_app
def why(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Say why a workload does not run: quota, who holds it, who is ahead, what would help."""
    found = find(app.client, workload, name)
    answer = app.client.ask("workloads", found["id"], "why")
    if output in {"json", "yaml"}:
        document(answer, output)
        return
    now_ms = int(app.now() * 1_000)
    click.echo(clean(answer["headline"]))
    reason = answer.get("reason")
    if reason and reason["code"]:
        click.echo(f"\nReason:  {reason['code']} ({reason['action']})")
        click.echo(f"         {ACTIONS.get(reason['action'], '')}")
    if answer.get("quota"):
        click.echo("\nQuota:")
        click.echo(_quota(answer["quota"]))
    if answer.get("holders"):
        click.echo("\nHeld by:")
        click.echo(_people(answer["holders"], now_ms, "HELD-FOR", "since"))
    if answer.get("ahead"):
        click.echo("\nAhead in the queue:")
        click.echo(_people(answer["ahead"], now_ms, "WAITING", "createdAt"))
    if answer.get("position"):
        click.echo(f"\nPosition: {answer['position']} in {answer['clusterQueue']}")
    if eta := answer.get("approximateWaitSeconds"):
        click.echo(f"Approximate wait: {between(1, 1 + int(eta * 1_000))}")
    if answer.get("attempts"):
        click.echo("\nEarlier attempts:")
        for attempt in answer["attempts"]:
            click.echo(clean(f"  generation {attempt['generation']}: {attempt['outcome']}"))
    if answer.get("wouldHelp"):
        click.echo("\nWhat would admit it:")
        for step in answer["wouldHelp"]:
            click.echo(clean(f"  - {step}"))


def _quota(lines: list[Json]) -> str:
    headings = ["FLAVOR", "RESOURCE", "REQUEST", "NOMINAL", "USED", "AVAILABLE", "POTENTIAL"]
    names = ["flavor", "resource", "request", "nominal", "used", "available", "potential"]
    return table(headings, [[str(line.get(name, "")) for name in names] for line in lines])


def _people(workloads: list[Json], now_ms: int, heading: str, since: str) -> str:
    cells = [
        [
            each["id"],
            each["name"],
            each["queue"],
            str(each["priority"]),
            amounts(each["request"]),
            between(each.get(since), now_ms),
        ]
        for each in workloads
    ]
    return table(["ID", "NAME", "QUEUE", "PRIORITY", "REQUEST", heading], cells)
