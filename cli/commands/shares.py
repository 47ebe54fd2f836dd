"""`sluice shares`: what each queue borrows, and the decayed past usage of LocalQueues."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.core.scheduling.dominant_share import MAX_SHARE

from cli.app import pass_app
from cli.figures import amounts, span
from cli.output import Column, document, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

NODES = (
    Column("NAME", lambda row: "  " * row["depth"] + row["name"]),
    Column("KIND", lambda row: row["kind"]),
    Column("WEIGHT", lambda row: f"{row['weight']:g}"),
    Column("SHARE", lambda row: "∞" if row["share"] == MAX_SHARE else str(row["share"])),
    Column("DOMINANT", lambda row: row["resource"]),
    Column("BORROWED", lambda row: amounts(row["borrowed"])),
)
USERS = (
    Column("LOCAL-QUEUE", lambda row: row["name"]),
    Column("CLUSTER-QUEUE", lambda row: row["clusterQueue"]),
    Column("WEIGHT", lambda row: f"{row['weight']:g}"),
    Column("SCORE", lambda row: "∞" if row["score"] is None else f"{row['score']:.4g}"),
    Column("USED-LATELY", lambda row: amounts(row["consumed"])),
    Column("IN-USE", lambda row: amounts(row["inUse"])),
    Column("HALF-LIFE", lambda row: span(row["halfLifeSeconds"])),
    Column("PENALTIES", lambda row: str(row["pendingPenalties"]), wide=True),
)


@click.command()
@output_option
@pass_app
def shares(app: App, *, output: str) -> None:
    """Show fair shares as the next admission pass uses them.

    The share of a queue or cohort is what it borrows of its dominant resource, in thousandths of
    what its parent can lend, over its weight. The score of a LocalQueue is its faded past usage
    over its weight; the lowest goes first.
    """
    answer = app.api.get("shares")
    if output in {"json", "yaml"}:
        document(answer, output)
        return
    nodes, users = answer["items"], answer["localQueues"]
    if not nodes:
        hint("no queues; `sluice apply -f FILE` makes them from Kueue's YAML")
        return
    rows(nodes, NODES, output, name="name")
    if output == "name":
        return
    if not any(row["decides"] for row in nodes):
        hint("fair sharing is off: no SchedulingPolicy has fairSharing")
    if users:
        click.echo()
        rows(users, USERS, output)
    else:
        hint("past usage is not recorded: no SchedulingPolicy has admissionFairSharing")
