"""The part of the fleet that concerns a caller: machines that its queues may use."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.clusters.fleet import is_of_flavor
from sluice.core.config.model import ResourceFlavor
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.usecases.configuration import configured

if TYPE_CHECKING:
    from sluice.core.clusters.capacity import PoolPlan
    from sluice.ports import CatalogSnapshot
    from sluice.usecases.callers import Authority


@dataclass(frozen=True, slots=True)
class VisibleFleet:
    """`flavors` are those of the caller's queues; None for an administrator, who sees all.

    `served` maps cluster and NodePool to the flavors that it serves, as far as `provision` knows.
    """

    flavors: Collection[ResourceFlavor] | None
    served: Mapping[tuple[str, str], Collection[str]]

    def shows(self, cluster: str, nodepool: str, row: InventoryRow) -> bool:
        """Whether a machine, or a NodePool (`row` holds what its machines have in common)."""
        if self.flavors is None:
            return True
        if (known := self.served.get((cluster, nodepool))) is not None:
            return any(flavor.name in known for flavor in self.flavors)
        return any(is_of_flavor(row, flavor) for flavor in self.flavors)


def visible_fleet(
    caller: Authority, snapshot: CatalogSnapshot, plans: Iterable[tuple[str, PoolPlan]]
) -> VisibleFleet:
    """`plans` with the names of their clusters."""
    served = {(cluster, plan.pool): plan.flavors for cluster, plan in plans}
    if caller.admin:
        return VisibleFleet(None, served)
    queues = configured(snapshot).queues
    own = {
        local.cluster_queue
        for key, local in queues.local_queues.items()
        if caller.may_see(key.partition("/")[0])
    }
    names = {
        flavor.name
        for name in own & queues.cluster_queues.keys()
        for group in queues.cluster_queues[name].resource_groups
        for flavor in group.flavors
    }
    return VisibleFleet([queues.flavors[n] for n in sorted(names & queues.flavors.keys())], served)
