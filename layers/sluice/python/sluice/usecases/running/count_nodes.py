"""Writes the inventory: what each node of a cluster is, costs, and holds of our pods."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.inventory import node_row, requested_cpu
from sluice.ports import Cluster, Document, Nodes, Prices
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
                row["requested"] = {"cpu": f"{requested.get(row['node'], 0)}m"}
                rows.append(row | self.hourly_prices(row))
        self.nodes.put_many(name, rows)
        self.detect_lost(rows, requested, lambda: self.nodes.of(name))
        state.mark_counted((node["metadata"]["name"] for node in nodes), rows)

    def hourly_prices(self, row: Document) -> Document:
        """USD an hour as bought (`price`) and on demand; without those that nobody knows."""
        capacity_types = {"price": row["capacity_type"], "on_demand_price": "on-demand"}
        prices = {
            name: self.prices.hourly(row["type"], row["zone"], capacity_type)
            for name, capacity_type in capacity_types.items()
        }
        return {name: price for name, price in prices.items() if price is not None}
