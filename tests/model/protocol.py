"""Steps of one workload, its Jobs, and the dispatchers and admitters that drive it."""

from __future__ import annotations

from enum import Enum, auto
from itertools import product
from typing import TYPE_CHECKING, NamedTuple

from tests.model import quota

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.model.configuration import Configuration
    from tests.model.quota import Tree, Used
    from tests.model.rules import Rules

NOBODY = 0  # no uid
NONE = -1  # no reservation


class State(Enum):
    PENDING = auto()
    ADMITTED = auto()
    DISPATCHED = auto()
    RECLAIMING = auto()
    FINISHED = auto()
    CANCELLED = auto()


TERMINAL = frozenset({State.FINISHED, State.CANCELLED})
MAY_FINISH = frozenset({State.DISPATCHED, State.RECLAIMING})
HOLDS_QUOTA = frozenset({State.ADMITTED, State.DISPATCHED, State.RECLAIMING})


class JobStatus(Enum):
    SUSPENDED = auto()
    RUNNING = auto()
    TERMINATING = auto()  # deletion was accepted, pods may still run, for any length of time
    PODLESS = auto()  # the node died; the Job controller may start another pod
    COMPLETE = auto()
    FAILED = auto()  # its pods obeyed the deletion and exited badly; the object is still there


DELETED = frozenset({JobStatus.TERMINATING, JobStatus.FAILED})
MAY_RUN = frozenset({JobStatus.RUNNING, JobStatus.TERMINATING})


class Intent(Enum):
    NONE = auto()
    REQUEUE = auto()
    END = auto()  # cancelled by its user, or out of retries


class Kind(Enum):
    """Why a step happens; PROGRESS and CRASH must suffice to bring every workload to its end."""

    PROGRESS = auto()  # sweep, observers, Kubernetes and the workers themselves
    CRASH = auto()
    LOST_RESPONSE = auto()
    STALE = auto()  # a message or an observation that time has overtaken
    WORLD = auto()  # users, operators, nodes


class Job(NamedTuple):
    uid: int
    status: JobStatus


class Workload(NamedTuple):
    """The Workloads item, with the part of the cluster that belongs to it."""

    state: State
    generation: int
    uid: int
    reservation: int  # the generation it was given to
    gone: bool  # the mark that the Job of this generation is proven gone
    intent: Intent
    migrating: bool  # a migration record of this generation exists
    jobs: tuple[Job | None, ...]  # per generation: a Job name is taken once at a time
    created: tuple[int, ...]  # per generation: Jobs created so far
    completed: frozenset[int]  # uids whose completion was observed, for ever deliverable
    gated: bool  # quota is reserved, admission checks are pending
    passed: frozenset[int]  # generations to which the checks said Ready, for ever deliverable
    lost: frozenset[int] = frozenset()  # generations whose cluster never answers again


class Phase(Enum):
    WOKEN = auto()
    CREATED = auto()
    CLAIMED = auto()


class Dispatcher(NamedTuple):
    """What a dispatcher holds in memory."""

    phase: Phase
    workload: int
    generation: int
    uid: int


class Op(Enum):
    ADMIT = auto()
    REQUEUE = auto()
    END = auto()
    SETTLE = auto()  # takes the reservation of a terminal workload
    PREEMPT = auto()


RELEASES = frozenset({Op.REQUEUE, Op.END, Op.SETTLE})


class Action(NamedTuple):
    op: Op
    workload: int
    generation: int


Plan = tuple[Action, ...]  # at most one action per workload, as one transaction demands


class Admitter(NamedTuple):
    """A plan with the snapshot that it was made from."""

    current: bool  # the ledger still has the version of the snapshot
    limits_current: bool
    used: Used
    plan: Plan


OUTDATED = Admitter(current=False, limits_current=False, used=(), plan=())


class Ledger(NamedTuple):
    """Versions are not counted: a snapshot only knows whether it is still current."""

    used: Used
    limits: int  # index of the limits in force


