"""One admission cycle over records: what to release, whom to admit, who yields, and why not.

Between the records of the protocol (workload) and the scheduler (admission).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from sluice.core.clusters.fallback import ANY_FLAVOR, Choice, Market, Taken, choose
from sluice.core.clusters.fleet import Site, busier, choose_cluster, reasons
from sluice.core.config import model
from sluice.core.config.catalog import QueueCatalog
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.checks import asked
from sluice.core.lifecycle.cost_limit import limit_microusd
from sluice.core.lifecycle.record import (
    Change,
    Intent,
    IntentKind,
    PodSet,
    Reservation,
    State,
    Workload,
    awaits_release,
    is_migrating,
)
from sluice.core.lifecycle.reservations import Cells, added, cells, held_by, negative, per_resource
from sluice.core.lifecycle.run import NO_RUN
from sluice.core.lifecycle.runs import queued_at
from sluice.core.passes.budget_charges import charges, priced, spent_after, spent_now
from sluice.core.passes.cluster_feasibility import explain_unplaced, restrict_to_feasible_flavors
from sluice.core.passes.placement_preferences import (
    allowed_clusters,
    restrict_to_placement,
    restrict_to_selected_namespaces,
)
from sluice.core.scheduling.past_usage import PastUsage
from sluice.core.scheduling.scheduler import Plan, PreemptionStep, Refusal, Scheduler
from sluice.core.values.reasons import Reason

MOST_PASSES = 20
# After a workload yields, it may not preempt its preemptor for this long.
PREEMPTION_COOLDOWN_MS = 600_000
UNLISTED_PREFIX = "ledger/"  # prefix of the stand-ins for quota whose holders were not read


@dataclass(frozen=True, slots=True)
class CycleInput:
    """All that a cycle decides on. `usage` is the ledger's; times are epoch ms.

    `holders` are the workloads that hold quota, where somebody may have to yield; quota of holders
    that are not listed counts all the same. `market` tells which clusters offer which flavors, and
    what cannot be had there now. `parked` were refused by the last cycle, and nothing has changed
    for them since. `past` is the ledger's account of each LocalQueue; None where nobody
    has kept any yet. `spent` is its account of budgets. `sites` are the clusters with what is known
    of them, `labels` those of namespaces.
    """

    root: str
    usage: Mapping[str, Mapping[str, int]]
    releasing: Sequence[Workload]
    waiting: Sequence[Workload]
    holders: Sequence[Workload]
    market: Market
    sites: Sequence[Site]
    now: int
    parked: frozenset[str] = frozenset()
    past: Mapping[str, PastUsage] | None = None
    spent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """One change of a record, and what it adds to its ClusterQueue's usage (or gives back)."""

    change: Change
    cq: str
    weight: Cells

    @property
    def line(self) -> list[object]:
        """The step in the audit record: id, generation, ClusterQueue, cells."""
        before = self.change.before
        return [before.id, before.generation, self.cq, self.weight]


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """In the order in which they must be committed: releases first, then admissions."""

    released: tuple[LedgerStep, ...]
    admitted: tuple[LedgerStep, ...]
    preempted: tuple[LedgerStep, ...]
    refusals: Mapping[str, Refusal]
    plan: Plan | None = field(default=None, compare=False)
    expired: tuple[LedgerStep, ...] = ()

    @property
    def steps(self) -> tuple[LedgerStep, ...]:
        return (*self.released, *self.expired, *self.admitted, *self.preempted)


