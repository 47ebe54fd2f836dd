"""`sluice queues`: quota, use and waiting work of every queue."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import amounts, span
from cli.output import Column, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

COLUMNS = (
    Column("QUEUE", lambda row: row["name"]),
    Column("COHORT", lambda row: row.get("cohort") or ""),
    Column("WEIGHT", lambda row: f"{row['weight']:g}"),
    Column("NOMINAL", lambda row: amounts(row["nominal"])),
    Column("USED", lambda row: amounts(row["used"])),
    Column("BORROWED", lambda row: amounts(row["borrowed"])),
    Column("LENT", lambda row: amounts(row["lent"])),
    Column("PENDING", lambda row: _count(row["pending"])),
    Column("RUNNING", lambda row: _count(row["running"])),
    Column("SHARE", lambda row: str(row["share"])),
    Column("OLDEST", lambda row: span(row.get("oldestSeconds"))),
    Column("P50-WAIT", lambda row: span(row.get("p50WaitSeconds"))),
    Column("STATUS", lambda row: row["status"]),
    Column("AVAILABLE", lambda row: amounts(row["available"]), wide=True),
    Column("LOCAL-QUEUES", lambda row: ",".join(row["localQueues"]), wide=True),
)


def _count(count: int | str | None) -> str:
    return "" if count is None else str(count)


@click.command()
@output_option
@pass_app
def queues(app: App, *, output: str) -> None:
    """Show queues: quota, what is used, borrowed and lent, and what waits."""
    items = app.api.get("queues")["items"]
    if not items and output in {"table", "wide"}:
        hint("no queues; `sluice apply -f FILE` makes them from Kueue's YAML")
        return
    rows(items, COLUMNS, output, name="name")
