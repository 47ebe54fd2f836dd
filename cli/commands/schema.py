"""`sluice schema`: the published JSON Schemas."""

from __future__ import annotations

from importlib.resources import files

import click
from sluice.client.errors import ObjectNotFoundError

SUFFIX = ".schema.json"


@click.command()
@click.argument("name", required=False)
def schema(name: str | None) -> None:
    """Print a JSON Schema (without NAME: which there are), e.g. for an editor."""
    folder = files("sluice.schemas")
    known = sorted(
        each.name.removesuffix(SUFFIX) for each in folder.iterdir() if each.name.endswith(SUFFIX)
    )
    if name is None:
        click.echo("\n".join(known))
    elif name in known:
        click.echo(folder.joinpath(name + SUFFIX).read_text(encoding="utf-8"), nl=False)
    else:
        raise ObjectNotFoundError(f"no schema {name!r}", hint=f"there are: {', '.join(known)}")
