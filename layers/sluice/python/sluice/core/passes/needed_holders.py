"""Whether a pass has to know who holds the quota, and not only how much of it is held."""

from __future__ import annotations

from collections.abc import Sequence

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import (
    ClusterQueue,
    FlavorFungibility,
    ReclaimWithinCohort,
    StopPolicy,
    WithinClusterQueue,
)
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan


def needs_holders(catalog: QueueCatalog, queues: Sequence[ClusterQueue], *, waiting: bool) -> bool:
    return always_needs_holders(catalog, queues, waiting=waiting) or (
        waiting and any(map(may_evict, queues))
    )


def always_needs_holders(
    catalog: QueueCatalog, queues: Sequence[ClusterQueue], *, waiting: bool
) -> bool:
    """Whether they count even if all that waits fits: stopped queues, budgets, caps, preferences.

    A queue that would rather preempt than try its next flavor, or borrow, has to know whom it could
    preempt before it takes what fits.
    """
    names = {queue.name for queue in queues}
    locals_ = [each for each in catalog.local_queues.values() if each.cluster_queue in names]
    stops = {queue.stop_policy for queue in queues} | {each.stop_policy for each in locals_}
    if StopPolicy.HOLD_AND_DRAIN in stops:
        return True
    return waiting and (
        bool(catalog.budgets)
        or any(each.max_running is not None for each in locals_)
        or any(_counts_running(queue) or _prefers_preemption(queue) for queue in queues)
    )


def _counts_running(queue: ClusterQueue) -> bool:
    return queue.max_running is not None or queue.max_running_per_user is not None


def _prefers_preemption(queue: ClusterQueue) -> bool:
    rules, usual = queue.flavor_fungibility, FlavorFungibility()
    chosen = (rules.when_can_preempt, rules.preference)
    return may_evict(queue) and chosen != (usual.when_can_preempt, usual.preference)


def may_evict(queue: ClusterQueue) -> bool:
    """Whether somebody may have to yield to this queue."""
    preemption = queue.preemption
    return (
        preemption.within_cluster_queue is not WithinClusterQueue.NEVER
        or preemption.reclaim_within_cohort is not ReclaimWithinCohort.NEVER
    )


def leaves_evictor(catalog: QueueCatalog, gathered: CycleInput, cycle: CyclePlan) -> bool:
    """Whether somebody goes on waiting, or starts with fewer pods, who might evict others."""
    admitted = {step.change.before.id for step in (*cycle.admitted, *cycle.expired)}
    return any(
        may_evict(catalog.cluster_queues[workload.cq])
        and (
            workload.id not in admitted
            or any(pod_set.min_count is not None for pod_set in workload.pod_sets)
        )
        for workload in gathered.waiting
    )
