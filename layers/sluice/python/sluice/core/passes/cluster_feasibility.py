"""Which flavors some cluster takes now, so that nobody gets or clears quota that leads nowhere.

What EC2 has sold out is left out before (fallback); this is about clusters: who offers a
flavor, answers, is not cordoned, and is allowed by the workload's `placement`.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.core.checkpoints.drivers import needed_service
from sluice.core.clusters.fleet import choose_cluster, reasons
from sluice.core.clusters.placement import Health
from sluice.core.config.model import Gate, PodSetAssignment
from sluice.core.passes.placement_preferences import allowed_clusters
from sluice.core.scheduling.request_shape import PODS
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from sluice.core.clusters.fallback import Market
    from sluice.core.clusters.fleet import Site
    from sluice.core.clusters.placement import Placement
    from sluice.core.config import model
    from sluice.core.lifecycle.record import Workload


def restrict_to_feasible_flavors(
    asking: model.WorkloadInfo,
    workload: Workload,
    queue: model.ClusterQueue,
    sites: Sequence[Site],
    market: Market,
    now: int,
) -> model.WorkloadInfo:
    """The workload without flavors that no cluster takes; kept out if a group has no other."""
    if asking.gate is not None:
        return asking
    groups = [[flavor.name for flavor in group.flavors] for group in queue.resource_groups]
    offered = list(dict.fromkeys(name for group in groups for name in group))
    dead = {name for name in offered if not _taken(workload, name, sites, now)}
    if not dead:
        return asking
    for names, group in zip(groups, queue.resource_groups, strict=True):
        for pod_set in asking.pod_sets:
            tried = [name for name in pod_set.flavors or offered if name in names]
            if tried and dead.issuperset(tried) and _needs(pod_set, group.covered_resources):
                gate = _gate(workload, tried[0], group.covered_resources, sites, market, now)
                return replace(asking, gate=gate)
    pod_sets = tuple(
        replace(s, flavors=tuple(name for name in s.flavors or offered if name not in dead))
        for s in asking.pod_sets
    )
    return replace(asking, pod_sets=pod_sets)


def explain_unplaced(
    flavors: frozenset[str], market: Market, placement: Placement
) -> tuple[Reason, str]:
    """Why no cluster takes what quota would allow: what EC2 says first, then each cluster."""
    closed = [
        closure
        for name in sorted(market.offers)
        if market.offered(name, flavors)
        for closure in market.closed_to(name, flavors)
    ]
    if closed and placement.reason is Reason.INSUFFICIENT_INSTANCE:
        first = min(closed, key=lambda each: each.until)
        return first.reason, first.message
    message = reasons(placement) or f"no Cluster offers {', '.join(sorted(flavors))}"
    return placement.reason or Reason.CLUSTER_UNREACHABLE, message


def _taken(workload: Workload, flavor: str, sites: Sequence[Site], now: int) -> bool:
    allowed = allowed_clusters(workload, frozenset({flavor}), now)
    return any(
        flavor in site.flavors
        and site.health is Health.READY
        and (allowed is None or site.name in allowed)
        and needed_service(workload.options) in (None, *site.services)
        and workload.kind in site.kinds
        for site in sites
    )


def _needs(pod_set: model.PodSetInfo, resources: Iterable[str]) -> bool:
    return any(resource in pod_set.requests or resource == PODS for resource in resources)


def _gate(
    workload: Workload,
    flavor: str,
    resources: Sequence[str],
    sites: Sequence[Site],
    market: Market,
    now: int,
) -> Gate:
    """In the words in which a placement of the flavor is refused."""
    flavors = frozenset({flavor})
    assigned = [
        PodSetAssignment(s.name, s.count, dict.fromkeys(resources, flavor))
        for s in workload.pod_sets
    ]
    allowed = allowed_clusters(workload, flavors, now)
    placement = choose_cluster(
        workload, assigned, sites, allowed=allowed, closed=market.closed, now=now
    )
    return Gate(*explain_unplaced(flavors, market, placement))
