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
    agenda: EventQueue
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
        stay = RunningJob(job, assignment, _amounts(job.workload, assignment), now_ms)
        self.running[job.workload.id] = stay
        for resource, amount in stay.amounts.items():
            self.in_use[resource] = self.in_use.get(resource, 0) + amount
        if (seen := self.queueing.seen.get(job.workload.id)) is not None:
            stay.per_hour = hourly_price(seen, assignment)
        # Whoever held its quota before the start was asked before.
        stay.unanswered = set(self._asked(stay)) if runs_since_ms is None else set()
        over = partial(self._is_over, stay)
        for check in sorted(stay.unanswered):
            answers = self.scenario.installation.answer(check, job.workload.id)
            if answers is not None:
                said = answers.to(self._questions.get(job.workload.id, 0))
                answer = partial(self._answer, stay, check, said)
                self.agenda.at(now_ms + answers.after_ms, EventRank.WAKE, answer, over)
        if not stay.unanswered:
            self._start_pods(stay, now_ms, runs_since_ms)

    def _is_over(self, stay: RunningJob) -> bool:
        """Whether it was evicted before, or has been stopped earlier."""
        return self.running.get(stay.job.workload.id) is not stay

    def _asked(self, stay: RunningJob) -> tuple[str, ...]:
        """The checks that must say Ready before its pods may start."""
        checks = self.catalog.admission_checks
        queue = self.catalog.cluster_queues[stay.job.workload.cluster_queue]
        return asked(queue, stay.assignment, checks) if checks else ()

    def _answer(self, stay: RunningJob, check: str, state: CheckState, now_ms: int) -> None:
        """An admission check speaks."""
        job = stay.job
        if state is CheckState.READY:
            stay.unanswered.discard(check)
            if not stay.unanswered:
                self._start_pods(stay, now_ms)
            return
        name, root = job.workload.id, self.roots.of_queue[job.workload.cluster_queue]
        del self.running[name]
        self._stop(stay)
        self._put_back(stay, now_ms, kept_ms=0)
        self._questions[name] = self._questions.get(name, 0) + 1
        root.releases.append((name, now_ms))
        self.roots.call(root)
        text, back_ms = f"admission check {check} rejected it", None
        if state is CheckState.RETRY:
            text = f"admission check {check} asks to try again"
            back_ms = now_ms + backoff_ms(self._questions[name] - 1)
        queue = job.workload.cluster_queue
        refusal = Refusal(name, queue, Reason.ADMISSION_CHECK, text, 0)
        self.queueing.send_away(job, refusal, back_ms)

    def _start_pods(self, stay: RunningJob, now_ms: int, runs_since_ms: int | None = None) -> None:
        """From now on it works; it stops by itself, or by the first of its limits."""
        stay.started_ms = now_ms
        job = stay.job
        if job.wishes is not None and job.wishes.options.checkpoint_interval_seconds:
            self._savers(stay)[job.workload.id] = stay
        # A holder that should have ended before the start evidently still runs: it gets all of
        # its runtime from the start on.
        began_ms = now_ms if runs_since_ms is None else runs_since_ms - self.scenario.start_ms
        ends = [
            (began_ms + length if began_ms + length > 0 else now_ms + length, order, why)
            for order, (length, why) in enumerate(self._lengths(stay))
        ]
        if ends:
            ends_ms, _, stay.killed_by = min(ends)
            finish, over = partial(self._finish, stay), partial(self._is_over, stay)
            self.agenda.at(ends_ms, EventRank.FINISH, finish, over)

    def _savers(self, stay: RunningJob) -> dict[str, RunningJob]:
        root = self.roots.of_queue[stay.job.workload.cluster_queue]
        return self._saving.setdefault(root.name, {})

    def _lengths(self, stay: RunningJob) -> Iterator[tuple[int, tuple[Reason, str] | None]]:
        """How long it may run at most, and what ends it then; None: it is done."""
        job = stay.job
        if (length := job.runs_ms(stay.assignment)) is not None:
            yield max(0, length - self._kept_ms.get(job.workload.id, 0)), None
        if job.wishes is None:
            return
        seconds = job.wishes.options.deadlines.max_runtime_seconds
        if seconds is not None:
            text = f"it ran longer than its deadlines.maxRuntime of {seconds} s"
            yield 1000 * seconds, (Reason.DEADLINE_PASSED, text)
        most = limit_microusd(job.wishes)
        if most is not None and stay.per_hour:
            spent = sum(each.microusd for each in self.queueing.record(job).runs)
            paid_ms = -(-max(0, most - spent) * HOUR_MS // stay.per_hour)
            waited_ms = 0 if stay.started_ms is None else stay.started_ms - stay.admitted_ms
            text = f"it has cost its ${most / MICRO:.2f} (budget.maxCostUSD)"
            yield max(0, paid_ms - waited_ms), (Reason.COST_LIMIT, text)

    def evict(self, workload_id: str, root: Root, now_ms: int) -> bool:
        """Ends a stay for another one's sake; False if it has finished meanwhile."""
        stay = self.running.pop(workload_id, None)
        if stay is None:
            return False
        kept = self._kept(root, stay, now_ms)
        leave = partial(self._leave, stay, root, kept.kept_ms)
        if kept.dump_ms:
            self.agenda.at(now_ms + kept.dump_ms, EventRank.FINISH, leave)
        else:
            leave(now_ms)
        return True

    def _kept(self, root: Root, stay: RunningJob, now_ms: int) -> CheckpointedWork:
        if stay.job.wishes is None or stay.started_ms is None:
            return CheckpointedWork(0, 0)
        within_ms = self.scenario.save_victims_ms(root.name)
        return on_eviction(self.queueing.record(stay.job), now_ms - stay.started_ms, within_ms)

    def _leave(self, stay: RunningJob, root: Root, kept_ms: int, now_ms: int) -> None:
        """A victim that was saved, or need not be, gives its quota back."""
        self._stop(stay)
        self._put_back(stay, now_ms, kept_ms)
        root.releases.append((stay.job.workload.id, now_ms))
        root.evicted.append(stay.job.workload.id)
        self.queueing.queue(stay.job, now_ms)

    def _stop(self, stay: RunningJob) -> None:
        for resource, amount in stay.amounts.items():
            self.in_use[resource] -= amount
        self.queueing.asking.leave(stay.job, stay.amounts)
        self._savers(stay).pop(stay.job.workload.id, None)

    def _put_back(self, stay: RunningJob, now_ms: int, kept_ms: int) -> None:
        """What a stay that ended early leaves behind: its run, and work that was saved."""
        job, start_ms = stay.job, self.scenario.start_ms
        if self.queueing.plain(job):
            return
        name, record = job.workload.id, self.queueing.record(job)
        run = Run(
            generation=record.generation,
            admitted_at=start_ms + stay.admitted_ms,
            started_at=0 if stay.started_ms is None else start_ms + stay.started_ms,
            ended_at=start_ms + now_ms,
            outcome=IntentKind.PREEMPT.value,
            microusd=-(-stay.per_hour * (now_ms - stay.admitted_ms) // HOUR_MS),
        )
        self.queueing.records[name] = replace(
            record, generation=record.generation + 1, runs=(*record.runs, run)
        )
        if kept_ms and stay.started_ms is not None:
            self._kept_ms[name] = self._kept_ms.get(name, 0) + kept_ms
            self._work(stay, stay.started_ms + kept_ms)

    def _finish(self, stay: RunningJob, now_ms: int) -> None:
        job, name = stay.job, stay.job.workload.id
        del self.running[name]
        self._stop(stay)
        self._work(stay, now_ms)
        self.outcome.makespan_ms = now_ms
        root = self.roots.of_queue[job.workload.cluster_queue]
        root.releases.append((name, now_ms))
        self.roots.call(root)
        if stay.killed_by is None:
            self.outcome.finished.append((job, now_ms))
        else:
            reason, text = stay.killed_by
            self.outcome.ended.append(EndedJob(job, now_ms, "FAILED", reason.value, text))
        succeeded = stay.killed_by is None and not job.fails
        self.queueing.ended(job, now_ms, succeeded=succeeded)

    def save(self, root: Root, now_ms: int) -> None:
        """Periodic checkpoints until now, for the choice of victims."""
        for name, stay in self._saving.get(root.name, {}).items():
            if stay.job.wishes is None or stay.started_ms is None:
                continue
            interval_ms = 1000 * stay.job.wishes.options.checkpoint_interval_seconds
            times = (now_ms - stay.started_ms) // interval_ms if interval_ms else 0
            if times:
                at_ms = stay.started_ms + times * interval_ms
                root.scheduler.checkpointed(name, self.scenario.start_ms + at_ms)

    def cut_off(self, now_ms: int) -> None:
        """Counts the work of those who still run at the end."""
        for stay in self.running.values():
            self._work(stay, now_ms)

    def _work(self, stay: RunningJob, until_ms: int) -> None:
        if stay.started_ms is None:
            return
        for resource, amount in stay.amounts.items():
            work = amount * (until_ms - stay.started_ms)
            self.outcome.useful[resource] = self.outcome.useful.get(resource, 0) + work


def _amounts(workload: WorkloadInfo, assignment: Assignment) -> dict[str, int]:
    """What the admitted pods of a workload use in total."""
    amounts: dict[str, int] = {}
    for pod_set, assigned in zip(workload.pod_sets, assignment.pod_sets, strict=True):
        for resource, per_pod in pod_set.requests.items():
            amounts[resource] = amounts.get(resource, 0) + per_pod * assigned.count
    return amounts
