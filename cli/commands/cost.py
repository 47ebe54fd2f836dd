"""`sluice cost`: dollars and resource-time of a window, and what they were for."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable
from functools import reduce
from typing import TYPE_CHECKING, Any

import click

from cli import completing
from cli.app import pass_app
from cli.figures import cost as price
from cli.figures import hours, moment
from cli.output import FORMS, Column, Json, Row, document, hint, rows
from cli.parameters import POINT_IN_TIME, epoch_ms

if TYPE_CHECKING:
    from datetime import datetime

    from cli.app import App

PARTS = ("useful", "redone", "starting", "failed")
RESOURCES = ("cpuSeconds", "memoryGibSeconds", "gpuSeconds")
ALL = "total"


def _usd(part: str) -> Callable[[Row], str]:
    return lambda row: price(row["parts"][part]["usd"])


def _resource(name: str) -> Callable[[Row], str]:
    return lambda row: hours(row[ALL][name])


def _columns(by: str) -> list[Column]:
    return [
        Column(by.upper(), lambda row: row["key"] or "-"),
        Column("RUNS", lambda row: str(row["runs"])),
        Column("CPU-H", _resource("cpuSeconds")),
        Column("MEM-GIB-H", _resource("memoryGibSeconds")),
        Column("GPU-H", _resource("gpuSeconds")),
        *(Column(part.upper(), _usd(part)) for part in PARTS),
        Column("TOTAL", lambda row: price(row[ALL]["usd"])),
        Column("SPOT-SAVED", lambda row: price(row["spotSavedUsd"])),
        Column("UNPRICED-CPU-H", lambda row: hours(row["unpriced"]["cpuSeconds"])),
        Column("WORKLOADS", lambda row: str(row["workloads"]), wide=True),
        *(Column(f"{part.upper()}-CPU-H", _part_hours(part), wide=True) for part in PARTS),
    ]


def _part_hours(part: str) -> Callable[[Row], str]:
    return lambda row: hours(row["parts"][part]["cpuSeconds"])


@click.command()
@click.option(
    "--by",
    default="queue",
    show_default=True,
    metavar="queue|user|namespace|label:KEY|workload|flavor",
    help="What to sum up by.",
)
@click.option(
    "-q",
    "--queue",
    default="",
    help="Only this LocalQueue (NAMESPACE/NAME or NAME).",
    shell_complete=completing.queues,
)
@click.option(
    "--since",
    type=POINT_IN_TIME,
    default="24h",
    show_default=True,
    help="Begin of the window: 24h (ago), 2026-11-01.",
)
@click.option("--until", type=POINT_IN_TIME, help="End of the window; by default now.")
@click.option(
    "-o",
    "--output",
    type=click.Choice([*FORMS, "csv"]),
    default="table",
    show_default=True,
    help="Form of the output; csv is in seconds and dollars.",
)
@pass_app
def cost(
    app: App,
    *,
    by: str,
    queue: str,
    since: float | datetime,
    until: float | datetime | None,
    output: str,
) -> None:
    """Show what the work in a time window cost, and how much of it was useful.

    The parts add up to the total: work that was useful, work that was done again after an
    interruption or a preemption, time in which a machine was there and the job did not run yet,
    and work of workloads that failed or were cancelled. What has no price is shown apart, never
    guessed.
    """
    now = app.now()
    window = {"since": str(epoch_ms(since, now))}
    window["until"] = str(epoch_ms(until, now) if until is not None else int(now * 1_000))
    items = _asked(app, by=by, queue=queue, **window)
    if output in {"json", "yaml"}:
        known = {name: int(at) for name, at in window.items()}
        document(known | {"by": by, "items": items, "sum": _whole(items)}, output)
    elif output == "csv":
        click.echo(_csv(by, items), nl=False)
    elif output == "name" or not items:
        rows(items, (), output, name="key") if items else hint("nothing ran in this window")
    else:
        shown = [*items, _whole(items)] if len(items) > 1 else items
        hint(f"{moment(int(window['since']))} to {moment(int(window['until']))} UTC")
        rows(shown, _columns(by), output)
        for line in _caveats(_whole(items)):
            hint(line)


def _asked(app: App, **question: str) -> list[Json]:
    """The groups of all pages."""
    groups: dict[str, Json] = {}
    cursor = ""
    while True:
        asked = {name: value for name, value in (question | {"cursor": cursor}).items() if value}
        answer = app.api.get("costs", **asked)
        for item in answer["items"]:
            known = groups.get(item["key"])
            groups[item["key"]] = item if known is None else _added(known, item)
        cursor = answer.get("cursor", "")
        if not cursor:
            return [groups[key] for key in sorted(groups)]


def _whole(items: Iterable[Json]) -> Json:
    total: Json = reduce(_added, items, {})
    return total | {"key": ALL} if total else total


def _added(one: Any, other: Any) -> Any:
    """Adds figures at any depth; strings stay."""
    if isinstance(other, dict):
        return {key: _added(one[key], each) if key in one else each for key, each in other.items()}
    return other if isinstance(other, str) else one + other


def _caveats(total: Json) -> Iterable[str]:
    """What the figures leave out."""
    if seconds := total["unpriced"]["cpuSeconds"]:
        yield f"{hours(seconds)} CPU hours have no price and are in no amount of dollars"
    if seconds := total["spotSavingUnknown"]["cpuSeconds"]:
        yield f"for {hours(seconds)} CPU hours on spot machines the on-demand price is unknown"
    if runs := total["lossesUntold"]:
        yield f"{runs} interrupted runs count as useful: what their applications lost is unknown"


def _csv(by: str, items: Iterable[Json]) -> str:
    """One line for each group; parts in seconds and dollars."""
    buffer = io.StringIO()
    writer = csv.writer(buffer, lineterminator="\n")
    amounts = (*(f"parts.{part}" for part in PARTS), ALL, "unpriced")
    figures = ("seconds", *RESOURCES, "usd")
    heads = [f"{name.removeprefix('parts.')}.{each}" for name in amounts for each in figures]
    writer.writerow([by, "workloads", "runs", *heads, "spotSavedUsd", "lossesUntold"])
    for item in items:
        parts = {f"parts.{name}": part for name, part in item["parts"].items()} | item
        cells = [parts[name][each] for name in amounts for each in figures]
        savings = [item["spotSavedUsd"], item["lossesUntold"]]
        writer.writerow([item["key"], item["workloads"], item["runs"], *cells, *savings])
    return buffer.getvalue()
