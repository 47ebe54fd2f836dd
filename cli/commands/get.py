"""`sluice get`: the document as it was submitted, with the server's status."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.client.errors import ObjectNotFoundError

from cli.app import pass_app
from cli.columns import workload_columns
from cli.output import Json, document, output_option, rows
from cli.selection import find, one_workload

if TYPE_CHECKING:
    from cli.app import App


@click.command()
@one_workload
@output_option
@pass_app
def get(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Show a workload; `-o yaml` prints its document with the server-owned status."""
    found = find(app.api, workload, name)
    if output in {"json", "yaml"}:
        document(with_status(app, found), output)
    else:
        rows([found], workload_columns(int(app.now() * 1_000)), output)


def with_status(app: App, workload: Json) -> Json:
    """The submitted document with `status`. A rejected document may not be stored."""
    try:
        submitted: Json = dict(app.api.get("workloads", workload["id"], "manifest"))
    except ObjectNotFoundError:
        submitted = {"metadata": {"name": workload["name"], "namespace": workload["namespace"]}}
    return submitted | {"status": workload}
