"""`sluice admin`: what only those need who run the platform."""

import click

from cli.commands.dlq import dlq
from cli.commands.drain import drain
from cli.commands.ledger import ledger


@click.group()
def admin() -> None:
    """Look after the platform: dead letters, ledgers, clusters. For administrators."""


admin.add_command(dlq)
admin.add_command(ledger)
admin.add_command(drain)
