"""Find what an event was lost for: the safety net that alone brings the system home."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.core.lifecycle.reservations import held_by
from sluice.core.lifecycle.workload import checks_key, pending_key, release_key
from sluice.ports import Catalog, Clock, Kicks, Ledgers, Usage, Workloads
from sluice.usecases.configuration import configured
from sluice.usecases.dependencies import Dependencies
from sluice.usecases.unanswered import Unanswered

EVERYBODY = 20_000  # blocked workloads of a namespace


@dataclass(frozen=True, slots=True)
class Swept:
    """`drift`: root → cells in which its ledger differs from the reservations; must be empty."""

    kicked: tuple[str, ...]
    drift: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True)
class Sweep:
    workloads: Workloads
    ledgers: Ledgers
    catalog: Catalog
    kicks: Kicks
    clock: Clock
    unanswered: Unanswered

    def __call__(self) -> Swept:
        """Kicks every root with work that waits or quota that is due; audits every ledger."""
        snapshot = self.catalog.snapshot()
        queues = configured(snapshot).queues
        namespaces = {key.partition("/")[0] for key in queues.local_queues}
        Dependencies(self.workloads, self.clock)(snapshot, namespaces, limit=EVERYBODY)
        due = {
            queues.root_of(queue)
            for queue in queues.cluster_queues
            if self.workloads.inbox(pending_key(queue), limit=1)
        }
        due |= {r for r in queues.roots() if self.workloads.inbox(release_key(r), limit=1)}
        due |= {r for r in queues.roots() if self.workloads.inbox(checks_key(r), limit=1)}
        self.kicks.kick(sorted(due))
        self.unanswered()
        clusters = sorted(snapshot.of("Cluster"))
        drift = {root: self.drift(root, clusters) for root in queues.roots()}
        return Swept(tuple(sorted(due)), {root: cells for root, cells in drift.items() if cells})

    def drift(self, root: str, clusters: Sequence[str]) -> Mapping[str, int]:
        """Ledger minus reservations, per "queue|flavor|resource"; empty while somebody writes.

        Indexes may lag, so a difference counts only if the ledger stood still meanwhile.
        """
        before = self.ledgers.read(root)
        ids = [i for cluster in clusters for i in self.workloads.active(cluster, root)]
        ids += self.workloads.inbox(release_key(root), limit=10_000)
        total: Usage = {}
        for workload in self.workloads.get_many(ids):
            if workload.reservation and workload.root == root:
                of_queue = total.setdefault(workload.reservation.cq, {})
                for key, amount in held_by(workload).items():
                    of_queue[key] = of_queue.get(key, 0) + amount
        if self.ledgers.read(root).version != before.version:
            return {}
        keys = {
            (cq, key) for usage in (before.usage, total) for cq, row in usage.items() for key in row
        }
        found = {
            f"{cq}|{key}": before.usage.get(cq, {}).get(key, 0) - total.get(cq, {}).get(key, 0)
            for cq, key in keys
        }
        return {cell: amount for cell, amount in sorted(found.items()) if amount}
