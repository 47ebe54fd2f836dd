"""A command group that imports a command only when it runs, so `sluice --help` is quick."""

from __future__ import annotations

from dataclasses import dataclass
from difflib import get_close_matches
from importlib import import_module
from typing import Any

import click
from sluice.client.errors import SluiceClientError

from cli.errors import CommandError, UsageAsJson, output_form

ARGUMENTS = "sluice.arguments"
SUGGESTIONS = 3
DISTRIBUTION = "sluice-batch"  # `sluice` on PyPI is another project


class NotInstalledError(SluiceClientError):
    """A command needs an extra of the distribution."""


@dataclass(frozen=True)
class CommandEntry:
    """Where a verb lives, and the line that `--help` shows for it."""

    name: str
    source: str
    summary: str
    section: str
    extra: str = ""
    """The extra of the distribution that it needs."""


class LazyGroup(click.Group):
    """A group whose verbs are rows of a table."""

    def __init__(self, *args: Any, verbs: tuple[CommandEntry, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = {verb.name: verb for verb in verbs}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.verbs, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = verb.source.split(":")
        try:
            command: click.Command = getattr(import_module(module), attribute)
        except ModuleNotFoundError as error:
            if not verb.extra:
                raise
            raise CommandError(
                NotInstalledError(
                    f"`sluice {verb.name}` needs packages that are not installed ({error.name})",
                    hint=f"pip install '{DISTRIBUTION}[{verb.extra}]'",
                )
            ) from error
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command; for an unknown one the error names those with similar names."""
        known = self.list_commands(ctx)
        if args and args[0] not in known and not ctx.resilient_parsing:
            near = get_close_matches(args[0], known, n=SUGGESTIONS, cutoff=0.5)
            advice = f"; did you mean {' or '.join(near)}?" if near else ""
            ctx.fail(f"there is no command {args[0]!r}{advice}")
        return super().resolve_command(ctx, args)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        ctx.meta[ARGUMENTS] = list(args)
        return super().parse_args(ctx, args)

    def invoke(self, ctx: click.Context) -> Any:
        """Runs the command. Exceptions of the client become errors of a command.

        With `-o json` every error is a JSON object on stdout.
        """
        form = output_form(ctx.meta.get(ARGUMENTS, ()))
        try:
            return super().invoke(ctx)
        except SluiceClientError as error:
            raise CommandError(error, form=form) from error
        except click.UsageError as error:
            if form != "json":
                raise
            raise UsageAsJson(error) from error

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs by section, without importing any of them."""
        del ctx
        sections: dict[str, list[tuple[str, str]]] = {}
        for verb in self.verbs.values():
            sections.setdefault(verb.section, []).append((verb.name, verb.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