def new_workload(configuration: Configuration) -> Workload:
    generations = configuration.last_generation + 1
    return Workload(
        State.PENDING, 0, NOBODY, NONE, gone=False, intent=Intent.NONE, migrating=False,
        jobs=(None,) * generations, created=(0,) * generations, completed=frozenset(),
        gated=False, passed=frozenset(() if configuration.checks else range(generations)),
    )  # fmt: skip


# --- the cluster -------------------------------------------------------------------------------


def with_job(workload: Workload, generation: int, job: Job | None) -> Workload:
    jobs = workload.jobs
    return workload._replace(jobs=(*jobs[:generation], job, *jobs[generation + 1 :]))


def own_job(workload: Workload) -> Job | None:
    """The Job that the current generation claimed; before a claim, whatever bears its name."""
    job = workload.jobs[workload.generation]
    return job if job and workload.uid in (job.uid, NOBODY) else None


def deleted(workload: Workload, generation: int) -> Workload:
    """Foreground deletion: the object stays until the pods are gone."""
    job = workload.jobs[generation]
    if job and job.status is JobStatus.RUNNING:
        return with_job(workload, generation, job._replace(status=JobStatus.TERMINATING))
    return with_job(workload, generation, None)


LocalStep = tuple[str, Kind, Workload]


def cluster_steps(configuration: Configuration, workload: Workload) -> Iterator[LocalStep]:
    """What Kubernetes, its nodes and other people do to the Jobs of one workload."""
    for generation, job in enumerate(workload.jobs):
        if job is None:
            continue
        done = workload._replace(completed=workload.completed | {job.uid})
        if job.status is JobStatus.RUNNING:
            complete = job._replace(status=JobStatus.COMPLETE)
            yield "complete", Kind.PROGRESS, with_job(done, generation, complete)
            if configuration.node_loss:
                podless = job._replace(status=JobStatus.PODLESS)
                yield "node dies", Kind.WORLD, with_job(workload, generation, podless)
        elif job.status in DELETED:
            yield from _removed(workload, done, generation, job)
        elif job.status is JobStatus.PODLESS:
            running = job._replace(status=JobStatus.RUNNING)
            yield "pod replaced", Kind.PROGRESS, with_job(workload, generation, running)
        if job.status not in DELETED:
            if is_orphan(workload, generation, job):
                yield "delete orphan", Kind.PROGRESS, deleted(workload, generation)
            elif (
                configuration.external_deletion
                # The bound is on the adversary: dispatch must always be able to try again.
                and workload.created[generation] < configuration.jobs_per_generation
            ):
                yield "external deletion", Kind.WORLD, deleted(workload, generation)


def _removed(workload: Workload, done: Workload, generation: int, job: Job) -> Iterator[LocalStep]:
    """The end of a Job whose deletion was accepted; `done`: the workload if it completes first."""
    gone = with_job(workload, generation, None)
    if job.status is JobStatus.FAILED:
        yield "removed", Kind.PROGRESS, gone
        return
    yield "terminated", Kind.PROGRESS, gone
    yield "complete in its grace", Kind.WORLD, with_job(done, generation, None)
    failed = job._replace(status=JobStatus.FAILED)
    yield "fails in its grace", Kind.WORLD, with_job(workload, generation, failed)


def is_orphan(workload: Workload, generation: int, job: Job) -> bool:
    """Once true it stays true, so a deletion decided on a stale look is the same deletion."""
    return (
        workload.state not in HOLDS_QUOTA
        or generation != workload.generation
        or workload.uid not in (job.uid, NOBODY)
    )


# --- marks: every one is a conditional write on the Workloads item --------------------------------


