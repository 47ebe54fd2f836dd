"""Short builders: a test names only what matters to it. CPU is given in whole cores."""

from __future__ import annotations

from typing import Any

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import (
    Assignment,
    ClusterQueue,
    Cohort,
    FlavorQuotas,
    Holding,
    LocalQueue,
    PodSetAssignment,
    PodSetInfo,
    Preemption,
    QueueingStrategy,
    ReclaimWithinCohort,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    WithinClusterQueue,
    WorkloadInfo,
)
from sluice.core.config.policy import Policy
from sluice.core.scheduling.scheduler import Scheduler

HOUR_MS = 3_600_000
NOW_MS = 1_000_000_000

LOWER = WithinClusterQueue.LOWER_PRIORITY
RECLAIM_ANY = Preemption(reclaim_within_cohort=ReclaimWithinCohort.ANY)
RECLAIM_LOWER = Preemption(reclaim_within_cohort=ReclaimWithinCohort.LOWER_PRIORITY)
WITHIN_LOWER = Preemption(within_cluster_queue=LOWER)


def quota(nominal: int, borrowing: int | None = None, lending: int | None = None) -> ResourceQuota:
    def milli(cores: int | None) -> int | None:
        return None if cores is None else cores * 1000

    return ResourceQuota(nominal * 1000, milli(borrowing), milli(lending))


def group(**flavors: ResourceQuota) -> ResourceGroup:
    """One group that covers CPU; names of flavors use underscores for dashes."""
    named = tuple(
        FlavorQuotas(name.replace("_", "-"), {"cpu": each}) for name, each in flavors.items()
    )
    return ResourceGroup(("cpu",), named)


def a_queue(
    name: str,
    nominal: int = 0,
    borrowing: int | None = None,
    lending: int | None = None,
    *,
    strict: bool = False,
    **fields: Any,
) -> ClusterQueue:
    """A queue with CPU quota in the flavor `default`, unless `resource_groups` is given."""
    groups = fields.pop("resource_groups", (group(default=quota(nominal, borrowing, lending)),))
    strategy = QueueingStrategy.STRICT_FIFO if strict else QueueingStrategy.BEST_EFFORT_FIFO
    return ClusterQueue(name, groups, queueing_strategy=strategy, **fields)


def a_cohort(name: str, parent: str | None = None, nominal: ResourceQuota | None = None) -> Cohort:
    return Cohort(name, parent, () if nominal is None else (group(default=nominal),))


def a_workload(
    name: str,
    queue: str,
    cpu: int = 1,
    *,
    count: int = 1,
    min_count: int | None = None,
    queued: int = 0,
    **fields: Any,
) -> WorkloadInfo:
    """`cpu` cores per pod; `queued` seconds after the epoch of the tests."""
    pod_sets = fields.pop("pod_sets", (PodSetInfo("main", count, {"cpu": cpu * 1000}, min_count),))
    return WorkloadInfo(name, queue, pod_sets, queued_at_ms=queued * 1000, **fields)


def running(workload: WorkloadInfo, *, since: int = 0, flavor: str = "default") -> Holding:
    """A holding of all pods in one flavor, since so many seconds after the epoch of the tests."""
    assigned = tuple(
        PodSetAssignment(each.name, each.count, dict.fromkeys(each.requests, flavor))
        for each in workload.pod_sets
    )
    return Holding(workload, Assignment(assigned), since * 1000)


def a_scheduler(
    *objects: ClusterQueue | Cohort | LocalQueue | ResourceFlavor,
    policy: Policy | None = None,
    root: str | None = None,
) -> Scheduler:
    """A scheduler for the only root, or the named one; unnamed flavors are made up."""
    queues = [each for each in objects if isinstance(each, ClusterQueue)]
    cohorts = [each for each in objects if isinstance(each, Cohort)]
    flavors = {each.name: each for each in objects if isinstance(each, ResourceFlavor)}
    groups = [g for queue in queues for g in queue.resource_groups]
    groups += [g for cohort in cohorts for g in cohort.resource_groups]
    for resource_group in groups:
        for flavor in resource_group.flavors:
            flavors.setdefault(flavor.name, ResourceFlavor(flavor.name))
    catalog = QueueCatalog(
        flavors=flavors.values(),
        cohorts=cohorts,
        cluster_queues=queues,
        local_queues=[each for each in objects if isinstance(each, LocalQueue)],
    )
    return Scheduler(catalog, root or catalog.roots()[0], policy or Policy())


def cores(amounts: dict[tuple[str, str], int]) -> int:
    """CPU of the flavor `default` in whole cores."""
    return amounts["default", "cpu"] // 1000


def admitted(scheduler: Scheduler, now_ms: int = NOW_MS) -> list[str]:
    """Runs a pass; names in the order of admission."""
    return [each.workload for each in scheduler.run_pass(now_ms).admissions]


def preempted(scheduler: Scheduler, now_ms: int = NOW_MS) -> dict[str, str]:
    """Runs a pass; victims with the reason."""
    return {each.victim: each.reason.value for each in scheduler.run_pass(now_ms).preemptions}
