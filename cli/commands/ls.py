"""`sluice ls`: lists workloads."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING

import click
from sluice.client.exit_codes import ExitCode
from sluice.client.selection import MANY

from cli import completing
from cli.app import pass_app
from cli.columns import heading, workload_columns
from cli.errors import CommandExit
from cli.output import Json, hint, output_option, rows
from cli.parameters import DURATION
from cli.watching import live_view

if TYPE_CHECKING:
    from cli.app import App

WATCH_SECONDS = 2.0


@click.command()
@click.option(
    "-q",
    "--queue",
    default="",
    help="Only of this LocalQueue (NAMESPACE/NAME).",
    shell_complete=completing.queues,
)
@click.option("-N", "--namespace", default="", help="Only of this namespace.")
@click.option("-u", "--user", default="", help="Only submitted by this user or role.")
@click.option("-s", "--state", default="", help="Only this phase or state, e.g. PENDING.")
@click.option("-l", "--selector", default="", help="Only with these labels (a=b,c=d).")
@click.option("-n", "--name", default="", help="Only with this name.")
@click.option("--since", type=DURATION, help="Only submitted in this time, e.g. 2h.")
@click.option("--all", "everything", is_flag=True, help="Include all ages.")
@click.option("--limit", default=500, show_default=True, type=click.IntRange(min=1))
@click.option("-w", "--watch", is_flag=True, help="Keep the list on the screen and refresh it.")
@output_option
@pass_app
def ls(
    app: App,
    *,
    since: float | None,
    everything: bool,
    namespace: str,
    limit: int,
    watch: bool,
    output: str,
    **filters: str,
) -> None:
    """List workloads: without filters the unfinished ones and those of the last 24 hours."""

    def listed() -> list[Json]:
        start = {} if since is None else {"since": str(int((app.now() - since) * 1_000))}
        if everything:
            start = {"since": "0"}
        if not namespace:
            return list(app.api.workloads(limit=limit, **filters, **start))
        found = app.api.workloads(limit=MANY, **filters, **start)
        return list(islice((item for item in found if item["namespace"] == namespace), limit))

    if watch:
        try:
            with live_view(app) as view:
                while True:
                    view(listed())
                    app.sleep(WATCH_SECONDS)
        except KeyboardInterrupt:
            raise CommandExit(ExitCode.INTERRUPTED) from None
    items = listed()
    if output in {"table", "wide"}:
        narrowed = since is not None or bool(namespace) or any(filters.values())
        nothing = (
            "no workload matches; `sluice ls` without filters shows the others"
            if narrowed
            else "no workloads; `sluice submit -f FILE` sends one"
        )
        hint(heading(items) if items else nothing)
    if items or output not in {"table", "wide"}:
        rows(items, workload_columns(int(app.now() * 1_000)), output)
    if len(items) == limit:
        hint(f"only the newest {limit} are shown; raise --limit, or filter")
