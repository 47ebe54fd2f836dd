"""Shows exceptions of the client as a command does: text on stderr, or JSON for programs."""

from __future__ import annotations

import json
from typing import IO, TYPE_CHECKING, Any

import click
from sluice.core.values.mistakes import mistake

if TYPE_CHECKING:
    from collections.abc import Sequence

    from sluice.client.errors import SluiceClientError
    from sluice.client.exit_codes import ExitCode

OUTPUT_FLAGS = ("-o", "--output")


class CommandError(click.ClickException):
    """Ends a command with an exception of the client.

    With `-o json` the exception is a JSON object on stdout, `{"error": {…}}`; otherwise text on
    stderr.
    """

    def __init__(self, cause: SluiceClientError, *, form: str = "table") -> None:
        super().__init__(cause.message)
        self.cause, self.form = cause, form
        self.exit_code: int = int(cause.exit_code)  # type: ignore[misc]  # click has it per class

    def show(self, file: IO[Any] | None = None) -> None:
        del file  # data goes to stdout, everything else to stderr
        cause = self.cause
        if self.form == "json":
            click.echo(_as_json(error_fields(cause)))
            return
        click.echo(f"{click.style('error:', fg='red', bold=True)} {cause.message}", err=True)
        for error in cause.errors:
            click.echo(f"  {mistake(error)}", err=True)
        if cause.hint:
            click.echo(f"hint: {cause.hint}", err=True)


class UsageAsJson(click.ClickException):
    """A mistake in the command line, as a JSON object on stdout."""

    def __init__(self, cause: click.ClickException) -> None:
        super().__init__(cause.format_message())
        self.exit_code: int = cause.exit_code  # type: ignore[misc]  # click has it per class

    def show(self, file: IO[Any] | None = None) -> None:
        del file
        hint = "`sluice COMMAND --help` lists the options"
        fields = {"code": "Usage", "exitCode": self.exit_code, "message": self.message}
        click.echo(_as_json(fields | {"errors": [], "hint": hint}))


class CommandExit(click.exceptions.Exit):
    """Ends a command with an exit code, for example the outcome of a workload."""

    def __init__(self, code: ExitCode) -> None:
        super().__init__(int(code))


def error_fields(cause: SluiceClientError) -> dict[str, Any]:
    """`code`, `exitCode`, `message`, `errors` and `hint` of an exception of the client."""
    return {
        "code": type(cause).__name__.removesuffix("Error"),
        "exitCode": int(cause.exit_code),
        "message": cause.message,
        "errors": [dict(error) for error in cause.errors],
        "hint": cause.hint,
    }


def _as_json(fields: dict[str, Any]) -> str:
    return json.dumps({"error": fields}, indent=2, ensure_ascii=False)


def output_form(arguments: Sequence[str]) -> str:
    """The value of `-o` or `--output` in a command line; it is needed before click parses it."""
    form = "table"
    for number, argument in enumerate(arguments):
        if argument == "--":
            break
        if argument in OUTPUT_FLAGS and number + 1 < len(arguments):
            form = arguments[number + 1]
        elif argument.startswith("--output="):
            form = argument.removeprefix("--output=")
        elif argument.startswith("-o") and len(argument) > len("-o"):
            form = argument.removeprefix("-o").removeprefix("=")
    return form
