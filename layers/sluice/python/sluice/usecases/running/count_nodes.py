"""Writes the inventory: what each node of a cluster is, costs, and holds of our pods."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.fleet import totals
from sluice.core.clusters.inventory import COUNTED, gone, is_news, node_row, present
from sluice.core.lifecycle.inventory_row import InventoryRow, MachineTotals
from sluice.ports import Cluster, Nodes, Prices
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes

COUNTED_MS = 60_000
"""How often it is said that the machines were counted; readers believe it for three minutes."""


@dataclass
class Written:
    """What the table has of the cluster that this process counted last."""

    cluster: str = ""
    rows: dict[str, InventoryRow] = field(default_factory=dict)
    """By instance."""
    counted_at: int = 0
    totals: MachineTotals | None = None


@dataclass(frozen=True, kw_only=True)
class CountNodes:
    """Rows are written when they change, when their machine is gone, and once a day."""

    nodes: Nodes
    prices: Prices
    detect_lost: DetectLostNodes
    written: Written = field(default_factory=Written)

    def __call__(self, name: str, cluster: Cluster, state: ClusterState, now: int) -> None:
        names, rows = list[str](), list[InventoryRow]()
        keep = lambda node: {"name": node["metadata"]["name"], "row": node_row(node, now)}  # noqa: E731
        for page, _ in cluster.pages("Node", selector="", keep=keep):
            for each in page:
                names.append(each["name"])
                if row := each["row"]:
                    taken = {"cpu": f"{state.requested.get(row.node, (0, 0))[1]}m"}
                    rows.append(replace(self.priced(row), requested=taken))
        self.write(name, rows, now)
        known = self.written.rows
        self.detect_lost(rows, state.requested, lambda: list(known.values()))
        state.mark_counted(names, rows)

    def write(self, name: str, rows: Sequence[InventoryRow], now: int) -> None:
        """Only news."""
        written = self.written
        if written.cluster != name:
            self.read(name)
        here = {row.instance for row in rows}
        news = [present(r, now) for r in rows if is_news(r, written.rows.get(r.instance))]
        news += [
            gone(row, max(written.counted_at, row.seen_at))
            for instance, row in written.rows.items()
            if instance not in here and (row.present or not row.expires)
        ]
        counted = list[InventoryRow]()
        if rows and (news or now - written.counted_at > COUNTED_MS):
            counted = [InventoryRow(COUNTED, seen_at=now)]
            written.counted_at = now
        if news or counted:
            self.nodes.put_many(name, [*news, *counted])
        written.rows |= {row.instance: row for row in news}
        if (whole := totals(name, rows)) != written.totals:
            self.nodes.put_totals(whole)
            written.totals = whole

    def read(self, name: str) -> list[InventoryRow]:
        """The inventory as it is stored, which another observer may have written meanwhile."""
        rows, written = self.nodes.of(name), self.written
        written.cluster, written.counted_at, written.totals = name, 0, None
        written.rows = {row.instance: row for row in rows}
        return rows

    def priced(self, row: InventoryRow) -> InventoryRow:
        """With its prices as bought and on demand, as far as they are known."""
        return replace(
            row,
            price=self.prices.hourly(row.type, row.zone, row.capacity_type),
            on_demand_price=self.prices.hourly(row.type, row.zone, "on-demand"),
        )
