"""Finds EC2 instances that ended without a notice, and sends the notice that EC2 did not.

Kubernetes only finds such a node silent, and Karpenter may have removed the node of an instance
whose pods still count as running.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass

from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.ports import Interruptions, Machines


@dataclass(frozen=True)
class DetectLostNodes:
    """Kubernetes never proves that a silent node runs nothing; EC2 does."""

    machines: Machines
    interruptions: Interruptions

    def __call__(
        self,
        present: Sequence[InventoryRow],
        occupied: Collection[str],
        inventory: Callable[[], Iterable[InventoryRow]],
    ) -> None:
        """Asks EC2 about nodes with our pods that are silent or have been removed.

        `present`: inventory rows of the nodes that Kubernetes has; `occupied`: names of nodes that
        our pods run on; `inventory` is read only for nodes that Kubernetes no longer has.
        """
        silent = [r.instance for r in present if not r.ready and r.node in occupied]
        if vanished := set(occupied) - {r.node for r in present}:
            known = sorted(inventory(), key=lambda r: r.created)
            newest = {r.node: r.instance for r in known if r.node in vanished}
            silent += [newest[node] for node in sorted(newest)]
        for event in self.machines.ended(silent) if silent else ():
            self.interruptions.send(event)
