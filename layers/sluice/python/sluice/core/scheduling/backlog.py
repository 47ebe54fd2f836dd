"""The backlog of one ClusterQueue, indexed so that its depth does not matter to a decision.

Workloads that a pass cannot tell apart form an equivalence class: first in, first out. One verdict
on the front of a class holds for all of it, so a million equal workloads cost as much as one.
Source: Kueue's scheduling equivalence hash.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from heapq import heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sluice.core.config.model import WorkloadInfo
    from sluice.core.scheduling.request_shape import Shape

# Ordering time, sequence, id, the workload and its class; ids are unique, so the rest is never
# compared.
QueuedItem: TypeAlias = tuple[int, int, str, "WorkloadInfo", "EquivalenceClass"]
Position: TypeAlias = tuple[int, int, int, str]


class EquivalenceClass:
    """Equal workloads of one queue.

    `limited` says that caps, budgets or a stopped LocalQueue may keep them waiting.
    """

    __slots__ = (
        "_early",
        "_late",
        "_waiting",
        "entry",
        "heap",
        "limited",
        "parked",
        "priority",
        "shape",
    )

    def __init__(self, backlog: Backlog, heap: ClassHeap, shape: Shape, priority: int) -> None:
        self.heap = heap
        self.shape = shape
        self.priority = priority
        self.parked = False
        self.limited = False
        self.entry: tuple[Position, EquivalenceClass] | None = None
        self._waiting = backlog.waiting
        self._early: deque[QueuedItem] = deque()
        self._late: list[QueuedItem] = []

    def __lt__(self, other: EquivalenceClass) -> bool:
        """Outdated entries of the order may tie; then any order will do."""
        return False

    def push(self, item: QueuedItem) -> None:
        """Adds in order of time; arrivals out of order go through a heap."""
        early = self._early
        if not early or item[:3] > early[-1][:3]:
            early.append(item)
        else:
            heappush(self._late, item)

    def front(self) -> QueuedItem | None:
        """The first workload that still waits."""
        early, late, waiting = self._early, self._late, self._waiting
        while early:
            item = early[0]
            if waiting.get(item[2]) is item:
                if not late:
                    return item
                break
            early.popleft()
        while late and waiting.get(late[0][2]) is not late[0]:
            heappop(late)
        if early and late:
            return early[0] if early[0][:3] < late[0][:3] else late[0]
        if early:
            return early[0]
        return late[0] if late else None

    def items(self) -> Iterator[QueuedItem]:
        """All that still wait, in no particular order."""
        for item in (*self._early, *self._late):
            if self._waiting.get(item[2]) is item:
                yield item


@dataclass(slots=True, eq=False)
class ClassHeap:
    """The classes of one LocalQueue where past usage orders LocalQueues, else of a whole queue."""

    local_queue: str | None
    entries: list[tuple[Position, EquivalenceClass]]

    def head(self) -> tuple[Position, EquivalenceClass] | None:
        """The foremost active class with its position."""
        entries = self.entries
        while entries and entries[0][1].entry is not entries[0]:
            heappop(entries)
        return entries[0] if entries else None


class Backlog:
    """Waiting workloads of one ClusterQueue."""

    def __init__(self, rank: Callable[[int, int], int]) -> None:
        """`rank` turns priority and ordering time into the primary sort key."""
        self.rank = rank
        self.waiting: dict[str, QueuedItem] = {}
        self.heaps: dict[str | None, ClassHeap] = {}
        self.parked: dict[EquivalenceClass, None] = {}
        # Parked lines to look at again, the foremost last, each with the position of its front.
        self.rousable: list[tuple[Position, EquivalenceClass]] = []

    def add(self, workload: WorkloadInfo, eq_class: EquivalenceClass) -> None:
        item = (workload.queued_at_ms, workload.sequence, workload.id, workload, eq_class)
        self.waiting[workload.id] = item
        eq_class.push(item)
        if not eq_class.parked:
            entry = eq_class.entry
            if entry is None or item[:3] < entry[0][1:]:
                self.offer(eq_class)
        elif self.rousable:
            self.rouse()

    def discard(self, workload_id: str) -> None:
        """Forgets a workload; its class drops it when it comes to the front."""
        eq_class = self.waiting.pop(workload_id)[4]
        if eq_class.entry is not None and eq_class.entry[0][3] == workload_id:
            self.offer(eq_class)
        elif eq_class.parked and self.rousable:
            self.rouse()

    def offer(self, eq_class: EquivalenceClass) -> None:
        """Puts an active class where its front belongs; an empty class leaves the order."""
        position = self.position(eq_class)
        if position is None:
            eq_class.entry = None
            return
        eq_class.entry = (position, eq_class)
        heappush(eq_class.heap.entries, eq_class.entry)

    def park(self, eq_class: EquivalenceClass) -> None:
        """Takes a class out of the order until `wake`."""
        eq_class.entry = None
        eq_class.parked = True
        self.parked[eq_class] = None

    def wake(self, eq_class: EquivalenceClass) -> None:
        """Returns a parked class to the order."""
        eq_class.parked = False
        del self.parked[eq_class]
        self.offer(eq_class)

    def rouse(self) -> None:
        """Has every parked class looked at again, in the order of the queue."""
        found: list[tuple[Position, EquivalenceClass]] = []
        for eq_class in [*self.parked]:
            position = self.position(eq_class)
            if position is None:
                self.wake(eq_class)  # it is empty
            else:
                found.append((position, eq_class))
        if len(found) > 1:
            found.sort(reverse=True)
        self.rousable = found

    def position(self, eq_class: EquivalenceClass) -> Position | None:
        """Where the front of a class stands, or None for an empty class."""
        item = eq_class.front()
        return None if item is None else (self.rank(eq_class.priority, item[0]), *item[:3])

    def head(self, usage: Callable[[str], float] | None) -> EquivalenceClass | None:
        """The class to look at next: least past usage first, then priority and time."""
        if len(self.heaps) == 1:
            (heap,) = self.heaps.values()
            entry = heap.head()
            return None if entry is None else entry[1]
        best: tuple[float, Position] | None = None
        found: EquivalenceClass | None = None
        for heap in self.heaps.values():
            entry = heap.head()
            if entry is None:
                continue
            weight = usage(heap.local_queue) if usage and heap.local_queue is not None else 0.0
            if best is None or (weight, entry[0]) < best:
                best, found = (weight, entry[0]), entry[1]
        return found

    def ahead_of(self, item: QueuedItem) -> tuple[int, str | None]:
        """How many waiting workloads of the queue come before one, and the first of them."""
        own = (self.rank(item[4].priority, item[0]), *item[:3])
        ahead = [
            position
            for each in self.waiting.values()
            if (position := (self.rank(each[4].priority, each[0]), *each[:3])) < own
        ]
        return len(ahead), min(ahead)[3] if ahead else None

    def __len__(self) -> int:
        return len(self.waiting)
