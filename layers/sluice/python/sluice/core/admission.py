"""The admission pass over one root cohort: who runs, who yields, who waits and why.

A pass is a sequence of rounds. Each round looks at the head of every queue as one scheduling cycle
of Kueue does: nominate, order, then admit or preempt one by one while re-checking the fit. Rounds
go on until no queue has a head that was not looked at. With fair sharing a queue's next head joins
the running tournament at once, so that shares and not the number of queues divide the cohort.

Two views of usage are kept while victims still run. In the future view (the tree that decides)
victims are gone and those they yield to hold their place, so nobody steals it; in the present view
victims still count. An admission needs room in both.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from sluice.core.backlog import Backlog, Lane, Line
from sluice.core.explanation import shortfall
from sluice.core.fairness import Shares, Tournament
from sluice.core.flavors import (
    NO_NOMINATION,
    PODS,
    Assigner,
    Fit,
    Nomination,
    compile_shape,
    largest_partial,
    may_preempt_while_borrowing,
    shape_key,
)
from sluice.core.model import (
    Assignment,
    CheckState,
    Gate,
    PreemptionReason,
    QueueingStrategy,
    ReclaimWithinCohort,
    StopPolicy,
    WithinClusterQueue,
)
from sluice.core.preemption import Held, Holdings, Preemptor, VictimSearch
from sluice.core.quota import QuotaTree
from sluice.core.reasons import Reason
from sluice.core.usage import LocalQueueUsage

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping

    from sluice.core.catalog import Catalog
    from sluice.core.flavors import Shape
    from sluice.core.model import ClusterQueue, Holding, PodSet, Policy, Workload
    from sluice.core.preemption import Target
    from sluice.core.quota import Cells

# Lines and shapes that nobody waits in are forgotten beyond this many per queue.
MAX_IDLE_LINES = 1024

_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class Admission:
    """A workload that gets quota now."""

    workload: str
    cluster_queue: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class PreemptionStep:
    """A running workload that must yield; its quota is free once its pods are gone.

    `by` is the workload that it yields to, empty for a drained queue.
    """

    victim: str
    cluster_queue: str
    by: str
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a waiting workload does not run, and how many of its queue are ahead of it."""

    workload: str
    cluster_queue: str
    reason: Reason
    message: str
    position: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass decided.

    `admissions` and `preemptions` are in the order of decision. `refusals`, if asked for, explains
    the first workload of every group of equal ones; `Scheduler.why` explains any other.
    """

    admissions: tuple[Admission, ...]
    preemptions: tuple[PreemptionStep, ...]
    refusals: Mapping[str, Refusal]


@dataclass(slots=True, eq=False)
class _Queue:
    """A ClusterQueue with its backlog and counters."""

    node: int
    config: ClusterQueue
    backlog: Backlog
    strict: bool
    by_usage: bool
    reclaims_any: bool
    preempts_while_borrowing: bool
    inactive: tuple[Reason, str] | None
    lines: dict[Hashable, Line] = field(default_factory=dict)
    shapes: dict[Hashable, Shape] = field(default_factory=dict)
    seen: dict[int, tuple[tuple[PodSet, ...], Shape]] = field(default_factory=dict)
    running: int = 0
    running_by_user: dict[str | None, int] = field(default_factory=dict)
    looked_at: int = 0


@dataclass(slots=True, eq=False)
class _Entry:
    """A nominated head; `order` is borrowing level, rank, time, sequence, id."""

    queue: _Queue
    line: Line
    workload: Workload
    nomination: Nomination
    victims: list[Target]
    version: int
    order: tuple[int, int, int, int, str]


@dataclass(slots=True, eq=False)
class _Pending:
    """A workload whose place is held while others stop."""

    queue: _Queue
    workload: Workload
    nomination: Nomination


@dataclass(slots=True, eq=False)
class _Pass:
    """What happens during one pass."""

    now_ms: int
    admissions: list[Admission] = field(default_factory=list)
    preemptions: list[PreemptionStep] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    reservations: list[tuple[int, Cells]] = field(default_factory=list)
    refused: list[Line] = field(default_factory=list)
    limited: list[_Queue] = field(default_factory=list)
    reserved_by_parked: bool = False
    again: bool = False


def _failed_check(workload: Workload) -> Gate | None:
    """Keeps out a workload with an admission check that said no; a pending one gets quota first."""
    for name, state in sorted(workload.checks.items()):
        if state in {CheckState.RETRY, CheckState.REJECTED}:
            return Gate(Reason.ADMISSION_CHECK, f"admission check {name} answered {state}")
    return None


class Scheduler:
    """The quota tree, holdings and backlog of one root cohort, kept between passes.

    A victim keeps its quota until the caller says `release`; what it gives back is kept for the
    workload that it yields to.
    """

    def __init__(self, catalog: Catalog, root: str, policy: Policy) -> None:
        """Takes a root of `catalog.roots()`; raises KeyError for any other name."""
        self.root = root
        self._catalog = catalog
        self._policy = policy
        self._tree = QuotaTree(catalog, root)
        self._present: QuotaTree | None = None  # None: the same as the future view
        self._shares = Shares(self._tree)
        self._holdings = Holdings(len(self._tree.names))
        self._usage = self._make_usage()
        self._search = VictimSearch(
            self._tree, self._shares, self._holdings, policy, self._usage_of_workload
        )
        self._queues = {
            name: self._make_queue(catalog.cluster_queues[name], node)
            for name, node in self._tree.index.items()
            if self._tree.is_queue[node]
        }
        self._by_node = {queue.node: queue for queue in self._queues.values()}
        self._flat = max(self._tree.heights) <= 1
        self._held: dict[str, Held] = {}
        self._evicting: dict[str, Held] = {}
        self._pending: dict[str, _Pending] = {}
        self._gated: dict[str, tuple[Workload, Gate]] = {}
        self._gates: list[tuple[int, str]] = []
        self._expired: dict[str, Workload] = {}
        self._protected_until: list[int] = []
        self._running_by_local_queue: dict[str | None, int] = {}
        self._ready: set[int] = set()
        self._parking: set[int] = set()
        policies = {queue.stop_policy for queue in catalog.cluster_queues.values()}
        policies |= {local.stop_policy for local in catalog.local_queues.values()}
        self._draining = StopPolicy.HOLD_AND_DRAIN in policies
        self._version = 0
        self._borrowed: tuple[int, frozenset[int]] = (-1, frozenset())
        self._now_ms = 0
        self._freed = False
        self._changed = True
        self._waiting_in: dict[str, _Queue] = {}

    def _make_usage(self) -> LocalQueueUsage | None:
        settings = self._policy.admission_fair_sharing
        if settings is None:
            return None
        local_queues = self._catalog.local_queues.values()
        weights = {each.key: each.fair_weight_milli for each in local_queues}
        return LocalQueueUsage(settings, weights)

    def _make_queue(self, config: ClusterQueue, node: int) -> _Queue:
        aging = self._policy.aging

        def rank(priority: int, queued_at_ms: int) -> int:
            return -priority if aging is None else queued_at_ms - priority * aging.interval_ms

        inactive: tuple[Reason, str] | None = None
        if config.stop_policy is not StopPolicy.NONE:
            inactive = (Reason.QUEUE_CORDONED, f"ClusterQueue {config.name} is stopped")
        elif config.namespace_selector is None:
            text = f"ClusterQueue {config.name} has no namespaceSelector and admits no namespace"
            inactive = (Reason.QUEUE_INACTIVE, text)
        elif problem := self._catalog.inactive_reason(config):
            inactive = (Reason.QUEUE_INACTIVE, problem)
        return _Queue(
            node=node,
            config=config,
            backlog=Backlog(rank),
            strict=config.queueing_strategy is QueueingStrategy.STRICT_FIFO,
            by_usage=self._usage is not None and config.usage_based_admission,
            preempts_while_borrowing=may_preempt_while_borrowing(
                config, fair_sharing=self._policy.fair_sharing is not None
            ),
            reclaims_any=config.preemption.reclaim_within_cohort is ReclaimWithinCohort.ANY,
            inactive=inactive,
        )

    # Work comes and goes

    def enqueue(self, workload: Workload, *, parked: bool = False) -> None:
        """Adds a waiting workload, or replaces the waiting one of the same id.

        `parked` says that an earlier pass refused it and nothing was released since.
        Raises KeyError for a ClusterQueue that is not below this root.
        """
        queue = self._queues[workload.cluster_queue]
        self.remove(workload.id)
        gate = workload.gate or _failed_check(workload)
        if gate is not None:
            self._gated[workload.id] = (workload, gate)
            if gate.until_ms is not None:
                heappush(self._gates, (gate.until_ms, workload.id))
            return
        line = self._line(queue, workload)
        if parked and not queue.strict and line.front() is None:
            queue.backlog.park(line)
            self._parking.add(queue.node)
        queue.backlog.add(workload, line)
        self._waiting_in[workload.id] = queue
        if not line.parked and queue.inactive is None:
            self._ready.add(queue.node)
            self._changed = True

    def hold(self, holding: Holding) -> None:
        """Counts a workload that already holds quota, even beyond quota, as after a quota cut."""
        workload = holding.workload
        queue = self._queues[workload.cluster_queue]
        held = self._make_held(queue, workload, holding.assignment, holding.since_ms)
        if holding.checkpoint_at_ms is not None:
            held.saved_at_ms = max(held.saved_at_ms, holding.checkpoint_at_ms)
            held.has_checkpoint = True
        self._count(queue, held, penalty=False)
        if holding.evicting:
            self._evict(held)
        self._version += 1
        self._changed = True

    def checkpointed(self, workload_id: str, at_ms: int) -> None:
        """Notes a durable checkpoint of an admitted workload; unknown ids are ignored."""
        held = self._held.get(workload_id)
        if held is not None:
            held.saved_at_ms = max(held.saved_at_ms, at_ms)
            held.has_checkpoint = True

    def release(self, workload_id: str, now_ms: int | None = None) -> None:
        """Gives back the quota of a finished or stopped workload; unknown ids are ignored."""
        held = self._held.pop(workload_id, None)
        if held is None:
            return
        if self._evicting.pop(workload_id, None) is None:
            self._tree.remove(held.node, held.cells)
            self._holdings.remove(held)
        if self._present is not None:
            self._present.remove(held.node, held.cells)
            self._join_views()
        self._uncount(held, self._now_ms if now_ms is None else now_ms)
        self._freed = True
        self._version += 1

    def remove(self, workload_id: str) -> None:
        """Forgets a waiting workload; unknown ids are ignored."""
        self._gated.pop(workload_id, None)
        self._expired.pop(workload_id, None)
        pending = self._pending.pop(workload_id, None)
        if pending is not None:
            self._tree.remove(pending.queue.node, pending.nomination.cells)
            self._join_views()
            self._freed = True
            self._version += 1
            return
        queue = self._waiting_in.pop(workload_id, None)
        if queue is not None:
            queue.backlog.discard(workload_id)

    def set_local_queue_usage(
        self, local_queue: str, consumed: Mapping[str, float], at_ms: int
    ) -> None:
        """Sets past usage per resource; without admission fair sharing it counts for nothing."""
        if self._usage is not None:
            self._usage.set_consumed(local_queue, consumed, at_ms)

    # The pass

    def run_pass(self, now_ms: int, *, explain: bool = False) -> Plan:
        """Decides for every queue; admitted workloads hold quota afterwards.

        The same state and time give the same plan. With `explain` the plan says why the refused
        ones wait, which costs more than the decision.
        """
        self._now_ms = now_ms
        self._search.pass_number += 1
        self._search.spared_new = False
        current = _Pass(now_ms)
        self._open_gates(now_ms)
        self._drain(current)
        self._admit_pending(current)
        self._wake(now_ms)
        kept_free = self._serve_longest_waiting(current)
        while entries := self._nominate(current):
            for entry in self._ordered(entries, current):
                self._process(entry, current)
        for node, cells in kept_free:
            self._tree.remove(node, cells)
        for queue in current.limited:
            queue.looked_at = 0
        self._changed = current.again or self._search.spared_new
        return Plan(
            tuple(current.admissions),
            tuple(current.preemptions),
            MappingProxyType(self._refusals(current) if explain else {}),
        )

    def has_candidates(self) -> bool:
        """Whether another pass at the same time could decide anything."""
        return self._changed or self._freed

    def next_wakeup_ms(self) -> int | None:
        """When time alone can change a decision: a gate opens or a protection ends."""
        times = [self._gates[0][0]] if self._gates else []
        times += self._protected_until[:1]
        return min(times, default=None)

    def _open_gates(self, now_ms: int) -> None:
        while self._gates and self._gates[0][0] <= now_ms:
            _, workload_id = heappop(self._gates)
            workload, gate = self._gated.get(workload_id, (None, None))
            if workload and gate and gate.until_ms is not None and gate.until_ms <= now_ms:
                self.enqueue(replace(workload, gate=None))

    def _drain(self, current: _Pass) -> None:
        """Evicts what runs in queues that are stopped for good."""
        for workload_id in [*self._held] if self._draining else ():
            held = self._held[workload_id]
            if workload_id not in self._evicting and self._is_drained(held.workload):
                self._evict(held)
                reason = PreemptionReason.QUEUE_DRAINED
                queue = held.workload.cluster_queue
                current.preemptions.append(PreemptionStep(workload_id, queue, "", reason))

    def _is_drained(self, workload: Workload) -> bool:
        if self._queues[workload.cluster_queue].config.stop_policy is StopPolicy.HOLD_AND_DRAIN:
            return True
        local = self._catalog.local_queues.get(workload.local_queue or "")
        return local is not None and local.stop_policy is StopPolicy.HOLD_AND_DRAIN

    def _admit_pending(self, current: _Pass) -> None:
        """Admits those whose victims have stopped; a strict queue waits for its own."""
        for workload_id, pending in [*self._pending.items()]:
            node, cells = pending.queue.node, pending.nomination.cells
            if self._present is None or self._present.fits(node, cells):
                self._tree.remove(node, cells)
                del self._pending[workload_id]
                self._admit(pending.queue, pending.workload, pending.nomination, current)
            elif not self._evicting:
                self._tree.remove(node, cells)
                del self._pending[workload_id]
                self._version += 1
                self.enqueue(pending.workload)
            elif pending.queue.strict:
                current.closed.add(node)
        self._join_views()

    def _wake(self, now_ms: int) -> None:
        """Returns lines to the order whose verdict may have changed."""
        while self._protected_until and self._protected_until[0] <= now_ms:
            heappop(self._protected_until)
            self._freed = True
        if not self._freed:
            return
        self._freed = False
        for node in sorted(self._parking):
            queue = self._by_node[node]
            lines = [line for line in queue.backlog.parked if self._may_fit(queue, line)]
            if lines:
                queue.backlog.wake(lines)
                self._ready.add(node)
            if not queue.backlog.parked:
                self._parking.discard(node)

    def _may_fit(self, queue: _Queue, line: Line) -> bool:
        """A quick necessary condition for admission or preemption."""
        cells = line.shape.cells
        return (
            cells is None
            or line.shape.slack > 0
            or self._tree.fits(queue.node, cells)
            or self._may_preempt(queue, cells, line.priority)
        )

    def _may_preempt(self, queue: _Queue, cells: Cells, priority: int) -> bool:
        """A quick necessary condition for finding victims."""
        node, tree = queue.node, self._tree
        rules = queue.config.preemption
        if rules.within_cluster_queue is not WithinClusterQueue.NEVER:
            equal = rules.within_cluster_queue is not WithinClusterQueue.LOWER_PRIORITY
            exposed, end_ms = self._holdings.exposed(node, priority, self._now_ms, equal=equal)
            if exposed:
                return True
            self._search.note_protection(end_ms)
        if rules.reclaim_within_cohort is ReclaimWithinCohort.NEVER or tree.parent[node] < 0:
            return False
        if not self._flat or queue.preempts_while_borrowing:
            return True
        # In a flat tree borrowing queues yield, and only to one that stays within its own quota.
        if any(tree.borrows_with(node, cell, amount) for cell, amount in cells):
            return False
        borrowed = self._borrowed_cells()
        return any(cell in borrowed for cell, _ in cells)

    def _borrowed_cells(self) -> frozenset[int]:
        """Cells in which any queue uses more than its own quota, as of the present version."""
        version, cells = self._borrowed
        if version != self._version:
            tree, nodes = self._tree, self._by_node
            cells = frozenset(
                cell
                for cell in range(len(tree.cells))
                if any(tree.borrows_with(node, cell, 0) for node in nodes)
            )
            self._borrowed = (self._version, cells)
        return cells

    def _serve_longest_waiting(self, current: _Pass) -> list[tuple[int, Cells]]:
        """Looks first at heads that have waited too long, and keeps free what they lack.

        Returns what the tree counts for them until the end of the pass.
        """
        aging = self._policy.aging
        if aging is None or aging.reserve_after_ms is None:
            return []
        latest = current.now_ms - aging.reserve_after_ms
        waiting: list[tuple[tuple[int, int, str], _Queue, Line]] = []
        for queue in self._queues.values():
            if queue.inactive is not None:
                continue
            fronts = [
                (front[:3], queue, line)
                for line in queue.lines.values()
                if (front := line.front()) is not None and front[0] <= latest
            ]
            if fronts:
                waiting.append(min(fronts, key=itemgetter(0)))
        kept: list[tuple[int, Cells]] = []
        for _, queue, line in sorted(waiting, key=itemgetter(0)):
            entry = self._nominate_line(queue, line, current)
            if entry is None:
                continue
            nomination = entry.nomination
            if nomination.fit is Fit.FIT or entry.victims:
                self._process(entry, current)
            elif line.shape.cells is not None and self._within_potential(queue, line.shape.cells):
                self._tree.add(queue.node, line.shape.cells)
                kept.append((queue.node, line.shape.cells))
                queue.backlog.park(line)
                self._parking.add(queue.node)
        return kept

    def _within_potential(self, queue: _Queue, cells: Cells) -> bool:
        return all(amount <= self._tree.potential[c][queue.node] for c, amount in cells)

    def _nominate(self, current: _Pass) -> list[_Entry]:
        """The head of every queue that is still open, each with what it could get."""
        found = []
        for node in sorted(self._ready - current.closed):
            entry = self._nominate_head(self._by_node[node], current)
            if entry is not None:
                found.append(entry)
        return found

    def _nominate_head(self, queue: _Queue, current: _Pass) -> _Entry | None:
        """The head of one queue, or None if the queue has nothing more to offer in this pass."""
        limit = self._policy.heads_per_pass
        if limit is not None and queue.looked_at >= limit:
            current.closed.add(queue.node)
            current.again = True
            return None
        while True:
            line = queue.backlog.head(self._local_usage if queue.by_usage else None)
            if line is None:
                self._ready.discard(queue.node)
                return None
            entry = self._nominate_line(queue, line, current)
            if entry is not None:
                if limit is not None:
                    queue.looked_at += 1
                    current.limited.append(queue)
                return entry
            if queue.node in current.closed:
                return None

    def _nominate_line(self, queue: _Queue, line: Line, current: _Pass) -> _Entry | None:
        """Nominates the front of a line; None if the line has nothing to look at any more."""
        item = line.front()
        if item is None:
            queue.backlog.offer(line)
            return None
        workload = item[3]
        if workload.deadline_ms is not None and workload.deadline_ms < current.now_ms:
            self.remove(workload.id)
            self._expired[workload.id] = workload
            return None
        if line.limited and self._capped(queue, workload) is not None:
            self._park(queue, line, current)
            return None
        node, cells = queue.node, line.shape.cells
        if cells is not None and self._tree.fits(node, cells):
            level = 0
            for cell, amount in cells:
                if self._tree.borrows_with(node, cell, amount):
                    level = max(level, self._tree.borrowing_level(node, cell, amount)[0])
            nomination = Nomination(Fit.FIT, line.shape.fixed, cells, level)
            victims: list[Target] = []
        else:
            nomination, victims = self._nominate_hard(queue, line.shape, workload)
        rank = queue.backlog.rank(line.priority, item[0])
        return _Entry(
            queue,
            line,
            workload,
            nomination,
            victims,
            self._version,
            (nomination.level, rank, *item[:3]),
        )

    def _nominate_hard(
        self, queue: _Queue, shape: Shape, workload: Workload
    ) -> tuple[Nomination, list[Target]]:
        """Full flavor search with preemption and partial admission."""
        fixed = shape.cells
        if fixed is not None and not shape.slack:
            hopeless = not self._may_preempt(queue, fixed, workload.priority)
            if hopeless and queue.reclaims_any:
                return NO_NOMINATION, []
        searched: dict[tuple[Cells, frozenset[int]], list[Target]] = {}

        def victims_for(cells: Cells, contested: frozenset[int]) -> list[Target]:
            if (cells, contested) not in searched:
                preemptor = Preemptor(queue.node, queue.config, workload, cells, contested)
                searched[cells, contested] = self._search.find(preemptor, self._now_ms)
            return searched[cells, contested]

        def oracle(cell: int, amount: int) -> tuple[Fit, int]:
            victims = victims_for(((cell, amount),), frozenset((cell,)))
            for target in victims:
                self._tree.remove(target.held.node, target.held.cells)
            level, _ = self._tree.borrowing_level(queue.node, cell, amount)
            for target in victims:
                self._tree.add(target.held.node, target.held.cells)
            if not victims:
                return Fit.NO_CANDIDATES, level
            own = any(target.held.node == queue.node for target in victims)
            return (Fit.PREEMPT if own else Fit.RECLAIM), level

        fair = self._policy.fair_sharing is not None
        assigner = Assigner(self._tree, queue.node, queue.config, fair, oracle)

        def attempt(counts: tuple[int, ...]) -> tuple[Nomination, list[Target]] | None:
            nomination = assigner.assign(shape, counts)
            if nomination.fit is Fit.FIT:
                return nomination, []
            if nomination.fit is Fit.NO_FIT:
                return None
            victims = victims_for(nomination.cells, nomination.contested)
            return (nomination, victims) if victims else None

        counts = tuple(pod_set.count for pod_set in shape.pod_sets)
        found = attempt(counts) or largest_partial(shape, attempt)
        return found or (assigner.assign(shape, counts), [])

    def _ordered(self, entries: list[_Entry], current: _Pass) -> Iterable[_Entry]:
        if self._policy.fair_sharing is not None:
            return self._by_share(entries, current)
        if len(entries) > 1:
            entries.sort(key=_order)
        return entries

    def _by_share(self, entries: list[_Entry], current: _Pass) -> Iterator[_Entry]:
        """Winner after winner; a queue's next head competes as soon as the one before is done."""
        tournament = Tournament(self._tree, self._shares)
        heads: dict[int, _Entry] = {}

        def enter(entry: _Entry) -> None:
            heads[entry.queue.node] = entry
            tournament.enter(entry.queue.node, entry.nomination.cells, entry.order[1:])

        for entry in entries:
            enter(entry)
        while (node := tournament.winner()) is not None:
            winner = heads.pop(node)
            tournament.withdraw(node)
            version = self._version
            yield winner
            if version != self._version:
                tournament.touch(node)
                for target in winner.victims:
                    tournament.touch(target.held.node)
            if node not in current.closed:
                following = self._nominate_head(winner.queue, current)
                if following is not None:
                    enter(following)

    def _process(self, entry: _Entry, current: _Pass) -> None:
        """Admits, preempts or refuses one nominated head against the state as it is now."""
        queue, line, nomination = entry.queue, entry.line, entry.nomination
        if any(target.held.workload.id in self._evicting for target in entry.victims):
            nomination, entry.victims = self._nominate_hard(queue, line.shape, entry.workload)
            entry.nomination, entry.version = nomination, self._version
        if nomination.fit is not Fit.FIT and not entry.victims:
            if nomination.fit is not Fit.NO_FIT:
                self._reserve(queue, nomination, current)
            self._park(queue, line, current)
            return
        if current.reservations and self._taken_by_reservation(entry, nomination, current):
            current.closed.add(queue.node)
            current.refused.append(line)
            current.again = current.again or current.reserved_by_parked
            return
        if entry.version != self._version and not self._fits_after(entry, nomination):
            return  # another one was faster; the next round nominates it again
        self._take(queue, entry.workload)
        if entry.victims:
            for target in entry.victims:
                held = target.held
                self._evict(held)
                step = PreemptionStep(
                    held.workload.id, held.workload.cluster_queue, entry.workload.id, target.reason
                )
                current.preemptions.append(step)
            self._keep_place(queue, entry.workload, nomination)
        elif self._present is None or self._present.fits(queue.node, nomination.cells):
            self._admit(queue, entry.workload, nomination, current)
        else:
            self._keep_place(queue, entry.workload, nomination)
        if queue.strict and entry.workload.id in self._pending:
            current.closed.add(queue.node)

    def _fits_after(self, entry: _Entry, nomination: Nomination) -> bool:
        """Whether the nominated cells fit once its victims are gone."""
        for target in entry.victims:
            self._tree.remove(target.held.node, target.held.cells)
        fits = self._tree.fits(entry.queue.node, nomination.cells)
        for target in entry.victims:
            self._tree.add(target.held.node, target.held.cells)
        return fits

    def _taken_by_reservation(self, entry: _Entry, nomination: Nomination, current: _Pass) -> bool:
        """Whether the entry would need what the pass reserves for blocked heads of other queues."""
        others = [each for each in current.reservations if each[0] != entry.queue.node]
        for node, cells in others:
            self._tree.add(node, cells)
        fits = self._fits_after(entry, nomination)
        for node, cells in reversed(others):
            self._tree.remove(node, cells)
        return not fits

    def _reserve(self, queue: _Queue, nomination: Nomination, current: _Pass) -> None:
        """Keeps room in this pass for a head that needs preemption but has no victims.

        Not needed where the queue can always reclaim what it lends. A parked head reserves once;
        whoever had to stand back for it is looked at again in the next pass.
        """
        if queue.reclaims_any:
            return
        tree, node = self._tree, queue.node
        cells: list[tuple[int, int]] = []
        for cell, amount in nomination.cells:
            nominal, used = tree.nominal[cell][node], tree.usage[cell][node]
            limit = tree.borrowing_limit[cell][node]
            if nomination.level == 0:
                cells.append((cell, max(0, min(amount, nominal - used))))
            elif limit is None:
                cells.append((cell, amount))
            else:
                cells.append((cell, max(0, min(amount, nominal + limit - used))))
        current.reservations.append((node, tuple(cells)))
        current.reserved_by_parked = current.reserved_by_parked or not queue.strict

    def _park(self, queue: _Queue, line: Line, current: _Pass) -> None:
        """Sets a refused line aside; a strict queue stops at it instead."""
        current.refused.append(line)
        if self._search.next_end_ms is not None:
            heappush(self._protected_until, self._search.next_end_ms)
            self._search.next_end_ms = None
        if queue.strict:
            current.closed.add(queue.node)
        else:
            queue.backlog.park(line)
            self._parking.add(queue.node)

    def _capped(self, queue: _Queue, workload: Workload) -> tuple[Reason, str] | None:
        """Whether a concurrency cap keeps the workload waiting, or its LocalQueue is stopped."""
        config = queue.config
        if config.max_running is not None and queue.running >= config.max_running:
            text = f"ClusterQueue {config.name} runs {queue.running} of {config.max_running}"
            return Reason.CONCURRENCY_CAP, f"{text} workloads"
        if config.max_running_per_user is not None:
            running = queue.running_by_user.get(workload.user, 0)
            if running >= config.max_running_per_user:
                text = f"{workload.user} runs {running} of {config.max_running_per_user}"
                return Reason.USER_CAP, f"{text} workloads in ClusterQueue {config.name}"
        local = self._catalog.local_queues.get(workload.local_queue or "")
        if local is None:
            return None
        if local.stop_policy is not StopPolicy.NONE:
            return Reason.QUEUE_CORDONED, f"LocalQueue {local.key} is stopped"
        if local.max_running is not None:
            running = self._running_by_local_queue.get(local.key, 0)
            if running >= local.max_running:
                text = f"LocalQueue {local.key} runs {running} of {local.max_running} workloads"
                return Reason.CONCURRENCY_CAP, text
        return None

    # Bookkeeping

    def _take(self, queue: _Queue, workload: Workload) -> None:
        """Takes a workload out of the backlog."""
        del self._waiting_in[workload.id]
        queue.backlog.discard(workload.id)

    def _admit(
        self, queue: _Queue, workload: Workload, nomination: Nomination, current: _Pass
    ) -> None:
        assignment = Assignment(nomination.pod_sets, nomination.level)
        held = self._make_held(queue, workload, assignment, current.now_ms, nomination.cells)
        held.admitted_in = self._search.pass_number
        self._count(queue, held, penalty=True)
        self._version += 1
        current.admissions.append(Admission(workload.id, workload.cluster_queue, assignment))

    def _keep_place(self, queue: _Queue, workload: Workload, nomination: Nomination) -> None:
        """Counts a workload in the future view only, until there is room in the present."""
        self._part_views()
        self._tree.add(queue.node, nomination.cells)
        self._pending[workload.id] = _Pending(queue, workload, nomination)
        self._version += 1

    def _evict(self, held: Held) -> None:
        """Takes a holding out of the future view; it stays in the present until its release."""
        self._part_views()
        self._tree.remove(held.node, held.cells)
        self._holdings.remove(held)
        self._evicting[held.workload.id] = held
        self._version += 1

    def _part_views(self) -> None:
        if self._present is None:
            self._present = self._tree.twin()

    def _join_views(self) -> None:
        if not self._evicting and not self._pending:
            self._present = None

    def _make_held(
        self,
        queue: _Queue,
        workload: Workload,
        assignment: Assignment,
        since_ms: int,
        cells: Cells | None = None,
    ) -> Held:
        if cells is None:
            cells = self._cells_of(queue, workload, assignment)
        return Held(
            workload=workload,
            assignment=assignment,
            node=queue.node,
            cells=cells,
            since_ms=since_ms,
            protected_until_ms=since_ms + max(workload.min_run_ms, self._policy.min_run_ms),
            saved_at_ms=since_ms,
            has_checkpoint=False,
        )

    def _cells_of(self, queue: _Queue, workload: Workload, assignment: Assignment) -> Cells:
        """What an assignment weighs; a flavor that the queue no longer has weighs nothing."""
        requests = {pod_set.name: pod_set.requests for pod_set in workload.pod_sets}
        total: dict[int, int] = {}
        for assigned in assignment.pod_sets:
            for resource, flavor in assigned.flavors.items():
                cell = self._tree.cell_index.get((flavor, resource))
                per_pod = 1 if resource == PODS else requests[assigned.name].get(resource, 0)
                if cell is not None:
                    total[cell] = total.get(cell, 0) + per_pod * assigned.count
        return tuple(total.items())

    def _count(self, queue: _Queue, held: Held, *, penalty: bool) -> None:
        """Adds a holding to both views and to the counters."""
        workload = held.workload
        self._tree.add(held.node, held.cells)
        if self._present is not None:
            self._present.add(held.node, held.cells)
        self._held[workload.id] = held
        self._holdings.add(held)
        queue.running += 1
        if queue.config.max_running_per_user is not None:
            by_user = queue.running_by_user
            by_user[workload.user] = by_user.get(workload.user, 0) + 1
        local = workload.local_queue
        if local is not None:
            running = self._running_by_local_queue
            running[local] = running.get(local, 0) + 1
            if self._usage is not None:
                used = self._per_resource(held.cells)
                self._usage.start(local, workload.id, used, held.since_ms, penalty=penalty)

    def _uncount(self, held: Held, now_ms: int) -> None:
        workload = held.workload
        queue = self._by_node[held.node]
        queue.running -= 1
        if queue.config.max_running_per_user is not None:
            queue.running_by_user[workload.user] -= 1
        local = workload.local_queue
        if local is not None:
            self._running_by_local_queue[local] -= 1
            if self._usage is not None:
                self._usage.stop(local, workload.id, self._per_resource(held.cells), now_ms)

    def _per_resource(self, cells: Cells) -> dict[str, int]:
        total: dict[str, int] = {}
        for cell, amount in cells:
            resource = self._tree.cells[cell][1]
            total[resource] = total.get(resource, 0) + amount
        return total

    def _line(self, queue: _Queue, workload: Workload) -> Line:
        """The line of equal workloads that this one joins."""
        shape = self._shape(queue, workload.pod_sets)
        user = workload.user if queue.config.max_running_per_user is not None else None
        key = (shape, workload.priority, workload.local_queue, user)
        line = queue.lines.get(key)
        if line is None:
            if len(queue.lines) >= MAX_IDLE_LINES:
                busy = {k: each for k, each in queue.lines.items() if each.front() is not None}
                queue.lines = busy
            lane_key = workload.local_queue if queue.by_usage else None
            lane = queue.backlog.lanes.get(lane_key)
            if lane is None:
                lane = queue.backlog.lanes[lane_key] = Lane(lane_key, [])
            line = Line(queue.backlog, lane, shape, workload.priority, workload.local_queue, user)
            line.limited = self._is_limited(queue, workload)
            queue.lines[key] = line
        return line

    def _is_limited(self, queue: _Queue, workload: Workload) -> bool:
        """Whether `_capped` can ever say no."""
        config = queue.config
        local = self._catalog.local_queues.get(workload.local_queue or "")
        return (config.max_running, config.max_running_per_user) != (None, None) or (
            local is not None
            and (local.max_running is not None or local.stop_policy is not StopPolicy.NONE)
        )

    def _shape(self, queue: _Queue, pod_sets: tuple[PodSet, ...]) -> Shape:
        """Equal pod sets share one shape; the very same object is recognised at once."""
        seen = queue.seen.get(id(pod_sets))
        if seen is not None and seen[0] is pod_sets:
            return seen[1]
        key = shape_key(pod_sets)
        shape = queue.shapes.get(key)
        if shape is None:
            if len(queue.shapes) >= MAX_IDLE_LINES:
                used = {line.shape for line in queue.lines.values()}
                queue.shapes = {k: each for k, each in queue.shapes.items() if each in used}
            shape = queue.shapes[key] = compile_shape(
                pod_sets,
                queue.config,
                self._catalog.flavors,
                self._tree,
                ignore_undeclared=self._policy.ignore_undeclared,
            )
        if len(queue.seen) >= MAX_IDLE_LINES:
            queue.seen.clear()
        queue.seen[id(pod_sets)] = (pod_sets, shape)
        return shape

    def _local_usage(self, local_queue: str) -> float:
        return 0.0 if self._usage is None else self._usage.weighted(local_queue, self._now_ms)

    def _usage_of_workload(self, workload: Workload) -> float:
        return 0.0 if workload.local_queue is None else self._local_usage(workload.local_queue)

    # Questions

    def why(self, workload_id: str) -> Refusal:
        """Why a waiting workload waits; raises KeyError if it does not wait here."""
        pending = self._pending.get(workload_id)
        if pending is not None:
            count = len(self._evicting)
            text = f"its place is held until {count} preempted workload(s) have stopped"
            return self._refusal(pending.workload, Reason.WAITING_FOR_PREEMPTED, text)
        gated = self._gated.get(workload_id)
        if gated is not None:
            workload, gate = gated
            return self._refusal(workload, Reason(gate.code), gate.message)
        expired = self._expired.get(workload_id)
        if expired is not None:
            text = "it was not admitted before its deadline"
            return self._refusal(expired, Reason.DEADLINE_PASSED, text)
        queue = self._waiting_in[workload_id]
        item = queue.backlog.waiting[workload_id]
        line = queue.backlog.line_of[workload_id]
        ahead, head = queue.backlog.ahead_of(item, line)
        reason, text = self._explain(queue, line, item[3])
        if head is not None:
            text = f"{text}; {ahead} ahead in ClusterQueue {queue.config.name}, first {head}"
        return self._refusal(item[3], reason, text, ahead)

    def _explain(self, queue: _Queue, line: Line, workload: Workload) -> tuple[Reason, str]:
        if queue.inactive is not None:
            return queue.inactive
        if capped := self._capped(queue, workload):
            return capped
        short = shortfall(self._present or self._tree, queue.node, line.shape)
        if short is None:
            short = shortfall(self._tree, queue.node, line.shape)
            if short is not None:
                return Reason.BEHIND_HIGHER, f"kept free for a preemptor: {short[1]}"
            head = queue.backlog.head(self._local_usage if queue.by_usage else None)
            front = line.front()
            if queue.strict and head is not None and head is not line:
                return Reason.BEHIND_HIGHER, "the queue is StrictFIFO and its head has to wait"
            if front is not None and front[2] != workload.id:
                return Reason.BEHIND_HIGHER, "equal workloads ahead of it go first"
            return Reason.BEHIND_HIGHER, "kept free for a workload that is ahead in the cohort"
        reason, text = short
        if reason is Reason.COHORT_EXHAUSTED and self._policy.fair_sharing is not None:
            share = self._shares.share(queue.node)
            if share.borrowing:
                text += f", share {share.rounded()} ({share.resource})"
                return Reason.LOWER_SHARE, text
        return reason, text

    def _refusal(
        self, workload: Workload, reason: Reason, message: str, position: int = 0
    ) -> Refusal:
        return Refusal(workload.id, workload.cluster_queue, reason, message, position)

    def _refusals(self, current: _Pass) -> dict[str, Refusal]:
        found: dict[str, Refusal] = {}
        for line in current.refused:
            front = line.front()
            if front is not None and front[2] not in found:
                found[front[2]] = self.why(front[2])
        for workload_id in (*self._pending, *self._expired):
            found[workload_id] = self.why(workload_id)
        return found

    def waiting(self) -> int:
        """How many workloads wait, whatever for."""
        gated = len(self._gated) + len(self._expired) + len(self._pending)
        return len(self._waiting_in) + gated

    def waiting_ids(self) -> list[str]:
        """Every waiting workload's id, sorted."""
        return sorted([*self._waiting_in, *self._gated, *self._expired, *self._pending])

    def usage(self, node: str) -> dict[tuple[str, str], int]:
        """Usage of a ClusterQueue or Cohort per (flavor, resource), victims included.

        Covers the cells that the node has quota for or uses. Raises KeyError for another node.
        """
        return self._per_cell(node, lambda tree, at, cell: tree.usage[cell][at])

    def available(self, node: str) -> dict[tuple[str, str], int]:
        """What the node may still use per (flavor, resource), never below 0."""
        return self._per_cell(node, lambda tree, at, cell: max(0, tree.available(at, cell)))

    def potential(self, node: str) -> dict[tuple[str, str], int]:
        """What the node could use if nothing ran, per (flavor, resource)."""
        return self._per_cell(node, lambda tree, at, cell: tree.potential[cell][at])

    def _per_cell(
        self, node: str, value: Callable[[QuotaTree, int, int], int]
    ) -> dict[tuple[str, str], int]:
        tree = self._present or self._tree
        at = tree.index[node]
        return {
            key: value(tree, at, cell)
            for cell, key in enumerate(tree.cells)
            if tree.declares(at, cell) or tree.usage[cell][at]
        }

    def share(self, node: str) -> tuple[int, str]:
        """Dominant share as Kueue reports it, and its resource; (0, "") if nothing is borrowed."""
        tree = self._present or self._tree
        share = Shares(tree).share(tree.index[node])
        return share.rounded(), share.resource

    def consumed(self, local_queue: str, now_ms: int) -> dict[str, float]:
        """Faded past usage of a LocalQueue; empty without admission fair sharing."""
        return {} if self._usage is None else self._usage.consumed(local_queue, now_ms)

    def copy(self) -> Scheduler:
        """An independent scheduler in the same state, for what-if questions."""
        known = (self._catalog, self._policy)
        return deepcopy(self, {id(each): each for each in known})
