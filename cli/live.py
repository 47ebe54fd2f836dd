"""The live table of `wait` and `ls --watch`, on a terminal."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING

from rich.console import Console
from rich.live import Live
from rich.table import Table
from rich.text import Text

from cli.columns import heading, workload_columns
from cli.output import STATUS_COLOURS

if TYPE_CHECKING:
    from sluice.client.watching import WorkloadDisplay

    from cli.app import App
    from cli.output import Json

NARROW = {"ID", "NAME", "STATUS", "REASON", "WAIT", "RUNTIME"}
WIDE = NARROW | {"QUEUE", "POS", "REQUEST", "RECOV"}
WIDE_COLUMNS = 120
UNCUT = {"ID": 13, "STATUS": 10}


def progress_table(workloads: Sequence[Json], now_ms: int, *, lines: int, width: int) -> Table:
    """The table. Its last line counts the workloads that do not fit the terminal."""
    headings = WIDE if width >= WIDE_COLUMNS else NARROW
    columns = [column for column in workload_columns(now_ms) if column.heading in headings]
    table = Table(box=None, pad_edge=False, title=heading(workloads), title_justify="left")
    for column in columns:
        table.add_column(column.heading, no_wrap=True, min_width=UNCUT.get(column.heading))
    for workload in workloads[:lines]:
        table.add_row(
            *(
                Text(cell, style=STATUS_COLOURS.get(cell, ""))
                for cell in (column.cell(workload) for column in columns)
            )
        )
    if len(workloads) > lines:
        table.add_row(f"… and {len(workloads) - lines} more")
    return table


@contextmanager
def table_view(app: App) -> Iterator[WorkloadDisplay]:
    console = Console(stderr=True)
    with Live(console=console, auto_refresh=False, transient=False) as live:

        def show(workloads: Sequence[Json]) -> None:
            room = max(3, console.height - 4)
            now_ms = int(app.now() * 1_000)
            table = progress_table(workloads, now_ms, lines=room, width=console.width)
            live.update(table, refresh=True)

        yield show
