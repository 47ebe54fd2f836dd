"""Records as the scheduler sees them, and a scheduler in the state of the ledger."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sluice.core.clusters.fallback import ANY_FLAVOR, Choice, choose
from sluice.core.config import model
from sluice.core.lifecycle.record import State, is_migrating
from sluice.core.lifecycle.reservations import held_by
from sluice.core.lifecycle.run import NO_RUN
from sluice.core.lifecycle.runs import ordering_time
from sluice.core.passes.budget_charges import priced, spent_now
from sluice.core.passes.cluster_feasibility import restrict_to_feasible_flavors
from sluice.core.passes.pending_deadline import deadline_ms
from sluice.core.passes.placement_preferences import (
    restrict_to_placement,
    restrict_to_selected_namespaces,
)
from sluice.core.passes.usage_changes import past_usage_accounts
from sluice.core.scheduling.scheduler import Scheduler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sluice.core.clusters.fallback import Taken
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.policy import Policy
    from sluice.core.lifecycle.record import PodSet, Workload
    from sluice.core.lifecycle.reservations import Cells
    from sluice.core.passes.cycle_plan import CycleInput

# After a workload yields, it may not preempt its preemptor for this long.
PREEMPTION_COOLDOWN_MS: Final = 600_000
# Stands for the holders of quota that were not read.
UNLISTED_PREFIX: Final = "ledger/"


def build_scheduler(
    catalog: QueueCatalog,
    gathered: CycleInput,
    usage: Mapping[str, Mapping[str, int]],
    policy: Policy,
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
        scheduler.hold(holding_of(holder))
    for cq, amounts in sorted(rest.items()):
        if left := {key: amount for key, amount in amounts.items() if amount > 0}:
            scheduler.hold(unlisted_holding(cq, left))
    if policy.admission_fair_sharing is not None:
        for local_queue, account in past_usage_accounts(
            gathered, policy.admission_fair_sharing
        ).items():
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
        seen = pending_workload_info(
            catalog, gathered, workload, workload_info(workload, position, choice)
        )
        scheduler.enqueue(seen, parked=workload.id in parked)
    for workload_id in sorted(expected):
        scheduler.make_room_for(workload_id)
    for victim, preemptor in recent_preemptions(
        (*gathered.waiting, *gathered.holders), gathered.now
    ):
        scheduler.note_yield(victim, preemptor)


def preemptors(holders: Iterable[Workload]) -> frozenset[str]:
    """Workloads that others are stopping for, or have just stopped for."""
    return frozenset(w.intent.by for w in holders if w.intent is not None and w.intent.by)


def recent_preemptions(workloads: Iterable[Workload], now: int) -> Iterator[tuple[str, str]]:
    """Who yielded to whom within the last minutes, as the accounts of their runs tell."""
    for workload in workloads:
        last = workload.runs[-1] if workload.runs else NO_RUN
        if last.by and now - last.ended_at < PREEMPTION_COOLDOWN_MS:
            yield workload.id, last.by


def workload_info(
    workload: Workload, sequence: int = 0, choice: Choice = ANY_FLAVOR
) -> model.WorkloadInfo:
    """A record as the scheduler sees it."""
    options = workload.options
    return model.WorkloadInfo(
        id=workload.id,
        cluster_queue=workload.cq,
        pod_sets=tuple(
            model.PodSetInfo(
                s.name,
                s.count,
                s.requests,
                s.min_count,
                s.node_selector,
                s.affinity,
                s.tolerations,
                allowed(s, choice),
            )
            for s in workload.pod_sets
        ),
        priority=workload.priority,
        queued_at_ms=ordering_time(workload),
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


def pending_workload_info(
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


def holding_of(workload: Workload) -> model.Holding:
    """Raises ValueError for a record without a reservation."""
    if workload.reservation is None:
        raise ValueError(f"workload {workload.id} holds no quota")
    return model.Holding(
        workload_info(workload),
        model.Assignment(workload.reservation.pod_sets),
        since_ms=workload.reservation.at,
        checkpoint_at_ms=workload.checkpoint_at or None,
        evicting=returns_quota(workload),
    )


def returns_quota(workload: Workload) -> bool:
    """Whether its quota comes back once its pods are gone; a migration keeps it."""
    return workload.state is State.RECLAIMING and not is_migrating(workload)


def unlisted_holding(cq: str, amounts: Cells) -> model.Holding:
    """A stand-in that holds what a ClusterQueue's ledger counts beyond the listed holders."""
    pod_sets, assigned = [], []
    for number, (key, amount) in enumerate(sorted(amounts.items())):
        flavor, resource = key.split("|", 1)
        pod_sets.append(model.PodSetInfo(str(number), 1, {resource: amount}))
        assigned.append(model.PodSetAssignment(str(number), 1, {resource: flavor}))
    workload = model.WorkloadInfo(f"{UNLISTED_PREFIX}{cq}", cq, tuple(pod_sets), preemptible=False)
    return model.Holding(workload, model.Assignment(tuple(assigned)), since_ms=0)
