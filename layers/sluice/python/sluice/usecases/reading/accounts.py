"""Queues and capacity: who may use how much, who does, and on which machines."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from math import ceil
from typing import TYPE_CHECKING, Any

from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.quarantine import Ban, in_force
from sluice.core.config.model import StopPolicy
from sluice.core.lifecycle.indexes import pending_key
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.runs import first_admitted_at
from sluice.core.migrations import checkpointing
from sluice.core.passes.budget_charges import spent_now
from sluice.core.passes.flavor_room import tree_in_use
from sluice.core.scheduling.dominant_share import DominantShares
from sluice.core.values.quantity import format_quantity, parse_quantity
from sluice.usecases.configuration import configured
from sluice.usecases.fleet import GONE_MS
from sluice.usecases.reading.query import DAY_MS
from sluice.usecases.reading.visible_fleet import visible_fleet
from sluice.usecases.views import Json, reason

if TYPE_CHECKING:
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import ClusterQueue
    from sluice.core.scheduling.quota import QuotaTree
    from sluice.ports import CatalogSnapshot
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

COUNTED = 1_000  # waiting workloads of a queue that are counted one by one
RECENT = 200


@dataclass(frozen=True)
class Accounts:
    """Aggregates over what `query` reads."""

    query: Query

    def queues(self, caller: Authority) -> Json:
        """Every ClusterQueue that a LocalQueue of the caller leads to; all for administrators."""
        snapshot = self.query.catalog.snapshot()
        config = configured(snapshot).queues
        local: dict[str, list[str]] = {}
        for key in sorted(config.local_queues):
            if caller.may_see(key.partition("/")[0]):
                local.setdefault(config.local_queues[key].cluster_queue, []).append(key)
        shown = [q for q in config.cluster_queues.values() if caller.admin or q.name in local]
        running = self._running(snapshot)
        trees: dict[str, tuple[QuotaTree, DominantShares, dict[tuple[int, int], int]]] = {}
        items = []
        for queue in sorted(shown, key=lambda q: q.name):
            root = config.root_of(queue.name)
            if root not in trees:
                tree = tree_in_use(config, root, self.query.ledgers.read(root).usage)
                trees[root] = (tree, DominantShares(tree), lent(tree))
            item = quota_view(queue, *trees[root])
            if budgets := self._budgets(config, queue.name, local.get(queue.name, [])):
                item["budgets"] = budgets
            item |= self._counts(queue.name, local.get(queue.name, []), running)
            items.append(item | {"status": _status(queue, config.inactive_reason(queue))})
        return {"items": items}

    def _budgets(self, config: QueueCatalog, cq: str, local: Sequence[str]) -> list[Json]:
        """What budgets of a queue and of these LocalQueues have left in their windows."""
        now = self.query.clock.now()
        found = [b for b in config.budgets if b.cluster_queue == cq or b.local_queue in local]
        if not found:
            return []
        spent = self.query.ledgers.read(config.root_of(cq)).spent
        return [
            {
                "name": budget.name,
                "localQueue": budget.local_queue,
                "spentUsd": spent_now(budget, spent, (), now) / 1_000_000,
                "limitUsd": budget.limit_microusd / 1_000_000,
                "windowEndsAt": budget.next_window_ms(now),
            }
            for budget in found
        ]

    def capacity(self, caller: Authority) -> Json:
        """Nodes by cluster, pool and capacity type; requested is what workloads hold there.

        A pool that `provision` plans has its limit, and why nothing can be bought there, if so.
        Tenants see the pools and machines that their queues may use.
        """
        now = self.query.clock.now()
        snapshot = self.query.catalog.snapshot()
        clusters = sorted(snapshot.of("Cluster"))
        planned = [(c, plan) for c in clusters for plan in self.query.pools.plans(c)]
        fleet = visible_fleet(caller, snapshot, planned)
        groups: dict[tuple[str, str, str], list[InventoryRow]] = defaultdict(list)
        gone: Counter[tuple[str, str, str]] = Counter()
        plans: dict[tuple[str, str], PoolPlan] = {}
        barred: dict[str, list[Ban]] = {}
        for cluster, plan in planned:
            capacity = InventoryRow(nodepool=plan.pool, capacity_type=",".join(plan.capacity_types))
            if fleet.shows(cluster, plan.pool, capacity):
                plans[cluster, plan.pool] = plan
        for cluster in clusters:
            barred[cluster] = [
                ban
                for ban in in_force(self.query.offerings.banned(cluster), now)
                if fleet.shows(
                    cluster,
                    ban.offering.pool,
                    InventoryRow(
                        type=ban.offering.instance_type,
                        capacity_type=ban.offering.capacity_type,
                    ),
                )
            ]
            for loss in self.query.losses.of(cluster):
                lost = InventoryRow(nodepool=loss.nodepool, capacity_type=loss.capacity_type)
                if loss.at > now - DAY_MS and fleet.shows(cluster, loss.nodepool, lost):
                    gone[cluster, loss.nodepool, loss.capacity_type] += 1
            for node in self.query.nodes.of(cluster):
                key = (cluster, node.nodepool, node.capacity_type)
                seen = node.seen_at > now - GONE_MS
                if seen and fleet.shows(cluster, node.nodepool, node):
                    groups[key].append(node)
        shown = {key[:2] for key in (*groups, *gone)}
        idle = {
            (*key, ",".join(each.capacity_types)) for key, each in plans.items() if key not in shown
        }
        return {
            "items": [
                _pool(key, groups[key], gone[key]) | _planned(plans.get(key[:2]), now)
                for key in sorted({*groups, *gone, *idle})
            ],
            "quarantine": [
                _barred(cluster, ban)
                for cluster, bans in barred.items()
                for ban in sorted(bans, key=lambda each: (each.until, each.offering.key))
            ],
        }

    def _running(self, snapshot: CatalogSnapshot) -> Counter[str]:
        active = self.query.workloads.active
        ids = dict.fromkeys(i for cluster in snapshot.of("Cluster") for i in active(cluster))
        return Counter(w.cq for w in self.query.workloads.get_many(ids) if w.reservation)

    def _counts(self, cq: str, local: Sequence[str], running: Mapping[str, int]) -> Json:
        now = self.query.clock.now()
        ids = self.query.workloads.inbox(pending_key(cq), limit=COUNTED)
        waiting = self.query.workloads.get_many(ids)
        recent = [
            w
            for queue in local
            for w in self.query.workloads.listed(queue, since=now - DAY_MS, limit=RECENT)
        ]
        oldest = min((w.created_at for w in waiting), default=None)
        return {
            "pending": len(ids) if len(ids) < COUNTED else f"{COUNTED}+",
            "running": running.get(cq, 0),
            "oldestSeconds": None if oldest is None else (now - oldest) / 1_000,
            "p50WaitSeconds": wait_quantile(recent, 0.5),
            "p95WaitSeconds": wait_quantile(recent, 0.95),
            "localQueues": list(local),
        }


def wait_quantile(workloads: Iterable[Workload], quantile: float) -> float | None:
    """Seconds from submission to the first admission; a move is no wait. By nearest rank."""
    admissions = [(first_admitted_at(w), w.created_at) for w in workloads]
    waits = sorted((admitted - created) / 1_000 for admitted, created in admissions if admitted)
    return waits[ceil(quantile * len(waits)) - 1] if waits else None


def quota_view(
    queue: ClusterQueue,
    tree: QuotaTree,
    shares: DominantShares,
    lending: Mapping[tuple[int, int], int],
) -> Json:
    """Quota and use of one queue, each resource summed over its flavors, and by flavor."""
    node = tree.index[queue.name]
    sums: dict[str, dict[str, int]] = {
        name: {} for name in ("nominal", "used", "borrowed", "lent", "available")
    }
    flavors: dict[str, dict[str, dict[str, str]]] = {}
    for cell, (flavor, resource) in enumerate(tree.cells):
        nominal, used = tree.nominal[cell][node], tree.usage[cell][node]
        if not nominal and not used and not tree.potential[cell][node]:
            continue
        amounts = {
            "nominal": nominal,
            "used": used,
            "borrowed": max(0, used - nominal),
            "lent": lending.get((node, cell), 0),
            "available": max(0, tree.available(node, cell)),
        }
        for name, amount in amounts.items():
            sums[name][resource] = sums[name].get(resource, 0) + amount
        flavors.setdefault(flavor, {})[resource] = {
            name: format_quantity(resource, amount) for name, amount in amounts.items()
        }
    share = shares.share(node)
    shown = {
        name: {r: format_quantity(r, n) for r, n in of_resource.items()}
        for name, of_resource in sums.items()
    }
    return {
        "name": queue.name,
        "cohort": queue.cohort,
        "weight": tree.weights[node],
        **shown,
        "flavors": flavors,
        "share": share.rounded(),
        "shareResource": share.resource,
        "strategy": queue.queueing_strategy.value,
    }


def lent(tree: QuotaTree) -> dict[tuple[int, int], int]:
    """By (queue, cell): how much of its unused quota is in use by others.

    Kueue pools what is lent, so a loan has no single lender. Cohorts' own quota counts as lent
    first; the rest is divided among the queues in proportion to what each of them leaves unused
    and may lend. The sum over a tree equals what is borrowed in it.
    """
    found: dict[tuple[int, int], int] = {}
    for cell in range(len(tree.cells)):
        nominal, usage = tree.nominal[cell], tree.usage[cell]
        queues = [node for node, leaf in enumerate(tree.is_queue) if leaf]
        pooled = sum(nominal[node] for node, leaf in enumerate(tree.is_queue) if not leaf)
        borrowed = sum(max(0, usage[node] - nominal[node]) for node in queues) - pooled
        idle = {
            node: max(0, nominal[node] - max(usage[node], tree.local_quota[cell][node]))
            for node in queues
        }
        total = sum(idle.values())
        if borrowed <= 0 or not total:
            continue
        left = min(borrowed, total)
        for node in queues:
            part = min(left, idle[node], -(-borrowed * idle[node] // total))
            if part:
                found[node, cell] = part
                left -= part
    return found


def _status(queue: ClusterQueue, inactive: str | None) -> str:
    if inactive:
        return f"inactive: {inactive}"
    return "active" if queue.stop_policy is StopPolicy.NONE else queue.stop_policy.value


def _pool(key: tuple[str, str, str], nodes: Sequence[InventoryRow], gone: int) -> Json:
    cluster, nodepool, capacity = key
    prices = [float(node.price) for node in nodes if node.price]
    ready = [node for node in nodes if node.ready]
    return {
        "cluster": cluster,
        "nodepool": nodepool,
        "capacity": capacity,
        "types": sorted({node.type for node in nodes}),
        "zones": sorted({node.zone for node in nodes}),
        "nodes": len(nodes),
        "ready": len(ready),
        "provisioning": len(nodes) - len(ready),
        "interrupted24h": gone,
        "requestedOfAllocatable": _use(nodes),
        "saveProcesses": sum(checkpointing.capability(node).kubelet for node in ready),
        "closeConnections": sum(
            checkpointing.capability(node).closes_connections for node in ready
        ),
        "costPerHourUsd": sum(prices) if prices else None,
    }


def _planned(plan: PoolPlan | None, now: int) -> Json:
    """`limitCpu` absent: Sluice sets none."""
    if plan is None:
        return {"closed": None}
    closed = plan.closed if plan.closed and plan.closed.until > now else None
    view: Json = {
        "flavors": list(plan.flavors),
        "demandCpu": format_quantity("cpu", plan.demand),
        "setByOthers": list(plan.theirs),
        "closed": closed and reason(closed.reason, closed.message) | {"until": closed.until},
    }
    if plan.largest:
        view["largest"] = [str(size) for size in plan.largest]
    if plan.limit is not None:
        view["limitCpu"] = format_quantity("cpu", plan.limit)
    return view


def _barred(cluster: str, ban: Ban) -> Json:
    return {
        "cluster": cluster,
        "nodepool": ban.offering.pool,
        "type": ban.offering.instance_type,
        "zone": ban.offering.zone,
        "capacity": ban.offering.capacity_type,
        "cause": ban.cause.value,
        "strikes": ban.strikes,
        "until": ban.until,
        "message": ban.message,
    }


def _use(nodes: Sequence[InventoryRow]) -> str:
    """CPU that pods request of what the nodes can give, as far as it was observed."""
    allocatable = sum(_cpu(node.allocatable) for node in nodes)
    shown = format_quantity("cpu", allocatable)
    if nodes and not any(node.requested for node in nodes):
        return f"?/{shown}"
    requested = sum(_cpu(node.requested) for node in nodes)
    return f"{format_quantity('cpu', requested)}/{shown}"


def _cpu(amounts: Mapping[str, Any] | None) -> int:
    return parse_quantity("cpu", str((amounts or {}).get("cpu", "0")))