def mark_steps(
    configuration: Configuration, rules: Rules, workload: Workload
) -> Iterator[LocalStep]:
    """What observe, act, interrupt, sweep and api write; none of them touches the ledger."""
    yield from _finish(configuration, rules, workload)
    yield from _reclaim(configuration, rules, workload)
    if configuration.migrates:
        yield from _migrate(configuration, rules, workload)
    if workload.gated:
        yield from _check(configuration, rules, workload)
    if configuration.cancels:
        yield from _cancel(rules, workload)
    if configuration.cluster_loss and workload.state in HOLDS_QUOTA:
        yield from _lose_cluster(configuration, rules, workload)
    may_claim = (not workload.gated or not rules.claim_waits_for_checks) and answers(workload)
    if configuration.dispatchers == 0 and workload.state is State.ADMITTED and may_claim:
        yield "dispatch", Kind.PROGRESS, _dispatched_at_once(configuration, workload)


def _finish(configuration: Configuration, rules: Rules, workload: Workload) -> Iterator[LocalStep]:
    for uid in workload.completed:
        generation = (uid - 1) // configuration.jobs_per_generation
        allowed = (
            (workload.state in MAY_FINISH or not rules.finish_checks_state)
            and (uid == workload.uid or not rules.finish_checks_uid)
            and (generation == workload.generation or not rules.finish_checks_generation)
        )
        if allowed and workload.state is not State.FINISHED:
            seen_now = workload.jobs[generation] == Job(uid, JobStatus.COMPLETE)
            finished = workload._replace(state=State.FINISHED, gone=False, intent=Intent.NONE)
            yield "finish", Kind.PROGRESS if seen_now else Kind.STALE, finished
    job = own_job(workload)
    failed = job and job.status is JobStatus.FAILED and workload.state in MAY_FINISH
    if failed and not rules.failure_by_deletion_is_no_finish:
        finished = workload._replace(state=State.FINISHED, gone=False, intent=Intent.NONE)
        yield "finish as failed", Kind.PROGRESS, finished


def _reclaim(configuration: Configuration, rules: Rules, workload: Workload) -> Iterator[LocalStep]:
    state, job = workload.state, own_job(workload)
    retries_left = workload.generation < configuration.last_generation
    reclaimable = {State.ADMITTED, State.DISPATCHED}
    if not rules.reclaim_checks_state:
        reclaimable |= TERMINAL
    lost = state is State.DISPATCHED and job is None and answers(workload)
    if state in reclaimable and retries_left and (lost or configuration.reclaims):
        kind = Kind.PROGRESS if lost else Kind.WORLD
        yield "reclaim", kind, reclaiming(workload, Intent.REQUEUE)
    if lost and not retries_left:
        yield "give up", Kind.PROGRESS, reclaiming(workload, Intent.END)
    if state is not State.RECLAIMING:
        return
    if job and job.status not in DELETED:
        yield "delete Job", Kind.PROGRESS, deleted(workload, workload.generation)
    if not workload.gone:
        proven = (job is None and answers(workload)) or not rules.gone_is_confirmed
        outdated = not rules.gone_checks_generation and any(
            workload.created[g] and workload.jobs[g] is None for g in range(workload.generation)
        )
        if proven or outdated:
            yield "mark gone", Kind.PROGRESS, workload._replace(gone=True)


def answers(workload: Workload) -> bool:
    """Whether the cluster of the present generation can be asked: silence proves nothing."""
    return workload.generation not in workload.lost


def _lose_cluster(
    configuration: Configuration, rules: Rules, workload: Workload
) -> Iterator[LocalStep]:
    """It burns down, and an operator says that it is gone for good, which is proof enough."""
    if not workload.lost:
        burnt = frozenset(range(workload.generation + 1))
        jobs = (None,) * len(workload.jobs)
        yield "cluster lost", Kind.WORLD, workload._replace(jobs=jobs, lost=burnt)
    if workload.gone or (answers(workload) and rules.declared_lost_is_lost):
        return
    cancelled = workload.intent is Intent.END and rules.declaration_keeps_a_cancel
    retries_left = workload.generation < configuration.last_generation
    intent = Intent.REQUEUE if retries_left and not cancelled else Intent.END
    yield "declare lost", Kind.PROGRESS, reclaiming(workload, intent)._replace(gone=True)


