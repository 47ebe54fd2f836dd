"""Follows a simulation: curves for the plot, and a line on stderr when it takes long."""

from __future__ import annotations

import sys
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import click
from sluice.simulation.curve import Curve

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.simulation.outcome import ProgressSample
    from sluice.simulation.scenario import Scenario

_QUIET_SECONDS = 2.0
_SECONDS_BETWEEN_LINES = 10.0
_SECONDS_BETWEEN_REFRESHES = 0.2
_MOMENTS_BETWEEN_LOOKS = 64  # reading the clock costs as much as a small pass


@dataclass
class SimulationProgress:
    """Called after every pass."""

    scenario: Scenario
    clock: Callable[[], float] = time.monotonic
    pending: Curve = field(default_factory=Curve)
    in_use: dict[str, Curve] = field(default_factory=dict)
    wrote: bool = False

    def __post_init__(self) -> None:
        self._due = self.clock() + _QUIET_SECONDS
        self._moments = 0
        self._live = sys.stderr.isatty()

    def __call__(self, moment: ProgressSample) -> None:
        self.pending.step(moment.at_ms, moment.pending)
        for resource, amount in moment.in_use.items():
            self.in_use.setdefault(resource, Curve()).step(moment.at_ms, amount)
        self._moments += 1
        if self._moments % _MOMENTS_BETWEEN_LOOKS == 0 and (now := self.clock()) >= self._due:
            self._due = now + (_SECONDS_BETWEEN_REFRESHES if self._live else _SECONDS_BETWEEN_LINES)
            self._tell(moment)

    def _tell(self, moment: ProgressSample) -> None:
        line = (
            f"{self.scenario.name}: {moment.at_ms / 1000:,.1f} s of virtual time, "
            f"{moment.admissions:,} of {len(self.scenario.jobs):,} admitted, "
            f"{moment.pending:,} waiting"
        )
        click.echo(f"\r{line}\x1b[K" if self._live else line, nl=not self._live, err=True)
        self.wrote = True

    def close(self) -> None:
        """Clears the progress line."""
        if self.wrote and self._live:
            click.echo("\r\x1b[K", nl=False, err=True)
