"""Prints data on stdout in the form that was asked for, and hints on stderr.

The forms: `table` and `wide` for people, `json` and `yaml` for programs, `name` for pipes.
"""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import click

Json = dict[str, Any]
Row = Mapping[str, Any]

FORMS = ("table", "wide", "json", "yaml", "name")
STATUS_COLOURS = {
    "SUCCEEDED": "green",
    "RUNNING": "green",
    "FAILED": "red",
    "REJECTED": "red",
    "CANCELLED": "bright_black",
    "PENDING": "yellow",
    "RECOVERING": "magenta",
    "ok": "green",
    "warn": "yellow",
    "fail": "red",
}


@dataclass(frozen=True)
class Column:
    """One column: its heading, the cell of a row, and whether only `-o wide` shows it."""

    heading: str
    cell: Callable[[Row], str]
    wide: bool = False


output_option = click.option(
    "-o",
    "--output",
    type=click.Choice(FORMS),
    default="table",
    show_default=True,
    help="Form of the output.",
)


def hint(text: str) -> None:
    """Writes a hint to stderr; stdout holds data only."""
    click.echo(text, err=True)


def paint(word: str) -> str:
    """Colours a status. click removes the colour when stdout is not a terminal."""
    colour = STATUS_COLOURS.get(word)
    return click.style(word, fg=colour) if colour else word


def rows(items: Sequence[Row], columns: Sequence[Column], form: str, *, name: str = "id") -> None:
    """Prints a list; as JSON or YAML it is `{"items": [...]}`, as `name` the field `name`."""
    if form in {"json", "yaml"}:
        document({"items": list(items)}, form)
    elif form == "name":
        for item in items:
            click.echo(clean(str(item[name])))
    else:
        shown = [column for column in columns if form == "wide" or not column.wide]
        click.echo(table([c.heading for c in shown], [[c.cell(i) for c in shown] for i in items]))


def document(value: Any, form: str) -> None:
    """Prints one object as YAML or JSON."""
    if form == "json":
        click.echo(json_text(value))
    else:
        import yaml  # noqa: PLC0415 - a verb pays only for what it uses

        click.echo(yaml.safe_dump(value, sort_keys=False, allow_unicode=True), nl=False)


def table(headings: Sequence[str], cells: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns, two spaces apart, nothing cut off, control characters escaped."""
    plain = [[clean(cell) for cell in row] for row in cells]
    widths = [max(map(len, column)) for column in zip(headings, *plain, strict=True)]
    lines = ["  ".join(h.ljust(w) for h, w in zip(headings, widths, strict=True)).rstrip()]
    for row in plain:
        padded = [cell.ljust(width) for cell, width in zip(row, widths, strict=True)]
        coloured = [p.replace(c, paint(c), 1) for p, c in zip(padded, row, strict=True)]
        lines.append("  ".join(coloured).rstrip())
    return "\n".join(lines)


def json_text(value: Any) -> str:
    """JSON for people and programs; characters that could control a terminal are escaped."""
    text = json.dumps(value, indent=2, ensure_ascii=False)
    return "".join(c if c.isprintable() or c == "\n" else json.dumps(c)[1:-1] for c in text)


def clean(cell: str) -> str:
    """Escapes control characters, so that another tenant's text cannot control this terminal."""
    return "".join(c if c.isprintable() else repr(c)[1:-1] for c in cell)
