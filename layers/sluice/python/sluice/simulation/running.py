"""The running side of a simulation: jobs on their quota, from admission to their end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sluice.core.config.budget import HOUR_MS, hourly_price
from sluice.core.config.model import CheckState
from sluice.core.lifecycle.checks import asked
from sluice.core.lifecycle.cost_limit import MICRO, limit_microusd
from sluice.core.lifecycle.record import IntentKind
from sluice.core.lifecycle.run import Run
from sluice.core.scheduling.plan import Refusal
from sluice.core.values.backoff import backoff_ms
from sluice.core.values.reasons import Reason
from sluice.simulation.event_queue import EventRank
from sluice.simulation.outcome import EndedJob
from sluice.simulation.victim_checkpoint import CheckpointedWork, on_eviction

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import Assignment, WorkloadInfo
    from sluice.simulation.event_queue import EventQueue
    from sluice.simulation.job import Job
    from sluice.simulation.outcome import SimulationResult
    from sluice.simulation.queueing import Queueing
    from sluice.simulation.roots import Root, Roots
    from sluice.simulation.scenario import Scenario


@dataclass(slots=True, eq=False)
class RunningJob:
    """One stay of a job on its quota."""

    job: Job
    assignment: Assignment
    amounts: Mapping[str, int]
    admitted_ms: int
    per_hour: int = 0  # micro-dollars
    unanswered: set[str] = field(default_factory=set)
    started_ms: int | None = None
    killed_by: tuple[Reason, str] | None = None


@dataclass(slots=True, eq=False)
class RunningJobs:
    """Everyone who holds quota. `in_use` is what they use in total, in base units."""

    scenario: Scenario
    catalog: QueueCatalog
    events: EventQueue
    roots: Roots
    queueing: Queueing
    outcome: SimulationResult
    running: dict[str, RunningJob] = field(default_factory=dict)
    in_use: dict[str, int] = field(default_factory=dict)
    _questions: dict[str, int] = field(default_factory=dict)  # how often checks were asked
    _kept_ms: dict[str, int] = field(default_factory=dict)  # work that is not done again
    # Per root, those who save themselves periodically.
    _saving: dict[str, dict[str, RunningJob]] = field(default_factory=dict)

    def start(
        self, job: Job, assignment: Assignment, now_ms: int, runs_since_ms: int | None = None
    ) -> None:
        """Begins a stay; `runs_since_ms`, in the core's time, is of one from before the start."""
        running_job = RunningJob(job, assignment, _amounts(job.workload, assignment), now_ms)
        self.running[job.workload.id] = running_job
        for resource, amount in running_job.amounts.items():
            self.in_use[resource] = self.in_use.get(resource, 0) + amount
        if (seen := self.queueing.seen.get(job.workload.id)) is not None:
            running_job.per_hour = hourly_price(seen, assignment)
        # Whoever held its quota before the start was asked before.
        running_job.unanswered = set(self._asked(running_job)) if runs_since_ms is None else set()
        over = partial(self._is_over, running_job)
        for check in sorted(running_job.unanswered):
            answers = self.scenario.installation.answer(check, job.workload.id)
            if answers is not None:
                state = answers.to(self._questions.get(job.workload.id, 0))
                answer = partial(self._answer, running_job, check, state)
                self.events.at(now_ms + answers.after_ms, EventRank.WAKE, answer, over)
        if not running_job.unanswered:
            self._start_pods(running_job, now_ms, runs_since_ms)

    def _is_over(self, running_job: RunningJob) -> bool:
        """Whether it was evicted before, or has been stopped earlier."""
        return self.running.get(running_job.job.workload.id) is not running_job

    def _asked(self, running_job: RunningJob) -> tuple[str, ...]:
        """The checks that must say Ready before its pods may start."""
        checks = self.catalog.admission_checks
        queue = self.catalog.cluster_queues[running_job.job.workload.cluster_queue]
        return asked(queue, running_job.assignment, checks) if checks else ()

    def _answer(self, running_job: RunningJob, check: str, state: CheckState, now_ms: int) -> None:
        """An admission check speaks."""
        job = running_job.job
        if state is CheckState.READY:
            running_job.unanswered.discard(check)
            if not running_job.unanswered:
                self._start_pods(running_job, now_ms)
            return
        name, root = job.workload.id, self.roots.of_queue[job.workload.cluster_queue]
        del self.running[name]
        self._stop(running_job)
        self._record_run(running_job, now_ms, kept_ms=0)
        self._questions[name] = self._questions.get(name, 0) + 1
        root.releases.append((name, now_ms))
        self.roots.call(root)
        text, back_ms = f"admission check {check} rejected it", None
        if state is CheckState.RETRY:
            text = f"admission check {check} asks to try again"
            back_ms = now_ms + backoff_ms(self._questions[name] - 1)
        queue = job.workload.cluster_queue
        refusal = Refusal(name, queue, Reason.ADMISSION_CHECK, text, 0)
        self.queueing.send_away(job, refusal, back_ms, now_ms)

    def _start_pods(
        self, running_job: RunningJob, now_ms: int, runs_since_ms: int | None = None
    ) -> None:
        """From now on it works; it stops by itself, or by the first of its limits."""
        running_job.started_ms = now_ms
        job = running_job.job
        if job.wishes is not None and job.wishes.options.checkpoint_interval_seconds:
            self._periodic_savers(running_job)[job.workload.id] = running_job
        # A holder that should have ended before the start evidently still runs: it gets all of
        # its runtime from the start on.
        began_ms = now_ms if runs_since_ms is None else runs_since_ms - self.scenario.start_ms
        ends = [
            (began_ms + length if began_ms + length > 0 else now_ms + length, order, why)
            for order, (length, why) in enumerate(self._lengths(running_job))
        ]
        if ends:
            ends_ms, _, running_job.killed_by = min(ends)
            finish, over = partial(self._finish, running_job), partial(self._is_over, running_job)
            self.events.at(ends_ms, EventRank.FINISH, finish, over)

    def _periodic_savers(self, running_job: RunningJob) -> dict[str, RunningJob]:
        root = self.roots.of_queue[running_job.job.workload.cluster_queue]
        return self._saving.setdefault(root.name, {})

    def _lengths(self, running_job: RunningJob) -> Iterator[tuple[int, tuple[Reason, str] | None]]:
        """How long it may run at most, and what ends it then; None: it is done."""
        job = running_job.job
        if (length := job.runs_ms(running_job.assignment)) is not None:
            yield max(0, length - self._kept_ms.get(job.workload.id, 0)), None
        if job.wishes is None:
            return
        seconds = job.wishes.options.deadlines.max_runtime_seconds
        if seconds is not None:
            text = f"it ran longer than its deadlines.maxRuntime of {seconds} s"
            yield 1000 * seconds, (Reason.DEADLINE_PASSED, text)
        most = limit_microusd(job.wishes)
        if most is not None and running_job.per_hour:
            spent = sum(each.microusd for each in self.queueing.record(job).runs)
            paid_ms = -(-max(0, most - spent) * HOUR_MS // running_job.per_hour)
            waited_ms = (
                0
                if running_job.started_ms is None
                else running_job.started_ms - running_job.admitted_ms
            )
            text = f"it has cost its ${most / MICRO:.2f} (budget.maxCostUSD)"
            yield max(0, paid_ms - waited_ms), (Reason.COST_LIMIT, text)

    def evict(self, workload_id: str, root: Root, now_ms: int) -> bool:
        """Ends a stay for another one's sake; False if it has finished meanwhile."""
        running_job = self.running.pop(workload_id, None)
        if running_job is None:
            return False
        kept = self._kept(root, running_job, now_ms)
        leave = partial(self._leave, running_job, root, kept.kept_ms)
        if kept.dump_ms:
            self.events.at(now_ms + kept.dump_ms, EventRank.FINISH, leave)
        else:
            leave(now_ms)
        return True

    def _kept(self, root: Root, running_job: RunningJob, now_ms: int) -> CheckpointedWork:
        if running_job.job.wishes is None or running_job.started_ms is None:
            return CheckpointedWork(0, 0)
        within_ms = self.scenario.save_victims_ms(root.name)
        return on_eviction(
            self.queueing.record(running_job.job), now_ms - running_job.started_ms, within_ms
        )

    def _leave(self, running_job: RunningJob, root: Root, kept_ms: int, now_ms: int) -> None:
        """A victim that was saved, or need not be, gives its quota back."""
        self._stop(running_job)
        self._record_run(running_job, now_ms, kept_ms)
        root.releases.append((running_job.job.workload.id, now_ms))
        root.evicted.append(running_job.job.workload.id)
        self.queueing.queue(running_job.job, now_ms)

    def _stop(self, running_job: RunningJob) -> None:
        for resource, amount in running_job.amounts.items():
            self.in_use[resource] -= amount
        self.queueing.queued_view.leave(running_job.job, running_job.amounts)
        self._periodic_savers(running_job).pop(running_job.job.workload.id, None)

    def _record_run(self, running_job: RunningJob, now_ms: int, kept_ms: int) -> None:
        """What a stay that ended early leaves behind: its run, and work that was saved."""
        job, start_ms = running_job.job, self.scenario.start_ms
        if self.queueing.plain(job):
            return
        name, record = job.workload.id, self.queueing.record(job)
        run = Run(
            generation=record.generation,
            admitted_at=start_ms + running_job.admitted_ms,
            started_at=0 if running_job.started_ms is None else start_ms + running_job.started_ms,
            ended_at=start_ms + now_ms,
            outcome=IntentKind.PREEMPT.value,
            microusd=-(-running_job.per_hour * (now_ms - running_job.admitted_ms) // HOUR_MS),
        )
        self.queueing.records[name] = replace(
            record, generation=record.generation + 1, runs=(*record.runs, run)
        )
        if kept_ms and running_job.started_ms is not None:
            self._kept_ms[name] = self._kept_ms.get(name, 0) + kept_ms
            self._work(running_job, running_job.started_ms + kept_ms)

    def _finish(self, running_job: RunningJob, now_ms: int) -> None:
        job, name = running_job.job, running_job.job.workload.id
        del self.running[name]
        self._stop(running_job)
        self._work(running_job, now_ms)
        self.outcome.makespan_ms = now_ms
        root = self.roots.of_queue[job.workload.cluster_queue]
        root.releases.append((name, now_ms))
        self.roots.call(root)
        if running_job.killed_by is None:
            self.outcome.finished.append((job, now_ms))
        else:
            reason, text = running_job.killed_by
            self.outcome.ended.append(EndedJob(job, now_ms, "FAILED", reason.value, text))
        succeeded = running_job.killed_by is None and not job.fails
        self.queueing.ended(job, now_ms, succeeded=succeeded)

    def save(self, root: Root, now_ms: int) -> None:
        """Periodic checkpoints until now, for the choice of victims."""
        for name, running_job in self._saving.get(root.name, {}).items():
            if running_job.job.wishes is None or running_job.started_ms is None:
                continue
            interval_ms = 1000 * running_job.job.wishes.options.checkpoint_interval_seconds
            times = (now_ms - running_job.started_ms) // interval_ms if interval_ms else 0
            if times:
                at_ms = running_job.started_ms + times * interval_ms
                root.scheduler.checkpointed(name, self.scenario.start_ms + at_ms)

    def cut_off(self, now_ms: int) -> None:
        """Counts the work of those who still run at the end."""
        for running_job in self.running.values():
            self._work(running_job, now_ms)

    def _work(self, running_job: RunningJob, until_ms: int) -> None:
        if running_job.started_ms is None:
            return
        for resource, amount in running_job.amounts.items():
            work = amount * (until_ms - running_job.started_ms)
            self.outcome.useful[resource] = self.outcome.useful.get(resource, 0) + work


def _amounts(workload: WorkloadInfo, assignment: Assignment) -> dict[str, int]:
    """What the admitted pods of a workload use in total."""
    amounts: dict[str, int] = {}
    for pod_set, assigned in zip(workload.pod_sets, assignment.pod_sets, strict=True):
        for resource, per_pod in pod_set.requests.items():
            amounts[resource] = amounts.get(resource, 0) + per_pod * assigned.count
    return amounts
