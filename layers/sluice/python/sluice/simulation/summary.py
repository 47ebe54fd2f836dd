"""The end of a simulation: who still waits, and where every queue, cohort and budget stands."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.simulation.outcome import BudgetState, QuotaNodeState

if TYPE_CHECKING:
    from sluice.core.config.budget import Budget
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.scheduling.plan import Refusal
    from sluice.core.scheduling.scheduler import Scheduler
    from sluice.simulation.outcome import SimulationResult
    from sluice.simulation.queueing import Queueing
    from sluice.simulation.roots import Roots


def summarize(
    outcome: SimulationResult, catalog: QueueCatalog, roots: Roots, queueing: Queueing, now_ms: int
) -> None:
    """Tells the schedulers the last news and writes into the outcome what they know then."""
    start_ms = queueing.scenario.start_ms
    outcome.end_ms = now_ms
    outcome.passes = max((root.passes for root in roots.all.values()), default=0)
    just_evicted: set[str] = set()
    decided: dict[str, Refusal] = {}
    for root in roots.all.values():
        root.tell(start_ms)
        just_evicted.update(root.evicted)
        decided |= {one.workload: one for one in root.not_in_force()}
    for workload_id in queueing.waiting:
        if workload_id not in just_evicted:
            job = queueing.job(workload_id)
            scheduler = roots.of_queue[job.workload.cluster_queue].scheduler
            outcome.pending.append((job, decided.get(workload_id) or scheduler.why(workload_id)))
    outcome.pending += queueing.outsiders()
    outcome.budgets = [
        BudgetState(budget.name, _spent(budget, roots, start_ms + now_ms), budget.limit_microusd)
        for budget in catalog.budgets
    ]
    outcome.cluster_queues = [
        _node(name, roots.of_queue[name].scheduler) for name in catalog.cluster_queues
    ]
    outcome.cohorts = [
        _node(name, roots.all[catalog.root_of_cohort(name)].scheduler) for name in catalog.cohorts
    ]


def _spent(budget: Budget, roots: Roots, now: int) -> int:
    """Of the present window, below whichever root its queue stands."""
    return sum(root.scheduler.spent(budget.name, now) for root in roots.all.values())


def _node(name: str, scheduler: Scheduler) -> QuotaNodeState:
    return QuotaNodeState(
        name=name,
        usage=scheduler.usage(name),
        available=scheduler.available(name),
        potential=scheduler.potential(name),
        share=scheduler.share(name),
    )
