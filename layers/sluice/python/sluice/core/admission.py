"""The admission pass over one root cohort: who runs, who yields, who waits and why.

A pass is a sequence of rounds. Each round looks at the head of every queue as one scheduling cycle
of Kueue does: nominate, order, then admit or preempt one by one while re-checking the fit. Rounds
go on until no queue has a head that was not looked at. With fair sharing a queue's next head joins
the running tournament at once, so that shares and not the number of queues divide the cohort.
"""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field, replace
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from types import MappingProxyType
from typing import TYPE_CHECKING

from sluice.core.books import Books
from sluice.core.explanation import blocked_by, explain
from sluice.core.fairness import Shares, Tournament
from sluice.core.flavors import Fit
from sluice.core.model import (
    Assignment,
    CheckState,
    Gate,
    PreemptionReason,
    StopPolicy,
    WithinClusterQueue,
)
from sluice.core.nomination import Nominator
from sluice.core.plan import Admission, Plan, PreemptionStep, Refusal
from sluice.core.preemption import VictimSearch
from sluice.core.reasons import Reason
from sluice.core.waiting import open_queue
from sluice.core.yielding import Yielding

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sluice.core.backlog import Line
    from sluice.core.catalog import Catalog
    from sluice.core.flavors import Nomination
    from sluice.core.model import Holding, Policy, Workload
    from sluice.core.preemption import Target
    from sluice.core.quota import Cells, QuotaTree
    from sluice.core.usage import PastUse
    from sluice.core.waiting import WaitingQueue

__all__ = ["Admission", "Plan", "PreemptionStep", "Refusal", "Scheduler"]

_order = attrgetter("order")


@dataclass(slots=True, eq=False)
class _Entry:
    """A nominated head; `order` is borrowing level, rank, time, sequence, id."""

    queue: WaitingQueue
    line: Line
    workload: Workload
    nomination: Nomination
    victims: list[Target]
    version: int
    order: tuple[int, int, int, int, str]


@dataclass(slots=True, eq=False)
class _Pending:
    """A workload whose place is held while others stop."""

    queue: WaitingQueue
    workload: Workload
    nomination: Nomination


