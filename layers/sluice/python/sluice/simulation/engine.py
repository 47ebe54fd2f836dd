"""Runs the scheduling core in virtual time: arrivals, passes, commits, finishes.

A pass decides at once, its decisions take effect after the commit latency, and the next pass of the
same root starts no earlier; roots are independent, as in the deployed system. A pass without any
change to write has nothing to commit. Within one instant, finishes come first, then commits, then
arrivals, then passes.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import attrgetter
from typing import TYPE_CHECKING, Final, TypeAlias

from sluice.core.kinds.budget import HOUR_MS, hourly_price
from sluice.core.kinds.model import CheckState, Holding, PreemptionReason
from sluice.core.lifecycle import dependencies, pending_policy
from sluice.core.lifecycle import workload as lifecycle
from sluice.core.lifecycle.checks import asked
from sluice.core.lifecycle.cost_limit import MICRO, limit_microusd
from sluice.core.lifecycle.workload import TERMINAL, IntentKind, State
from sluice.core.passes import cycle
from sluice.core.scheduling.admission import Plan, Scheduler
from sluice.core.scheduling.plan import Refusal
from sluice.core.values.backoff import backoff_ms
from sluice.core.values.reasons import Reason
from sluice.simulation.asking import Asking
from sluice.simulation.outcome import (
    Account,
    Admitted,
    Ended,
    Moment,
    Node,
    Outcome,
    Preempted,
)
from sluice.simulation.saving import Kept, on_eviction

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from sluice.core.kinds.budget import Budget
    from sluice.core.kinds.model import Assignment, Workload
    from sluice.core.lifecycle.workload import Workload as Submitted
    from sluice.simulation.job import Job
    from sluice.simulation.scenario import Scenario

# More passes of one root at one instant than this for each of its workloads are a loop.
_PASSES_PER_WORKLOAD: Final = 10
_PASSES_AT_LEAST: Final = 1000
_FINISH, _COMMIT, _WAKE = 0, 1, 2
_REVIEW = _ANSWER = _RETURN = _WAKE


class NeverAtRestError(RuntimeError):
    """A root kept deciding at one instant without end: workloads evict each other for ever."""


@dataclass(slots=True, eq=False)
class _Run:
    """One stay of a job on its quota."""

    job: Job
    assignment: Assignment
    amounts: Mapping[str, int]
    admitted_ms: int
    per_hour: int = 0  # micro-dollars
    unanswered: set[str] = field(default_factory=set)
    started_ms: int | None = None
    killed_by: tuple[Reason, str] | None = None


@dataclass(frozen=True, slots=True)
class _Answer:
    """An admission check speaks."""

    run: _Run
    check: str
    state: CheckState


@dataclass(frozen=True, slots=True)
class _Review:
    """Time makes something else of a waiting job, as long as its generation is this one."""

    job: Job
    generation: int


@dataclass(frozen=True, slots=True)
class _Leaves:
    """A victim that was saved, or need not be, gives its quota back."""

    run: _Run
    kept_ms: int  # of what it ran, not done again


@dataclass(frozen=True, slots=True)
class _Return:
    """A job that waited outside comes back into its queue."""

    job: Job


@dataclass(slots=True, eq=False)
class _Root:
    """A root's scheduler, what it has not been told yet, and where its passes stand."""

    name: str
    scheduler: Scheduler
    releases: list[tuple[str, int]] = field(default_factory=list)
    arrivals: list[Workload] = field(default_factory=list)
    evicted: list[str] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    saving: dict[str, _Run] = field(default_factory=dict)
    workloads: int = 0
    waiting: int = 0
    committing: Plan | None = None
    commits_at_ms: int = 0
    passes: int = 0
    passes_at_once: int = 0
    passed_at_ms: int = -1
    wakes_at_ms: int | None = None


