"""Asks the user before an action that cannot be undone."""

import sys

import click


def require_yes(what: str, *, yes: bool, warning: str = "") -> None:
    """Asks the user to confirm `what`. Without a terminal there is no prompt, so -y is required.

    `warning` names the consequences. Raises click.Abort when the user declines.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(" ".join(filter(None, (f"{what}: confirm with -y.", warning))))
    click.confirm("\n".join(filter(None, (warning, f"{what}?"))), abort=True, err=True)
