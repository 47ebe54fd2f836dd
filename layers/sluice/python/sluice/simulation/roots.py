"""The root cohorts of a simulation: their schedulers, the news for them, who is to pass next."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sluice.core.scheduling.scheduler import Plan, Refusal, Scheduler
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import WorkloadInfo
    from sluice.simulation.scenario import Scenario

# More passes of one root at one instant than this for each of its workloads are a loop.
_PASSES_PER_WORKLOAD: Final = 10
_PASSES_AT_LEAST: Final = 1000


class NeverAtRestError(RuntimeError):
    """A root kept deciding at one instant without end: workloads evict each other for ever."""


@dataclass(slots=True, eq=False)
class Root:
    """A root's scheduler, what it has not been told yet, and where its passes stand."""

    name: str
    scheduler: Scheduler
    releases: list[tuple[str, int]] = field(default_factory=list)
    arrivals: list[WorkloadInfo] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    workloads: int = 0
    waiting: int = 0
    committing: Plan | None = None
    commits_at_ms: int = 0
    passes: int = 0
    passes_at_once: int = 0
    passed_at_ms: int = -1
    wakes_at_ms: int | None = None

    def tell(self, start_ms: int) -> None:
        """Tells the scheduler what has happened since it was told last."""
        for workload_id, at_ms in self.releases:
            self.scheduler.release(workload_id, start_ms + at_ms)
        for workload_id in self.gone:
            self.scheduler.remove(workload_id)
        for workload in self.arrivals:
            self.scheduler.enqueue(workload)

    def guard(self, now_ms: int) -> None:
        """Counts a pass; raises NeverAtRestError when one instant has had too many."""
        if self.passed_at_ms != now_ms:
            self.passed_at_ms, self.passes_at_once = now_ms, 0
        self.passes_at_once += 1
        if self.passes_at_once > max(_PASSES_AT_LEAST, _PASSES_PER_WORKLOAD * self.workloads):
            raise NeverAtRestError(
                f"{self.name} made {self.passes_at_once} passes at {now_ms / 1000:g} s "
                "without coming to rest"
            )

    def no_more_wakes(self) -> bool:
        """Whether nobody waits for time to pass; then it is to be woken anew when somebody does."""
        if self.waiting:
            return False
        self.wakes_at_ms = None
        return True

    def not_in_force(self) -> Iterator[Refusal]:
        """Those who wait for nothing but the commit of their admission."""
        for admission in self.committing.admissions if self.committing is not None else ():
            at = f"{self.commits_at_ms / 1000:g} s"
            text = f"its place is held; its admission comes into force at {at}"
            yield Refusal(
                admission.workload, admission.cluster_queue, Reason.WAITING_FOR_PREEMPTED, text, 0
            )


class Roots:
    """All roots of a scenario; `ready` are those that are to pass now, in that order."""

    def __init__(self, scenario: Scenario, catalog: QueueCatalog) -> None:
        self._passes = scenario.passes
        self.all = {
            name: Root(name, Scheduler(catalog, name, scenario.policy_of(name)))
            for name in catalog.roots()
        }
        self.of_queue = {name: self.all[catalog.root_of(name)] for name in catalog.cluster_queues}
        self.ready: dict[str, Root] = {}

    def call(self, root: Root) -> None:
        """Has the root pass as soon as it may."""
        if root.committing is None and self.may_pass(root):
            self.ready[root.name] = root

    def may_pass(self, root: Root) -> bool:
        return self._passes is None or root.passes < self._passes

    def passes_done(self) -> bool:
        """Whether every root has made as many passes as were asked for."""
        return self._passes is not None and not any(
            root.committing is not None or self.may_pass(root) for root in self.all.values()
        )
