"""Whether a request could ever be admitted by its ClusterQueue."""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.policy import Policy
from sluice.core.lifecycle.record import PodSet
from sluice.core.scheduling.scheduler import Scheduler
from sluice.core.values.quantity import format_quantity


def explain_impossible(
    catalog: QueueCatalog,
    cluster_queue: str,
    pod_sets: Sequence[PodSet],
    *,
    ignore_undeclared: bool = False,
) -> str:
    """A sentence that says what can never fit, or an empty text.

    Compares each resource's total (at the minimum counts) with the most that the queue could hold
    over all its flavors. Source: `ExceedsMaxQuota`, quota tree §2.
    """
    potential = _potential(catalog, cluster_queue)
    total: dict[str, int] = {}
    for pod_set in pod_sets:
        count = pod_set.count if pod_set.min_count is None else pod_set.min_count
        for resource, amount in pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * count
    for resource, amount in total.items():
        most = potential.get(resource)
        if most is None and ignore_undeclared:
            continue
        if most is None:
            known = ", ".join(sorted(potential)) or "nothing"
            return f"ClusterQueue {cluster_queue} has no quota for {resource}, only for {known}"
        if amount > most:
            asked, limit = format_quantity(resource, amount), format_quantity(resource, most)
            return (
                f"asks for {asked} {resource}; ClusterQueue {cluster_queue} can never have more"
                f" than {limit}, own quota and borrowing together"
            )
    return ""


@lru_cache(maxsize=64)
def _potential(catalog: QueueCatalog, cluster_queue: str) -> dict[str, int]:
    scheduler = Scheduler(catalog, catalog.root_of(cluster_queue), Policy())
    most: dict[str, int] = {}
    for (_, resource), amount in scheduler.potential(cluster_queue).items():
        most[resource] = most.get(resource, 0) + amount
    return most
