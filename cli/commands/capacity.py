"""`sluice capacity`: machines by cluster and NodePool, limits, and the quarantine."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import cores, dollars, span
from cli.output import Column, document, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App
    from cli.output import Row


def bought(row: Row) -> str:
    """Whether machines can be bought, or the reason and how long it applies."""
    closed = row.get("closed")
    return f"{closed['code']} for {left(closed['until'])}" if closed else "yes"


def left(until_ms: int) -> str:
    return span(until_ms / 1000 - time.time())


def _of(row: Row, able: str) -> str:
    """`2 of 3` ready machines."""
    return f"{row[able]} of {row['ready']}" if able in row else ""


COLUMNS = (
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("NODEPOOL", lambda row: row["nodepool"]),
    Column("CAPACITY", lambda row: row["capacity"]),
    Column("TYPES", lambda row: ",".join(row["types"])),
    Column("NODES", lambda row: str(row["nodes"])),
    Column("READY", lambda row: str(row["ready"])),
    Column("PROVISIONING", lambda row: str(row["provisioning"])),
    Column("INTERRUPTED/24h", lambda row: str(row["interrupted24h"])),
    Column("REQ/ALLOC", lambda row: "/".join(map(cores, row["requestedOfAllocatable"].split("/")))),
    Column("LIMIT", lambda row: cores(row.get("limitCpu", ""))),
    Column("$/H", lambda row: dollars(row.get("costPerHourUsd"))),
    Column("BUYS", bought),
    Column("ZONES", lambda row: ",".join(row["zones"]), wide=True),
    Column("LARGEST", lambda row: "; ".join(row.get("largest", ())), wide=True),
    Column("FLAVORS", lambda row: ",".join(row.get("flavors", ())), wide=True),
    Column("SAVE-PROCESSES", lambda row: _of(row, "saveProcesses"), wide=True),
    Column("CLOSE-CONNECTIONS", lambda row: _of(row, "closeConnections"), wide=True),
    Column("DEMAND", lambda row: cores(row.get("demandCpu", "")), wide=True),
    Column("SET-BY-OTHERS", lambda row: ",".join(row.get("setByOthers", ())), wide=True),
)
QUARANTINE = (
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("NODEPOOL", lambda row: row["nodepool"]),
    Column("TYPE", lambda row: row["type"]),
    Column("ZONE", lambda row: row["zone"]),
    Column("CAPACITY", lambda row: row["capacity"]),
    Column("CAUSE", lambda row: row["cause"]),
    Column("STRIKES", lambda row: str(row["strikes"])),
    Column("BARRED-FOR", lambda row: left(row["until"])),
    Column("SAID", lambda row: row["message"], wide=True),
)


@click.command()
@output_option
@pass_app
def capacity(app: App, *, output: str) -> None:
    """Show machines by cluster and NodePool, limits, and offerings in quarantine."""
    answer = app.api.get("capacity")
    items, barred = answer["items"], answer["quarantine"]
    if output in {"json", "yaml"}:
        document({"items": items, "quarantine": barred}, output)
        return
    if not items and output != "name":
        hint("no nodes: Karpenter buys them when a workload is admitted")
    else:
        rows(items, COLUMNS, output, name="nodepool")
    if barred and output != "name":
        click.echo("\nIn quarantine, since machines were lost or could not be bought:")
        rows(barred, QUARANTINE, output)
