"""`sluice declare-lost`: a cluster is gone for good, and its work goes on elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from cli import completing
from cli.app import pass_app
from cli.confirmation import require_yes

if TYPE_CHECKING:
    from cli.app import App

MEANING = (
    "Nothing can prove that its pods have ended: you do, by saying so. Whatever still runs there "
    "runs twice."
)


@click.command("declare-lost")
@click.argument("cluster", shell_complete=completing.clusters)
@click.option("--reason", required=True, help="What became of it; stands in every timeline.")
@click.option("--dry-run", is_flag=True, help="Only say how much work would leave it.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def declare_lost(app: App, *, cluster: str, reason: str, dry_run: bool, yes: bool) -> None:
    """Declare CLUSTER lost for good: its machines have ended, and nothing runs there any more.

    For administrators, and refused while the cluster answers. Quota of its work is given back,
    and the work queued again, to go on from its last checkpoint in another cluster.
    """
    body = {"reason": reason, "dryRun": True}
    found = app.api.post("clusters", cluster, "lost", body=body)
    if dry_run:
        click.echo(f"{found['left']} workload(s) would leave {cluster}")
        return
    require_yes(
        f"declare {cluster} lost, which {found['left']} workload(s) then leave",
        yes=yes,
        warning=MEANING,
    )
    declared, left = 0, True
    while left:
        answer = app.api.post("clusters", cluster, "lost", body=body | {"dryRun": False})
        declared, left = declared + answer["declared"], bool(answer["left"] and answer["declared"])
    click.echo(f"{cluster} is declared lost; {declared} workload(s) leave it")
