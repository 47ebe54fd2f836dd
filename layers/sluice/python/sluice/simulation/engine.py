"""Runs the scheduling core in virtual time: arrivals, passes, commits, finishes.

A pass decides at once, its decisions take effect after the commit latency, and the next pass of the
same root starts no earlier; roots are independent, as in the deployed system. A pass without any
change to write has nothing to commit. Within one instant, finishes come first, then commits, then
arrivals, then passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from sluice.core.admission import Plan, Scheduler
from sluice.core.catalog import Catalog
from sluice.core.model import Holding, PreemptionReason
from sluice.core.plan import Refusal
from sluice.core.reasons import Reason
from sluice.simulation.outcome import Admitted, Moment, Node, Outcome, Preempted

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sluice.core.model import Assignment, Workload
    from sluice.simulation.job import Job
    from sluice.simulation.scenario import Scenario

# More passes of one root at one instant than this for each of its workloads are a loop.
_PASSES_PER_WORKLOAD: Final = 10
_PASSES_AT_LEAST: Final = 1000
_FINISH, _COMMIT, _WAKE = 0, 1, 2


class NeverAtRestError(RuntimeError):
    """A root kept deciding at one instant without end: workloads evict each other for ever."""


@dataclass(slots=True, eq=False)
class _Run:
    """One stay of a job on its quota."""

    job: Job
    amounts: Mapping[str, int]
    started_ms: int


@dataclass(slots=True, eq=False)
class _Root:
    """A root's scheduler, what it has not been told yet, and where its passes stand."""

    name: str
    scheduler: Scheduler
    releases: list[tuple[str, int]] = field(default_factory=list)
    arrivals: list[Workload] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    workloads: int = 0
    waiting: int = 0
    committing: Plan | None = None
    commits_at_ms: int = 0
    passes: int = 0
    passes_at_once: int = 0
    passed_at_ms: int = -1
    wakes_at_ms: int | None = None


_Event: TypeAlias = _Run | _Root | tuple[_Root, Plan, bool]


