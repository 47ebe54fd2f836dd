"""`sluice events`: the timeline of a workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.app import pass_app
from cli.figures import moment
from cli.output import Column, clean, hint, output_option, rows
from cli.selection import ENDED, find, one_workload

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.app import App

FOLLOW_SECONDS = 1.0


EVENT_COLUMNS = (
    Column("TIME", lambda row: moment(row["at"])),
    Column("GEN", lambda row: str(row["generation"])),
    Column("WHAT", lambda row: row["what"]),
    Column("MESSAGE", lambda row: row["message"]),
)


@click.command()
@one_workload
@click.option("-f", "--follow", is_flag=True, help="Print new events until the workload ends.")
@output_option
@pass_app
def events(app: App, *, workload: str | None, name: str | None, follow: bool, output: str) -> None:
    """Print the timeline of a workload, oldest event first."""
    found = find(app.api, workload, name)
    items = app.api.get("workloads", found["id"], "events")["items"]
    rows(items, EVENT_COLUMNS, output, name="what")
    if not items:
        hint("nothing recorded yet")
    known = {identity(item) for item in items}
    while follow and found["phase"] not in ENDED:
        app.sleep(FOLLOW_SECONDS)
        found = app.api.workload(found["id"])
        items = app.api.get("workloads", found["id"], "events")["items"]
        for item in items:
            if identity(item) in known:
                continue
            known.add(identity(item))
            click.echo("  ".join(clean(column.cell(item)) for column in EVENT_COLUMNS))


def identity(item: Mapping[str, Any]) -> tuple[int, int, str]:
    """Identifies an event. Its position may change, since earlier events can arrive later."""
    return item["at"], item["generation"], item["what"]