_Event: TypeAlias = _Run | _Root | _Answer | _Review | _Return | _Leaves | tuple[_Root, Plan, bool]


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
        self._catalog = scenario.catalog()
        self._asking = Asking.of(self._catalog, scenario.installation)
        self._plain = self._asking.plain
        self._roots = {
            name: _Root(name, Scheduler(self._catalog, name, scenario.policy_of(name)))
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
        # What only jobs with wishes, or below checks, budgets and clusters, need.
        self._records: dict[str, Submitted] = {}
        self._seen: dict[str, Workload] = {}
        self._blocked: dict[str, Job] = {}
        self._outside: dict[str, Refusal] = {}
        self._questions: dict[str, int] = {}
        self._kept_ms: dict[str, int] = {}
        self._targets = {
            each.id
            for job in scenario.jobs
            if job.wishes is not None
            for each in dependencies.of(job.wishes)
        }
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
                holding = Holding(
                    self._as_seen(job, 0),
                    job.holds.assignment,
                    job.holds.since_ms,
                    job.holds.checkpoint_at_ms,
                )
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
            # It was evicted before, or is to be stopped earlier.
            return self._runs.get(event.job.workload.id) is not event
        if isinstance(event, _Answer):
            return self._runs.get(event.run.job.workload.id) is not event.run
        if isinstance(event, _Review):
            name = event.job.workload.id
            return name not in self._waiting or self._record(event.job).generation != (
                event.generation
            )
        if isinstance(event, _Root) and not event.waiting:
            event.wakes_at_ms = None
            return True
        return False

    def _happen(self, now_ms: int) -> None:
        """All finishes, commits and arrivals of one instant."""
        while self._events and self._events[0][0] == now_ms:
            event = heappop(self._events)[3]
            if self._is_stale(event):
                continue
            if isinstance(event, _Run):
                self._finish(event, now_ms)
            elif isinstance(event, _Root):
                self._call(event)
            elif isinstance(event, _Answer):
                self._answer(event, now_ms)
            elif isinstance(event, _Leaves):
                self._leave(event, now_ms)
            elif isinstance(event, _Review):
                self._review(event, now_ms)
            elif isinstance(event, _Return):
                del self._outside[event.job.workload.id]
                self._queue(event.job, now_ms)
            else:
                self._commit(*event, now_ms)
        self._arrive(now_ms)

    def _arrive(self, now_ms: int) -> None:
        while self._to_come and self._to_come[-1].arrives_ms <= now_ms:
            job = self._to_come.pop()
            if job.wishes is not None and job.wishes.blocked:
                self._blocked[job.workload.id] = job
                self._let_in(now_ms)
            else:
                self._queue(job, now_ms)
        self._outcome.peak_pending = max(self._outcome.peak_pending, len(self._waiting))

    def _queue(self, job: Job, now_ms: int) -> None:
        workload = job.workload
        root = self._root_of[workload.cluster_queue]
        root.arrivals.append(self._as_seen(job, now_ms))
        if job.wishes is not None:
            record, now = self._record(job), self._scenario.start_ms + now_ms
            for at in self._asking.changes(record, now):
                if at > now:
                    review = _Review(job, record.generation)
                    self._at(at - self._scenario.start_ms, _REVIEW, review)
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
        if self._scenario.passes is None:
            self._guard(root, now_ms)
        scheduler, releases = root.scheduler, root.releases
        started = self._clock()
        for workload_id, at_ms in releases:
            scheduler.release(workload_id, self._scenario.start_ms + at_ms)
        for workload_id in root.gone:
            scheduler.remove(workload_id)
        for workload in root.arrivals:
            scheduler.enqueue(workload)
        self._save(root, now_ms)
        plan = self._placed(root, scheduler.run_pass(self._scenario.start_ms + now_ms), now_ms)
        unfinished, wakes_at_ms = scheduler.has_candidates(), scheduler.next_wakeup_ms()
        self._outcome.decision_seconds += self._clock() - started
        self._wake_at(root, wakes_at_ms)
        root.passes += 1
        root.releases, root.arrivals, root.evicted, root.gone = [], [], [], []
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
            cluster = self._asking.where.get(admission.workload, "")
            self._outcome.admitted.append(Admitted(job, admission.assignment, now_ms, cluster))
            self._start(job, admission.assignment, now_ms)
        for step in plan.preemptions:
            if (run := self._runs.pop(step.victim, None)) is None:
                continue  # it finished while the eviction was being committed
            if step.reason is not PreemptionReason.QUEUE_DRAINED:
                self._outcome.preempted.append(Preempted(step, now_ms))
            kept = self._kept(root, run, now_ms)
            leaves = _Leaves(run, kept.kept_ms)
            if kept.dump_ms:
                self._at(now_ms + kept.dump_ms, _FINISH, leaves)
            else:
                self._leave(leaves, now_ms)
        self._outcome.peak_pending = max(self._outcome.peak_pending, len(self._waiting))
        if unfinished or root.releases or root.arrivals:
            self._call(root)
        self._show(now_ms)

    def _kept(self, root: _Root, run: _Run, now_ms: int) -> Kept:
        if run.job.wishes is None or run.started_ms is None:
            return Kept(0, 0)
        within_ms = self._scenario.save_victims_ms(root.name)
        return on_eviction(self._record(run.job), now_ms - run.started_ms, within_ms)

    def _leave(self, leaves: _Leaves, now_ms: int) -> None:
        run, name = leaves.run, leaves.run.job.workload.id
        root = self._root_of[run.job.workload.cluster_queue]
        self._stop(run)
        self._put_back(run, now_ms, leaves.kept_ms)
        root.releases.append((name, now_ms))
        root.evicted.append(name)
        self._queue(run.job, now_ms)

    def _show(self, now_ms: int) -> None:
        if self._watch is not None:
            admissions = len(self._outcome.admitted)
            self._watch(Moment(now_ms, admissions, len(self._waiting), self._in_use))

    def _start(
        self, job: Job, assignment: Assignment, now_ms: int, runs_since_ms: int | None = None
    ) -> None:
        run = _Run(job, assignment, _amounts(job.workload, assignment), now_ms)
        self._runs[job.workload.id] = run
        for resource, amount in run.amounts.items():
            self._in_use[resource] = self._in_use.get(resource, 0) + amount
        if (seen := self._seen.get(job.workload.id)) is not None:
            run.per_hour = hourly_price(seen, assignment)
        # Whoever held its quota before the start was asked before.
        run.unanswered = set(self._asked(run)) if runs_since_ms is None else set()
        for check in sorted(run.unanswered):
            answers = self._scenario.installation.answer(check, job.workload.id)
            if answers is not None:
                said = answers.to(self._questions.get(job.workload.id, 0))
                self._at(now_ms + answers.after_ms, _ANSWER, _Answer(run, check, said))
        if not run.unanswered:
            self._start_pods(run, now_ms, runs_since_ms)

    def _asked(self, run: _Run) -> tuple[str, ...]:
        """The checks that must say Ready before its pods may start."""
        checks = self._catalog.admission_checks
        queue = self._catalog.cluster_queues[run.job.workload.cluster_queue]
        return asked(queue, run.assignment, checks) if checks else ()

    def _answer(self, said: _Answer, now_ms: int) -> None:
        run, job = said.run, said.run.job
        if said.state is CheckState.READY:
            run.unanswered.discard(said.check)
            if not run.unanswered:
                self._start_pods(run, now_ms)
            return
        name, root = job.workload.id, self._root_of[job.workload.cluster_queue]
        del self._runs[name]
        self._stop(run)
        self._put_back(run, now_ms, kept_ms=0)
        self._questions[name] = self._questions.get(name, 0) + 1
        root.releases.append((name, now_ms))
        self._call(root)
        text = f"admission check {said.check} rejected it"
        if said.state is CheckState.RETRY:
            text = f"admission check {said.check} asks to try again"
            wait_ms = backoff_ms(self._questions[name] - 1)
            self._at(now_ms + wait_ms, _RETURN, _Return(job))
        self._outside[name] = Refusal(
            name, job.workload.cluster_queue, Reason.ADMISSION_CHECK, text, 0
        )

    def _start_pods(self, run: _Run, now_ms: int, runs_since_ms: int | None = None) -> None:
        """From now on it works; it stops by itself, or by the first of its limits."""
        run.started_ms = now_ms
        job = run.job
        if job.wishes is not None and "interval_seconds" in job.wishes.options.get(
            "checkpoint", {}
        ):
            self._root_of[job.workload.cluster_queue].saving[job.workload.id] = run
        # A holder that should have ended before the start evidently still runs: it gets all of
        # its runtime from the start on.
        began_ms = now_ms if runs_since_ms is None else runs_since_ms - self._scenario.start_ms
        ends = [
            (began_ms + length if began_ms + length > 0 else now_ms + length, order, why)
            for order, (length, why) in enumerate(self._lengths(run))
        ]
        if ends:
            ends_ms, _, run.killed_by = min(ends)
            self._at(ends_ms, _FINISH, run)

    def _lengths(self, run: _Run) -> Iterator[tuple[int, tuple[Reason, str] | None]]:
        """How long it may run at most, and what ends it then; None: it is done."""
        job = run.job
        if (length := job.runs_ms(run.assignment)) is not None:
            yield max(0, length - self._kept_ms.get(job.workload.id, 0)), None
        if job.wishes is None:
            return
        seconds = job.wishes.options.get("deadlines", {}).get("max_runtime_seconds")
        if seconds is not None:
            text = f"it ran longer than its deadlines.maxRuntime of {seconds} s"
            yield 1000 * seconds, (Reason.DEADLINE_PASSED, text)
        most = limit_microusd(job.wishes)
        if most is not None and run.per_hour:
            spent = sum(int(each.get("microusd", 0)) for each in self._record(job).runs)
            paid_ms = -(-max(0, most - spent) * HOUR_MS // run.per_hour)
            waited_ms = 0 if run.started_ms is None else run.started_ms - run.admitted_ms
            text = f"it has cost its ${most / MICRO:.2f} (budget.maxCostUSD)"
            yield max(0, paid_ms - waited_ms), (Reason.COST_LIMIT, text)

    def _stop(self, run: _Run) -> None:
        for resource, amount in run.amounts.items():
            self._in_use[resource] -= amount
        self._asking.leave(run.job, run.amounts)
        self._root_of[run.job.workload.cluster_queue].saving.pop(run.job.workload.id, None)

    def _put_back(self, run: _Run, now_ms: int, kept_ms: int) -> None:
        """What a stay that ended early leaves behind: its account, and work that was saved."""
        job, start_ms = run.job, self._scenario.start_ms
        if self._plain and job.wishes is None:
            return
        name, record = job.workload.id, self._record(job)
        account: dict[str, object] = {
            "generation": record.generation,
            "admitted_at": start_ms + run.admitted_ms,
            "started_at": 0 if run.started_ms is None else start_ms + run.started_ms,
            "ended_at": start_ms + now_ms,
            "outcome": IntentKind.PREEMPT.value,
            "microusd": -(-run.per_hour * (now_ms - run.admitted_ms) // HOUR_MS),
        }
        self._records[name] = replace(
            record, generation=record.generation + 1, runs=(*record.runs, account)
        )
        if kept_ms and run.started_ms is not None:
            self._kept_ms[name] = self._kept_ms.get(name, 0) + kept_ms
            self._work(run, run.started_ms + kept_ms)

    def _finish(self, run: _Run, now_ms: int) -> None:
        job, name = run.job, run.job.workload.id
        del self._runs[name]
        self._stop(run)
        self._work(run, now_ms)
        self._outcome.makespan_ms = now_ms
        root = self._root_of[job.workload.cluster_queue]
        root.releases.append((name, now_ms))
        self._call(root)
        succeeded = run.killed_by is None and not job.fails
        if name in self._targets:
            self._records[name] = replace(
                self._record(job), state=State.FINISHED, result={"succeeded": succeeded}
            )
        if run.killed_by is None:
            self._outcome.finished.append((job, now_ms))
        else:
            reason, text = run.killed_by
            self._outcome.ended.append(Ended(job, now_ms, "FAILED", reason.value, text))
        self._let_in(now_ms)

    def _let_in(self, now_ms: int) -> None:
        """Whoever waited for others that have ended, as the deployed system decides it."""
        now = self._scenario.start_ms + now_ms
        while self._blocked:
            waiting = [self._record(job) for job in self._blocked.values()]
            targets = {name: self._record(self._jobs[name]) for name in self._targets}
            changes = list(dependencies.steps(waiting, targets, {}, now))
            for change in changes:
                job = self._blocked.pop(change.before.id)
                self._change(job, change, now_ms)
                if self._records[job.workload.id].state is State.PENDING:
                    self._queue(job, now_ms)
            if not changes:
                return

    def _change(self, job: Job, change: lifecycle.Change, now_ms: int) -> None:
        """A waiting job's record becomes another one; an end is told."""
        record = self._records[job.workload.id] = lifecycle.after(change)
        if record.state in TERMINAL:
            reason = record.reason
            self._outcome.ended.append(
                Ended(job, now_ms, record.state.value, reason["code"], reason["message"])
            )

    def _review(self, review: _Review, now_ms: int) -> None:
        """Its deadline has passed, its `pendingPolicy` acts, or it asks for something else."""
        job, now = review.job, self._scenario.start_ms + now_ms
        name, root = job.workload.id, self._root_of[job.workload.cluster_queue]
        if root.committing is not None:
            if all(each.workload != name for each in root.committing.admissions):
                self._at(root.commits_at_ms, _REVIEW, review)
            return
        record = self._record(job)
        changes = [cycle.expiry(record, now).change] if cycle.is_late(record, now) else []
        if not changes and all(each.id != name for each in root.arrivals):
            changes = list(pending_policy.steps([record], {name: root.scheduler.why(name)}, now))
        for change in changes:
            self._change(job, change, now_ms)
        if self._records[name].state in TERMINAL:
            del self._waiting[name]
            root.waiting -= 1
            root.arrivals = [each for each in root.arrivals if each.id != name]
            root.gone.append(name)
            self._call(root)
            self._let_in(now_ms)
        elif (before := self._seen[name]) != (seen := self._as_seen(job, now_ms)):
            # Who holds a place for it would lose it by asking again for the same.
            root.arrivals = [each for each in root.arrivals if each is not before]
            root.arrivals.append(seen)
            self._call(root)

    def _record(self, job: Job) -> Submitted:
        return self._records.setdefault(
            job.workload.id, job.wishes or job.record(self._scenario.start_ms)
        )

    def _as_seen(self, job: Job, now_ms: int) -> Workload:
        """The job in the scheduler's eyes at this moment."""
        if self._plain and job.wishes is None:
            return job.workload
        now = self._scenario.start_ms + now_ms
        seen = self._seen[job.workload.id] = self._asking.seen(job, self._record(job), now)
        return seen

    def _save(self, root: _Root, now_ms: int) -> None:
        """Periodic checkpoints until now, for the choice of victims."""
        for name, run in root.saving.items():
            if run.job.wishes is None or run.started_ms is None:
                continue
            interval_ms = 1000 * int(run.job.wishes.options["checkpoint"]["interval_seconds"])
            times = (now_ms - run.started_ms) // interval_ms if interval_ms else 0
            if times:
                at_ms = run.started_ms + times * interval_ms
                root.scheduler.checkpointed(name, self._scenario.start_ms + at_ms)

    def _placed(self, root: _Root, plan: Plan, now_ms: int) -> Plan:
        """The plan without those whom no cluster takes; they give their quota back at once."""
        if not self._scenario.installation.clusters:
            return plan
        admissions, now = [], self._scenario.start_ms + now_ms
        for admission in plan.admissions:
            job = self._jobs[admission.workload]
            gate = self._asking.place(self._record(job), admission.assignment, now)
            if gate is None:
                admissions.append(admission)
                continue
            root.scheduler.release(admission.workload, now)
            root.scheduler.enqueue(replace(self._seen[admission.workload], gate=gate))
        return replace(plan, admissions=tuple(admissions))

    def _work(self, run: _Run, until_ms: int) -> None:
        if run.started_ms is None:
            return
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
            for workload_id in root.gone:
                root.scheduler.remove(workload_id)
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
        outcome.pending += self._outsiders()
        outcome.budgets = [
            Account(budget.name, self._spent(budget, now_ms), budget.limit_microusd)
            for budget in self._catalog.budgets
        ]
        outcome.cluster_queues = [
            _node(name, self._root_of[name].scheduler) for name in self._catalog.cluster_queues
        ]
        outcome.cohorts = [
            _node(name, self._roots[self._catalog.root_of_cohort(name)].scheduler)
            for name in self._catalog.cohorts
        ]

    def _outsiders(self) -> Iterator[tuple[Job, Refusal]]:
        """Those who wait for others to end, or for a check to be asked again."""
        for name, job in self._blocked.items():
            told, queue = self._record(job).reason, job.workload.cluster_queue
            yield job, Refusal(name, queue, Reason(told["code"]), told["message"], 0)
        for name, refusal in self._outside.items():
            yield self._jobs[name], refusal

    def _spent(self, budget: Budget, now_ms: int) -> int:
        """Of the present window, below whichever root its queue stands."""
        now = self._scenario.start_ms + now_ms
        return sum(root.scheduler.spent(budget.name, now) for root in self._roots.values())


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
