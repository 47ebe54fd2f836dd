"""The exceptions, as one small tree; each class has its exit code.

Every exception says what is wrong (message), where (errors), and what to do (hint).
"""

from collections.abc import Mapping, Sequence
from typing import IO, Any

import click
from sluice.core.values.mistakes import mistake

from cli.exit_codes import ExitCode


class CliError(click.ClickException):
    """Base of all exceptions."""

    exit_code = ExitCode.ERROR

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


class NotDeployedError(CliError):
    """The stacks do not publish this name: they are not deployed, or a setting omits the part."""


class UsageError(CliError):
    """The arguments make no valid request."""

    exit_code = ExitCode.USAGE


class ObjectNotFoundError(CliError):
    """No object has this id or name."""

    exit_code = ExitCode.NOT_FOUND
    ambiguous = False


class AmbiguousNameError(ObjectNotFoundError):
    """Several objects have this name or prefix."""

    ambiguous = True


class WorkloadNotFoundError(ObjectNotFoundError):
    """The workload does not exist."""

    exit_code = ExitCode.WORKLOAD_NOT_FOUND


class PermissionDeniedError(CliError):
    """No credentials, or they do not allow this."""

    exit_code = ExitCode.DENIED


class RequestRefusedError(CliError):
    """Validation or policy refuses the request; a retry is refused too."""

    exit_code = ExitCode.REFUSED


class IdempotencyKeyReusedError(CliError):
    """The idempotency key belongs to another document."""

    exit_code = ExitCode.KEY_REUSED


class ControlPlaneUnavailableError(CliError):
    """The control plane does not answer; retry."""

    exit_code = ExitCode.UNAVAILABLE


class CommandExit(click.exceptions.Exit):
    """Ends a command with an exit code, for example the outcome of a workload."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(int(code))
