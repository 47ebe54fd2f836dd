"""`sluice check`: answer an admission check."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.output import Column, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

ANSWERS = {"ready": "Ready", "retry": "Retry", "rejected": "Rejected"}
COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("CHECK", lambda row: row["check"]),
    Column("STATE", lambda row: row["state"]),
)


@click.command()
@click.argument("workload")
@click.argument("check")
@click.argument("answer", type=click.Choice(sorted(ANSWERS)))
@click.option("--reason", default="", help="Why; shown in the timeline.")
@click.option("--token", default="", help="The token of the event that asked.")
@output_option
@pass_app
def check(
    app: App, *, workload: str, check: str, answer: str, reason: str, token: str, output: str
) -> None:
    """Answer an admission CHECK of the workload with this id: it may start, wait, or stop."""
    body = {"state": ANSWERS[answer], "message": reason, "token": token}
    answered = app.api.post("workloads", workload, "checks", check, body=body)
    rows([answered], COLUMNS, output)
