"""Workloads that hold quota, indexed for the search for victims."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.core.config.model import Assignment, WorkloadInfo
    from sluice.core.scheduling.quota import Cells


@dataclass(slots=True, eq=False)
class QuotaHolder:
    """A workload that holds quota, as the tree counts it.

    It may be evicted from `protected_until_ms` on. An eviction loses the work since
    `checkpointed_at_ms`. `admitted_in` numbers the pass that admitted it: no pass evicts what it
    admitted itself.
    """

    workload: WorkloadInfo
    assignment: Assignment
    node: int
    cells: Cells
    since_ms: int
    protected_until_ms: int
    checkpointed_at_ms: int
    has_checkpoint: bool
    admitted_in: int = 0

    def uses(self, cells: frozenset[int]) -> bool:
        return any(cell in cells for cell, _ in self.cells)

    def lost_work(self, now_ms: int) -> int:
        """Work that an eviction now would lose: milliseconds times resource units."""
        return (now_ms - self.checkpointed_at_ms) * sum(amount for _, amount in self.cells)


class HolderIndex:
    """The holders of each ClusterQueue by priority; victims that still stop are left out."""

    def __init__(self, size: int) -> None:
        self._by_priority: list[dict[int, dict[str, QuotaHolder]]] = [{} for _ in range(size)]

    def add(self, holder: QuotaHolder) -> None:
        of_queue = self._by_priority[holder.node]
        of_queue.setdefault(holder.workload.priority, {})[holder.workload.id] = holder

    def remove(self, holder: QuotaHolder) -> None:
        of_queue = self._by_priority[holder.node]
        same = of_queue[holder.workload.priority]
        del same[holder.workload.id]
        if not same:
            del of_queue[holder.workload.priority]

    def has_unprotected(
        self, node: int, priority: int, now_ms: int, *, equal: bool
    ) -> tuple[bool, int | None]:
        """Whether a queue has an unprotected holder of lower (or equal) priority.

        If it has none: when the first protection of such a holder ends, or None.
        """
        first_end: int | None = None
        for value, same in self._by_priority[node].items():
            if value > priority or (value == priority and not equal):
                continue
            for holder in same.values():  # the longest running first, so this is short
                end = holder.protected_until_ms
                if end <= now_ms:
                    return True, None
                if first_end is None or end < first_end:
                    first_end = end
        return False, first_end

    def list_holders(self, node: int, max_priority: int | None = None) -> Iterator[QuotaHolder]:
        """Holders of a queue with at most this priority (None: all)."""
        for value, same in self._by_priority[node].items():
            if max_priority is None or value <= max_priority:
                yield from same.values()