@dataclass(slots=True, eq=False)
class _Pass:
    """What happens during one pass.

    `closed` queues are not looked at any more. `reservations` keep room for blocked heads from
    other queues; `again` says that the next pass could decide more without any news.
    """

    now_ms: int
    number: int
    admissions: list[Admission] = field(default_factory=list)
    preemptions: list[PreemptionStep] = field(default_factory=list)
    closed: set[int] = field(default_factory=set)
    reservations: list[tuple[int, Cells]] = field(default_factory=list)
    refused: list[Line] = field(default_factory=list)
    limited: list[WaitingQueue] = field(default_factory=list)
    done: bool = False
    reserved_by_parked: bool = False
    again: bool = False


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
        self._books = Books(catalog, root, policy)
        tree = self._books.tree
        self._shares = Shares(tree)
        self._yielding = Yielding()
        self._search = VictimSearch(
            tree,
            self._shares,
            self._books.holdings,
            policy,
            self._past_usage_behind,
            self._yielding,
        )
        fair = policy.fair_sharing is not None
        self._nominator = Nominator(self._books, self._search, fair_sharing=fair)
        self._queues = {
            name: open_queue(catalog.cluster_queues[name], node, catalog, tree, policy)
            for name, node in tree.index.items()
            if tree.is_queue[node]
        }
        self._by_node = {queue.node: queue for queue in self._queues.values()}
        self._waiting_in: dict[str, WaitingQueue] = {}
        self._pending: dict[str, _Pending] = {}
        self._made_room_for: dict[str, None] = {}
        self._gated: dict[str, tuple[Workload, Gate]] = {}
        self._expired: dict[str, Workload] = {}
        self._ready: set[int] = set()  # queues with a line that is not parked
        self._parking: set[int] = set()  # queues with a parked line
        self._gates: list[tuple[int, str]] = []
        self._wakeups: list[int] = []
        policies = {queue.stop_policy for queue in catalog.cluster_queues.values()}
        policies |= {local.stop_policy for local in catalog.local_queues.values()}
        self._draining = StopPolicy.HOLD_AND_DRAIN in policies
        self._now_ms = 0
        self._freed = False
        self._changed = True

    # Work comes and goes

    def enqueue(self, workload: Workload, *, parked: bool = False) -> None:
        """Adds a waiting workload, or replaces the waiting one of the same id.

        `parked` says that an earlier pass refused it and nothing was released since.
        Raises KeyError for a ClusterQueue that is not below this root.
        """
        queue = self._queues[workload.cluster_queue]
        self.remove(workload.id)
        if not self._yielding.has_yielded(workload.id):
            self._yielding.forget()  # a newcomer
        gate = workload.gate or _failed_check(workload)
        if gate is not None:
            self._gated[workload.id] = (workload, gate)
            if gate.until_ms is not None:
                heappush(self._gates, (gate.until_ms, workload.id))
            return
        line = queue.line_for(workload)
        if parked and not queue.strict and line.front() is None:
            queue.backlog.park(line)
            self._parking.add(queue.node)
        queue.backlog.add(workload, line)
        self._waiting_in[workload.id] = queue
        if not line.parked and queue.inactive is None:
            self._ready.add(queue.node)
            self._changed = True

    def make_room_for(self, workload_id: str) -> None:
        """Says that others were evicted for a waiting workload in an earlier life of this state.

        What they give back is kept for it (or an equal one ahead of it) before anybody else.
        """
        self._made_room_for[workload_id] = None

    def note_yield(self, victim: str, preemptor: str) -> None:
        """Says that one yielded to the other lately, so that it may not evict it in turn.

        To be called after `enqueue`, since a newcomer makes all that forgotten.
        """
        self._yielding.note(victim, preemptor)

    def hold(self, holding: Holding) -> None:
        """Counts a workload that already holds quota, even beyond quota, as after a quota cut."""
        workload = holding.workload
        node = self._queues[workload.cluster_queue].node
        held = self._books.count(node, workload, holding.assignment, holding.since_ms)
        if holding.checkpoint_at_ms is not None:
            self.checkpointed(workload.id, holding.checkpoint_at_ms)
        if holding.evicting:
            self._books.evict(held)
        self._changed = True

    def checkpointed(self, workload_id: str, at_ms: int) -> None:
        """Notes a durable checkpoint of an admitted workload; unknown ids are ignored."""
        held = self._books.held.get(workload_id)
        if held is not None:
            held.saved_at_ms = max(held.saved_at_ms, at_ms)
            held.has_checkpoint = True

    def release(self, workload_id: str, now_ms: int | None = None) -> None:
        """Gives back the quota of a finished or stopped workload; unknown ids are ignored.

        `now_ms` is when it stopped, for past usage and budgets; by default the last pass.
        """
        at_ms = self._now_ms if now_ms is None else now_ms
        if workload_id in self._books.held and workload_id not in self._books.evicting:
            self._yielding.forget()  # it finished
        self._freed = self._books.release(workload_id, at_ms) or self._freed

    def remove(self, workload_id: str) -> None:
        """Forgets a waiting workload; unknown ids are ignored."""
        queue = self._waiting_in.pop(workload_id, None)
        if queue is not None:
            queue.backlog.discard(workload_id)
        elif self._pending.pop(workload_id, None) is not None:
            self._books.give_up_place(workload_id)
            self._freed = True
        else:
            self._gated.pop(workload_id, None)
            self._expired.pop(workload_id, None)

    def set_local_queue_usage(
        self, local_queue: str, consumed: Mapping[str, float], at_ms: int
    ) -> None:
        """Sets past usage per resource; without admission fair sharing it counts for nothing."""
        if self._books.past is not None:
            self._books.past.set_consumed(local_queue, consumed, at_ms)

    def set_account(self, local_queue: str, account: PastUse) -> None:
        """Replaces all that is known of a LocalQueue's past usage, present use included."""
        if self._books.past is not None:
            self._books.past.set_account(local_queue, account)

    def set_spent(self, budget: str, microusd: int, now_ms: int) -> None:
        """Sets what the present window of a budget has cost; raises KeyError if there is none."""
        budgets = {each.name: each for each in self._catalog.budgets}
        self._books.spending.set_spent(budgets[budget], microusd, now_ms)

    # The pass

    def run_pass(self, now_ms: int, *, explain: bool = False) -> Plan:
        """Decides for every queue; admitted workloads hold quota afterwards.

        The same state and time give the same plan. With `explain` the plan says why the refused
        ones wait, which costs more than the decision.
        """
        self._now_ms = now_ms
        self._search.pass_number += 1
        self._search.spared_new = False
        current = _Pass(now_ms, self._search.pass_number)
        self._open_gates(now_ms)
        self._drain(current)
        self._admit_pending(current)
        self._wake(now_ms)
        self._serve_preemptors(current)
        kept_free = self._serve_longest_waiting(current)
        while not current.done:
            for entry in self._ordered(self._nominate(current), current):
                self._process(entry, current)
        for node, cells in kept_free:
            self._books.tree.remove(node, cells)
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
        """When time alone can change a decision: a gate opens, a protection or a window ends."""
        times = [self._gates[0][0]] if self._gates else []
        times += self._wakeups[:1]
        return min(times, default=None)

    def _open_gates(self, now_ms: int) -> None:
        while self._gates and self._gates[0][0] <= now_ms:
            _, workload_id = heappop(self._gates)
            workload, gate = self._gated.get(workload_id, (None, None))
            if workload and gate and gate.until_ms is not None and gate.until_ms <= now_ms:
                self.enqueue(replace(workload, gate=None))

    def _drain(self, current: _Pass) -> None:
        """Evicts what runs in queues that are stopped for good."""
        books = self._books
        for workload_id in [*books.held] if self._draining else ():
            held = books.held[workload_id]
            queue = self._by_node[held.node]
            local = queue.local_queue(held.workload)
            policies = {queue.config.stop_policy, local.stop_policy if local else StopPolicy.NONE}
            if workload_id not in books.evicting and StopPolicy.HOLD_AND_DRAIN in policies:
                books.evict(held)
                reason = PreemptionReason.QUEUE_DRAINED
                step = PreemptionStep(workload_id, queue.config.name, "", reason)
                current.preemptions.append(step)

    def _admit_pending(self, current: _Pass) -> None:
        """Admits those whose victims have stopped; a strict queue waits for its own."""
        books = self._books
        for workload_id, pending in [*self._pending.items()]:
            queue, nomination = pending.queue, pending.nomination
            if books.fits_now(queue.node, nomination.cells):
                del self._pending[workload_id]
                books.give_up_place(workload_id)
                self._admit(queue, pending.workload, nomination, current)
            elif not books.evicting:
                del self._pending[workload_id]
                books.give_up_place(workload_id)
                self.enqueue(pending.workload)
            elif queue.strict:
                current.closed.add(queue.node)

    def _wake(self, now_ms: int) -> None:
        """Has parked lines looked at again after a release, or once a protection has ended."""
        while self._wakeups and self._wakeups[0] <= now_ms:
            heappop(self._wakeups)
            self._freed = True
        if not self._freed:
            return
        self._freed = False
        for node in self._parking:
            self._by_node[node].backlog.rouse()
        self._ready |= self._parking

    def _wake_at_protection_end(self) -> None:
        """Plans another look for when the first protection ends that was in the way."""
        if self._search.next_end_ms is not None:
            heappush(self._wakeups, self._search.next_end_ms)
            self._search.next_end_ms = None

    def _serve_preemptors(self, current: _Pass) -> None:
        """Those for whom others stop take their place first: Kueue's sticky preemptor.

        Not before one that could evict it in turn as soon as it runs.
        """
        waiting: list[tuple[int, tuple[int, int, str], WaitingQueue, Line]] = []
        for workload_id in self._made_room_for:
            queue = self._waiting_in.get(workload_id)
            if queue is None or queue.inactive is not None:
                continue
            line = queue.backlog.line_of[workload_id]
            front, head = line.front(), self._head(queue, current)
            if queue.config.preemption.within_cluster_queue is not WithinClusterQueue.NEVER and (
                head is not None and head.priority > line.priority
            ):
                continue
            if front is not None:
                waiting.append((-line.priority, front[:3], queue, line))
        self._made_room_for.clear()
        for _, _, queue, line in sorted(waiting, key=itemgetter(0, 1)):
            entry = self._nominate_line(queue, line, current)
            if entry is not None and entry.nomination.fit is Fit.FIT:
                self._process(entry, current)

    def _serve_longest_waiting(self, current: _Pass) -> list[tuple[int, Cells]]:
        """Looks first at those who have waited too long, and keeps free what they lack.

        Returns what the tree counts for them until the end of the pass.
        """
        aging = self._policy.aging
        if aging is None or aging.reserve_after_ms is None:
            return []
        latest = current.now_ms - aging.reserve_after_ms
        waiting: list[tuple[tuple[int, int, str], WaitingQueue, Line]] = []
        for queue in self._queues.values():
            fronts = [
                (front[:3], queue, line)
                for line in queue.lines.values()
                if queue.inactive is None and (front := line.front()) and front[0] <= latest
            ]
            if fronts:
                waiting.append(min(fronts, key=itemgetter(0)))
        tree = self._books.tree
        kept: list[tuple[int, Cells]] = []
        for _, queue, line in sorted(waiting, key=itemgetter(0)):
            entry = self._nominate_line(queue, line, current)
            if entry is None:
                continue
            cells = line.shape.cells
            if entry.nomination.fit is Fit.FIT or entry.victims:
                self._process(entry, current)
            elif cells is not None and tree.possible(queue.node, cells):
                tree.add(queue.node, cells)
                kept.append((queue.node, cells))
                self._park(queue, line, current)
        return kept

    def _nominate(self, current: _Pass) -> list[_Entry]:
        """The head of every queue that is still open, each with what it could get.

        The pass is done once no queue is open. Heads without any chance are set aside at once.
        """
        found = []
        nodes = sorted(self._ready - current.closed)
        current.done = not nodes
        for node in nodes:
            entry = self._nominate_head(self._by_node[node], current)
            if entry is not None:
                found.append(entry)
        return found

    def _nominate_head(self, queue: WaitingQueue, current: _Pass) -> _Entry | None:
        """The head of one queue, or None if it has none that could be admitted."""
        limit = self._policy.heads_per_pass
        if limit is not None:
            if queue.looked_at >= limit:
                current.closed.add(queue.node)
                current.again = True
                return None
            queue.looked_at += 1
            current.limited.append(queue)
        line = self._head(queue, current)
        if line is None:
            self._ready.discard(queue.node)
            if not queue.backlog.parked:
                self._parking.discard(queue.node)
            return None
        return self._nominate_line(queue, line, current)

    def _head(self, queue: WaitingQueue, current: _Pass) -> Line | None:
        """The line to look at next; a parked one returns only if it is worth another look."""
        backlog = queue.backlog
        line = backlog.head(self._past_usage if queue.by_usage else None)
        while backlog.rousable:
            if line is not None and line.entry is not None and not queue.by_usage:
                first = backlog.position(backlog.rousable[-1])
                if first is not None and line.entry[0] < first:
                    break
            roused = backlog.rousable.pop()
            if not roused.parked:
                continue
            look = self._nominator.worth_a_look
            if look(queue, roused.shape, roused.priority, current.now_ms):
                backlog.wake(roused)
                if not queue.by_usage:
                    return roused
            self._wake_at_protection_end()
        return backlog.head(self._past_usage) if queue.by_usage else line

    def _nominate_line(self, queue: WaitingQueue, line: Line, current: _Pass) -> _Entry | None:
        """Nominates the front of a line; None if it was set aside instead."""
        item = line.front()
        if item is None:
            queue.backlog.offer(line)
            return None
        workload = item[3]
        if workload.deadline_ms is not None and workload.deadline_ms < current.now_ms:
            self.remove(workload.id)
            self._expired[workload.id] = workload
            return None
        if line.limited and blocked_by(self._books, queue, workload) is not None:
            self._park(queue, line, current)
            return None
        version = self._books.version
        nomination, victims = self._nominator.nominate(queue, line.shape, workload, current.now_ms)
        if nomination.fit is Fit.NO_FIT:
            self._park(queue, line, current)
            return None
        if queue.priced:
            assignment = Assignment(nomination.pod_sets)
            over = self._books.spending.exceeded(workload, assignment, current.now_ms)
            if over is not None:
                heappush(self._wakeups, over[0].next_window_ms(current.now_ms))
                self._park(queue, line, current)
                return None
        rank = queue.backlog.rank(line.priority, item[0])
        order = (nomination.level, rank, item[0], item[1], item[2])
        return _Entry(queue, line, workload, nomination, victims, version, order)

    def _ordered(self, entries: list[_Entry], current: _Pass) -> Iterable[_Entry]:
        if self._policy.fair_sharing is not None:
            return self._by_share(entries, current)
        if len(entries) > 1:
            entries.sort(key=_order)
        return entries

    def _by_share(self, entries: list[_Entry], current: _Pass) -> Iterator[_Entry]:
        """Winner after winner; a queue's next head competes as soon as the one before is done."""
        books = self._books
        tournament = Tournament(books.tree, self._shares)
        heads: dict[int, _Entry] = {}

        def enter(entry: _Entry) -> None:
            heads[entry.queue.node] = entry
            tournament.enter(entry.queue.node, entry.nomination.cells, entry.order[1:])

        for entry in entries:
            enter(entry)
        while (node := tournament.winner()) is not None:
            winner = heads.pop(node)
            tournament.withdraw(node)
            version = books.version
            yield winner
            if version != books.version:
                tournament.touch(node)
                for target in winner.victims:
                    tournament.touch(target.held.node)
            following = None
            while following is None and node in self._ready - current.closed:
                following = self._nominate_head(winner.queue, current)
            if following is not None:
                enter(following)

    def _process(self, entry: _Entry, current: _Pass) -> None:
        """Admits, preempts or refuses one nominated head against the state as it is now."""
        books, queue, workload = self._books, entry.queue, entry.workload
        if any(target.held.workload.id in books.evicting for target in entry.victims):
            entry.nomination, entry.victims = self._nominator.nominate(
                queue, entry.line.shape, workload, current.now_ms
            )
            entry.version = books.version
        nomination = entry.nomination
        if nomination.fit is not Fit.FIT and not entry.victims:
            if nomination.fit is not Fit.NO_FIT:
                self._reserve(queue, nomination, current)
            self._park(queue, entry.line, current)
            return
        if current.reservations and self._taken_by_reservation(entry, current):
            current.closed.add(queue.node)
            current.refused.append(entry.line)
            current.again = current.again or current.reserved_by_parked
            return
        if entry.version != books.version and not self._still_fits(entry):
            self._lose(entry, current)
            return
        del self._waiting_in[workload.id]
        queue.backlog.discard(workload.id)
        for target in entry.victims:
            victim = target.held.workload
            books.evict(target.held)
            self._yielding.note(victim.id, workload.id)
            step = PreemptionStep(victim.id, victim.cluster_queue, workload.id, target.reason)
            current.preemptions.append(step)
        if not entry.victims and books.fits_now(queue.node, nomination.cells):
            self._admit(queue, workload, nomination, current)
            return
        books.keep_place(workload.id, queue.node, nomination.cells)
        self._pending[workload.id] = _Pending(queue, workload, nomination)
        if queue.strict:
            current.closed.add(queue.node)

    def _lose(self, entry: _Entry, current: _Pass) -> None:
        """Another one was faster; the next pass nominates it again, if there is any chance."""
        queue, line = entry.queue, entry.line
        if self._nominator.is_hopeless(queue, line.shape, line.priority, current.now_ms):
            self._park(queue, line, current)
            return
        current.closed.add(queue.node)
        current.refused.append(line)
        current.again = True

    def _still_fits(self, entry: _Entry) -> bool:
        """Whether the nominated cells fit once its victims are gone."""
        tree = self._books.tree
        for target in entry.victims:
            tree.remove(target.held.node, target.held.cells)
        fits = tree.fits(entry.queue.node, entry.nomination.cells)
        for target in entry.victims:
            tree.add(target.held.node, target.held.cells)
        return fits

    def _taken_by_reservation(self, entry: _Entry, current: _Pass) -> bool:
        """Whether it needs what the pass reserves for blocked heads of other queues."""
        others = [each for each in current.reservations if each[0] != entry.queue.node]
        for node, cells in others:
            self._books.tree.add(node, cells)
        fits = self._still_fits(entry)
        for node, cells in others:
            self._books.tree.remove(node, cells)
        return not fits

    def _reserve(self, queue: WaitingQueue, nomination: Nomination, current: _Pass) -> None:
        """Keeps room in this pass for a head that needs preemption but has no victims.

        Not needed where the queue can always reclaim what it lends. A parked head reserves once;
        whoever had to stand back for it is looked at again in the next pass.
        """
        if queue.reclaims_any:
            return
        tree, node = self._books.tree, queue.node
        cells: list[tuple[int, int]] = []
        for cell, amount in nomination.cells:
            most = amount
            limit = tree.borrowing_limit[cell][node]
            if nomination.level == 0:
                most = tree.nominal[cell][node] - tree.usage[cell][node]
            elif limit is not None:
                most = tree.nominal[cell][node] + limit - tree.usage[cell][node]
            cells.append((cell, max(0, min(amount, most))))
        current.reservations.append((node, tuple(cells)))
        current.reserved_by_parked = current.reserved_by_parked or not queue.strict

    def _park(self, queue: WaitingQueue, line: Line, current: _Pass) -> None:
        """Sets a refused line aside; a strict queue stops at it instead."""
        current.refused.append(line)
        self._wake_at_protection_end()
        if queue.strict:
            current.closed.add(queue.node)
        else:
            queue.backlog.park(line)
            self._parking.add(queue.node)

    def _admit(
        self, queue: WaitingQueue, workload: Workload, nomination: Nomination, current: _Pass
    ) -> None:
        assignment = Assignment(nomination.pod_sets, nomination.level)
        self._books.count(
            queue.node,
            workload,
            assignment,
            current.now_ms,
            cells=nomination.cells,
            new_in_pass=current.number,
        )
        current.admissions.append(Admission(workload.id, workload.cluster_queue, assignment))

    def _past_usage(self, local_queue: str) -> float:
        return self._books.past_usage(local_queue, self._now_ms)

    def _past_usage_behind(self, workload: Workload) -> float:
        return 0.0 if workload.local_queue is None else self._past_usage(workload.local_queue)

    # Questions

    def why(self, workload_id: str) -> Refusal:
        """Why a waiting workload waits; raises KeyError if it does not wait here."""
        queue = self._waiting_in.get(workload_id)
        if queue is None:
            return self._why_outside_the_order(workload_id)
        item = queue.backlog.waiting[workload_id]
        line = queue.backlog.line_of[workload_id]
        ahead, first = queue.backlog.ahead_of(item, line)
        head = queue.backlog.head(self._past_usage if queue.by_usage else None)
        shares = self._shares if self._policy.fair_sharing is not None else None
        reason, text = explain(
            self._books, queue, line, item[3], head=head, shares=shares, now_ms=self._now_ms
        )
        if first is not None:
            text = f"{text}; {ahead} ahead in ClusterQueue {queue.config.name}, first {first}"
        return Refusal(workload_id, queue.config.name, reason, text, ahead)

    def _why_outside_the_order(self, workload_id: str) -> Refusal:
        if workload_id in self._pending:
            workload, reason = self._pending[workload_id].workload, Reason.WAITING_FOR_PREEMPTED
            stopping = len(self._books.evicting)
            text = f"its place is held until {stopping} preempted workload(s) have stopped"
        elif workload_id in self._gated:
            workload, gate = self._gated[workload_id]
            reason, text = Reason(gate.code), gate.message
        else:
            workload, reason = self._expired[workload_id], Reason.DEADLINE_PASSED
            text = "it was not admitted before its deadline"
        return Refusal(workload_id, workload.cluster_queue, reason, text, 0)

    def _refusals(self, current: _Pass) -> dict[str, Refusal]:
        fronts = [front[2] for line in current.refused if (front := line.front()) is not None]
        ids = dict.fromkeys([*fronts, *self._pending, *self._expired])
        return {workload_id: self.why(workload_id) for workload_id in ids}

    def waiting(self) -> int:
        """How many workloads wait, whatever for."""
        aside = len(self._gated) + len(self._expired) + len(self._pending)
        return len(self._waiting_in) + aside

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
        tree = self._books.now
        at = tree.index[node]
        return {
            key: value(tree, at, cell)
            for cell, key in enumerate(tree.cells)
            if tree.declares(at, cell) or tree.usage[cell][at]
        }

    def share(self, node: str) -> tuple[int, str]:
        """Dominant share as Kueue reports it, and its resource; (0, "") if nothing is borrowed."""
        tree = self._books.now
        share = Shares(tree).share(tree.index[node])
        return share.rounded(), share.resource

    def consumed(self, local_queue: str, now_ms: int) -> dict[str, float]:
        """Faded past usage of a LocalQueue; empty without admission fair sharing."""
        past = self._books.past
        return {} if past is None else past.consumed(local_queue, now_ms)

    def spent(self, budget: str, now_ms: int) -> int:
        """Micro-dollars spent or committed in a budget's present window; KeyError if unknown."""
        budgets = {each.name: each for each in self._catalog.budgets}
        return self._books.spending.spent(budgets[budget], now_ms)

    def copy(self) -> Scheduler:
        """An independent scheduler in the same state, for what-if questions."""
        known = (self._catalog, self._policy)
        return deepcopy(self, {id(each): each for each in known})


def _failed_check(workload: Workload) -> Gate | None:
    """Keeps out a workload with an admission check that said no; a pending one gets quota first."""
    for name, state in sorted(workload.checks.items()):
        if state in {CheckState.RETRY, CheckState.REJECTED}:
            return Gate(Reason.ADMISSION_CHECK, f"admission check {name} answered {state}")
    return None