def reclaiming(workload: Workload, intent: Intent) -> Workload:
    return workload._replace(state=State.RECLAIMING, intent=intent, gated=False)


def _check(configuration: Configuration, rules: Rules, workload: Workload) -> Iterator[LocalStep]:
    """Somebody outside answers; an answer is a record of its own, and what it does comes later."""
    generation = workload.generation
    if generation not in workload.passed:
        ready = workload._replace(passed=workload.passed | {generation})
        yield "check says Ready", Kind.PROGRESS, ready
    older = workload.passed and not rules.checks_count_for_their_generation
    if generation in workload.passed or older:
        yield "checks passed", Kind.PROGRESS, workload._replace(gated=False)
    if generation < configuration.last_generation:
        yield "check says Retry", Kind.WORLD, reclaiming(workload, Intent.REQUEUE)
    # A deactivated workload waits for its user, who may cancel it; held or not is not modelled.
    yield "check says Rejected", Kind.WORLD, reclaiming(workload, Intent.END)


def _migrate(configuration: Configuration, rules: Rules, workload: Workload) -> Iterator[LocalStep]:
    dispatched, job = workload.state is State.DISPATCHED, own_job(workload)
    if not workload.migrating:
        if dispatched and workload.generation < configuration.last_generation:
            yield "migrate", Kind.WORLD, workload._replace(migrating=True)
        return
    if dispatched and job and job.status not in DELETED:
        yield "delete migrating Job", Kind.PROGRESS, deleted(workload, workload.generation)
    confirmed = (job is None and answers(workload)) or not rules.fence_is_confirmed
    if confirmed and (dispatched or not rules.fence_checks_state):
        yield "fence", Kind.PROGRESS, _fenced(rules, workload)


def _fenced(rules: Rules, workload: Workload) -> Workload:
    generation = workload.generation + 1
    return workload._replace(
        state=State.ADMITTED if rules.fence_skips_queue else State.PENDING,
        generation=generation,
        uid=NOBODY,
        reservation=generation if rules.fence_moves_reservation else NONE,
        gone=False,
        intent=Intent.NONE,
        migrating=False,
        passed=workload.passed | {generation},  # it was checked before it ran at all
    )


def _cancel(rules: Rules, workload: Workload) -> Iterator[LocalStep]:
    state = workload.state
    cancelled = workload._replace(state=State.CANCELLED)
    if state is State.PENDING:
        yield "cancel", Kind.WORLD, cancelled
    elif state is State.ADMITTED:
        waits = rules.cancel_of_admitted_waits_for_gone
        marked = reclaiming(workload, Intent.END) if waits else cancelled
        yield "cancel", Kind.WORLD, marked
    elif state is State.DISPATCHED:
        marked = reclaiming(workload, Intent.END) if rules.cancel_checks_state else cancelled
        yield "cancel", Kind.WORLD, marked
    elif state is State.RECLAIMING and workload.intent is not Intent.END:
        yield "cancel", Kind.WORLD, reclaiming(workload, Intent.END)


# --- dispatch: any number of duplicate commands drives it --------------------------------------


def _with_new_job(
    configuration: Configuration, workload: Workload, generation: int, status: JobStatus
) -> tuple[Workload, int]:
    created = workload.created
    count = created[generation] + 1
    uid = generation * configuration.jobs_per_generation + count
    counted = workload._replace(created=(*created[:generation], count, *created[generation + 1 :]))
    return with_job(counted, generation, Job(uid, status)), uid


def _dispatched_at_once(configuration: Configuration, workload: Workload) -> Workload:
    started, uid = _with_new_job(configuration, workload, workload.generation, JobStatus.RUNNING)
    return started._replace(state=State.DISPATCHED, uid=uid)