def decide(
    catalog: QueueCatalog, gathered: CycleInput, policy: model.Policy, *, of_all: bool = False
) -> CyclePlan:
    """Same input, same cycle.

    With `of_all` the refusals tell of everybody who goes on waiting, else of the first among equals
    only.
    """
    now = gathered.now
    released = tuple(
        LedgerStep(lifecycle.release(w, now), w.reservation.cq, negative(held_by(w)))
        for w in gathered.releasing
        if awaits_release(w) and w.reservation is not None
    )
    expired = tuple(expiry(w, now) for w in gathered.waiting if is_late(w, now))
    late = {step.change.before.id for step in expired}
    gathered = replace(gathered, waiting=[w for w in gathered.waiting if w.id not in late])
    usage = used_after(gathered.usage, released)
    if (settings := policy.admission_fair_sharing) is not None:
        past = past_after(accounts(gathered, settings), released, settings, now)
        gathered = replace(gathered, past=past)
    settled = spent_after(gathered.spent, (s.change for s in released), catalog.budgets, now)
    gathered = replace(gathered, spent=settled)
    scheduler = schedule(catalog, gathered, usage, policy)
    plan = run(scheduler, now)
    waiting = {w.id: w for w in gathered.waiting}
    holders = {w.id: w for w in gathered.holders}
    admitted, refusals, sites = [], dict(plan.refusals), gathered.sites
    if of_all:
        refusals |= {name: scheduler.why(name) for name in scheduler.waiting_ids()}
    for admission in plan.admissions:
        workload = waiting[admission.workload]
        assigned = admission.assignment.pod_sets
        flavors = admission.assignment.flavors
        placement = choose_cluster(
            workload,
            assigned,
            sites,
            allowed=allowed_clusters(workload, flavors, now),
            closed=gathered.market.closed,
            now=now,
        )
        if placement.cluster is None:
            why, message = explain_unplaced(flavors, gathered.market, placement)
            refusals[workload.id] = Refusal(workload.id, workload.cq, why, message, 0)
            continue
        cluster, cq = placement.cluster, admission.cluster_queue
        sites = [busier(site, workload, assigned) if site.name == cluster else site
                 for site in sites]  # fmt: skip
        reservation = Reservation(workload.generation, cq, cluster, now, assigned)
        weight = cells(workload.pod_sets, reservation)
        costs = (
            charges(
                catalog.budgets,
                asking(catalog, gathered, workload, entry(workload)),
                admission.assignment,
                workload,
                now,
            )
            if catalog.budgets or limit_microusd(workload) is not None
            else ()
        )
        asked_of = (
            asked(catalog.cluster_queues[cq], admission.assignment, catalog.admission_checks)
            if catalog.admission_checks
            else ()
        )
        change = lifecycle.admit(
            workload, reservation, gathered.root, now, reasons(placement), costs, asked_of
        )
        admitted.append(LedgerStep(change, cq, weight))
    preempted = [
        LedgerStep(
            lifecycle.reclaim(victim, preemption(step.by, step.reason)), step.cluster_queue, {}
        )
        for step in plan.preemptions
        if (victim := holders.get(step.victim))
        and victim.state in (State.ADMITTED, State.DISPATCHED)
    ]
    return CyclePlan(released, tuple(admitted), tuple(preempted), refusals, plan, expired)


def run(scheduler: Scheduler, now: int) -> Plan:
    """Passes until another one could decide nothing more; together they are one plan.

    A blocked head keeps room for itself in the first pass only; the next lets others by.
    """
    plan = scheduler.run_pass(now, explain=True)
    for _ in range(MOST_PASSES):
        if not scheduler.has_candidates():
            break
        more = scheduler.run_pass(now, explain=True)
        # Nobody starts whom the same cycle would stop again.
        undone = {s.victim: s for s in more.preemptions if s.victim in _admitted(plan)}
        for victim in undone:
            scheduler.release(victim, now)
        refusals = {**plan.refusals, **more.refusals}
        plan = Plan(
            tuple(a for a in plan.admissions if a.workload not in undone) + more.admissions,
            plan.preemptions + tuple(s for s in more.preemptions if s.victim not in undone),
            {name: refusal for name, refusal in refusals.items() if name not in _admitted(more)}
            | {victim: _behind(step) for victim, step in undone.items()},
        )
    told = {
        name: scheduler.why(name) if refusal.reason is Reason.PENDING_EVALUATION else refusal
        for name, refusal in plan.refusals.items()
    }
    return replace(plan, refusals=told)


def _behind(step: PreemptionStep) -> Refusal:
    text = f"there is room for it, but {step.by} is to have it ({step.reason})"
    return Refusal(step.victim, step.cluster_queue, Reason.BEHIND_HIGHER, text, 0)


def _admitted(plan: Plan) -> set[str]:
    return {admission.workload for admission in plan.admissions}


