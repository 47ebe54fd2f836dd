"""The clusters at this moment: what they offer and cost, and whether they answer."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from sluice.core.clusters.fleet import Site, health, observed_rate
from sluice.core.lifecycle.inventory_row import Heartbeat, InventoryRow, MachineTotals
from sluice.core.values.quantity import parse_quantity
from sluice.usecases.configuration import cluster_spec, configured

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from sluice.ports import CatalogSnapshot, Clock, Nodes

FRESH_MS = 20_000  # inventories change slowly, and passes are many
GONE_MS = 180_000  # a node that was not seen for so long is gone


def beat(nodes: Nodes, cluster: str, now: int) -> None:
    """Says that the cluster's API server answers."""
    nodes.put_heartbeat(Heartbeat(cluster, now))


def counted_at(nodes: Nodes, cluster: str) -> int:
    """When a machine of the cluster was last seen, in epoch ms; 0: it has none."""
    return max((node.seen_at for node in nodes.of(cluster)), default=0)


@dataclass(frozen=True, kw_only=True)
class Fleet:
    """Inventories are kept for some seconds; heartbeats are read each time."""

    nodes: Nodes
    clock: Clock
    _kept: dict[str, tuple[int, list[tuple[InventoryRow, dict[str, int]]]]] = field(
        default_factory=dict
    )

    def __call__(self, snapshot: CatalogSnapshot) -> Sequence[Site]:
        flavors = configured(snapshot).queues.flavors
        now = self.clock.now()
        seen = {beat.instance: beat.seen_at for beat in self.nodes.heartbeats()}
        sites = []
        for name in sorted(snapshot.of("Cluster")):
            spec = cluster_spec(snapshot, name)
            offered = frozenset(spec.flavors or flavors)
            inventory = self._inventory(name, now)
            rates = {
                flavor: flavors[flavor].rates or observed_rate(flavors[flavor], inventory)
                for flavor in offered & flavors.keys()
            }
            sites.append(
                Site(
                    name,
                    offered,
                    health(cordoned=spec.cordoned, seen_at=seen.get(name, 0), now=now),
                    spec.locations,
                    {flavor: rate for flavor, rate in rates.items() if rate},
                    sum(_amounts(row.requested).get("cpu", 0) for row, _ in inventory),
                    frozenset(spec.services),
                    spec.kinds,
                )
            )
        return sites

    def _inventory(self, cluster: str, now: int) -> list[tuple[InventoryRow, dict[str, int]]]:
        """Machines that are there, each with what it can give, in base units."""
        if now - self._kept.get("", (0, []))[0] > FRESH_MS:
            self._kept.clear()
            self._kept[""] = (now, [])
            for totals in self.nodes.totals():
                self._kept[totals.instance] = (now, _machines(totals))
        read_at, kept = self._kept.get(cluster, (0, []))
        if now - read_at > FRESH_MS:  # counted by the version before
            rows = [r for r in self.nodes.of(cluster) if r.seen_at > now - GONE_MS]
            kept = [(row, _amounts(row.allocatable)) for row in rows]
            self._kept[cluster] = (now, kept)
        return kept


def _machines(totals: MachineTotals) -> list[tuple[InventoryRow, dict[str, int]]]:
    """A line for each machine of a group, and one with what all of them hold."""
    found = [(InventoryRow(requested={"cpu": f"{totals.busy}m"}), dict[str, int]())]
    for group in totals.groups:
        found += [(group.machine, _amounts(group.machine.allocatable))] * group.count
    return found


def _amounts(allocatable: Mapping[str, Any]) -> dict[str, int]:
    return {name: parse_quantity(name, str(amount)) for name, amount in allocatable.items()}