def wake_steps(workload: Workload, index: int) -> Iterator[tuple[str, Kind, Dispatcher]]:
    """Commands for every generation that was ever admitted, and the sweep's for the current one."""
    job = own_job(workload)
    wanted = (workload.state is State.ADMITTED and not workload.gated) or (
        workload.state is State.DISPATCHED and job and job.status is JobStatus.SUSPENDED
    )
    never_admitted = workload.state is State.PENDING
    for generation in range(workload.generation + (not never_admitted)):
        kind = Kind.PROGRESS if wanted and generation == workload.generation else Kind.STALE
        yield "command", kind, Dispatcher(Phase.WOKEN, index, generation, NOBODY)


DispatchStep = tuple[str, Kind, Dispatcher | None, Workload]


def dispatch_steps(
    configuration: Configuration, rules: Rules, dispatcher: Dispatcher, workload: Workload
) -> Iterator[DispatchStep]:
    """Create suspended, claim, un-suspend; after each the response may be lost."""
    yield "crash", Kind.CRASH, None, workload
    if dispatcher.phase is Phase.WOKEN:
        yield from _create(configuration, rules, dispatcher, workload)
    elif dispatcher.phase is Phase.CREATED:
        yield from _claim(rules, dispatcher, workload)
    else:
        yield from _unsuspend(rules, dispatcher, workload)


def _create(
    configuration: Configuration, rules: Rules, dispatcher: Dispatcher, workload: Workload
) -> Iterator[DispatchStep]:
    generation = dispatcher.generation
    existing = workload.jobs[generation]
    if existing:
        adopted = dispatcher._replace(phase=Phase.CREATED, uid=existing.uid)
        yield "adopt", Kind.PROGRESS, adopted, workload
    elif generation in workload.lost:
        yield "cluster silent", Kind.PROGRESS, None, workload
    elif workload.created[generation] < configuration.jobs_per_generation:
        status = JobStatus.SUSPENDED if rules.job_is_created_suspended else JobStatus.RUNNING
        made, uid = _with_new_job(configuration, workload, generation, status)
        yield "create", Kind.PROGRESS, dispatcher._replace(phase=Phase.CREATED, uid=uid), made
        yield "create, lost response", Kind.LOST_RESPONSE, dispatcher, made


def _claim(rules: Rules, dispatcher: Dispatcher, workload: Workload) -> Iterator[DispatchStep]:
    claimed = dispatcher._replace(phase=Phase.CLAIMED)
    same_generation = workload.generation == dispatcher.generation
    claimable = (workload.state is State.ADMITTED or not rules.claim_checks_state) and (
        same_generation or not rules.claim_checks_generation
    )
    claimable = claimable and (not workload.gated or not rules.claim_waits_for_checks)
    if claimable:
        mine = workload._replace(state=State.DISPATCHED, uid=dispatcher.uid)
        yield "claim", Kind.PROGRESS, claimed, mine
        yield "claim, lost response", Kind.LOST_RESPONSE, dispatcher, mine
    elif (
        workload.state is State.DISPATCHED
        and same_generation
        and workload.uid == dispatcher.uid
    ) or not rules.unsuspend_follows_claim:  # fmt: skip
        yield "already claimed", Kind.PROGRESS, claimed, workload
    else:
        yield "claim refused", Kind.PROGRESS, None, workload


def _unsuspend(rules: Rules, dispatcher: Dispatcher, workload: Workload) -> Iterator[DispatchStep]:
    job = workload.jobs[dispatcher.generation]
    found = job and (job.uid == dispatcher.uid or not rules.unsuspend_checks_uid)
    if found and job and job.status is JobStatus.SUSPENDED:
        running = with_job(
            workload, dispatcher.generation, job._replace(status=JobStatus.RUNNING)
        )  # fmt: skip
        yield "unsuspend", Kind.PROGRESS, None, running
        yield "unsuspend, lost response", Kind.LOST_RESPONSE, dispatcher, running
    else:
        yield "nothing to unsuspend", Kind.PROGRESS, None, workload


# --- admit: the only writer of the ledger ------------------------------------------------------


