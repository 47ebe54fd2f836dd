"""Reads what the ticking program noted: what it lost, and how long it stood still."""

from __future__ import annotations

import socket
import threading
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

from tests.ticking.program import PERIOD_SECONDS

PROGRAM = Path(__file__).with_name("program.py").read_text()


@dataclass(frozen=True)
class Tick:
    at: float  # epoch seconds
    run: str  # drawn when the program starts; a process that goes on elsewhere keeps it
    step: int


@dataclass(frozen=True)
class Break:
    """Where the trace stopped and went on."""

    before: Tick
    after: Tick

    @property
    def downtime_seconds(self) -> float:
        return self.after.at - self.before.at - PERIOD_SECONDS

    @property
    def lost_seconds(self) -> float:
        """Work that was done and had to be done again, or was undone."""
        return max(0, self.before.step + 1 - self.after.step) * PERIOD_SECONDS


def address(path: Path) -> str:
    """Where programs in containers send their lines; they are written to the file at `path`."""
    receiver = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    receiver.bind(("127.0.0.1", 0))

    def receive() -> None:
        while True:
            line = receiver.recv(200)
            with path.open("ab") as file:
                file.write(line)

    threading.Thread(target=receive, daemon=True).start()
    return f"127.0.0.1:{receiver.getsockname()[1]}"


def read(path: Path) -> list[Tick]:
    """Every complete line so far; none without a file."""
    if not path.exists():
        return []
    lines = path.read_text().splitlines(keepends=True)
    rows = [line.split() for line in lines if line.endswith("\n")]
    return [Tick(float(at), run, int(step)) for at, run, step in rows]


def attempts(ticks: list[Tick]) -> int:
    """How often somebody began to count; two copies at once would take turns and so count often."""
    begun = [(a, b) for a, b in pairwise(ticks) if b.run != a.run or b.step <= a.step]
    return len(begun) + bool(ticks)


def longest_break(ticks: list[Tick]) -> Break:
    return max((Break(a, b) for a, b in pairwise(ticks)), key=lambda each: each.downtime_seconds)
