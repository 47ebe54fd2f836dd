"""Make the NodePools of one cluster match their plans, by server-side apply."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.clusters.capacity import MANAGED, MANAGER, read_pool
from sluice.ports import Clusters, Pools


@dataclass(frozen=True)
class SteerPools:
    """Level-triggered: it writes what the newest plan says, whichever command woke it."""

    clusters: Clusters
    pools: Pools

    def __call__(self, name: str) -> int:
        """How many pools were written; where somebody else has set a knob, nothing is.

        `provision` sees the other manager at its next look and plans around it.
        """
        cluster = self.clusters.cluster(name)
        documents, _ = cluster.list("NodePool", selector=f"{MANAGED}=true")
        present = {pool.name: pool for pool in (read_pool(each, ()) for each in documents)}
        applied = [
            cluster.apply(plan.document(), manager=MANAGER)
            for plan in self.pools.plans(name)
            # Applying to a name that does not exist would create it.
            if plan.pool in present and plan.differs(present[plan.pool])
        ]
        return sum(each is not None for each in applied)