def proposals(
    configuration: Configuration, rules: Rules, workloads: tuple[Workload, ...], index: int
) -> Iterator[Action]:
    """What a planner may propose for one workload from the rows that it read."""
    workload = workloads[index]
    op = _due(rules, workload)
    if op:
        yield Action(op, index, workload.generation)
    if configuration.preempts and _is_victim(configuration, workloads, index):
        yield Action(Op.PREEMPT, index, workload.generation)
    if configuration.index_lag:
        if workload.state is not State.PENDING:
            yield Action(Op.ADMIT, index, workload.generation)
        if workload.state in TERMINAL and workload.reservation == NONE:
            yield Action(Op.SETTLE, index, workload.generation)


def _due(rules: Rules, workload: Workload) -> Op | None:
    match workload.state:
        case State.PENDING:
            return Op.ADMIT
        case State.RECLAIMING if workload.gone or not rules.release_waits_for_gone:
            return Op.REQUEUE if workload.intent is Intent.REQUEUE else Op.END
        case State.FINISHED | State.CANCELLED if workload.reservation != NONE:
            return Op.SETTLE
        case State.DISPATCHED if workload.completed and not rules.release_waits_for_finish_mark:
            return Op.SETTLE
    return None


def _is_victim(
    configuration: Configuration, workloads: tuple[Workload, ...], index: int
) -> bool:  # fmt: skip
    workload, specs = workloads[index], configuration.workloads
    return (
        workload.state in {State.ADMITTED, State.DISPATCHED}
        and workload.generation < configuration.last_generation
        and any(
            other.state is State.PENDING and spec.priority > specs[index].priority
            for other, spec in zip(workloads, specs, strict=True)
        )
    )


def plans(
    configuration: Configuration, rules: Rules, ledger: Ledger, workloads: tuple[Workload, ...]
) -> Iterator[Plan]:
    """Every plan that fits the limits that the planner saw, not only the one it would choose."""
    tree = configuration.limits[ledger.limits]
    choices = [
        [None, *proposals(configuration, rules, workloads, index)]
        for index in range(len(workloads))
    ]
    for choice in product(*choices):
        plan = tuple(action for action in choice if action)
        if plan and _fits(configuration, rules, tree, ledger.used, plan):
            yield plan


def _fits(
    configuration: Configuration, rules: Rules, tree: Tree, used: Used, plan: Plan
) -> bool:  # fmt: skip
    if not rules.planner_respects_lending:
        tree = quota.without_lending_limits(tree)
    if not rules.planner_counts_ancestors:
        tree = quota.without_ancestors(tree)
    for action in plan:
        if action.op is not Op.ADMIT:
            used = _counted(configuration, rules, used, action)
    for action in plan:
        if action.op is Op.ADMIT:
            queue = configuration.workloads[action.workload].queue
            if quota.available(tree, used, queue) < 1:
                return False
            used = _counted(configuration, rules, used, action)
    return True


def _counted(configuration: Configuration, rules: Rules, used: Used, action: Action) -> Used:
    if action.op is Op.PREEMPT and rules.victim_keeps_reservation:
        return used
    queue = configuration.workloads[action.workload].queue
    units = used[queue] + (1 if action.op is Op.ADMIT else -1)
    return (*used[:queue], units, *used[queue + 1 :])


def condition_holds(rules: Rules, action: Action, workload: Workload) -> bool:
    """The condition on one workload inside the transaction."""
    if not rules.commit_checks_workloads:
        return True
    if workload.generation != action.generation:
        return False
    reserved = workload.reservation != NONE or not rules.release_checks_reservation
    gone = workload.gone or not rules.release_waits_for_gone
    match action.op:
        case Op.ADMIT:
            return workload.state is State.PENDING
        case Op.PREEMPT:
            return workload.state in {State.ADMITTED, State.DISPATCHED}
        case Op.SETTLE:
            unmarked = not rules.release_waits_for_finish_mark
            return (workload.state in TERMINAL or unmarked) and reserved
        case Op.REQUEUE | Op.END:
            wanted = Intent.REQUEUE if action.op is Op.REQUEUE else Intent.END
            agreed = workload.intent is wanted or not rules.release_checks_intent
            return workload.state is State.RECLAIMING and gone and agreed and reserved


