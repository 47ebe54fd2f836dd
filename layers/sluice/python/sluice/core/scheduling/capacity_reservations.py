"""Capacity reserved for blocked heads during one round.

Source: Kueue reserves capacity for a head that needs preemption but has no victims.
"""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.core.scheduling.flavor_assigner import Nomination
    from sluice.core.scheduling.quota import Cells, QuotaTree
    from sluice.core.scheduling.waiting_queue import WaitingQueue


class CapacityReservations:
    """What this round keeps free, and for which queue."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self._reserved: list[tuple[WaitingQueue, Cells]] = []

    def __bool__(self) -> bool:
        return bool(self._reserved)

    def reserve(self, queue: WaitingQueue, nomination: Nomination) -> None:
        """Keeps room for a blocked head.

        Not needed where the queue can always reclaim what it lends.
        """
        if queue.reclaims_any:
            return
        tree, node = self._tree, queue.node
        cells: list[tuple[int, int]] = []
        for cell, amount in nomination.cells:
            most = amount
            limit = tree.borrowing_limit[cell][node]
            if nomination.level == 0:
                most = tree.nominal[cell][node] - tree.usage[cell][node]
            elif limit is not None:
                most = tree.nominal[cell][node] + limit - tree.usage[cell][node]
            cells.append((cell, max(0, min(amount, most))))
        self._reserved.append((queue, tuple(cells)))

    @contextmanager
    def counted_for_others(self, queue: WaitingQueue) -> Iterator[None]:
        """Counts in the tree what is reserved for heads of other queues than this one."""
        others = [(each.node, cells) for each, cells in self._reserved if each is not queue]
        for node, cells in others:
            self._tree.add(node, cells)
        yield
        for node, cells in others:
            self._tree.remove(node, cells)

    def has_parked_head(self) -> bool:
        """Whether one of the heads was parked, which those of strict queues never are."""
        return any(not queue.strict for queue, _ in self._reserved)

    def clear(self) -> None:
        self._reserved.clear()
