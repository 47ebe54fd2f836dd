"""Fair shares: of ClusterQueues and cohorts in what is lent, of LocalQueues in what was used."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.passes.flavor_room import tree_in_use
from sluice.core.scheduling.dominant_share import DominantShares
from sluice.core.scheduling.past_usage import LocalQueueUsage, PastUsage
from sluice.core.values.quantity import format_quantity
from sluice.usecases.configuration import Configured, configured
from sluice.usecases.views import Json, quantities

if TYPE_CHECKING:
    from sluice.core.scheduling.quota import QuotaTree
    from sluice.ports import LedgerState
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

MIB = 2**20


@dataclass(frozen=True)
class Shares:
    """The numbers that a pass goes by: from the ledger as it is, past usage faded up to now."""

    query: Query

    def __call__(self, caller: Authority) -> Json:
        """Trees and LocalQueues of the caller; all for administrators."""
        config = configured(self.query.catalog.snapshot())
        local = {
            key: each
            for key, each in config.queues.local_queues.items()
            if caller.may_see(key.partition("/")[0])
            and each.cluster_queue in config.queues.cluster_queues
        }
        mine = {each.cluster_queue for each in local.values()}
        if caller.admin:
            mine = set(config.queues.cluster_queues)
        nodes, users = [], []
        for root in sorted({config.queues.root_of(name) for name in mine}):
            ledger = self.query.ledgers.read(root)
            nodes += _nodes(tree_in_use(config.queues, root, ledger.usage), mine, config, root)
            below = [
                key for key in sorted(local) if _root(config, local[key].cluster_queue) == root
            ]
            users += _users(config, ledger, below, self.query.clock.now())
        return {"items": nodes, "localQueues": users}


def _root(config: Configured, cluster_queue: str) -> str:
    return config.queues.root_of(cluster_queue)


def _nodes(tree: QuotaTree, mine: set[str], config: Configured, root: str) -> list[Json]:
    """The queues that are meant and the cohorts above them, each below its parent."""
    shares, shown = DominantShares(tree), set[int]()
    for name in mine & tree.index.keys():
        shown |= set(tree.paths[tree.index[name]])
    in_force = config.policies.of(root).fair_sharing is not None
    found = []
    for node in sorted(shown, key=lambda n: [tree.names[at] for at in reversed(tree.paths[n])]):
        share, parent = shares.share(node), tree.parent[node]
        borrowed = {
            resource: amount
            for cell, (_, resource) in enumerate(tree.cells)
            if (amount := tree.usage[cell][node] - tree.subtree_quota[cell][node]) > 0
        }
        found.append(
            {
                "name": tree.names[node],
                "kind": "ClusterQueue" if tree.is_queue[node] else "Cohort",
                "parent": tree.names[parent] if parent >= 0 else "",
                "depth": len(tree.paths[node]) - 1,
                "weight": tree.weights[node],
                "share": share.rounded(),
                "resource": share.resource,
                "borrowed": quantities(borrowed),
                "decides": in_force,
            }
        )
    return found


def _users(config: Configured, ledger: LedgerState, keys: list[str], now: int) -> list[Json]:
    """Past usage of LocalQueues, where the policy of their root counts it."""
    settings = config.policies.of(ledger.root).admission_fair_sharing
    if settings is None:
        return []
    local = config.queues.local_queues
    usage = LocalQueueUsage(settings, {key: local[key].fair_weight_milli for key in keys})
    accounts = {key: (ledger.past or {}).get(key, PastUsage(now)) for key in keys}
    for key, account in accounts.items():
        usage.set_account(key, account)
    return [
        {
            "name": key,
            "clusterQueue": local[key].cluster_queue,
            "weight": local[key].fair_weight_milli / 1_000,
            "consumed": _whole(usage.consumed(key, now)),
            "inUse": quantities(accounts[key].in_use),
            "pendingPenalties": len(accounts[key].advanced(now, settings).starts),
            "score": None if math.isinf(score := usage.weighted(key, now)) else score,
            "halfLifeSeconds": settings.half_life_ms / 1_000,
        }
        for key in keys
    ]


def _whole(consumed: Mapping[str, float]) -> dict[str, str]:
    """Averages as text; of memory in whole MiB."""
    grains = {name: MIB if name == "memory" else 1 for name in consumed}
    return {
        name: format_quantity(name, grains[name] * round(amount / grains[name]))
        for name, amount in consumed.items()
    }
