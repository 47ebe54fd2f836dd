"""Writes the inventory: what each node of a cluster is, costs, and holds of our pods."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.inventory import node_row, requested_cpu
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.ports import Cluster, Nodes, Prices
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes


@dataclass(frozen=True, kw_only=True)
class CountNodes:
    nodes: Nodes
    prices: Prices
    detect_lost: DetectLostNodes

    def __call__(self, name: str, cluster: Cluster, state: ClusterState, now: int) -> None:
        nodes, _ = cluster.list("Node")
        requested = requested_cpu(state)
        rows = []
        for node in nodes:
            if row := node_row(node, now):
                taken = {"cpu": f"{requested.get(row.node, 0)}m"}
                rows.append(replace(self.priced(row), requested=taken))
        self.nodes.put_many(name, rows)
        self.detect_lost(rows, requested, lambda: self.nodes.of(name))
        state.mark_counted((node["metadata"]["name"] for node in nodes), rows)

    def priced(self, row: InventoryRow) -> InventoryRow:
        """With its prices as bought and on demand, as far as they are known."""
        return replace(
            row,
            price=self.prices.hourly(row.type, row.zone, row.capacity_type),
            on_demand_price=self.prices.hourly(row.type, row.zone, "on-demand"),
        )
