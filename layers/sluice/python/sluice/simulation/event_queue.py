"""What is to happen when; within one instant finishes come first, then commits, then the rest."""

from __future__ import annotations

from enum import IntEnum
from heapq import heappop, heappush
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable


class EventRank(IntEnum):
    """The order within one instant."""

    FINISH = 0
    COMMIT = 1
    WAKE = 2


def never() -> bool:
    """Of an entry that somebody waits for whatever happens before."""
    return False


class EventQueue:
    """Entries in the order of time, rank and entry; times are ms since the scenario's start."""

    def __init__(self) -> None:
        self._entries: list[
            tuple[int, EventRank, int, Callable[[int], None], Callable[[], bool]]
        ] = []
        self._sequence = 0

    def at(
        self,
        at_ms: int,
        rank: EventRank,
        happen: Callable[[int], None],
        is_stale: Callable[[], bool] = never,
    ) -> None:
        """Has `happen` called with the time, unless nobody waits for it any more by then."""
        self._sequence += 1
        heappush(self._entries, (at_ms, rank, self._sequence, happen, is_stale))

    def next_ms(self) -> int | None:
        """When something happens next, if anything does."""
        while self._entries and self._entries[0][4]():
            heappop(self._entries)
        return self._entries[0][0] if self._entries else None

    def happen(self, now_ms: int) -> None:
        """All of one instant, and what it adds to that instant."""
        while self._entries and self._entries[0][0] == now_ms:
            _, _, _, happen, is_stale = heappop(self._entries)
            if not is_stale():
                happen(now_ms)
