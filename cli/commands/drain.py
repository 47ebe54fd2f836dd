"""`sluice cordon`, `uncordon` and `admin drain`: keep work from a cluster, or send it away."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click
from sluice.client.exit_codes import ExitCode

from cli import completing
from cli.app import pass_app
from cli.confirmation import require_yes
from cli.errors import CommandExit
from cli.output import Column, Json, Row, hint, output_option, rows
from cli.parameters import DURATION

if TYPE_CHECKING:
    from cli.app import App

PAUSE_SECONDS = 2.0

CORDONS = (
    Column("CLUSTER", lambda row: row["cluster"]),
    Column("RESULT", lambda row: row["result"]),
)


def _where(row: Row) -> str:
    return "in another cluster" if row["elsewhere"] else "waits: no other cluster has its flavor"


WORK = (
    Column("ID", lambda row: row["id"]),
    Column("NAME", lambda row: row["name"]),
    Column("QUEUE", lambda row: row["queue"]),
    Column("STATUS", lambda row: row["phase"]),
    Column("GOES-ON", _where),
)


def _of_one_cluster(command: Callable[..., Any]) -> Callable[..., Any]:
    for option in (
        output_option,
        click.option("--reason", default="", help="Why; kept with the Cluster object."),
        click.option("--dry-run", is_flag=True, help="Only say what would happen."),
        click.argument("cluster", shell_complete=completing.clusters),
    ):
        command = option(command)
    return pass_app(command)


@click.command()
@_of_one_cluster
def cordon(app: App, **options: Any) -> None:
    """Admit no new work to CLUSTER; running workloads stay. Undo with `sluice uncordon`."""
    _set(app, "cordon", **options)


@click.command()
@_of_one_cluster
def uncordon(app: App, **options: Any) -> None:
    """Admit new work to CLUSTER again."""
    _set(app, "uncordon", **options)


def _set(app: App, verb: str, *, cluster: str, dry_run: bool, reason: str, output: str) -> None:
    body = {"reason": reason, "dryRun": dry_run}
    done = app.api.post("clusters", cluster, verb, body=body)
    result = f"{'would be ' if dry_run else ''}{verb}ed"
    if not done["changed"]:
        result = "is cordoned already" if done["cordoned"] else "was not cordoned"
    rows([done | {"result": result}], CORDONS, output, name="cluster")


@click.command()
@click.argument("cluster", shell_complete=completing.clusters)
@click.option(
    "--dry-run", is_flag=True, help="Show which workloads would leave, and where they could go."
)
@click.option("--reason", default="", help="Why; shown in the timeline of each workload.")
@click.option("--timeout", type=DURATION, help="Give up waiting after this time (code 101).")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
@pass_app
def drain(
    app: App,
    *,
    cluster: str,
    dry_run: bool,
    reason: str,
    timeout: float | None,
    yes: bool,
    output: str,
) -> None:
    """Cordon CLUSTER and requeue its workloads; ends when it is empty.

    Workloads are stopped with their grace, give their quota back, and queue again, to go on in
    another cluster from their last checkpoint. `sluice uncordon` undoes the cordon; what has left
    does not come back for it.
    """
    plan = app.api.post("clusters", cluster, "drain", body={"reason": reason, "dryRun": True})
    if dry_run:
        if plan["items"] or output not in {"table", "wide"}:
            rows(plan["items"], WORK, output)
        hint(f"{cluster} would be cordoned; {_counts(plan)}")
        return
    require_yes(f"cordon {cluster} and send away {plan['left']} workload(s)", yes=yes)
    try:
        left, requeued = _until_empty(app, cluster, reason, timeout)
    except KeyboardInterrupt:
        hint(f"\ninterrupted; {cluster} stays cordoned, and workloads already requeued leave")
        hint(f"go on with `sluice admin drain {cluster}`, undo with `sluice uncordon {cluster}`")
        raise CommandExit(ExitCode.INTERRUPTED) from None
    result = f"{left} workload(s) left" if left else "drained"
    row = {"cluster": cluster, "requeued": requeued, "left": left, "result": result}
    rows([row], CORDONS, output, name="cluster")
    if left:
        hint(f"`sluice admin drain {cluster} --dry-run` lists them; run it again to go on")
        raise CommandExit(ExitCode.NOT_FINISHED)


def _counts(plan: Json) -> str:
    text = f"{plan['requeued']} workload(s) would leave"
    if plan["nowhere"]:
        text += f", {plan['nowhere']} of them would wait, since no other cluster has their flavor"
    if plan["stopping"]:
        text += f"; {plan['stopping']} are being stopped already"
    return text


def _until_empty(app: App, cluster: str, reason: str, timeout: float | None) -> tuple[int, int]:
    """Requeues until the cluster is empty; returns how many are left and how many were requeued."""
    started, left, requeued = app.now(), -1, 0
    while True:
        body = {"reason": reason, "dryRun": False}
        done = app.api.post("clusters", cluster, "drain", body=body)
        requeued += done["requeued"]
        if done["left"] != left:
            left = done["left"]
            hint(f"{left} workload(s) left on {cluster}" if left else f"{cluster} is empty")
        if not left or (timeout is not None and app.now() - started >= timeout):
            return left, requeued
        app.sleep(PAUSE_SECONDS)
