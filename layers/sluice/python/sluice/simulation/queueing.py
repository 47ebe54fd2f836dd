"""The waiting side of a simulation: who is in a queue, held back, or waits for others to end."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import partial
from typing import TYPE_CHECKING

from sluice.core.lifecycle import dependencies, pending_policy
from sluice.core.lifecycle.record import TERMINAL, Change, State, after
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.passes.pending_deadline import expire, is_late
from sluice.core.scheduling.plan import Refusal
from sluice.core.values.reasons import Reason
from sluice.simulation.event_queue import EventRank
from sluice.simulation.outcome import EndedJob

if TYPE_CHECKING:
    from collections.abc import Iterator

    from sluice.core.config.model import WorkloadInfo
    from sluice.core.lifecycle.record import Workload as Submitted
    from sluice.core.scheduling.scheduler import Plan
    from sluice.simulation.event_queue import EventQueue
    from sluice.simulation.job import Job
    from sluice.simulation.outcome import SimulationResult
    from sluice.simulation.queued_view import QueuedView
    from sluice.simulation.roots import Root, Roots
    from sluice.simulation.scenario import Scenario


@dataclass(slots=True, eq=False)
class Queueing:
    """Everyone who waits. `waiting` are in their queues, `outside` were sent away for a while.

    Records and what the scheduler saw are kept only of jobs with wishes, or below checks, budgets
    and clusters.
    """

    scenario: Scenario
    queued_view: QueuedView
    events: EventQueue
    roots: Roots
    outcome: SimulationResult
    waiting: dict[str, None] = field(default_factory=dict)
    records: dict[str, Submitted] = field(default_factory=dict)
    seen: dict[str, WorkloadInfo] = field(default_factory=dict)
    outside: dict[str, Refusal] = field(default_factory=dict)
    _blocked: dict[str, Job] = field(default_factory=dict)
    _retried_at: dict[str, int] = field(default_factory=dict)  # epoch ms, orders it from then on
    _jobs: dict[str, Job] = field(init=False)
    _targets: set[str] = field(init=False)

    def __post_init__(self) -> None:
        jobs = self.scenario.jobs
        self._jobs = {job.workload.id: job for job in jobs}
        wishes = [job.wishes for job in jobs if job.wishes is not None]
        self._targets = {each.id for one in wishes for each in one.options.depends_on}

    def job(self, workload_id: str) -> Job:
        return self._jobs[workload_id]

    def plain(self, job: Job) -> bool:
        """Whether the job is at any time what its scenario says."""
        return self.queued_view.plain and job.wishes is None

    def arrive(self, job: Job, now_ms: int) -> None:
        if job.wishes is not None and job.wishes.blocked:
            self._blocked[job.workload.id] = job
            self._let_in(now_ms)
        else:
            self.queue(job, now_ms)

    def queue(self, job: Job, now_ms: int) -> None:
        """Lines the job up, with all that time alone may do to it."""
        workload = job.workload
        root = self.roots.of_queue[workload.cluster_queue]
        root.arrivals.append(self.as_seen(job, now_ms))
        if job.wishes is not None:
            record, now = self.record(job), self.scenario.start_ms + now_ms
            for at in self.queued_view.changes(record, now):
                if at > now:
                    self._review_at(at - self.scenario.start_ms, job, record.generation)
        root.waiting += 1
        self.waiting[workload.id] = None
        self.roots.call(root)

    def leave(self, job: Job, root: Root) -> None:
        del self.waiting[job.workload.id]
        root.waiting -= 1

    def send_away(self, job: Job, refusal: Refusal, back_ms: int | None, now_ms: int) -> None:
        """Keeps a job out of its queue until `back_ms` (None: for ever); it is lined up anew."""
        self.outside[job.workload.id] = refusal
        self._retried_at[job.workload.id] = self.scenario.start_ms + now_ms
        if back_ms is not None:
            self.events.at(back_ms, EventRank.WAKE, partial(self._come_back, job))

    def _come_back(self, job: Job, now_ms: int) -> None:
        del self.outside[job.workload.id]
        self.queue(job, now_ms)

    def ended(self, job: Job, now_ms: int, *, succeeded: bool) -> None:
        """Lets those in who waited for its end."""
        if job.workload.id in self._targets:
            self.records[job.workload.id] = replace(
                self.record(job), state=State.FINISHED, result=JobResult(succeeded=succeeded)
            )
        self._let_in(now_ms)

    def _let_in(self, now_ms: int) -> None:
        """Whoever waited for others that have ended, as the deployed system decides it."""
        now = self.scenario.start_ms + now_ms
        while self._blocked:
            waiting = [self.record(job) for job in self._blocked.values()]
            targets = {name: self.record(self._jobs[name]) for name in self._targets}
            changes = list(dependencies.steps(waiting, targets, {}, now))
            for change in changes:
                job = self._blocked.pop(change.before.id)
                self._change(job, change, now_ms)
                if self.records[job.workload.id].state is State.PENDING:
                    self.queue(job, now_ms)
            if not changes:
                return

    def _change(self, job: Job, change: Change, now_ms: int) -> None:
        """A waiting job's record becomes another one; an end is told."""
        record = self.records[job.workload.id] = after(change)
        if record.state in TERMINAL:
            reason = record.reason
            self.outcome.ended.append(
                EndedJob(job, now_ms, record.state.value, reason.code, reason.message)
            )

    def _review_at(self, at_ms: int, job: Job, generation: int) -> None:
        """Time makes something else of a waiting job, as long as its generation is this one."""
        review = partial(self._review, job, generation)
        self.events.at(at_ms, EventRank.WAKE, review, partial(self._has_moved_on, job, generation))

    def _has_moved_on(self, job: Job, generation: int) -> bool:
        waits = job.workload.id in self.waiting
        return not waits or self.record(job).generation != generation

    def _review(self, job: Job, generation: int, now_ms: int) -> None:
        """Its deadline has passed, its `pendingPolicy` acts, or it asks for something else."""
        now = self.scenario.start_ms + now_ms
        name, root = job.workload.id, self.roots.of_queue[job.workload.cluster_queue]
        if root.committing is not None:
            if all(each.workload != name for each in root.committing.admissions):
                self._review_at(root.commits_at_ms, job, generation)
            return
        record = self.record(job)
        changes = [expire(record, now).change] if is_late(record, now) else []
        if not changes and all(each.id != name for each in root.arrivals):
            changes = list(pending_policy.steps([record], {name: root.scheduler.why(name)}, now))
        for change in changes:
            self._change(job, change, now_ms)
        if self.records[name].state in TERMINAL:
            self.leave(job, root)
            root.arrivals = [each for each in root.arrivals if each.id != name]
            root.gone.append(name)
            self.roots.call(root)
            self._let_in(now_ms)
        elif (before := self.seen[name]) != (seen := self.as_seen(job, now_ms)):
            # Who holds a place for it would lose it by asking again for the same.
            root.arrivals = [each for each in root.arrivals if each is not before]
            root.arrivals.append(seen)
            self.roots.call(root)

    def record(self, job: Job) -> Submitted:
        return self.records.setdefault(
            job.workload.id, job.wishes or job.record(self.scenario.start_ms)
        )

    def as_seen(self, job: Job, now_ms: int) -> WorkloadInfo:
        """The job in the scheduler's eyes at this moment."""
        retried_at = self._retried_at.get(job.workload.id, job.workload.queued_at_ms)
        if self.plain(job):
            if retried_at == job.workload.queued_at_ms:
                return job.workload
            return replace(job.workload, queued_at_ms=retried_at)
        now = self.scenario.start_ms + now_ms
        seen = self.queued_view.seen(job, self.record(job), now)
        seen = self.seen[job.workload.id] = replace(seen, queued_at_ms=retried_at)
        return seen

    def placed(self, root: Root, plan: Plan, now_ms: int) -> Plan:
        """The plan without those whom no cluster takes; they give their quota back at once."""
        if not self.scenario.installation.clusters:
            return plan
        admissions, now = [], self.scenario.start_ms + now_ms
        for admission in plan.admissions:
            job = self._jobs[admission.workload]
            gate = self.queued_view.place(self.record(job), admission.assignment, now)
            if gate is None:
                admissions.append(admission)
                continue
            root.scheduler.release(admission.workload, now)
            root.scheduler.enqueue(replace(self.seen[admission.workload], gate=gate))
        return replace(plan, admissions=tuple(admissions))

    def outsiders(self) -> Iterator[tuple[Job, Refusal]]:
        """Those who wait for others to end, or for a check to be asked again."""
        for name, job in self._blocked.items():
            reason, queue = self.record(job).reason, job.workload.cluster_queue
            yield job, Refusal(name, queue, Reason(reason.code), reason.message, 0)
        for name, refusal in self.outside.items():
            yield self._jobs[name], refusal
