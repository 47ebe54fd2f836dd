"""Let those into their queues who waited for others, once these have ended."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.lifecycle import dependencies
from sluice.core.lifecycle.indexes import blocked_key

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload
    from sluice.ports import CatalogSnapshot, Clock, Workloads

LOOKED_AT = 1_000  # blocked workloads of a namespace in one round
NAMES_AMONG = 1_000  # newest workloads of a LocalQueue among which a name is looked up
MOST_ROUNDS = 50  # one workload's end may end the next one's wait


@dataclass(frozen=True)
class Dependencies:
    """Every change is conditional on the record, so that anybody may run this at any time."""

    workloads: Workloads
    clock: Clock
    pool: ThreadPoolExecutor

    def __call__(
        self, snapshot: CatalogSnapshot, namespaces: Iterable[str], *, limit: int = LOOKED_AT
    ) -> int:
        """How many records changed."""
        return sum(
            self.pool.map(lambda each: self._let_in(each, snapshot, limit), sorted(set(namespaces)))
        )

    def _let_in(self, namespace: str, snapshot: CatalogSnapshot, limit: int) -> int:
        changed = 0
        for _ in range(MOST_ROUNDS):
            found = self._round(namespace, snapshot, limit)
            changed += found
            if not found:
                break
        return changed

    def _round(self, namespace: str, snapshot: CatalogSnapshot, limit: int) -> int:
        ids = self.workloads.inbox(blocked_key(namespace), limit=limit)
        waiting = [w for w in self.workloads.get_many(ids) if w.blocked and not w.held]
        if not waiting:
            return 0
        queues = [q for q in snapshot.of("LocalQueue") if q.startswith(f"{namespace}/")]
        names = self._names(waiting, queues)
        wanted = {each.id for w in waiting for each in w.options.depends_on if each.id}
        wanted |= {i for of_one in names.values() for i in of_one.values()}
        targets = {w.id: w for w in self.workloads.get_many(sorted(wanted))}
        steps = list(dependencies.steps(waiting, targets, names, self.clock.now()))
        return sum(self.workloads.apply(steps)) if steps else 0

    def _names(
        self, waiting: Sequence[Workload], queues: Sequence[str]
    ) -> Mapping[str, Mapping[str, str]]:
        """By blocked workload: whom its names mean, as far as they are looked up now."""
        now = self.clock.now()
        asking = [w for w in waiting if dependencies.nameless(w, now)]
        if not asking:
            return {}
        listed = [
            w
            for queue in sorted(queues)
            for w in self.workloads.listed(queue, since=0, limit=NAMES_AMONG)
        ]
        return {w.id: dependencies.meant(w, listed) for w in asking}
