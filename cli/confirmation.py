"""Asks before something is done that cannot be undone."""

import sys

import click


def require_yes(what: str, *, yes: bool, warning: str = "") -> None:
    """Asks whether `what` is meant; without a terminal nobody can answer, so -y is needed.

    `warning` says what follows from it. Raises click.Abort after a no.
    """
    if yes:
        return
    if not sys.stdin.isatty():
        raise click.UsageError(" ".join(filter(None, (f"{what}: say -y to mean it.", warning))))
    click.confirm("\n".join(filter(None, (warning, f"{what}?"))), abort=True, err=True)
