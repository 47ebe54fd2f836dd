"""`sluice checkpoints`: what a workload can be restored from."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import moment
from cli.output import Column, Row, hint, output_option, rows
from cli.selection import find, one_workload

if TYPE_CHECKING:
    from cli.app import App


def _address(row: Row) -> str:
    """The URI, and how often and why restores from it failed."""
    if row["removed"]:
        return "removed"
    times = len(row.get("failed", ()))
    return f"{row['uri']} (failed {times}×: {row['failure']})" if times else str(row["uri"])


COLUMNS = (
    Column("TIME", lambda row: moment(row["at"])),
    Column("GEN", lambda row: str(row["generation"])),
    Column("DRIVER", lambda row: row["driver"]),
    Column("MB", lambda row: f"{row['size'] / 1e6:.1f}"),
    Column("TOOK", lambda row: f"{row['took_ms'] / 1000:.1f} s"),
    Column("NODE", lambda row: row["node"] or _several(row)),
    Column("CPU", lambda row: row.get("cpu", ""), wide=True),
    Column("FROM", lambda row: row["from"]),
    Column("ADDRESS", _address),
)


PARTS = (
    Column("PART", lambda part: part["name"]),
    Column("MB", lambda part: f"{part['size'] / 1e6:.1f}"),
    Column("NODE", lambda part: part["node"]),
    Column("ADDRESS", lambda part: part["uri"]),
)


@click.command()
@one_workload
@output_option
@pass_app
def checkpoints(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """List the checkpoints of a workload, newest first.

    The checkpoint of a gang is a set with one part for each member; the parts of the newest set
    follow.
    """
    found = find(app.api, workload, name)
    items = app.api.get("workloads", found["id"], "checkpoints")["items"]
    rows(items, COLUMNS, output, name="uri")
    newest: list[Row] = next((row["parts"] for row in items if row.get("parts")), [])
    if newest and output in {"table", "wide"}:
        click.echo()
        rows(newest, PARTS, output, name="name")
    if not items:
        hint("no checkpoints; what an application saves by itself is not listed")


def _several(row: Row) -> str:
    parts = row.get("parts", ())
    nodes = len({part["node"] for part in parts})
    return f"{nodes} node{'s' * (nodes > 1)}" if parts else ""
