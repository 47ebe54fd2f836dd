"""Order a checkpoint of every running workload whose interval is over."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from sluice.core import periodic
from sluice.core.interruption import CHECKPOINT_REQUESTED, wish
from sluice.core.losses import Loss
from sluice.core.observation import Seen
from sluice.core.workload import Workload
from sluice.ports import Clock, Interruptions, Losses, Nodes

KEPT_MS = 300_000
Rates = tuple[int, list[Mapping[str, Any]], list[Loss]]  # when read, inventory, losses


@dataclass(frozen=True)
class Periodic:
    """Orders go the way of users' wishes; one that is lost is sent again at the next look."""

    nodes: Nodes
    losses: Losses
    interruptions: Interruptions
    clock: Clock
    kept: dict[str, Rates] = field(default_factory=dict)

    def __call__(self, cluster: str, records: Iterable[Workload], seen: Seen) -> None:
        now = self.clock.now()
        for workload in records:
            if not periodic.can_be_ordered(workload.options):
                continue
            pods = seen.pods_of(workload.id, workload.generation)
            rhythm = periodic.rhythm(workload, pods, *self.rates(cluster, now), now)
            order = periodic.due(workload, pods, rhythm.every_ms, now) if rhythm else None
            if rhythm and order:
                detail = {
                    "workload": workload.id,
                    "generation": workload.generation,
                    "order": order.name,
                    "reason": rhythm.reason,
                }
                self.interruptions.send(wish(CHECKPOINT_REQUESTED, order.at, detail))

    def rates(self, cluster: str, now: int) -> tuple[list[Mapping[str, Any]], list[Loss]]:
        """The inventory and the losses of a cluster, read again every few minutes."""
        read_at, inventory, losses = self.kept.get(cluster, (0, [], []))
        if now - read_at > KEPT_MS:
            inventory, losses = self.nodes.of(cluster), self.losses.of(cluster)
            self.kept[cluster] = (now, inventory, losses)
        return inventory, losses
