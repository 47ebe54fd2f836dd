"""`sluice checkpoint`, `migrate`, `restore`: one wish about one running workload."""

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
    """Save a running workload; it runs on."""
    _wish(app, "checkpoint", workload, name, output)


@click.command()
@one_workload
@output_option
@pass_app
def migrate(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Save a running workload and start it again from there; it keeps its quota.

    One that cannot be saved, or keeps no checkpoints, gets its grace and starts from its last
    checkpoint, or from the beginning.
    """
    _wish(app, "migrate", workload, name, output)


@click.command()
@one_workload
@click.option("--from", "source", default="", help="Address of the checkpoint; default: newest.")
@click.option("--dry-run", is_flag=True, help="Say which checkpoint it would be.")
@output_option
@pass_app
def restore(
    app: App, *, workload: str | None, name: str | None, source: str, dry_run: bool, output: str
) -> None:
    """Start a running workload again from one of its checkpoints."""
    _wish(app, "restore", workload, name, output, checkpoint=source, dryRun=dry_run)


def _wish(
    app: App, verb: str, workload: str | None, name: str | None, output: str, **body: Any
) -> None:
    found = find(app.client, workload, name)
    rows([app.client.tell("workloads", found["id"], verb, body=body)], COLUMNS, output)
