"""`sluice capacity`: the machines, by cluster, NodePool and capacity type."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import dollars
from cli.output import Column, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

COLUMNS = (
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("NODEPOOL", lambda row: row["nodepool"]),
    Column("CAPACITY", lambda row: row["capacity"]),
    Column("TYPES", lambda row: ",".join(row["types"])),
    Column("NODES", lambda row: str(row["nodes"])),
    Column("READY", lambda row: str(row["ready"])),
    Column("PROVISIONING", lambda row: str(row["provisioning"])),
    Column("INTERRUPTED/24h", lambda row: str(row["interrupted24h"])),
    Column("REQ/ALLOC", lambda row: row["requestedOfAllocatable"]),
    Column("$/H", lambda row: dollars(row.get("costPerHourUsd"))),
    Column("ZONES", lambda row: ",".join(row["zones"]), wide=True),
)


@click.command()
@output_option
@pass_app
def capacity(app: App, *, output: str) -> None:
    """Show nodes by cluster and pool, with their use and price."""
    items = app.client.ask("capacity")["items"]
    if not items and output in {"table", "wide"}:
        hint("no nodes: Karpenter buys them when a workload is admitted")
        return
    rows(items, COLUMNS, output, name="nodepool")
