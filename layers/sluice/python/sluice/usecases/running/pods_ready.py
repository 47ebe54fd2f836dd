"""Which rules of waitForPodsReady are in force for a workload."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.config.pods_ready import PodsReadyRules, rules
from sluice.usecases.configuration import configured

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload
    from sluice.ports import Catalog, CatalogSnapshot, Clock

KEPT_MS = 5_000


@dataclass
class PodsReady:
    """Asks the catalog every few seconds at most: every change in a cluster asks for the rules."""

    catalog: Catalog
    clock: Clock
    _kept: CatalogSnapshot | None = None
    _read_at: int = field(default=0)

    def __call__(self, workload: Workload) -> PodsReadyRules:
        now = self.clock.now()
        if self._kept is None or not 0 <= now - self._read_at < KEPT_MS:
            self._kept, self._read_at = self.catalog.snapshot(), now
        return rules_of(workload, self._kept)


def rules_of(workload: Workload, snapshot: CatalogSnapshot) -> PodsReadyRules:
    """The workload first, then its ClusterQueue, then the policy of its root cohort."""
    config = configured(snapshot)
    queue = config.queues.cluster_queues.get(workload.cq)
    return rules(
        workload.options.wait_for_pods_ready,
        queue.wait_for_pods_ready if queue is not None else None,
        config.policies.wait_for_pods_ready(workload.root),
    )