def schedule(
    catalog: QueueCatalog,
    gathered: CycleInput,
    usage: Mapping[str, Mapping[str, int]],
    policy: model.Policy,
) -> Scheduler:
    """The scheduler in the state of the ledger: holders by name, the rest of the usage unlisted."""
    scheduler = Scheduler(catalog, gathered.root, policy)
    rest = {cq: dict(amounts) for cq, amounts in usage.items()}
    released = {w.id for w in gathered.releasing}
    for holder in gathered.holders:
        if holder.reservation is None or holder.id in released:
            continue
        for key, amount in held_by(holder).items():
            of_queue = rest.get(holder.reservation.cq, {})
            of_queue[key] = of_queue.get(key, 0) - amount
        scheduler.hold(holding(holder))
    for cq, amounts in sorted(rest.items()):
        if left := {key: amount for key, amount in amounts.items() if amount > 0}:
            scheduler.hold(unlisted(cq, left))
    if policy.admission_fair_sharing is not None:
        for local_queue, account in accounts(gathered, policy.admission_fair_sharing).items():
            scheduler.set_account(local_queue, account)
    for budget in catalog.budgets:
        spent = spent_now(budget, gathered.spent, gathered.holders, gathered.now)
        scheduler.set_spent(budget.name, spent, gathered.now)
    _line_up(scheduler, gathered, catalog)
    return scheduler


def _line_up(scheduler: Scheduler, gathered: CycleInput, catalog: QueueCatalog) -> None:
    """Those who wait, with what earlier passes decided about them."""
    expected = preemptors((*gathered.holders, *gathered.releasing))
    parked = gathered.parked - expected
    taken: Taken = {}
    for position, workload in enumerate(gathered.waiting):
        choice = choose(workload, catalog.cluster_queues[workload.cq], gathered.market, taken)
        seen = asking(catalog, gathered, workload, entry(workload, position, choice))
        scheduler.enqueue(seen, parked=workload.id in parked)
    for workload_id in sorted(expected):
        scheduler.make_room_for(workload_id)
    for victim, preemptor in yielded((*gathered.waiting, *gathered.holders), gathered.now):
        scheduler.note_yield(victim, preemptor)


def preemptors(holders: Iterable[Workload]) -> frozenset[str]:
    """Workloads that others are stopping for, or have just stopped for."""
    return frozenset(w.intent.by for w in holders if w.intent is not None and w.intent.by)


def yielded(workloads: Iterable[Workload], now: int) -> Iterator[tuple[str, str]]:
    """Who yielded to whom within the last minutes, as the accounts of their runs tell."""
    for workload in workloads:
        last = workload.runs[-1] if workload.runs else NO_RUN
        if last.by and now - last.ended_at < PREEMPTION_COOLDOWN_MS:
            yield workload.id, last.by


def used_after(
    usage: Mapping[str, Mapping[str, int]], steps: Iterable[LedgerStep]
) -> dict[str, Cells]:
    """Raises ValueError if a release finds less in the ledger than it gives back."""
    total = {cq: dict(amounts) for cq, amounts in usage.items()}
    for step in steps:
        if step.weight:
            total = added(total, step.cq, step.weight)
    return total


def accounts(gathered: CycleInput, settings: model.AdmissionFairSharing) -> Mapping[str, PastUsage]:
    """Past usage as the ledger has it; where it has none, counting begins with the holders."""
    if gathered.past is not None:
        return gathered.past
    opened: dict[str, PastUsage] = {}
    for holder in gathered.holders:
        account = opened.get(holder.queue, PastUsage(gathered.now))
        used = per_resource(held_by(holder))
        opened[holder.queue] = account.started(used, gathered.now, settings, penalty=False)
    return opened


def past_after(
    past: Mapping[str, PastUsage],
    steps: Iterable[LedgerStep],
    settings: model.AdmissionFairSharing,
    now: int,
) -> dict[str, PastUsage]:
    """The accounts once these steps are done; one that is as good as none vanishes."""
    total = dict(past)
    for step in steps:
        if not step.weight:
            continue
        before = step.change.before
        account = total.get(before.queue, PastUsage(now))
        if before.reservation is None:
            used = per_resource(step.weight)
            account = account.started(used, now, settings, penalty=True)
        else:
            used = per_resource(negative(step.weight))
            account = account.stopped(used, before.reservation.at, now, settings)
        total[before.queue] = account
    faded = {queue: account.advanced(now, settings) for queue, account in total.items()}
    return {queue: account for queue, account in faded.items() if not account.forgotten}


def deadline_ms(workload: Workload) -> int | None:
    """When it has waited as long as it may, since its submission or since it ran last."""
    seconds = workload.options.deadlines.max_pending_seconds
    if seconds is None:
        return None
    return queued_at(workload) + int(1000 * seconds)