def after(
    configuration: Configuration, rules: Rules, action: Action, workload: Workload
) -> Workload:
    """The workload as the transaction leaves it."""
    match action.op:
        case Op.ADMIT:
            return workload._replace(
                state=State.ADMITTED,
                reservation=workload.generation,
                gated=configuration.checks,
            )
        case Op.PREEMPT:
            kept = workload.reservation if rules.victim_keeps_reservation else NONE
            return reclaiming(workload, Intent.REQUEUE)._replace(reservation=kept)
        case Op.SETTLE:
            return workload._replace(reservation=NONE)
        case Op.END:
            return workload._replace(
                state=State.CANCELLED, reservation=NONE, gone=False, intent=Intent.NONE
            )
        case Op.REQUEUE:
            return workload._replace(
                state=State.PENDING,
                generation=action.generation + 1,
                uid=NOBODY,
                reservation=NONE,
                gone=False,
                intent=Intent.NONE,
                migrating=False,
            )


class Commit(NamedTuple):
    """One outcome of a commit; `admitter` is what the worker holds afterwards."""

    label: str
    kind: Kind
    ledger: Ledger
    workloads: tuple[Workload, ...]
    admitter: Admitter | None
    raises_version: bool


def commit_steps(
    configuration: Configuration,
    rules: Rules,
    admitter: Admitter,
    ledger: Ledger,
    workloads: tuple[Workload, ...],
) -> Iterator[Commit]:
    """The transaction: all of it or nothing, under the version and the limits that were read."""

    def unchanged(label: str, kind: Kind, kept: Admitter | None) -> Commit:
        return Commit(label, kind, ledger, workloads, kept, raises_version=False)

    yield unchanged("crash", Kind.CRASH, None)
    if admitter == OUTDATED:
        yield unchanged("commit refused: version", Kind.PROGRESS, None)
        return
    failed = [
        action
        for action in admitter.plan
        if not condition_holds(rules, action, workloads[action.workload])
    ]
    if failed:
        rest = tuple(action for action in admitter.plan if action not in failed)
        # What a failed release would have freed is not free: the rest must be decided again.
        undecided = rules.failed_release_reads_again and any(a.op in RELEASES for a in failed)
        kept = admitter._replace(plan=rest) if rest and not undecided else None
        yield unchanged("commit refused: workload", Kind.PROGRESS, kept)
        return
    used = admitter.used
    written = list(workloads)
    for action in admitter.plan:
        used = _counted(configuration, rules, used, action)
        written[action.workload] = after(configuration, rules, action, workloads[action.workload])
    committed = ledger._replace(used=used)
    if not rules.commit_is_one_transaction:
        yield Commit("ledger written alone", Kind.PROGRESS, committed, workloads, None, True)
        return
    label = " + ".join(f"{action.op.name.lower()} w{action.workload}" for action in admitter.plan)
    raises = rules.commit_raises_version_on_release or any(
        action.op not in RELEASES for action in admitter.plan
    )
    done = Commit(label, Kind.PROGRESS, committed, tuple(written), None, raises)
    yield done
    retried = outdated(rules, admitter) if raises else admitter
    yield done._replace(label=f"{label}, lost response", kind=Kind.LOST_RESPONSE, admitter=retried)


def outdated(rules: Rules, admitter: Admitter) -> Admitter:
    """A snapshot whose ledger was overtaken: nothing in it matters any more, if versions count."""
    return OUTDATED if rules.commit_checks_version else admitter._replace(current=False)


def outlimited(rules: Rules, admitter: Admitter) -> Admitter:
    """A snapshot whose limits were edited."""
    if rules.commit_checks_limits_version:
        return OUTDATED
    return admitter._replace(limits_current=False)
