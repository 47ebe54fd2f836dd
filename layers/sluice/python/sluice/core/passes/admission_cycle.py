"""One admission cycle over records: what to release, whom to admit, who yields, and why not.

Between the records of the protocol and the scheduler.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from sluice.core.clusters.fleet import busier, choose_cluster, reasons
from sluice.core.config import model
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.policy import Policy
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.checks import asked
from sluice.core.lifecycle.cost_limit import limit_microusd
from sluice.core.lifecycle.record import (
    Intent,
    IntentKind,
    Reservation,
    State,
    Workload,
    awaits_release,
)
from sluice.core.lifecycle.record_entries import Charge
from sluice.core.lifecycle.reservations import cells, held_by, negative
from sluice.core.passes.budget_charges import charges, spent_after
from sluice.core.passes.cluster_feasibility import explain_unplaced
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan, LedgerStep
from sluice.core.passes.pending_deadline import expire, is_late
from sluice.core.passes.placement_preferences import allowed_clusters
from sluice.core.passes.scheduler_state import build_scheduler, pending_workload_info, workload_info
from sluice.core.passes.usage_changes import past_usage_accounts, past_usage_after, usage_after
from sluice.core.scheduling.plan import Plan, PreemptionStep, Refusal
from sluice.core.scheduling.scheduler import Scheduler
from sluice.core.values.reasons import Reason

MOST_PASSES = 20


def decide(
    catalog: QueueCatalog, gathered: CycleInput, policy: Policy, *, of_all: bool = False
) -> CyclePlan:
    """Decides one cycle; the same input gives the same plan.

    With `of_all` the refusals explain everybody who goes on waiting, else the first among equals.
    """
    # 1. Release what has stopped, and end what has waited too long.
    now = gathered.now
    released = tuple(
        LedgerStep(lifecycle.release(w, now), w.reservation.cq, negative(held_by(w)))
        for w in gathered.releasing
        if awaits_release(w) and w.reservation is not None
    )
    expired = tuple(expire(w, now) for w in gathered.waiting if is_late(w, now))
    gathered = _without(gathered, expired)
    gathered = _with_accounts_after(gathered, released, catalog, policy)
    usage = usage_after(gathered.usage, released)
    # 2. Run passes of the scheduler on the ledger as it is then.
    scheduler = build_scheduler(catalog, gathered, usage, policy)
    plan = run_passes(scheduler, now)
    refusals = dict(plan.refusals)
    if of_all:
        refusals |= {name: scheduler.why(name) for name in scheduler.waiting_ids()}
    # 3. Choose a cluster for each admission.
    admitted, unplaced = _place_admissions(catalog, gathered, plan)
    # 4. Ask victims to stop.
    holders = {w.id: w for w in gathered.holders}
    preempted = tuple(
        LedgerStep(
            lifecycle.reclaim(victim, preemption_intent(step.by, step.reason)),
            step.cluster_queue,
            {},
        )
        for step in plan.preemptions
        if (victim := holders.get(step.victim))
        and victim.state in (State.ADMITTED, State.DISPATCHED)
    )
    return CyclePlan(released, admitted, preempted, refusals | unplaced, plan, expired)


def _without(gathered: CycleInput, expired: Sequence[LedgerStep]) -> CycleInput:
    late = {step.change.before.id for step in expired}
    return replace(gathered, waiting=[w for w in gathered.waiting if w.id not in late])


def _with_accounts_after(
    gathered: CycleInput,
    released: Sequence[LedgerStep],
    catalog: QueueCatalog,
    policy: Policy,
) -> CycleInput:
    """Past usage and spending once the releases are done."""
    now = gathered.now
    if (settings := policy.admission_fair_sharing) is not None:
        past = past_usage_after(past_usage_accounts(gathered, settings), released, settings, now)
        gathered = replace(gathered, past=past)
    spent = spent_after(gathered.spent, (s.change for s in released), catalog.budgets, now)
    return replace(gathered, spent=spent)


def _place_admissions(
    catalog: QueueCatalog, gathered: CycleInput, plan: Plan
) -> tuple[tuple[LedgerStep, ...], dict[str, Refusal]]:
    """Admissions with their clusters, and refusals of those that no cluster takes."""
    waiting = {w.id: w for w in gathered.waiting}
    admitted: list[LedgerStep] = []
    refusals: dict[str, Refusal] = {}
    now, sites = gathered.now, gathered.sites
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
        sites = [
            busier(site, workload, assigned) if site.name == cluster else site for site in sites
        ]
        reservation = Reservation(workload.generation, cq, cluster, now, assigned)
        change = lifecycle.admit(
            workload,
            reservation,
            gathered.root,
            now,
            reasons(placement),
            _expected_charges(catalog, gathered, workload, admission.assignment),
            _required_checks(catalog, cq, admission.assignment),
        )
        admitted.append(LedgerStep(change, cq, cells(workload.pod_sets, reservation)))
    return tuple(admitted), refusals


def _expected_charges(
    catalog: QueueCatalog, gathered: CycleInput, workload: Workload, assignment: model.Assignment
) -> tuple[Charge, ...]:
    """What budgets are charged for an admission."""
    if not catalog.budgets and limit_microusd(workload) is None:
        return ()
    info = pending_workload_info(catalog, gathered, workload, workload_info(workload))
    return charges(catalog.budgets, info, assignment, workload, gathered.now)


def _required_checks(
    catalog: QueueCatalog, cq: str, assignment: model.Assignment
) -> tuple[str, ...]:
    if not catalog.admission_checks:
        return ()
    return asked(catalog.cluster_queues[cq], assignment, catalog.admission_checks)


def run_passes(scheduler: Scheduler, now: int) -> Plan:
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
    explained = {
        name: scheduler.why(name) if refusal.reason is Reason.PENDING_EVALUATION else refusal
        for name, refusal in plan.refusals.items()
    }
    return replace(plan, refusals=explained)


def _behind(step: PreemptionStep) -> Refusal:
    text = f"there is room for it, but {step.by} is to have it ({step.reason})"
    return Refusal(step.victim, step.cluster_queue, Reason.BEHIND_HIGHER, text, 0)


def _admitted(plan: Plan) -> set[str]:
    return {admission.workload for admission in plan.admissions}


def preemption_intent(by: str, reason: str) -> Intent:
    """Who is preempted yields to somebody, or (`by` empty) leaves a queue that is stopped."""
    if not by:
        message = f"its queue is stopped ({reason})"
        return Intent(IntentKind.PREEMPT, Reason.QUEUE_CORDONED, message)
    message = f"yields its quota to {by} ({reason})"
    return Intent(IntentKind.PREEMPT, Reason.PREEMPTED, message, by=by)