def is_late(workload: Workload, now: int) -> bool:
    deadline = deadline_ms(workload)
    return deadline is not None and deadline < now


def expiry(workload: Workload, now: int) -> LedgerStep:
    seconds = workload.options.deadlines.max_pending_seconds
    message = f"it waited longer than its deadlines.maxPending of {seconds} s"
    change = lifecycle.cancel_pending(workload, message, now, Reason.DEADLINE_PASSED)
    return LedgerStep(change, workload.cq, {})


def entry(workload: Workload, sequence: int = 0, choice: Choice = ANY_FLAVOR) -> model.WorkloadInfo:
    """A record as the scheduler sees it."""
    options = workload.options
    return model.WorkloadInfo(
        id=workload.id,
        cluster_queue=workload.cq,
        pod_sets=tuple(
            model.PodSetInfo(s.name, s.count, s.requests, s.min_count, flavors=allowed(s, choice))
            for s in workload.pod_sets
        ),
        priority=workload.priority,
        queued_at_ms=workload.created_at,
        sequence=sequence,
        local_queue=workload.queue,
        user=workload.submitted_by or None,
        # One that is being moved is left alone until it has arrived.
        preemptible=options.preemptible and workload.state is not State.RECLAIMING,
        min_run_ms=options.min_runtime_ms,
        deadline_ms=deadline_ms(workload),
        gate=choice.gate,
    )


def allowed(pod_set: PodSet, choice: Choice) -> tuple[str, ...] | None:
    """The flavors that a pod set may use, in order; None leaves it to its ClusterQueue."""
    if choice.flavors is None:
        return tuple(pod_set.flavors) or None
    return tuple(f for f in choice.flavors if not pod_set.flavors or f in pod_set.flavors)


def asking(
    catalog: QueueCatalog, gathered: CycleInput, workload: Workload, plain: model.WorkloadInfo
) -> model.WorkloadInfo:
    """A waiting record as the scheduler sees it, with its wishes and prices."""
    queue = catalog.cluster_queues[workload.cq]
    wanted = restrict_to_placement(plain, workload, queue, gathered.now)
    wanted = restrict_to_selected_namespaces(wanted, workload.namespace, queue, gathered.labels)
    wanted = restrict_to_feasible_flavors(
        wanted, workload, queue, gathered.sites, gathered.market, gathered.now
    )
    return priced(wanted, workload, queue, gathered.sites, catalog.budgets)


def holding(workload: Workload) -> model.Holding:
    """Raises ValueError for a record without a reservation."""
    if workload.reservation is None:
        raise ValueError(f"workload {workload.id} holds no quota")
    return model.Holding(
        entry(workload),
        model.Assignment(workload.reservation.pod_sets),
        since_ms=workload.reservation.at,
        checkpoint_at_ms=workload.checkpoint_at or None,
        evicting=yields(workload),
    )


def yields(workload: Workload) -> bool:
    """Whether its quota comes back once its pods are gone; a migration keeps it."""
    return workload.state is State.RECLAIMING and not is_migrating(workload)


def unlisted(cq: str, amounts: Cells) -> model.Holding:
    """A stand-in that holds what a ClusterQueue's ledger counts beyond the listed holders."""
    pod_sets, assigned = [], []
    for number, (key, amount) in enumerate(sorted(amounts.items())):
        flavor, resource = key.split("|", 1)
        pod_sets.append(model.PodSetInfo(str(number), 1, {resource: amount}))
        assigned.append(model.PodSetAssignment(str(number), 1, {resource: flavor}))
    workload = model.WorkloadInfo(f"{UNLISTED_PREFIX}{cq}", cq, tuple(pod_sets), preemptible=False)
    return model.Holding(workload, model.Assignment(tuple(assigned)), since_ms=0)


def preemption(by: str, reason: str) -> Intent:
    """Who is preempted yields to somebody, or (`by` empty) leaves a queue that is stopped."""
    if not by:
        message = f"its queue is stopped ({reason})"
        return Intent(IntentKind.PREEMPT, Reason.QUEUE_CORDONED, message)
    message = f"yields its quota to {by} ({reason})"
    return Intent(IntentKind.PREEMPT, Reason.PREEMPTED, message, by=by)
