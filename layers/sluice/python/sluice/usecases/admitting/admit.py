"""Admit, release and preempt within one root cohort: the only writer of its ledger."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from hashlib import sha256
from typing import Any

from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.fallback import Market
from sluice.core.clusters.fleet import Site
from sluice.core.config.budget import Budget
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import (
    ClusterQueue,
    ReclaimWithinCohort,
    StopPolicy,
    WithinClusterQueue,
)
from sluice.core.config.policy import Policy
from sluice.core.lifecycle import pending_policy
from sluice.core.lifecycle.indexes import pending_key, release_key
from sluice.core.lifecycle.record import State, Workload, awaits_release
from sluice.core.passes.admission_cycle import decide
from sluice.core.passes.budget_charges import spent_after
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan, LedgerStep
from sluice.core.passes.pass_candidates import choose_candidates, reorders_queue
from sluice.core.passes.recording import Recorded, Snapshot, objects_below, record
from sluice.core.passes.scheduler_state import preemptors
from sluice.core.passes.usage_changes import past_usage_accounts, past_usage_after, usage_after
from sluice.errors import KeptConflicting
from sluice.ports import (
    MAX_CHANGES,
    Catalog,
    CatalogSnapshot,
    Clock,
    Commit,
    Kicks,
    Ledgers,
    LedgerState,
    Pools,
    Recordings,
    Workloads,
)
from sluice.usecases.admitting.dependencies import Dependencies
from sluice.usecases.admitting.gated import decide_gated
from sluice.usecases.configuration import Configured, configured, market_of, namespace_labels
from sluice.usecases.fleet import Fleet

ATTEMPTS = 8
RELEASES = 500
MOST_HEADS = 2000
PLACES = 10_000  # of a queue whose order is not that of the index
KEPT_REFUSALS = 1000
KEPT_PARKED = 10_000
PARKED_MS = 60_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one call changed, for logs and metrics."""

    root: str
    version: int
    admitted: int = 0
    released: int = 0
    preempted: int = 0
    waiting: int = 0
    conflicts: int = 0
    unrecorded: int = 0


