"""Runs the scheduling core in virtual time: arrivals, passes, commits, finishes.

A pass decides at once, its decisions take effect after the commit latency, and the next pass of the
same root starts no earlier; roots are independent, as in the deployed system. A pass without any
change to write has nothing to commit. Within one instant, finishes come first, then commits, then
arrivals, then passes.
"""

from __future__ import annotations

from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING

from sluice.core.config.model import Holding, PreemptionReason
from sluice.simulation.event_queue import EventQueue, EventRank
from sluice.simulation.outcome import AdmittedJob, PreemptedJob, ProgressSample, SimulationResult
from sluice.simulation.queued_view import QueuedView
from sluice.simulation.queueing import Queueing
from sluice.simulation.roots import Roots
from sluice.simulation.running import RunningJobs
from sluice.simulation.summary import summarize

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.core.scheduling.scheduler import Plan
    from sluice.simulation.roots import Root
    from sluice.simulation.scenario import Scenario


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
        watch: Callable[[ProgressSample], None] | None = None,
    ) -> None:
        self._scenario, self._until_ms = scenario, until_ms
        self._latency_ms, self._clock, self._watch = commit_latency_ms, cpu_clock, watch
        self._catalog = catalog = scenario.catalog()
        self._events, self._outcome = events, outcome = EventQueue(), SimulationResult()
        self._roots = roots = Roots(scenario, catalog)
        queued_view = QueuedView.of(catalog, scenario.installation)
        self._queueing = queueing = Queueing(scenario, queued_view, events, roots, outcome)
        self._running = RunningJobs(scenario, catalog, events, roots, queueing, outcome)
        # Those still to come, the next one last; sorting is stable, so listing order breaks ties.
        self._to_come = sorted(
            (job for job in reversed(scenario.jobs) if job.holds is None),
            key=attrgetter("arrives_ms"),
            reverse=True,
        )

    def run(self) -> SimulationResult:
        """Runs to the end and says what happened.

        Raises NeverAtRestError when evictions at one instant go round in circles.
        """
        self._begin()
        roots, now_ms = self._roots, 0
        while True:
            while roots.ready:
                self._pass(roots.ready.pop(next(iter(roots.ready))), now_ms)
            if self._latency_ms:
                self._show(now_ms)  # who arrived, or waits for a commit
            if roots.passes_done():
                break
            following_ms = self._next_ms()
            if following_ms is None:
                # Exactly N passes were asked for: the rest of them see nothing new.
                if self._scenario.passes is None:
                    break
                roots.ready |= {one.name: one for one in roots.all.values() if roots.may_pass(one)}
                continue
            if self._until_ms is not None and following_ms > self._until_ms:
                now_ms = self._until_ms
                break
            now_ms = following_ms
            self._events.happen(now_ms)
            self._arrive(now_ms)
        if self._running.running or self._queueing.waiting:
            self._outcome.makespan_ms = now_ms
        self._running.cut_off(now_ms)
        summarize(self._outcome, self._catalog, roots, self._queueing, now_ms)
        return self._outcome

    def _begin(self) -> None:
        """Past usage, then those who hold quota at the start, then the first arrivals."""
        of_queue = self._roots.of_queue
        for job in self._scenario.jobs:
            of_queue[job.workload.cluster_queue].workloads += 1
        started = self._clock()
        for local_queue, consumed in self._scenario.consumed.items():
            target = self._catalog.local_queues[local_queue].cluster_queue
            if target in of_queue:
                of_queue[target].scheduler.set_local_queue_usage(
                    local_queue, consumed, self._scenario.start_ms
                )
        for job in self._scenario.jobs:
            if job.holds is not None:
                holding = Holding(
                    self._queueing.as_seen(job, 0),
                    job.holds.assignment,
                    job.holds.since_ms,
                    job.holds.checkpoint_at_ms,
                )
                of_queue[job.workload.cluster_queue].scheduler.hold(holding)
        self._outcome.decision_seconds += self._clock() - started
        for job in self._scenario.jobs:
            if job.holds is not None:
                self._running.start(job, job.holds.assignment, 0, runs_since_ms=job.holds.since_ms)
        self._arrive(0)
        self._roots.ready = dict(self._roots.all)

    def _next_ms(self) -> int | None:
        times = [at_ms] if (at_ms := self._events.next_ms()) is not None else []
        if self._to_come:
            times.append(self._to_come[-1].arrives_ms)
        return min(times, default=None)

    def _arrive(self, now_ms: int) -> None:
        while self._to_come and self._to_come[-1].arrives_ms <= now_ms:
            self._queueing.arrive(self._to_come.pop(), now_ms)
        self._note_peak()

    def _note_peak(self) -> None:
        pending = len(self._queueing.waiting)
        self._outcome.peak_pending = max(self._outcome.peak_pending, pending)

    def _pass(self, root: Root, now_ms: int) -> None:
        if self._scenario.passes is None:
            root.guard(now_ms)
        scheduler, now = root.scheduler, self._scenario.start_ms + now_ms
        started = self._clock()
        root.tell(self._scenario.start_ms)
        self._running.save(root, now_ms)
        plan = self._queueing.placed(root, scheduler.run_pass(now), now_ms)
        unfinished, wakes_at_ms = scheduler.has_candidates(), scheduler.next_wakeup_ms()
        self._outcome.decision_seconds += self._clock() - started
        self._wake_at(root, wakes_at_ms)
        root.passes += 1
        writes = root.releases or plan.admissions or plan.preemptions
        root.releases, root.arrivals, root.evicted, root.gone = [], [], [], []
        commit = partial(self._commit, root, plan, unfinished)
        if self._latency_ms and writes:
            root.committing, root.commits_at_ms = plan, now_ms + self._latency_ms
            self._events.at(root.commits_at_ms, EventRank.COMMIT, commit)
        else:
            commit(now_ms)

    def _wake_at(self, root: Root, at_ms: int | None) -> None:
        """Time alone may change a decision; `at_ms` is the core's time."""
        if at_ms is not None and at_ms != root.wakes_at_ms:
            root.wakes_at_ms = at_ms
            wake = partial(self._wake, root)
            self._events.at(
                at_ms - self._scenario.start_ms, EventRank.WAKE, wake, root.no_more_wakes
            )

    def _wake(self, root: Root, _now_ms: int) -> None:
        self._roots.call(root)

    def _commit(self, root: Root, plan: Plan, unfinished: bool, now_ms: int) -> None:
        """The decisions take effect: the admitted start, victims give their quota back."""
        root.committing = None
        for admission in plan.admissions:
            job = self._queueing.job(admission.workload)
            self._queueing.leave(job, root)
            self._outcome.waits_ms.setdefault(admission.workload, now_ms - job.arrives_ms)
            cluster = self._queueing.queued_view.where.get(admission.workload, "")
            self._outcome.admitted.append(AdmittedJob(job, admission.assignment, now_ms, cluster))
            self._running.start(job, admission.assignment, now_ms)
        for step in plan.preemptions:
            if not self._running.evict(step.victim, root, now_ms):
                continue  # it finished while the eviction was being committed
            if step.reason is not PreemptionReason.QUEUE_DRAINED:
                self._outcome.preempted.append(PreemptedJob(step, now_ms))
        self._note_peak()
        if unfinished or root.releases or root.arrivals:
            self._roots.call(root)
        self._show(now_ms)

    def _show(self, now_ms: int) -> None:
        if self._watch is not None:
            admissions, pending = len(self._outcome.admitted), len(self._queueing.waiting)
            self._watch(ProgressSample(now_ms, admissions, pending, self._running.in_use))
