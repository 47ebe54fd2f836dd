"""What may go wrong in a command, as one small tree; each class knows its exit code.

Every error says what is wrong, where (errors), and what to do (hint).
"""

from collections.abc import Mapping, Sequence
from typing import IO, Any

import click
from sluice.core.values.mistakes import mistake

from cli.exit_codes import Exit


class CommandError(click.ClickException):
    """Ends a command; shown on stderr with its errors and its hint."""

    exit_code = Exit.ERROR

    def __init__(
        self, message: str, *, hint: str = "", errors: Sequence[Mapping[str, Any]] = ()
    ) -> None:
        super().__init__(message)
        self.hint = hint
        self.errors = tuple(errors)

    def show(self, file: IO[Any] | None = None) -> None:
        del file  # data goes to stdout, everything else to stderr
        click.echo(f"{click.style('error:', fg='red', bold=True)} {self.message}", err=True)
        for error in self.errors:
            click.echo(f"  {mistake(error)}", err=True)
        if self.hint:
            click.echo(f"hint: {self.hint}", err=True)


class NotDeployedError(CommandError):
    """The stacks publish no such name: there are none, or a setting leaves that part out."""


class UsageError(CommandError):
    """The command was given nothing that it could do what was asked for with."""

    exit_code = Exit.USAGE


class NotFoundError(CommandError):
    """No object has this id or name, or several have (`ambiguous`)."""

    exit_code = Exit.NOT_FOUND
    ambiguous = False


class AmbiguousError(NotFoundError):
    """Several objects have this name or prefix."""

    ambiguous = True


class WorkloadNotFoundError(NotFoundError):
    """The workload whose outcome was asked for does not exist."""

    exit_code = Exit.WORKLOAD_NOT_FOUND


class DeniedError(CommandError):
    """No credentials, or they do not allow this."""

    exit_code = Exit.DENIED


class RefusedError(CommandError):
    """Validation or policy says no; the same request will be refused again."""

    exit_code = Exit.REFUSED


class KeyReusedError(CommandError):
    """The idempotency key stands for another body already."""

    exit_code = Exit.KEY_REUSED


class UnavailableError(CommandError):
    """The control plane does not answer; worth a retry."""

    exit_code = Exit.UNAVAILABLE


class Outcome(click.exceptions.Exit):
    """Ends a command with a workload's outcome as its exit code."""

    def __init__(self, code: Exit) -> None:
        super().__init__(int(code))
