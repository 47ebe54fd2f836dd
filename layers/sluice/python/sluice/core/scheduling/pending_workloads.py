"""Pending workloads below one root: queued, waiting for their victims, or kept out."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from typing import TYPE_CHECKING

from sluice.core.config.model import CheckState, Gate
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.config.model import WorkloadInfo
    from sluice.core.scheduling.backlog import EquivalenceClass
    from sluice.core.scheduling.flavor_assigner import Nomination
    from sluice.core.scheduling.waiting_queue import WaitingQueue


@dataclass(slots=True, eq=False)
class WaitingPreemptor:
    """A preemptor whose place is held until its victims have stopped."""

    queue: WaitingQueue
    workload: WorkloadInfo
    nomination: Nomination


@dataclass(slots=True, eq=False)
class PendingWorkloads:
    """Pending workloads by what they wait for, and the queues that have any to nominate.

    `waiting_in` maps a queued workload to its queue. `preemptors` wait for their victims, `gated`
    for something outside quota, `expired` are past their deadline. `made_room_for` are workloads
    that others were evicted for before this state was built. `ready` are queues with a class that
    is not parked, `parking` queues with a parked class.
    """

    queues: dict[str, WaitingQueue]
    by_node: dict[int, WaitingQueue] = field(init=False)
    waiting_in: dict[str, WaitingQueue] = field(default_factory=dict)
    preemptors: dict[str, WaitingPreemptor] = field(default_factory=dict)
    gated: dict[str, tuple[WorkloadInfo, Gate]] = field(default_factory=dict)
    expired: dict[str, WorkloadInfo] = field(default_factory=dict)
    made_room_for: dict[str, None] = field(default_factory=dict)
    ready: set[int] = field(default_factory=set)
    parking: set[int] = field(default_factory=set)
    _gates: list[tuple[int, str]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.by_node = {queue.node: queue for queue in self.queues.values()}

    def enter(self, workload: WorkloadInfo, *, parked: bool) -> bool:
        """Adds a workload that waits nowhere else; whether the next pass could nominate it.

        Raises KeyError for a ClusterQueue that is not below this root.
        """
        queue = self.queues[workload.cluster_queue]
        gate = workload.gate or _failed_check(workload)
        if gate is not None:
            self.gated[workload.id] = (workload, gate)
            if gate.until_ms is not None:
                heappush(self._gates, (gate.until_ms, workload.id))
            return False
        eq_class = queue.class_for(workload)
        if parked and not queue.strict and eq_class.front() is None:
            queue.backlog.park(eq_class)
            self.parking.add(queue.node)
        queue.backlog.add(workload, eq_class)
        self.waiting_in[workload.id] = queue
        if eq_class.parked or queue.inactive is not None:
            return False
        self.ready.add(queue.node)
        return True

    def leave(self, workload_id: str) -> None:
        """Forgets a waiting workload, unless its place is held; unknown ids are ignored."""
        queue = self.waiting_in.pop(workload_id, None)
        if queue is not None:
            queue.backlog.discard(workload_id)
        else:
            self.gated.pop(workload_id, None)
            self.expired.pop(workload_id, None)

    def expire(self, workload: WorkloadInfo) -> None:
        """Sets aside a workload whose deadline has passed."""
        self.leave(workload.id)
        self.expired[workload.id] = workload

    def park(self, queue: WaitingQueue, eq_class: EquivalenceClass) -> None:
        queue.backlog.park(eq_class)
        self.parking.add(queue.node)

    def rouse(self) -> None:
        """Has every parked class nominated again."""
        for node in self.parking:
            self.by_node[node].backlog.rouse()
        self.ready |= self.parking

    def settle(self, queue: WaitingQueue) -> None:
        """Notes that a queue has no class left to look at."""
        self.ready.discard(queue.node)
        if not queue.backlog.parked:
            self.parking.discard(queue.node)

    def open_gates(self, now_ms: int) -> Iterable[WorkloadInfo]:
        """Those whose gate opens by now; they are still gated."""
        while self._gates and self._gates[0][0] <= now_ms:
            _, workload_id = heappop(self._gates)
            workload, gate = self.gated.get(workload_id, (None, None))
            if workload and gate and gate.until_ms is not None and gate.until_ms <= now_ms:
                yield replace(workload, gate=None)

    def next_gate_ms(self) -> list[int]:
        """When the next gate opens by itself, if any does."""
        return [at_ms for at_ms, _ in self._gates[:1]]

    def ids(self) -> list[str]:
        """Every waiting workload's id, sorted."""
        return sorted([*self.waiting_in, *self.gated, *self.expired, *self.preemptors])

    def __len__(self) -> int:
        return len(self.waiting_in) + len(self.gated) + len(self.expired) + len(self.preemptors)


def _failed_check(workload: WorkloadInfo) -> Gate | None:
    """The gate of a workload whose admission check answered no; a pending check is no gate."""
    for name, state in sorted(workload.checks.items()):
        if state in {CheckState.RETRY, CheckState.REJECTED}:
            return Gate(Reason.ADMISSION_CHECK, f"admission check {name} answered {state}")
    return None
