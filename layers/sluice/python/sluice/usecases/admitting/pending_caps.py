"""How many workloads of a tenant may wait at once: `maxPending`, a bound that is kept softly.

Counting the waiting ones for each submission would cost more than the submissions. A process
counts a tenant's again after a while and adds what it accepted itself since; what other processes
accept meanwhile may go beyond the bound.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.tenants import Tenant
    from sluice.ports import Clock, Workloads

KEPT_MS = 10_000
LOOKED_AT = 20_000  # waiting workloads of one ClusterQueue, whosever they are


@dataclass
class _Count:
    waiting: int
    until_ms: int


@dataclass
class PendingCaps:
    """Only what waits in a queue counts: not what is held or waits for another workload."""

    workloads: Workloads
    clock: Clock
    _counts: dict[str, _Count] = field(default_factory=dict)

    def take(self, tenant: Tenant, queues: QueueCatalog) -> bool:
        """Whether one more may wait; if so, it counts from now on."""
        count, now = self._counts.get(tenant.name), self.clock.now()
        if count is None or count.until_ms <= now:
            count = _Count(self._waiting(tenant, queues), now + KEPT_MS)
            self._counts[tenant.name] = count
        if count.waiting >= tenant.max_pending:
            return False
        count.waiting += 1
        return True

    def _waiting(self, tenant: Tenant, queues: QueueCatalog) -> int:
        own = {
            key: local.cluster_queue
            for key, local in queues.local_queues.items()
            if key.partition("/")[0] in tenant.namespaces
        }
        return sum(
            place.queue in own
            for cq in sorted(set(own.values()))
            for place in self.workloads.places(cq, limit=LOOKED_AT)
        )
