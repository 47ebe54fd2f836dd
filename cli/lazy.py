"""A command group that imports a command only when it runs, so `sluice --help` is quick."""

from dataclasses import dataclass
from importlib import import_module
from typing import Any

import click


@dataclass(frozen=True)
class Verb:
    """Where a verb lives, and the line that `--help` shows for it."""

    name: str
    source: str
    summary: str
    section: str


class LazyGroup(click.Group):
    """A group whose verbs are rows of a table."""

    def __init__(self, *args: Any, verbs: tuple[Verb, ...] = (), **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.verbs = {verb.name: verb for verb in verbs}

    def list_commands(self, ctx: click.Context) -> list[str]:
        return [*self.verbs, *super().list_commands(ctx)]

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        verb = self.verbs.get(cmd_name)
        if verb is None:
            return super().get_command(ctx, cmd_name)
        module, attribute = verb.source.split(":")
        command: click.Command = getattr(import_module(module), attribute)
        return command

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the verbs by section, without importing any of them."""
        del ctx
        sections: dict[str, list[tuple[str, str]]] = {}
        for verb in self.verbs.values():
            sections.setdefault(verb.section, []).append((verb.name, verb.summary))
        for section, rows in sections.items():
            with formatter.section(section):
                formatter.write_dl(rows)
