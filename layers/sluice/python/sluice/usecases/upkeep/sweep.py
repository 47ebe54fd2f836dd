"""Find what an event was lost for: the safety net that alone brings the system home."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from sluice.core.lifecycle.indexes import checks_key, pending_key, release_key
from sluice.ports import Catalog, Clock, Kicks, Ledgers, Workloads
from sluice.usecases.admitting.dependencies import Dependencies
from sluice.usecases.admitting.recount import recount
from sluice.usecases.configuration import configured
from sluice.usecases.upkeep.unanswered import Unanswered

EVERYBODY = 20_000  # blocked workloads of a namespace


@dataclass(frozen=True, slots=True)
class Swept:
    """`drift`: root → cells in which its ledger differs from the reservations; must be empty."""

    kicked: tuple[str, ...]
    drift: Mapping[str, Mapping[str, int]]


@dataclass(frozen=True, kw_only=True)
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
        drift = {
            root: recount(
                root, clusters, ledgers=self.ledgers, workloads=self.workloads
            ).differences
            for root in queues.roots()
        }
        return Swept(tuple(sorted(due)), {root: cells for root, cells in drift.items() if cells})
