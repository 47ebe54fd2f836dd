"""`sluice completion`: the shell code that completes verbs and flags."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

VARIABLE = "_SLUICE_COMPLETE"


@click.command()
@click.argument("shell", type=click.Choice(["bash", "zsh", "fish"]))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print shell completion, e.g. `source <(sluice completion bash)`."""
    kind = get_completion_class(shell)
    root = ctx.find_root()
    if kind is None:
        raise click.BadParameter(f"{shell} is not supported")
    click.echo(kind(root.command, {}, "sluice", VARIABLE).source())