class Simulation:
    """One scenario in virtual time; `run` may be called once.

    `cpu_clock` returns the CPU seconds used so far; what passes between two readings around the
    core counts as decision time. `watch` is called after every pass, and when one begins to commit.
    """

    def __init__(
        self,
        scenario: Scenario,
        *,
        commit_latency_ms: int = 0,
        until_ms: int | None = None,
        cpu_clock: Callable[[], float] = float,
        watch: Callable[[Moment], None] | None = None,
    ) -> None:
        self._scenario, self._until_ms = scenario, until_ms
        self._latency_ms, self._clock, self._watch = commit_latency_ms, cpu_clock, watch
        objects = scenario.objects
        self._catalog = Catalog(
            flavors=objects.resource_flavors,
            cohorts=objects.cohorts,
            cluster_queues=objects.cluster_queues,
            local_queues=objects.local_queues,
            priority_classes=objects.priority_classes,
        )
        self._roots = {
            name: _Root(name, Scheduler(self._catalog, name, scenario.policy))
            for name in self._catalog.roots()
        }
        self._root_of = {
            name: self._roots[self._catalog.root_of(name)] for name in self._catalog.cluster_queues
        }
        self._jobs = {job.workload.id: job for job in scenario.jobs}
        # Those still to come, the next one last; sorting is stable, so listing order breaks ties.
        self._to_come = sorted(
            (job for job in reversed(scenario.jobs) if job.holds is None),
            key=attrgetter("arrives_ms"),
            reverse=True,
        )
        self._events: list[tuple[int, int, int, _Event]] = []
        self._sequence = 0
        self._ready: dict[str, _Root] = {}
        self._runs: dict[str, _Run] = {}
        self._waiting: dict[str, None] = {}
        self._in_use: dict[str, int] = {}
        self._outcome = Outcome()

    def run(self) -> Outcome:
        """Runs to the end and says what happened.

        Raises NeverAtRestError when evictions at one instant go round in circles.
        """
        self._begin()
        now_ms = 0
        while True:
            while self._ready:
                self._pass(self._ready.pop(next(iter(self._ready))), now_ms)
            if self._latency_ms:
                self._show(now_ms)  # who arrived, or waits for a commit
            if self._passes_done():
                break
            following_ms = self._next_ms()
            if following_ms is None:
                # Exactly N passes were asked for: the rest of them see nothing new.
                if self._scenario.passes is None:
                    break
                self._ready |= {
                    one.name: one for one in self._roots.values() if self._may_pass(one)
                }
                continue
            if self._until_ms is not None and following_ms > self._until_ms:
                now_ms = self._until_ms
                break
            now_ms = following_ms
            self._happen(now_ms)
        self._finish_up(now_ms)
        return self._outcome

    def _begin(self) -> None:
        for job in self._scenario.jobs:
            self._root_of[job.workload.cluster_queue].workloads += 1
        started = self._clock()
        for local_queue, consumed in self._scenario.consumed.items():
            target = self._catalog.local_queues[local_queue].cluster_queue
            if target in self._root_of:
                self._root_of[target].scheduler.set_local_queue_usage(
                    local_queue, consumed, self._scenario.start_ms
                )
        for job in self._scenario.jobs:
            if job.holds is not None:
                holding = Holding(job.workload, job.holds.assignment, job.holds.since_ms)
                self._root_of[job.workload.cluster_queue].scheduler.hold(holding)
        self._outcome.decision_seconds += self._clock() - started
        for job in self._scenario.jobs:
            if job.holds is not None:
                self._start(job, job.holds.assignment, 0, runs_since_ms=job.holds.since_ms)
        self._arrive(0)
        self._ready = dict(self._roots)

    def _next_ms(self) -> int | None:
        while self._events and self._is_stale(self._events[0][3]):
            heappop(self._events)
        times = [self._events[0][0]] if self._events else []
        if self._to_come:
            times.append(self._to_come[-1].arrives_ms)
        return min(times, default=None)

    def _is_stale(self, event: _Event) -> bool:
        """Whether nobody is waiting for this any more."""
        if isinstance(event, _Run):
            return self._runs.get(event.job.workload.id) is not event  # it was evicted before
        if isinstance(event, _Root) and not event.waiting:
            event.wakes_at_ms = None
            return True
        return False

    def _happen(self, now_ms: int) -> None:
        """All finishes, commits and arrivals of one instant."""
        while self._events and self._events[0][0] == now_ms:
            event = heappop(self._events)[3]
            if isinstance(event, _Run):
                self._finish(event, now_ms)
            elif isinstance(event, _Root):
                self._call(event)
            else:
                self._commit(*event, now_ms)
        self._arrive(now_ms)

    def _arrive(self, now_ms: int) -> None:
        while self._to_come and self._to_come[-1].arrives_ms <= now_ms:
            workload = self._to_come.pop().workload
            self._queue(workload)
        self._outcome.peak_pending = max(self._outcome.peak_pending, len(self._waiting))

    def _queue(self, workload: Workload) -> None:
        root = self._root_of[workload.cluster_queue]
        root.arrivals.append(workload)
        root.waiting += 1
        self._waiting[workload.id] = None
        self._call(root)

    def _call(self, root: _Root) -> None:
        """Has the root pass as soon as it may."""
        if root.committing is None and self._may_pass(root):
            self._ready[root.name] = root

    def _may_pass(self, root: _Root) -> bool:
        return self._scenario.passes is None or root.passes < self._scenario.passes

    def _passes_done(self) -> bool:
        return self._scenario.passes is not None and not any(
            root.committing is not None or self._may_pass(root) for root in self._roots.values()
        )

    def _pass(self, root: _Root, now_ms: int) -> None:
        self._guard(root, now_ms)
        scheduler, releases = root.scheduler, root.releases
        started = self._clock()
        for workload_id, at_ms in releases:
            scheduler.release(workload_id, self._scenario.start_ms + at_ms)
        for workload in root.arrivals:
            scheduler.enqueue(workload)
        plan = scheduler.run_pass(self._scenario.start_ms + now_ms)
        unfinished, wakes_at_ms = scheduler.has_candidates(), scheduler.next_wakeup_ms()
        self._outcome.decision_seconds += self._clock() - started
        self._wake_at(root, wakes_at_ms)
        root.passes += 1
        root.releases, root.arrivals, root.evicted = [], [], []
        if self._latency_ms and (releases or plan.admissions or plan.preemptions):
            root.committing, root.commits_at_ms = plan, now_ms + self._latency_ms
            self._at(root.commits_at_ms, _COMMIT, (root, plan, unfinished))
        else:
            self._commit(root, plan, unfinished, now_ms)

    def _wake_at(self, root: _Root, at_ms: int | None) -> None:
        """Time alone may change a decision; `at_ms` is the core's time."""
        if at_ms is not None and at_ms != root.wakes_at_ms:
            root.wakes_at_ms = at_ms
            self._at(at_ms - self._scenario.start_ms, _WAKE, root)

    def _guard(self, root: _Root, now_ms: int) -> None:
        if root.passed_at_ms != now_ms:
            root.passed_at_ms, root.passes_at_once = now_ms, 0
        root.passes_at_once += 1
        if root.passes_at_once > max(_PASSES_AT_LEAST, _PASSES_PER_WORKLOAD * root.workloads):
            raise NeverAtRestError(
                f"{root.name} made {root.passes_at_once} passes at {now_ms / 1000:g} s "
                "without coming to rest"
            )

    def _commit(self, root: _Root, plan: Plan, unfinished: bool, now_ms: int) -> None:
        """The decisions take effect: the admitted start, victims give their quota back."""
        root.committing = None
        for admission in plan.admissions:
            job = self._jobs[admission.workload]
            del self._waiting[admission.workload]
            root.waiting -= 1
            self._outcome.waits_ms.setdefault(admission.workload, now_ms - job.arrives_ms)
            self._outcome.admitted.append(Admitted(job, admission.assignment, now_ms))
            self._start(job, admission.assignment, now_ms)
        for step in plan.preemptions:
            if (run := self._runs.pop(step.victim, None)) is None:
                continue  # it finished while the eviction was being committed
            self._stop(run)
            root.releases.append((step.victim, now_ms))
            root.evicted.append(step.victim)
            if step.reason is not PreemptionReason.QUEUE_DRAINED:
                self._outcome.preempted.append(Preempted(step, now_ms))
            self._queue(run.job.workload)
        self._outcome.peak_pending = max(self._outcome.peak_pending, len(self._waiting))
        if unfinished or root.releases or root.arrivals:
            self._call(root)
        self._show(now_ms)

    def _show(self, now_ms: int) -> None:
        if self._watch is not None:
            admissions = len(self._outcome.admitted)
            self._watch(Moment(now_ms, admissions, len(self._waiting), self._in_use))

    def _start(
        self, job: Job, assignment: Assignment, now_ms: int, runs_since_ms: int | None = None
    ) -> None:
        run = _Run(job, _amounts(job.workload, assignment), now_ms)
        self._runs[job.workload.id] = run
        for resource, amount in run.amounts.items():
            self._in_use[resource] = self._in_use.get(resource, 0) + amount
        if job.runtime_ms is None:
            return
        ends_ms = now_ms + job.runtime_ms
        if runs_since_ms is not None:
            # A holder that should have ended before the start evidently still runs: it gets all of
            # its runtime from the start on.
            began_ms = runs_since_ms - self._scenario.start_ms
            ends_ms = began_ms + job.runtime_ms if began_ms + job.runtime_ms > 0 else ends_ms
        self._at(ends_ms, _FINISH, run)

    def _stop(self, run: _Run) -> None:
        for resource, amount in run.amounts.items():
            self._in_use[resource] -= amount

    def _finish(self, run: _Run, now_ms: int) -> None:
        if self._is_stale(run):
            return
        del self._runs[run.job.workload.id]
        self._stop(run)
        self._work(run, now_ms)
        self._outcome.finished.append((run.job, now_ms))
        self._outcome.makespan_ms = now_ms
        root = self._root_of[run.job.workload.cluster_queue]
        root.releases.append((run.job.workload.id, now_ms))
        self._call(root)

    def _work(self, run: _Run, until_ms: int) -> None:
        for resource, amount in run.amounts.items():
            work = amount * (until_ms - run.started_ms)
            self._outcome.useful[resource] = self._outcome.useful.get(resource, 0) + work

    def _at(self, at_ms: int, kind: int, what: _Event) -> None:
        self._sequence += 1
        heappush(self._events, (at_ms, kind, self._sequence, what))

    def _finish_up(self, now_ms: int) -> None:
        """Tells the schedulers the last news and reads off where everything stands."""
        outcome = self._outcome
        outcome.end_ms = now_ms
        outcome.passes = max((root.passes for root in self._roots.values()), default=0)
        if self._runs or self._waiting:
            outcome.makespan_ms = now_ms
        for run in self._runs.values():
            self._work(run, now_ms)
        just_evicted: set[str] = set()
        decided: dict[str, Refusal] = {}
        for root in self._roots.values():
            for workload_id, at_ms in root.releases:
                root.scheduler.release(workload_id, self._scenario.start_ms + at_ms)
            for workload in root.arrivals:
                root.scheduler.enqueue(workload)
            just_evicted.update(root.evicted)
            decided |= {one.workload: one for one in _not_in_force(root)}
        for workload_id in self._waiting:
            if workload_id not in just_evicted:
                job = self._jobs[workload_id]
                scheduler = self._root_of[job.workload.cluster_queue].scheduler
                refusal = decided.get(workload_id) or scheduler.why(workload_id)
                outcome.pending.append((job, refusal))
        outcome.cluster_queues = [
            _node(name, self._root_of[name].scheduler) for name in self._catalog.cluster_queues
        ]
        outcome.cohorts = [
            _node(name, self._roots[self._catalog.root_of_cohort(name)].scheduler)
            for name in self._catalog.cohorts
        ]


def _not_in_force(root: _Root) -> Iterator[Refusal]:
    """Those who wait for nothing but the commit of their admission, for the run was cut off."""
    for admission in root.committing.admissions if root.committing is not None else ():
        text = (
            f"its place is held; its admission comes into force at {root.commits_at_ms / 1000:g} s"
        )
        yield Refusal(
            admission.workload, admission.cluster_queue, Reason.WAITING_FOR_PREEMPTED, text, 0
        )


def _node(name: str, scheduler: Scheduler) -> Node:
    return Node(
        name=name,
        usage=scheduler.usage(name),
        available=scheduler.available(name),
        potential=scheduler.potential(name),
        share=scheduler.share(name),
    )


def _amounts(workload: Workload, assignment: Assignment) -> dict[str, int]:
    """What the admitted pods of a workload use in total."""
    amounts: dict[str, int] = {}
    for pod_set, assigned in zip(workload.pod_sets, assignment.pod_sets, strict=True):
        for resource, per_pod in pod_set.requests.items():
            amounts[resource] = amounts.get(resource, 0) + per_pod * assigned.count
    return amounts
