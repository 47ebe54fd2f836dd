"""Admit, release and preempt within one root cohort: the only writer of its ledger."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import Any

from sluice.core.config.budget import Budget
from sluice.core.config.policy import Policy
from sluice.core.lifecycle import pending_policy
from sluice.core.lifecycle.record import Workload
from sluice.core.passes.admission_cycle import decide
from sluice.core.passes.budget_charges import spent_after
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan, LedgerStep
from sluice.core.passes.needed_holders import always_needs_holders, leaves_evictor
from sluice.core.passes.recording import Recorded, Snapshot, objects_below, record
from sluice.core.passes.scheduler_state import preemptors
from sluice.core.passes.twins import decided_unread, is_twin, with_records
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
    News,
    Pools,
    Recordings,
    Workloads,
)
from sluice.usecases.admitting.dependencies import Dependencies
from sluice.usecases.admitting.gated import decide_gated
from sluice.usecases.admitting.gather import MOST_PLACES, RELEASES, Gather, Gathered, Look, waits
from sluice.usecases.admitting.newest_pass import covers, pass_summary, worth_a_look
from sluice.usecases.configuration import Configured, configured
from sluice.usecases.fleet import Fleet

ATTEMPTS = 8


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
    heads: int = MAX_CHANGES
    budget_ms: int = 10_000
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __call__(
        self, root: str, *, sent_at: int | None = None, news: News | None = None
    ) -> Outcome:
        """Cycles until nothing more changes or the time is up (then kicks itself again).

        `sent_at` is when the newest kick was sent (epoch ms): one that is older than the newest
        pass is not followed. `news` is where to look beside the queues that somebody waits in
        already; None: everywhere. Raises KeptConflicting when every race is lost, so that another
        kick follows.
        """
        newest = self.ledgers.newest_pass(root)
        if covers(newest, sent_at, news):
            return Outcome(root, int(newest["version"]))
        writes: list[Future[None]] = []
        try:
            outcome = self.cycles(root, newest, news, writes)
        finally:
            wait(writes)
        # What was decided stands, recorded or not.
        return replace(outcome, unrecorded=sum(write.exception() is not None for write in writes))

    def cycles(
        self,
        root: str,
        newest: Mapping[str, Any],
        news: News | None,
        writes: list[Future[None]],
    ) -> Outcome:
        """`writes` collects recordings that are still on their way."""
        started = self.clock.now()
        until = started + self.budget_ms
        begin = tuple(newest.get("begin") or ("", ""))
        look = Look(self.heads, begin=(begin[0], begin[1]), unread=True)
        admitted = released = preempted = conflicts = 0
        last: Mapping[str, Any] | None = None
        making_room = bool(newest.get("making_room", True))
        while conflicts < ATTEMPTS:
            ledger = self.ledgers.read(root)
            catalog = self.catalog.snapshot()
            config = configured(catalog)
            if last is None:
                among = worth_a_look(newest, news, catalog.version, started)
                look = replace(look, among=among)
                self.let_in(root, catalog, config, None if among is None else news)
            if root not in config.queues.roots():
                return Outcome(root, ledger.version)
            seen = newest if last is None else last
            gathered, planned = self.decided(
                ledger, catalog, config, look, seen, making_room=making_room
            )
            policy = config.policies.of(root)
            recorded = self.recorded(config, gathered.input, planned)
            version, cycle = self.commit(
                ledger, planned, gathered.input, policy, config.queues.budgets, recorded, until
            )
            cut = cycle is not planned
            if version is None:
                conflicts += 1
                continue
            if recorded is not None and self.recordings is not None:
                put, first = self.recordings.put, ledger.version + 1
                writes.append(self.pool.submit(put, root, first, recorded.text))
            more = carried_over(gathered, cycle, cut=cut)
            more |= looked_at(gathered, look, newest, news) | {"began": started}
            making_room = more["making_room"]
            kept = seen if gathered.input.parked else {}
            last = pass_summary(cycle, gathered.input, version, catalog.version, kept, more)
            self.act_on_waits(gathered.input, cycle)
            admitted += len(cycle.admitted)
            released += len(cycle.released)
            preempted += len(cycle.preempted)
            going_on, look = further(gathered, cycle, look)
            late = cut or self.clock.now() > until
            if late and (going_on or cut):
                self.kicks.kick([root])
            if not going_on or late:
                self.ledgers.record_pass(root, last)
                waiting = len(gathered.input.waiting) - len(cycle.admitted)
                return Outcome(root, version, admitted, released, preempted, waiting, conflicts)
        raise KeptConflicting(f"{root}: {conflicts} commits in a row met another writer")

    def decided(
        self,
        ledger: LedgerState,
        catalog: CatalogSnapshot,
        config: Configured,
        look: Look,
        last: Mapping[str, Any],
        *,
        making_room: bool,
    ) -> tuple[Gathered, CyclePlan]:
        """The plan of a cycle, and what it rests on.

        Holders are read only once somebody is left waiting who might evict them, or (`making_room`)
        where some may be stopping for somebody already.
        """
        queues, policy = config.queues, config.policies.of(ledger.root)
        below = [q for q in queues.cluster_queues.values() if queues.root_of(q.name) == ledger.root]
        late = not making_room and not always_needs_holders(queues, below, waiting=True)
        gathered = self.gatherer(ledger, catalog, config, replace(look, holders=not late), last)
        cycle = decide(queues, gathered.input, policy)
        if late and leaves_evictor(queues, gathered.input, cycle):
            gathered = self.gatherer.with_holders(gathered, config, catalog)
            cycle = decide(queues, gathered.input, policy)
        while unread := decided_unread(cycle, gathered.unread):
            records = {w.id: w for w in self.workloads.get_many(unread)}
            assumed = {w.id: w for w in gathered.input.waiting if w.id in gathered.unread}
            if all(name in records and is_twin(assumed[name], records[name]) for name in unread):
                return gathered, with_records(cycle, records)
            gathered = self.corrected(gathered, config, set(unread), records)
            cycle = decide(queues, gathered.input, policy)
        return gathered, cycle

    def corrected(
        self,
        gathered: Gathered,
        config: Configured,
        read: set[str],
        records: Mapping[str, Workload],
    ) -> Gathered:
        """With the records themselves, where somebody was not what its place said."""
        seen, root_of = gathered.input, config.queues.root_of
        found = [records.get(w.id) if w.id in read else w for w in seen.waiting]
        waiting = [
            w for w in found if w is not None and waits(w, seen.now) and root_of(w.cq) == seen.root
        ]
        unread = gathered.unread - read
        return replace(gathered, input=replace(seen, waiting=waiting), unread=unread)

    def act_on_waits(self, gathered: CycleInput, cycle: CyclePlan) -> None:
        if due := list(pending_policy.steps(gathered.waiting, cycle.refusals, gathered.now)):
            self.workloads.apply(due)

    def let_in(
        self, root: str, snapshot: CatalogSnapshot, config: Configured, news: News | None
    ) -> None:
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
        if news is not None:
            namespaces &= news.namespaces
        Dependencies(self.workloads, self.clock, self.pool)(snapshot, namespaces)
        decide_gated(self.workloads, self.clock, queues, root)

    @cached_property
    def gatherer(self) -> Gather:
        return Gather(
            workloads=self.workloads,
            ledgers=self.ledgers,
            clock=self.clock,
            pools=self.pools,
            fleet=self.fleet,
            pool=self.pool,
        )

    def gather(
        self,
        root: str,
        ledger: LedgerState,
        catalog: CatalogSnapshot,
        config: Configured,
        newcomer: Workload | None = None,
    ) -> CycleInput:
        """What a cycle would decide on, for questions: every record is read.

        `newcomer` is one that nobody submitted, looked at as if it waited.
        """
        del root
        look = Look(self.heads)
        return self.gatherer(ledger, catalog, config, look, newcomer=newcomer).input

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
        budgets: Sequence[Budget],
        recorded: Recorded | None,
        until: int,
    ) -> tuple[int | None, CyclePlan]:
        """The ledger's version after the transactions of a cycle, and what of it they did.

        None if one lost its race. After `until` (epoch ms) no further one begins: what a plan
        begins with stands without its end.
        """
        steps, now = cycle.steps, gathered.now
        settings = policy.admission_fair_sharing
        past = past_usage_accounts(gathered, settings) if settings is not None else None
        made = {
            "version": ledger.version + 1,
            "digest": recorded.snapshot_digest if recorded else "",
        }
        seen = {"pass": made} if recorded else {}
        for first in range(0, len(steps), MAX_CHANGES):
            if first and self.clock.now() > until:
                return ledger.version, cycle.until(first)
            batch = steps[first : first + MAX_CHANGES]
            usage = usage_after(ledger.usage, batch)
            if past is not None and settings is not None:
                past = past_usage_after(past, batch, settings, now)
            changes = tuple(step.change for step in batch)
            spent = spent_after(ledger.spent, changes, budgets, now)
            audited = audit(cycle, batch) | seen
            commit = Commit(ledger, usage, changes, audited, now, past, spent)
            if not self.ledgers.commit(commit).done:
                return None, cycle
            version = ledger.version + 1
            ledger = LedgerState(ledger.root, version, ledger.limits, usage, past, spent)
        return ledger.version, cycle


def further(gathered: Gathered, cycle: CyclePlan, look: Look) -> tuple[bool, Look]:
    """Whether another cycle may decide more, and how far it looks."""
    seen = gathered.input
    # When all got in, there is nobody to look at again: newcomers have their own kick.
    left = gathered.deeper or len(seen.waiting) > len(cycle.admitted)
    if (cycle.admitted and left) or len(seen.releasing) >= RELEASES:
        return True, look
    if gathered.deeper and not look.window:
        return True, replace(look, window=MOST_PLACES)  # what fits may stand behind all that waits
    return False, look


def carried_over(gathered: Gathered, cycle: CyclePlan, *, cut: bool) -> dict[str, Any]:
    """What the next pass has to know: whether places are kept, and where its window begins.

    A plan that was cut short parks nobody: who fitted in its end fits still.
    """
    making_room = bool(cycle.preempted or preemptors(gathered.input.holders))
    carried = {"making_room": making_room, "begin": list(gathered.begin)}
    return carried | ({"version": -1} if cut else {})


def looked_at(
    gathered: Gathered, look: Look, newest: Mapping[str, Any], news: News | None
) -> dict[str, Any]:
    """Where this pass has looked, and where the next one has to.

    An index may lag behind its news, so that those queues are looked at once more.
    """
    if look.among is None or news is None:
        return {"waiting": list(gathered.filled), "all_at": gathered.input.now}
    waiting = sorted(news.queues.union(gathered.filled))
    where = {"looked": sorted(look.among), "let_in": sorted(news.namespaces)}
    return {"waiting": waiting, "all_at": newest["all_at"], **where}


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
