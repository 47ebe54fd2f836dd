"""`sluice checkpoint`, `migrate`, `restore`: one request about one running workload."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from cli.app import pass_app
from cli.commands.steer import COLUMNS
from cli.output import output_option, rows
from cli.selection import find, one_workload

if TYPE_CHECKING:
    from cli.app import App


@click.command()
@one_workload
@output_option
@pass_app
def checkpoint(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Checkpoint a running workload; it keeps running."""
    _request(app, "checkpoint", workload, name, output)


@click.command()
@one_workload
@output_option
@pass_app
def migrate(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Checkpoint a running workload and restart it on another node; it keeps its quota.

    A workload that cannot be checkpointed gets its grace period. It restarts from its last
    checkpoint, or from the beginning.
    """
    _request(app, "migrate", workload, name, output)


@click.command()
@one_workload
@click.option("--from", "source", default="", help="Address of the checkpoint; default: newest.")
@click.option("--dry-run", is_flag=True, help="Show which checkpoint would be used.")
@output_option
@pass_app
def restore(
    app: App, *, workload: str | None, name: str | None, source: str, dry_run: bool, output: str
) -> None:
    """Restart a running workload from one of its checkpoints."""
    _request(app, "restore", workload, name, output, checkpoint=source, dryRun=dry_run)


def _request(
    app: App, verb: str, workload: str | None, name: str | None, output: str, **body: Any
) -> None:
    found = find(app.api, workload, name)
    rows([app.api.post("workloads", found["id"], verb, body=body)], COLUMNS, output)
