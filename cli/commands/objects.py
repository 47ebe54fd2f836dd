"""`sluice objects`: the configuration in force, as it was applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.usecases.steering.apply import KINDS, key_of

from cli.app import pass_app
from cli.output import Column, document, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

COLUMNS = (
    Column("KIND", lambda row: row["kind"]),
    Column("NAME", lambda row: key_of(row)[1]),
    Column("SPEC", lambda row: ", ".join(row.get("spec") or {})),
)


@click.command()
@click.argument("kind", type=click.Choice(KINDS, case_sensitive=False))
@click.argument("name", required=False, metavar="[NAME|NAMESPACE/NAME]")
@output_option
@pass_app
def objects(app: App, *, kind: str, name: str | None, output: str) -> None:
    """List applied objects of one kind; `-o yaml` prints documents to be applied again."""
    if name is None:
        items = app.api.get("catalog", kind)["items"]
    else:
        items = [app.api.get("catalog", kind, *name.split("/"))]
    if output == "name":
        for item in items:
            click.echo(key_of(item)[1])
    elif output in {"json", "yaml"} and name is not None:
        document(items[0], output)
    else:
        rows(items, COLUMNS, output)
