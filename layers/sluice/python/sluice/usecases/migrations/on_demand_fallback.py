"""Who leaves spot for good when EC2 takes its machine, and where a machine for it is ordered."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace

from sluice.core.clusters.fallback import flavor_instead, may_leave
from sluice.core.config.catalog import QueueCatalog
from sluice.core.intake.rendering import PodPlacement, placement
from sluice.core.lifecycle.record import Workload
from sluice.core.passes.flavor_room import list_flavor_rooms, tree_in_use
from sluice.core.scheduling.quota import QuotaTree
from sluice.ports import Catalog, Ledgers, Pools
from sluice.usecases.configuration import configured, market_of


def leaving_spot(
    moving: Iterable[Workload], catalog: Catalog, pools: Pools, now: int
) -> dict[str, str]:
    """Those that have lost spot machines often enough, and the on-demand flavor that each tries."""
    able = [workload for workload in moving if may_leave(workload, now)]
    if not able:
        return {}
    snapshot = catalog.snapshot()
    queues = configured(snapshot).queues.cluster_queues
    plans = {name: pools.plans(name) for name in snapshot.of("Cluster")}
    market = market_of(snapshot, plans, now)
    return {
        w.id: flavor
        for w in able
        if w.cq in queues and (flavor := flavor_instead(w, queues[w.cq], market))
    }


@dataclass(frozen=True)
class OnDemandQuota:
    """The quota of flavors that stay, as their ledgers tell it now; a proposal, no reservation."""

    queues: QueueCatalog
    ledgers: Ledgers
    trees: dict[str, QuotaTree] = field(default_factory=dict)

    def placements(self, workload: Workload, flavor: str) -> Mapping[str, PodPlacement] | None:
        """Where the pod sets of a workload would run with this flavor; None without quota for it.

        Whoever asks next finds less.
        """
        queue, root = self.queues.cluster_queues[workload.cq], workload.root
        if root not in self.trees:
            self.trees[root] = tree_in_use(self.queues, root, self.ledgers.read(root).usage)
        tree = self.trees[root]
        options = {option.flavor: option for option in list_flavor_rooms(workload, queue, tree)}
        if workload.reservation is None or flavor not in options or not options[flavor].fits:
            return None
        tree.add(tree.index[queue.name], options[flavor].cells)
        (group,) = [
            {each.name for each in group.flavors}
            for group in queue.resource_groups
            if flavor in {each.name for each in group.flavors}
        ]
        found = {}
        for assigned in workload.reservation.pod_sets:
            flavors = {r: flavor if f in group else f for r, f in assigned.flavors.items()}
            found[assigned.name] = placement(
                replace(assigned, flavors=flavors), self.queues.flavors
            )
        return found
