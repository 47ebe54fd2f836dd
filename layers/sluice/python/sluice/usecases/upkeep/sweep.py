"""Find what an event was lost for: the safety net that alone brings the system home."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

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
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(16))

    def __call__(self) -> Swept:
        """Kicks every root with work that waits or quota that is due; audits every ledger."""
        snapshot = self.catalog.snapshot()
        queues = configured(snapshot).queues
        namespaces = {key.partition("/")[0] for key in queues.local_queues}
        Dependencies(self.workloads, self.clock, self.pool)(snapshot, namespaces, limit=EVERYBODY)
        roots = sorted(queues.roots())
        keys = {pending_key(queue): queues.root_of(queue) for queue in queues.cluster_queues}
        keys |= {of(root): root for root in roots for of in (release_key, checks_key)}
        waits = self.pool.map(lambda key: bool(self.workloads.inbox(key, limit=1)), keys)
        due = {root for root, any_waits in zip(keys.values(), waits, strict=True) if any_waits}
        self.kicks.kick(sorted(due))
        self.unanswered()
        clusters = sorted(snapshot.of("Cluster"))

        def differences(root: str) -> Mapping[str, int]:
            counted = recount(root, clusters, ledgers=self.ledgers, workloads=self.workloads)
            return counted.differences

        drift = dict(zip(roots, self.pool.map(differences, roots), strict=True))
        return Swept(tuple(sorted(due)), {root: cells for root, cells in drift.items() if cells})
