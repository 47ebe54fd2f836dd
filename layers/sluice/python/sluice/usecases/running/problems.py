"""Errors that do not end an observation, until its caller has read them."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field

MOST_PROBLEMS = 10


@dataclass
class Problems:
    """The newest errors; several threads may report."""

    _newest: deque[Exception] = field(default_factory=lambda: deque(maxlen=MOST_PROBLEMS))

    def report(self, error: Exception) -> None:
        self._newest.append(error)

    def take(self) -> list[Exception]:
        """Returns the errors, oldest first, and forgets them."""
        taken = []
        while self._newest:
            taken.append(self._newest.popleft())
        return taken
