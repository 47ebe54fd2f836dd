"""A workload together with what the simulated world does to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluice.core.lifecycle.record import PodSet, State
from sluice.core.lifecycle.record import Workload as Submitted

if TYPE_CHECKING:
    from sluice.core.config.model import Assignment, WorkloadInfo

NAMESPACE: Final = "default"  # of work that names no LocalQueue


@dataclass(frozen=True, slots=True)
class InitialHolding:
    """Quota that a workload holds when the scenario starts."""

    since_ms: int
    assignment: Assignment
    checkpoint_at_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Job:
    """A workload, when it arrives, how long it runs and what it holds at the start.

    `arrives_ms` counts from the start of the scenario; `runtime_ms` None means for ever; `group`
    is the class whose waiting times are reported apart.

    `wishes` is what it asks for beyond pods and a queue, as the deployed system records a
    submission; None: nothing. `indexes` is how many pods of an array run one after the other where
    there is no more room; each takes the runtime. `fails` says how it ends by itself.
    """

    workload: WorkloadInfo
    arrives_ms: int = 0
    runtime_ms: int | None = None
    holds: InitialHolding | None = None
    group: str | None = None
    wishes: Submitted | None = None
    indexes: int | None = None
    fails: bool = False

    def record(self, start_ms: int) -> Submitted:
        """As the deployed system would record it; `start_ms` is the scenario's start."""
        if self.wishes is not None:
            return self.wishes
        workload = self.workload
        local_queue = workload.local_queue or ""
        return Submitted(
            id=workload.id,
            name=workload.id,
            namespace=local_queue.partition("/")[0] or NAMESPACE,
            queue=local_queue,
            state=State.PENDING,
            cq=workload.cluster_queue,
            priority=workload.priority,
            submitted_by=workload.user or "",
            created_at=max(workload.queued_at_ms, start_ms + self.arrives_ms),
            pod_sets=tuple(
                PodSet(s.name, s.count, s.requests, s.min_count) for s in workload.pod_sets
            ),
        )

    def runs_ms(self, assignment: Assignment) -> int | None:
        """How long it runs on this assignment from its beginning; None: for ever."""
        if self.runtime_ms is None or self.indexes is None:
            return self.runtime_ms
        return self.runtime_ms * -(-self.indexes // assignment.pod_sets[0].count)
