"""The live table: what a person sees while waiting."""

from __future__ import annotations

import io

from rich.console import Console

from cli.live import progress_table


def shown(phases: list[str], lines: int, width: int = 200) -> str:
    workloads = [
        {"id": f"id-{n}", "name": f"job-{n}", "queue": "a/b", "phase": phase}
        | {"createdAt": 1_000, "waitedMs": 60_000}
        for n, phase in enumerate(phases)
    ]
    console = Console(file=io.StringIO(), width=width, color_system=None)
    console.print(progress_table(workloads, 61_000, lines=lines, width=width))
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def test_the_table_counts_phases_and_shows_each_workload() -> None:
    text = shown(["PENDING", "RUNNING", "RUNNING"], 10)

    assert "1 PENDING · 2 RUNNING" in text
    assert text.splitlines()[2].split()[:4] == ["id-0", "job-0", "a/b", "PENDING"]
    assert "1m" in text


def test_a_narrow_terminal_keeps_what_matters() -> None:
    text = shown(["SUCCEEDED"], 10, width=60)

    assert "id-0" in text
    assert "SUCCEEDED" in text
    assert "QUEUE" not in text


def test_what_does_not_fit_is_counted() -> None:
    text = shown(["PENDING"] * 50, 5)

    assert "id-4" in text
    assert "id-5" not in text
    assert "and 45 more" in text


def test_text_of_others_is_no_markup() -> None:
    assert "[red]" in shown(["[red]x"], 5)