@dataclass(frozen=True, kw_only=True)
class Admit:
    """`heads` bounds how many workloads of one ClusterQueue a cycle looks at.

    `recordings`, if given, keep what each deciding cycle saw and decided.
    """

    workloads: Workloads
    ledgers: Ledgers
    catalog: Catalog
    kicks: Kicks
    clock: Clock
    pools: Pools
    fleet: Fleet
    recordings: Recordings | None = None
    heads: int = 100
    budget_ms: int = 10_000
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __call__(self, root: str) -> Outcome:
        """Cycles until nothing more changes or the time is up (then kicks itself again).

        Raises KeptConflicting when every race is lost, so that another kick follows.
        """
        writes: list[Future[None]] = []
        try:
            outcome = self.cycles(root, writes)
        finally:
            wait(writes)
        # What was decided stands, recorded or not.
        return replace(outcome, unrecorded=sum(write.exception() is not None for write in writes))

    def cycles(self, root: str, writes: list[Future[None]]) -> Outcome:
        """`writes` collects recordings that are still on their way."""
        started, heads = self.clock.now(), self.heads
        admitted = released = preempted = conflicts = 0
        last: Mapping[str, Any] | None = None
        while conflicts < ATTEMPTS:
            ledger = self.ledgers.read(root)
            catalog = self.catalog.snapshot()
            config = configured(catalog)
            if last is None:
                self.let_in(root, catalog, config)
            if root not in config.queues.roots():
                return Outcome(root, ledger.version)
            gathered = self.gather(root, ledger, catalog, config, heads, last)
            policy = config.policies.of(root)
            cycle = decide(config.queues, gathered, policy)
            recorded = self.recorded(config, gathered, cycle)
            version = self.commit(ledger, cycle, gathered, policy, config.queues.budgets, recorded)
            if version is None:
                conflicts += 1
                continue
            if recorded is not None and self.recordings is not None:
                put, first = self.recordings.put, ledger.version + 1
                writes.append(self.pool.submit(put, root, first, recorded.text))
            kept = self.reasons_of_parked(gathered, last)
            last = pass_summary(cycle, gathered, version, catalog.version, kept)
            self.ledgers.record_pass(root, last)
            if due := list(pending_policy.steps(gathered.waiting, cycle.refusals, gathered.now)):
                self.workloads.apply(due)
            admitted += len(cycle.admitted)
            released += len(cycle.released)
            preempted += len(cycle.preempted)
            # When all got in, there is nobody to look at again: newcomers have their own kick.
            left = len(gathered.waiting) >= min(heads, len(cycle.admitted) + 1)
            more = (cycle.admitted and left) or len(gathered.releasing) >= RELEASES
            if not more and heads < MOST_HEADS and len(gathered.waiting) >= heads:
                more, heads = True, MOST_HEADS  # what fits may stand behind all that does not
            late = self.clock.now() - started > self.budget_ms
            if more and late:
                self.kicks.kick([root])
            if not more or late:
                waiting = len(gathered.waiting) - len(cycle.admitted)
                return Outcome(root, version, admitted, released, preempted, waiting, conflicts)
        raise KeptConflicting(f"{root}: {conflicts} commits in a row met another writer")

    def reasons_of_parked(
        self, gathered: CycleInput, last: Mapping[str, Any] | None
    ) -> Mapping[str, Any]:
        """The pass that refused them; read only then, since most passes release something."""
        if not gathered.parked:
            return {}
        return self.ledgers.newest_pass(gathered.root) if last is None else last

    def let_in(self, root: str, snapshot: CatalogSnapshot, config: Configured) -> None:
        """Who waits for others in the namespaces that lead here, whatever root it waits below.

        And who has its quota and waits for admission checks.
        """
        queues = config.queues
        namespaces = {
            local.key.partition("/")[0]
            for local in queues.local_queues.values()
            if local.cluster_queue in queues.cluster_queues
            and queues.root_of(local.cluster_queue) == root
        }
        Dependencies(self.workloads, self.clock)(snapshot, namespaces)
        decide_gated(self.workloads, self.clock, queues, root)

    def gather(
        self,
        root: str,
        ledger: LedgerState,
        catalog: CatalogSnapshot,
        config: Configured,
        heads: int | None = None,
        last: Mapping[str, Any] | None = None,
        newcomer: Workload | None = None,
    ) -> CycleInput:
        """Indexes propose, consistent reads decide. `last` is the newest pass, if known.

        `newcomer` is one that nobody submitted, looked at as if it waited.
        """
        now, most = self.clock.now(), heads or self.heads
        root_of = config.queues.root_of
        queues = [q for q in config.queues.cluster_queues.values() if root_of(q.name) == root]
        policy = config.policies.of(root)

        def proposals(queue: ClusterQueue | None) -> list[str]:
            if queue is None:
                return self.workloads.inbox(release_key(root), limit=RELEASES)
            if not reorders_queue(queue, policy):
                return self.workloads.inbox(pending_key(queue.name), limit=most)
            places = self.workloads.places(queue.name, limit=PLACES)
            return choose_candidates(places, most, queue, policy)

        found = self.pool.map(proposals, [None, *queues])
        records = self.workloads.get_many([i for ids in found for i in ids])
        waiting = [w for w in records if waits(w, now) and root_of(w.cq) == root]
        waiting += [newcomer] if newcomer is not None else []
        holders: Sequence[Workload] = ()
        counts_past = policy.admission_fair_sharing is not None
        if needs_holders(config.queues, queues, waiting=bool(waiting)) or (
            counts_past and ledger.past is None
        ):
            ids = [
                i for cluster in catalog.of("Cluster") for i in self.workloads.active(cluster, root)
            ]
            holders = [w for w in self.workloads.get_many(ids) if w.reservation and w.root == root]
        releases = [w for w in records if awaits_release(w) and w.root == root]
        # Those for whom others stop, however many have lined up before them meanwhile.
        missing = preemptors((*holders, *releases)) - {w.id for w in records}
        late = self.workloads.get_many(sorted(missing))
        waiting += [
            w
            for w in late
            if waits(w, now) and w.cq in config.queues.cluster_queues and root_of(w.cq) == root
        ]
        # Quota that this very cycle gives back may be what the parked wait for.
        if last is None:
            last = {} if releases else self.ledgers.newest_pass(root)
        market = market_of(catalog, self.plans(catalog), now) if waiting else Market({})
        sites = self.fleet(catalog) if waiting else ()
        fleet = fleet_digest(sites, market)
        parked = frozenset[str]() if releases else parked_by(last, ledger, catalog, fleet, now)
        return CycleInput(
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

    def plans(self, catalog: CatalogSnapshot) -> Mapping[str, Sequence[PoolPlan]]:
        clusters = sorted(catalog.of("Cluster"))
        return dict(zip(clusters, self.pool.map(self.pools.plans, clusters), strict=True))

    def recorded(
        self, config: Configured, gathered: CycleInput, cycle: CyclePlan
    ) -> Recorded | None:
        """What the cycle saw and decided; None if it only released, or nobody keeps it."""
        decided = cycle.admitted or cycle.preempted or cycle.expired
        if self.recordings is None or not decided or not config.policies.records(gathered.root):
            return None
        objects = objects_below(config.queues, gathered.root)
        policy = config.policies.of(gathered.root)
        return record(Snapshot(gathered, policy, objects, config.queues.budgets), cycle)

    def commit(
        self,
        ledger: LedgerState,
        cycle: CyclePlan,
        gathered: CycleInput,
        policy: Policy,
        budgets: Sequence[Budget] = (),
        recorded: Recorded | None = None,
    ) -> int | None:
        """The ledger's version after all transactions of a cycle; None if one lost its race."""
        steps, now = cycle.steps, gathered.now
        settings = policy.admission_fair_sharing
        past = past_usage_accounts(gathered, settings) if settings is not None else None
        made = {
            "version": ledger.version + 1,
            "digest": recorded.snapshot_digest if recorded else "",
        }
        seen = {"pass": made} if recorded else {}
        for first in range(0, len(steps), MAX_CHANGES):
            batch = steps[first : first + MAX_CHANGES]
            usage = usage_after(ledger.usage, batch)
            if past is not None and settings is not None:
                past = past_usage_after(past, batch, settings, now)
            changes = tuple(step.change for step in batch)
            spent = spent_after(ledger.spent, changes, budgets, now)
            audited = audit(cycle, batch) | seen
            commit = Commit(ledger, usage, changes, audited, now, past, spent)
            if not self.ledgers.commit(commit).done:
                return None
            version = ledger.version + 1
            ledger = LedgerState(ledger.root, version, ledger.limits, usage, past, spent)
        return ledger.version


def waits(workload: Workload, now: int) -> bool:
    outside = workload.held or workload.blocked
    return workload.state is State.PENDING and not outside and workload.not_before <= now


def needs_holders(catalog: QueueCatalog, queues: Sequence[ClusterQueue], *, waiting: bool) -> bool:
    """Whether a pass has to know who holds the quota, and not only how much of it is held."""
    names = {queue.name for queue in queues}
    locals_ = [each for each in catalog.local_queues.values() if each.cluster_queue in names]
    stops = {queue.stop_policy for queue in queues} | {each.stop_policy for each in locals_}
    if StopPolicy.HOLD_AND_DRAIN in stops:
        return True
    return waiting and (
        bool(catalog.budgets)
        or any(map(may_evict, queues))
        or any(each.max_running is not None for each in locals_)
    )


def may_evict(queue: ClusterQueue) -> bool:
    """Whether somebody may have to yield to this queue, or counts in its caps."""
    preemption = queue.preemption
    return (
        preemption.within_cluster_queue is not WithinClusterQueue.NEVER
        or preemption.reclaim_within_cohort is not ReclaimWithinCohort.NEVER
        or queue.max_running is not None
        or queue.max_running_per_user is not None
    )


def audit(cycle: CyclePlan, batch: Sequence[LedgerStep]) -> dict[str, Any]:
    """The lines of the batch record, by what happened."""
    kinds = {
        "released": cycle.released,
        "expired": cycle.expired,
        "admitted": cycle.admitted,
        "preempted": cycle.preempted,
    }
    chosen = {id(step) for step in batch}
    lines = {kind: [s.line for s in steps if id(s) in chosen] for kind, steps in kinds.items()}
    return {kind: rows for kind, rows in lines.items() if rows}


def pass_summary(
    cycle: CyclePlan, gathered: CycleInput, version: int, catalog: int, last: Mapping[str, Any]
) -> Mapping[str, Any]:
    """The newest pass as `why` and `ls` read it, and whom it parked; lists as compressed JSON.

    What was parked keeps the reason of the pass that refused it, the `last` one.
    """
    kept = json.loads(zlib.decompress(last["refusals"])) if last else {}
    refusals = {name: line for name, line in kept.items() if name in gathered.parked}
    refusals |= {
        refusal.workload: [refusal.reason.value, refusal.message, refusal.position]
        for refusal in list(cycle.refusals.values())[:KEPT_REFUSALS]
    }
    done = {step.change.before.id for step in (*cycle.admitted, *cycle.expired)}
    parked = [w.id for w in gathered.waiting if w.id not in done][:KEPT_PARKED]
    return {
        "at": gathered.now,
        "parked_at": last["parked_at"] if last else gathered.now,
        "version": version,
        "catalog": catalog,
        "fleet": fleet_digest(gathered.sites, gathered.market),
        "refusals": zlib.compress(json.dumps(refusals).encode()),
        "parked": zlib.compress(json.dumps(parked).encode()),
    }


def fleet_digest(sites: Sequence[Site], market: Market) -> str:
    """What clusters answer and what cannot be had there, as a digest that changes with it."""
    answering = [[site.name, site.health.value, sorted(site.flavors)] for site in sites]
    closed = {cluster: sorted(flavors) for cluster, flavors in market.closed.items()}
    return sha256(json.dumps([answering, closed], sort_keys=True).encode()).hexdigest()[:16]


def parked_by(
    last: Mapping[str, Any], ledger: LedgerState, catalog: CatalogSnapshot, fleet: str, now: int
) -> frozenset[str]:
    """Who was refused by a pass since which neither ledger, configuration nor fleet has moved.

    Kueue's rule: a refused head keeps room for itself in one pass, then lets others by until
    something changes. After a while everybody is looked at again, since time is a change too.
    """
    seen = (last.get("version"), last.get("catalog"), last.get("fleet"))
    if seen != (ledger.version, catalog.version, fleet) or now - last["parked_at"] > PARKED_MS:
        return frozenset()
    return frozenset(json.loads(zlib.decompress(last["parked"])))
