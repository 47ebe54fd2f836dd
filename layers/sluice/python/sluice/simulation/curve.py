"""A step function over virtual time that stays small however long the run is."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass, field
from itertools import accumulate, pairwise
from operator import itemgetter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

_MOST_STEPS = 4096


@dataclass(slots=True)
class Curve:
    """Values over time; each holds until the next step. Steps must come in order of time."""

    steps: list[tuple[int, float]] = field(default_factory=list)

    def step(self, at_ms: int, value: float) -> None:
        """From `at_ms` on the value is this."""
        if self.steps and self.steps[-1][0] == at_ms:
            self.steps.pop()
        if self.steps and self.steps[-1][1] == value:
            return
        self.steps.append((at_ms, value))
        if len(self.steps) > _MOST_STEPS:
            self._thin()

    def averages(self, end_ms: int, columns: int) -> list[float]:
        """Mean values of equal parts of the time from 0 to `end_ms`, weighted by time."""
        if not self.steps or end_ms <= 0:
            return []
        edges = [end_ms * column / columns for column in range(columns + 1)]
        parts = (value * (end - begin) for (begin, value), (end, _) in pairwise(self.steps))
        up_to_step = [0.0, *accumulate(parts)]

        def area(until: float) -> float:
            """Value times milliseconds from 0 to a time."""
            index = bisect_right(self.steps, until, key=itemgetter(0)) - 1
            if index < 0:
                return 0.0
            at_ms, value = self.steps[index]
            return up_to_step[index] + value * (until - at_ms)

        areas = [area(edge) for edge in edges]
        return [(after - before) * columns / end_ms for before, after in pairwise(areas)]

    def _thin(self) -> None:
        """Replaces each two neighbours by one step of the same area."""
        thinned: list[tuple[int, float]] = []
        for index in range(0, len(self.steps) - 2, 2):
            (first, low), (second, high), (third, _) = self.steps[index : index + 3]
            area = low * (second - first) + high * (third - second)
            thinned.append((first, area / (third - first)))
        self.steps = [*thinned, *self.steps[2 * len(thinned) :]]


def blocks(values: Sequence[float], top: float) -> str:
    """A line of bars, one character a value; `top` is the value of a full bar."""
    bars = " ▁▂▃▄▅▆▇█"
    if top <= 0:
        return bars[0] * len(values)
    levels = (min(1.0, max(0.0, value / top)) * (len(bars) - 1) for value in values)
    return "".join(bars[max(1, round(level)) if level > 0 else 0] for level in levels)
