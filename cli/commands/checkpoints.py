"""`sluice checkpoints`: what a workload can be restored from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import moment
from cli.output import Column, hint, output_option, rows
from cli.selection import find, one_workload

if TYPE_CHECKING:
    from cli.app import App


COLUMNS = (
    Column("TIME", lambda row: moment(row["at"])),
    Column("GEN", lambda row: str(row["generation"])),
    Column("DRIVER", lambda row: row["driver"]),
    Column("MB", lambda row: f"{row['size'] / 1e6:.1f}"),
    Column("TOOK", lambda row: f"{row['took_ms'] / 1000:.1f} s"),
    Column("NODE", lambda row: row["node"]),
    Column("FROM", lambda row: row["from"]),
    Column("ADDRESS", lambda row: "removed" if row["removed"] else row["uri"]),
)


@click.command()
@one_workload
@output_option
@pass_app
def checkpoints(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """List the checkpoints of a workload, newest first, and what each of them continued."""
    found = find(app.client, workload, name)
    items = app.client.ask("workloads", found["id"], "checkpoints")["items"]
    rows(items, COLUMNS, output, name="uri")
    if not items:
        hint("none are known; what an application saves by itself is not listed")
