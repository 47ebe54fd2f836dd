"""What a cycle of `admit` decides on: indexes propose, consistent reads decide.

What it reads does not grow with what waits: of those that are equal to a pass one record is read
(core/passes/twins.py), all queues together are looked at `MOST_PLACES` deep, and whoever stands
deeper has a turn by and by, from pass to pass.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from itertools import chain

from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.fallback import Market
from sluice.core.config.model import ClusterQueue
from sluice.core.config.policy import Policy
from sluice.core.lifecycle.indexes import Place, release_key
from sluice.core.lifecycle.record import State, Workload, awaits_release
from sluice.core.passes.cycle_plan import CycleInput
from sluice.core.passes.needed_holders import needs_holders
from sluice.core.passes.pass_candidates import choose_candidates, reorders_queue
from sluice.core.passes.scheduler_state import preemptors
from sluice.core.passes.twins import twin
from sluice.ports import (
    MAX_CHANGES,
    CatalogSnapshot,
    Clock,
    Ledgers,
    LedgerState,
    Pools,
    Workloads,
)
from sluice.usecases.admitting.newest_pass import fleet_digest, parked_by
from sluice.usecases.configuration import Configured, market_of, namespace_labels
from sluice.usecases.fleet import Fleet

RELEASES = 500
MOST_PLACES = 2000  # of all queues of a root together
FEWEST_HEADS = 10  # of a queue, however many queues there are
MOST_WIDENED = 20  # queues, since they are asked one after the other
PLACES = 10_000  # of a queue whose order is not that of the index
KEPT_EXAMPLES = 4096


@dataclass(frozen=True, slots=True)
class Look:
    """How far a cycle looks.

    `heads` of each queue; from `begin` (a ClusterQueue and a place in it) on `window` more of all
    queues together. `unread`: equal ones need not be read; `holders` are read where they may count.
    """

    heads: int = MAX_CHANGES
    window: int = 0
    begin: tuple[str, str] = ("", "")
    unread: bool = False
    holders: bool = True
    among: frozenset[str] | None = None
    """The ClusterQueues that somebody may wait in; None: all."""


@dataclass(frozen=True, slots=True)
class Gathered:
    """`unread`: who waits by their place and shape alone. `begin`: where the next window begins."""

    input: CycleInput
    unread: frozenset[str] = frozenset()
    begin: tuple[str, str] = ("", "")
    deeper: bool = False
    """Whether somebody stands behind the heads that were looked at."""
    filled: tuple[str, ...] = ()
    """The ClusterQueues that somebody waits in."""


@dataclass(frozen=True, kw_only=True)
class Gather:
    workloads: Workloads
    ledgers: Ledgers
    clock: Clock
    pools: Pools
    fleet: Fleet
    pool: ThreadPoolExecutor
    _examples: dict[str, Workload] = field(default_factory=dict)

    def __call__(
        self,
        ledger: LedgerState,
        catalog: CatalogSnapshot,
        config: Configured,
        look: Look,
        last: Mapping[str, object] | None = None,
        newcomer: Workload | None = None,
    ) -> Gathered:
        """`last` is the newest pass, if it still counts. `newcomer` is looked at as if it waited.

        A newcomer is one that nobody submitted.
        """
        now, root = self.clock.now(), ledger.root
        root_of = config.queues.root_of
        queues = [q for q in config.queues.cluster_queues.values() if root_of(q.name) == root]
        policy = config.policies.of(root)
        due = self.pool.submit(self.workloads.inbox, release_key(root), limit=RELEASES)
        chosen = [q for q in queues if look.among is None or q.name in look.among]
        places, begin, deeper = self.proposed(chosen, policy, look)
        waiting, unread, ending = self.records(root, places, due.result(), look)
        waiting = [w for w in waiting if waits(w, now) and root_of(w.cq) == root]
        waiting += [newcomer] if newcomer is not None else []
        releases = [w for w in ending if awaits_release(w) and w.root == root]
        holders: Sequence[Workload] = ()
        needed = needs_holders(config.queues, queues, waiting=bool(waiting))
        counts_past = policy.admission_fair_sharing is not None
        if (needed and look.holders) or (counts_past and ledger.past is None):
            holders = self.holders(root, catalog)
        waiting += self.preempting(root, (*holders, *releases), waiting, config, now)
        # Quota that this very cycle gives back may be what the parked wait for.
        if last is None:
            last = {} if releases else self.ledgers.newest_pass(root)
        market = market_of(catalog, self.plans(catalog), now) if waiting else Market({})
        sites = self.fleet(catalog) if waiting else ()
        fleet = fleet_digest(sites, market)
        parked = frozenset[str]() if releases else parked_by(last, ledger, catalog, fleet, now)
        gathered = CycleInput(
            root,
            ledger.usage,
            releases,
            waiting,
            holders,
            market,
            sites,
            now,
            parked,
            ledger.past,
            ledger.spent,
            namespace_labels(catalog),
        )
        filled = tuple(sorted(name for name, of_queue in places if of_queue))
        return Gathered(gathered, unread, begin, deeper, filled)

    def with_holders(
        self, gathered: Gathered, config: Configured, catalog: CatalogSnapshot
    ) -> Gathered:
        """The same, and who holds the quota."""
        seen = gathered.input
        holders = self.holders(seen.root, catalog)
        late = self.preempting(seen.root, holders, seen.waiting, config, seen.now)
        waiting = [*seen.waiting, *late]
        return replace(gathered, input=replace(seen, holders=holders, waiting=waiting))

    def holders(self, root: str, catalog: CatalogSnapshot) -> list[Workload]:
        clusters = catalog.of("Cluster")
        found = self.pool.map(lambda cluster: self.workloads.active(cluster, root), clusters)
        records = self.workloads.get_many(chain.from_iterable(found))
        return [w for w in records if w.reservation and w.root == root]

    def preempting(
        self,
        root: str,
        holders: Iterable[Workload],
        waiting: Sequence[Workload],
        config: Configured,
        now: int,
    ) -> list[Workload]:
        """Those for whom others stop, however many have lined up before them meanwhile."""
        queues = config.queues
        missing = preemptors(holders) - {w.id for w in waiting}
        return [
            w
            for w in self.workloads.get_many(sorted(missing))
            if waits(w, now) and w.cq in queues.cluster_queues and queues.root_of(w.cq) == root
        ]

    # Who is looked at

    def proposed(
        self, queues: Sequence[ClusterQueue], policy: Policy, look: Look
    ) -> tuple[list[tuple[str, list[Place]]], tuple[str, str], bool]:
        """Places by queue, where the next window begins, and whether somebody stands deeper."""
        heads = min(look.heads, max(FEWEST_HEADS, MOST_PLACES // max(1, len(queues))))

        def first(queue: ClusterQueue) -> list[Place]:
            if not reorders_queue(queue, policy):
                return self.workloads.places(queue.name, limit=heads)
            found = self.workloads.places(queue.name, limit=PLACES)
            return choose_candidates(found, heads, queue, policy)

        found = dict(zip([q.name for q in queues], self.pool.map(first, queues), strict=True))
        plain = sorted(q.name for q in queues if not reorders_queue(q, policy))
        full = [name for name in plain if len(found[name]) >= heads]
        begin = look.begin
        if look.window and full:
            begin = self.widen(found, full, look)
        return list(found.items()), begin, bool(full)

    def widen(
        self, found: dict[str, list[Place]], full: Sequence[str], look: Look
    ) -> tuple[str, str]:
        """Adds a window of those who stand behind the heads; returns where the next one begins."""
        left, (queue, after) = look.window, look.begin
        ring = [name for name in full if name >= queue] + [name for name in full if name < queue]
        for number, name in enumerate(ring):
            if number == MOST_WIDENED:
                return name, ""
            begin = after if name == queue and after else found[name][-1].order
            more = self.workloads.places(name, limit=left, after=begin)
            known = {place.id for place in found[name]}
            found[name] += [place for place in more if place.id not in known]
            left -= len(more)
            if left <= 0:
                return name, more[-1].order
        return "", ""

    def records(
        self,
        root: str,
        proposed: Sequence[tuple[str, Sequence[Place]]],
        due: Sequence[str],
        look: Look,
    ) -> tuple[list[Workload], frozenset[str], list[Workload]]:
        """Who waits, whom of them nobody has read, and whose quota is due."""
        wanted = [place.id for _, places in proposed for place in places]
        if not look.unread:
            records = self.workloads.get_many([*due, *wanted])
            return records, frozenset(), records
        places = [place for _, of_queue in proposed for place in of_queue]
        asked = {p.shape_hash: p.id for p in reversed(places) if p.shape_hash}
        ids = [p.id for p in places if not p.shape_hash]
        ids += [each for shape, each in asked.items() if shape not in self._examples]
        read = {w.id: w for w in self.workloads.get_many([*due, *ids])}
        self.remember(read.values())
        # An example that is gone meanwhile leaves the others of its shape to be read.
        orphans = [
            p.id
            for p in places
            if p.shape_hash and p.shape_hash not in self._examples and p.id not in read
        ]
        read |= {w.id: w for w in self.workloads.get_many(orphans)}
        found, unread = list[Workload](), set[str]()
        for queue, of_queue in proposed:
            for place in of_queue:
                if place.id in read:
                    found.append(read[place.id])
                elif (example := self._examples.get(place.shape_hash)) is not None:
                    found.append(twin(place, example, queue, root))
                    unread.add(place.id)
        return found, frozenset(unread), [read[each] for each in due if each in read]

    def remember(self, records: Iterable[Workload]) -> None:
        """A shape's hash is made of its content, so that an example stays one for ever."""
        if len(self._examples) > KEPT_EXAMPLES:
            self._examples.clear()
        for workload in records:
            if workload.shape_hash:
                self._examples.setdefault(workload.shape_hash, workload)

    def plans(self, catalog: CatalogSnapshot) -> Mapping[str, Sequence[PoolPlan]]:
        clusters = sorted(catalog.of("Cluster"))
        return dict(zip(clusters, self.pool.map(self.pools.plans, clusters), strict=True))


def waits(workload: Workload, now: int) -> bool:
    outside = workload.held or workload.blocked
    return workload.state is State.PENDING and not outside and workload.not_before <= now
