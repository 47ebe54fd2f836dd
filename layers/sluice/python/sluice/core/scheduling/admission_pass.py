"""One admission pass over a root cohort: who runs, who yields, who waits.

A pass is a sequence of rounds. Each round looks at the head of every queue as one scheduling cycle
of Kueue does: nominate, order, then admit or preempt one by one while re-checking the fit. Rounds
go on until no queue has a head that was not looked at, or until a head has to be looked at again:
the next pass begins with it, before anybody who stood behind others gets its room. With fair
sharing a queue's next head joins the running tournament at once, so that shares and not the number
of queues divide the cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop, heappush
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from sluice.core.config.model import Assignment, PreemptionReason, StopPolicy, WithinClusterQueue
from sluice.core.scheduling.dominant_share import DominantShares, Tournament
from sluice.core.scheduling.explanation import blocked_by
from sluice.core.scheduling.flavors import NO_RESTRICTIONS, AssignmentMode, FlavorRestrictions
from sluice.core.scheduling.last_tried_flavor import FlavorScans
from sluice.core.scheduling.pending_workloads import PendingWorkloads, WaitingPreemptor
from sluice.core.scheduling.plan import Admission, PreemptionStep

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sluice.core.config.model import Policy, WorkloadInfo
    from sluice.core.scheduling.backlog import EquivalenceClass
    from sluice.core.scheduling.flavors import Nomination
    from sluice.core.scheduling.nomination import Nominator
    from sluice.core.scheduling.preemption import Target, VictimSearch
    from sluice.core.scheduling.preemption_history import PreemptionHistory
    from sluice.core.scheduling.quota import Cells
    from sluice.core.scheduling.usage_ledger import UsageLedger
    from sluice.core.scheduling.waiting_queue import WaitingQueue

_order = attrgetter("order")


@dataclass(frozen=True, slots=True)
class PassContext:
    """What every pass of one root works with.

    `wakeups` is a heap of instants at which time alone may change a decision.
    """

    policy: Policy
    ledger: UsageLedger
    pending: PendingWorkloads
    shares: DominantShares
    search: VictimSearch
    nominator: Nominator
    history: PreemptionHistory
    scans: FlavorScans = field(default_factory=FlavorScans)
    wakeups: list[int] = field(default_factory=list)


@dataclass(slots=True, eq=False)
class _Entry:
    """A nominated head; `order` is borrowing level, rank, time, sequence, id.

    `stays` marks a blocked head of a strict queue, which keeps its room in every later round;
    `spared` says that whom this pass admitted was left out of the search for victims.
    """

    queue: WaitingQueue
    line: EquivalenceClass
    workload: WorkloadInfo
    nomination: Nomination
    victims: list[Target]
    version: int
    order: tuple[int, int, int, int, str]
    stays: bool = False
    spared: bool = False


class AdmissionPass:
    """What happens during one pass; `run` is called once.

    `again` says that the next pass could decide more without any news. `refused` are the lines
    whose front was looked at in vain.
    """

    def __init__(self, context: PassContext, now_ms: int) -> None:
        self._context = context
        self._ledger = context.ledger
        self._pending = context.pending
        self._nominator = context.nominator
        self._now_ms = now_ms
        self._number = context.search.pass_number
        self.admissions: list[Admission] = []
        self.preemptions: list[PreemptionStep] = []
        self.refused: list[EquivalenceClass] = []
        self.stood_back: set[EquivalenceClass] = set()  # behind what is reserved for others
        self.again = False
        self._closed: set[int] = set()  # queues that are not looked at any more
        self._reservations: list[tuple[WaitingQueue, Cells]] = []  # of blocked heads, this round
        self._blocking: list[_Entry] = []  # heads of strict queues that stay
        self._served: set[int] = set()  # queues that had their head of the first round already
        self._done = False
        self._cut_short = False  # a head is to be looked at again before those that come after it
        self._stood_back_at: int | None = None  # version when one first yielded to a strict queue
        self._looked_at: dict[int, int] = {}  # heads per queue, where their number is limited

    def run(self, *, freed: bool) -> None:
        """Decides for every queue; `freed` says that something was released since the last pass."""
        self._drain()
        given_up = self._admit_pending()
        self._wake(freed=freed or given_up)
        self._serve_preemptors()
        kept_free = self._serve_longest_waiting()
        while not self._done and not self._cut_short:
            if heads := self._nominate():
                for entry in self._ordered([*heads, *self._blocking]):
                    self._process(entry)
                self._reservations.clear()
        if self._stood_back_at not in {None, self._ledger.version}:
            self.again = True
        for node, cells in kept_free:
            self._ledger.tree.remove(node, cells)

    def _drain(self) -> None:
        """Evicts what runs in queues that are stopped for good."""
        ledger = self._ledger
        draining = [queue for queue in self._pending.queues.values() if queue.may_drain]
        found = [held for queue in draining for held in ledger.holdings.up_to(queue.node, None)]
        for held in sorted(found, key=lambda held: held.workload.id):
            queue = self._pending.by_node[held.node]
            local = queue.local_queue(held.workload)
            policies = {queue.config.stop_policy, local.stop_policy if local else StopPolicy.NONE}
            if StopPolicy.HOLD_AND_DRAIN in policies:
                ledger.evict(held)
                reason = PreemptionReason.QUEUE_DRAINED
                step = PreemptionStep(held.workload.id, queue.config.name, "", reason)
                self.preemptions.append(step)

    def _admit_pending(self) -> bool:
        """Admits those whose victims have stopped; a strict queue waits for its own.

        Says whether one came too late for its deadline, and left what was kept for it to others.
        """
        ledger, pending, given_up = self._ledger, self._pending, False
        for workload_id, preemptor in [*pending.preemptors.items()]:
            queue, nomination = preemptor.queue, preemptor.nomination
            if self._is_late(preemptor.workload):
                del pending.preemptors[workload_id]
                ledger.give_up_place(workload_id)
                pending.expire(preemptor.workload)
                given_up = True
            elif ledger.fits_now(queue.node, nomination.cells):
                del pending.preemptors[workload_id]
                ledger.give_up_place(workload_id)
                self._admit(queue, preemptor.workload, nomination)
                self._served.add(queue.node)
            elif not ledger.evicting:
                del pending.preemptors[workload_id]
                ledger.give_up_place(workload_id)
                pending.enter(preemptor.workload, parked=False)
            elif queue.strict:
                self._closed.add(queue.node)
        return given_up

    def _is_late(self, workload: WorkloadInfo) -> bool:
        return workload.deadline_ms is not None and workload.deadline_ms < self._now_ms

    def _wake(self, *, freed: bool) -> None:
        """Has parked lines looked at again after a release, or once a protection has ended."""
        wakeups = self._context.wakeups
        while wakeups and wakeups[0] <= self._now_ms:
            heappop(wakeups)
            freed = True
        if freed:
            self._pending.rouse()
            self._context.scans.forget()

    def _wake_at_protection_end(self) -> None:
        """Plans another look for when the first protection ends that was in the way."""
        search = self._context.search
        if search.next_end_ms is not None:
            heappush(self._context.wakeups, search.next_end_ms)
            search.next_end_ms = None

    def _serve_preemptors(self) -> None:
        """Those for whom others stop take their place first: Kueue's sticky preemptor.

        Not before one that could evict it in turn as soon as it runs.
        """
        pending = self._pending
        waiting: list[tuple[int, tuple[int, int, str], WaitingQueue, EquivalenceClass]] = []
        for workload_id in pending.made_room_for:
            queue = pending.waiting_in.get(workload_id)
            if queue is None or queue.inactive is not None:
                continue
            line = queue.backlog.waiting[workload_id][4]
            front, head = line.front(), self._head(queue)
            if queue.config.preemption.within_cluster_queue is not WithinClusterQueue.NEVER and (
                head is not None and head.priority > line.priority
            ):
                continue
            if front is not None:
                waiting.append((-line.priority, front[:3], queue, line))
        pending.made_room_for.clear()
        for _, _, queue, line in sorted(waiting, key=itemgetter(0, 1)):
            workload = self._eligible(queue, line)
            if workload is None:
                continue
            entry = self._entry(queue, line, workload)
            if entry.nomination.fit is AssignmentMode.FIT:
                self._process(entry)

    def _serve_longest_waiting(self) -> list[tuple[int, Cells]]:
        """Looks first at those who have waited too long, and keeps free what they lack.

        Returns what the tree counts for them until the end of the pass.
        """
        aging = self._context.policy.aging
        if aging is None or aging.reserve_after_ms is None:
            return []
        latest = self._now_ms - aging.reserve_after_ms
        waiting: list[tuple[tuple[int, int, str], WaitingQueue, EquivalenceClass]] = []
        for queue in self._pending.queues.values():
            fronts = [
                (front[:3], queue, line)
                for line in queue.lines.values()
                if queue.inactive is None and (front := line.front()) and front[0] <= latest
            ]
            if fronts:
                waiting.append(min(fronts, key=itemgetter(0)))
        tree = self._ledger.tree
        kept: list[tuple[int, Cells]] = []
        for _, queue, line in sorted(waiting, key=itemgetter(0)):
            workload = self._eligible(queue, line)
            if workload is None:
                continue
            entry = self._entry(queue, line, workload)
            if entry.nomination.fit is AssignmentMode.FIT or entry.victims:
                self._process(entry)
                continue
            choice = self._choice(queue, workload)
            cells = self._nominator.worth_keeping(queue, line.shape, choice)
            if cells is not None:
                tree.add(queue.node, cells)
                kept.append((queue.node, cells))
                self._park(queue, line)
        return kept

    def _nominate(self) -> list[_Entry]:
        """The head of every queue that is still open, each with what it could get.

        The pass is done once no queue is open. Heads without any chance are set aside at once.
        """
        found = []
        nodes = sorted(self._pending.ready - self._closed)
        self._done = not nodes
        served, self._served = self._served, set()
        fair_sharing = self._context.policy.fair_sharing is not None
        for node in nodes:
            if node in served and not fair_sharing:
                continue
            queue = self._pending.by_node[node]
            entry = self._next_entry(queue) if fair_sharing else self._nominate_head(queue)
            if entry is not None:
                found.append(entry)
        return found

    def _next_entry(self, queue: WaitingQueue) -> _Entry | None:
        """The first head of an open queue that has any chance; None if it has no such head."""
        while queue.node in self._pending.ready and queue.node not in self._closed:
            entry = self._nominate_head(queue)
            if entry is not None:
                return entry
        return None

    def _nominate_head(self, queue: WaitingQueue) -> _Entry | None:
        """The head of one queue, or None if it has none that could be admitted."""
        limit = self._context.policy.heads_per_pass
        if limit is not None:
            looked_at = self._looked_at.get(queue.node, 0)
            if looked_at >= limit:
                self._closed.add(queue.node)
                self.again = True
                return None
            self._looked_at[queue.node] = looked_at + 1
        line = self._head(queue)
        if line is None:
            self._pending.settle(queue)
            return None
        workload = self._eligible(queue, line)
        if workload is None:
            return None
        entry = self._entry(queue, line, workload)
        if entry.nomination.fit is AssignmentMode.NO_FIT:
            self._refuse(entry)
            return None
        if entry.nomination.fit is AssignmentMode.FIT and not self._ledger.fits_now(
            queue.node, entry.nomination.cells
        ):
            # What victims of earlier rounds leave is for those who come first once they are gone.
            self._park(queue, line)
            return None
        return entry

    def _head(self, queue: WaitingQueue) -> EquivalenceClass | None:
        """The line to look at next; a parked one returns only if it is worth another look."""
        line = queue.head(self._ledger, self._now_ms)
        first = line.entry if line is not None and not queue.by_usage else None
        rousable = queue.backlog.rousable
        while rousable:
            position, roused = rousable[-1]
            if first is not None and first[0] < position:
                break
            rousable.pop()
            if not roused.parked:
                continue
            if self._nominator.worth_a_look(queue, roused.shape, roused.priority, self._now_ms):
                queue.backlog.wake(roused)
                if not queue.by_usage:
                    return roused
            self._wake_at_protection_end()
        return queue.head(self._ledger, self._now_ms) if queue.by_usage else line

    def _eligible(self, queue: WaitingQueue, line: EquivalenceClass) -> WorkloadInfo | None:
        """The front of a line; None if nothing in it can be admitted whatever is free."""
        item = line.front()
        if item is None:
            queue.backlog.offer(line)
            return None
        workload = item[3]
        if self._is_late(workload):
            self._pending.expire(workload)
            return None
        if line.limited and blocked_by(self._ledger, queue, workload) is not None:
            self._park(queue, line)
            return None
        return workload

    def _entry(self, queue: WaitingQueue, line: EquivalenceClass, workload: WorkloadInfo) -> _Entry:
        """A head with what it could get now."""
        choice = NO_RESTRICTIONS
        if queue.priced or self._context.scans:
            choice = self._choice(queue, workload)
        version, search = self._ledger.version, self._context.search
        before, search.spared_new = search.spared_new, False
        nomination, victims = self._nominator.nominate(
            queue, line.shape, workload, self._now_ms, choice
        )
        spared, search.spared_new = search.spared_new, before or search.spared_new
        at, sequence, workload_id = workload.queued_at_ms, workload.sequence, workload.id
        rank = queue.backlog.rank(line.priority, at)
        order = (nomination.level, rank, at, sequence, workload_id)
        entry = _Entry(queue, line, workload, nomination, victims, version, order)
        entry.spared = spared
        return entry

    def _choice(self, queue: WaitingQueue, workload: WorkloadInfo) -> FlavorRestrictions:
        """Leaves out flavors that a budget cannot pay, and those that were tried just before."""
        starts = self._context.scans.starts(workload.id, self._number)
        over = self._ledger.spending.exceeded(workload, self._now_ms) if queue.priced else {}
        for budget, _ in over.values():
            heappush(self._context.wakeups, budget.next_window_ms(self._now_ms))
        if not starts and not over:
            return NO_RESTRICTIONS
        return FlavorRestrictions(starts or NO_RESTRICTIONS.starts, frozenset(over))

    def _ordered(self, entries: list[_Entry]) -> Iterable[_Entry]:
        if self._context.policy.fair_sharing is not None:
            return self._by_share(entries)
        if len(entries) > 1:
            entries.sort(key=_order)
        return entries

    def _by_share(self, entries: list[_Entry]) -> Iterator[_Entry]:
        """Winner after winner; a queue's next head competes as soon as the one before is done."""
        ledger = self._ledger
        tournament = Tournament(ledger.tree, self._context.shares)
        heads: dict[int, _Entry] = {}

        def enter(entry: _Entry) -> None:
            heads[entry.queue.node] = entry
            tournament.enter(entry.queue.node, entry.nomination.cells, entry.order[1:])

        for entry in entries:
            enter(entry)
        while (node := tournament.winner()) is not None:
            winner = heads.pop(node)
            tournament.withdraw(node)
            version = ledger.version
            yield winner
            if version != ledger.version:
                tournament.touch(node)
                for target in winner.victims:
                    tournament.touch(target.held.node)
            following = None if self._cut_short else self._next_entry(winner.queue)
            if following is not None:
                enter(following)

    def _process(self, entry: _Entry) -> None:
        """Admits, preempts or refuses one nominated head against the state as it is now."""
        ledger, queue, workload = self._ledger, entry.queue, entry.workload
        if any(target.held.workload.id in ledger.evicting for target in entry.victims):
            # As in Kueue, other victims are looked for, but no other flavors.
            pinned = FlavorRestrictions(pinned=entry.nomination.pod_sets)
            entry.nomination, entry.victims = self._nominator.nominate(
                queue, entry.line.shape, workload, self._now_ms, pinned
            )
            entry.version = ledger.version
        nomination = entry.nomination
        if nomination.fit is not AssignmentMode.FIT and not entry.victims:
            if nomination.fit is not AssignmentMode.NO_FIT:
                self._reserve(queue, nomination)
            if not entry.stays:
                self._refuse(entry)
            return
        if entry.version != ledger.version and not self._still_fits(entry):
            self._lose(entry)
            return
        if self._reservations and self._taken_by_reservation(entry):
            self._stand_back(entry)
            return
        if entry.victims and entry.spared:
            # Others would be better victims, who are ordinary holders in the next pass.
            self._close(entry)
            return
        self._grant(entry)

    def _grant(self, entry: _Entry) -> None:
        """Admits a head, or evicts its victims and keeps its place until they are gone."""
        ledger, queue, workload = self._ledger, entry.queue, entry.workload
        nomination = entry.nomination
        del self._pending.waiting_in[workload.id]
        queue.backlog.discard(workload.id)
        for target in entry.victims:
            victim = target.held.workload
            ledger.evict(target.held)
            self._context.history.note(victim.id, workload.id)
            step = PreemptionStep(victim.id, victim.cluster_queue, workload.id, target.reason)
            self.preemptions.append(step)
        if not entry.victims and ledger.fits_now(queue.node, nomination.cells):
            self._admit(queue, workload, nomination)
            return
        ledger.keep_place(workload.id, queue.node, nomination.cells)
        self._pending.preemptors[workload.id] = WaitingPreemptor(queue, workload, nomination)
        if queue.strict:
            self._closed.add(queue.node)

    def _stand_back(self, entry: _Entry) -> None:
        """Leaves what is reserved for others; looked at again where that could go differently.

        A parked head reserves once, and whoever comes first in the next pass may get what was
        reserved for a later one, or another flavor. Before a strict head that stays, it takes a
        change to be nominated with more, or with a smaller size of a lower borrowing level.
        """
        self._closed.add(entry.queue.node)
        self.refused.append(entry.line)
        self.stood_back.add(entry.line)
        parked = any(not queue.strict for queue, _ in self._reservations)
        if self._resumes(entry) or parked:
            self._look_again()
        elif self._stood_back_at is None:
            self._stood_back_at = self._ledger.version

    def _lose(self, entry: _Entry) -> None:
        """Another one was faster; the next pass nominates it again, if there is any chance."""
        queue, line = entry.queue, entry.line
        if self._nominator.is_hopeless(queue, line.shape, line.priority, self._now_ms):
            self._park(queue, line)
            return
        if resume := entry.nomination.resume:
            self._context.scans.resume(entry.workload.id, resume, self._number)
        self._close(entry)

    def _refuse(self, entry: _Entry) -> None:
        """Sets a head aside, unless the search for a flavor goes on in the next pass."""
        if self._resumes(entry):
            self._close(entry)
            return
        self._park(entry.queue, entry.line)
        if entry.queue.strict and entry.nomination.fit is not AssignmentMode.NO_FIT:
            entry.stays = True
            self._blocking.append(entry)

    def _resumes(self, entry: _Entry) -> bool:
        """Whether the search for a flavor has somewhere to go on in the next pass."""
        resume, scans = entry.nomination.resume or {}, self._context.scans
        return bool(resume or scans) and scans.resume(entry.workload.id, resume, self._number)

    def _close(self, entry: _Entry) -> None:
        """Ends this pass for a queue whose head is to be looked at again in the next."""
        self._closed.add(entry.queue.node)
        self.refused.append(entry.line)
        self._look_again()

    def _look_again(self) -> None:
        """Ends the pass with this round: another one begins with whoever did not get its turn."""
        self.again = self._cut_short = True

    def _still_fits(self, entry: _Entry) -> bool:
        """Whether the nominated cells fit once its victims are gone."""
        tree = self._ledger.tree
        for target in entry.victims:
            tree.remove(target.held.node, target.held.cells)
        fits = tree.fits(entry.queue.node, entry.nomination.cells)
        for target in entry.victims:
            tree.add(target.held.node, target.held.cells)
        return fits

    def _taken_by_reservation(self, entry: _Entry) -> bool:
        """Whether it needs what the pass reserves for blocked heads of other queues."""
        queue = entry.queue
        others = [(each.node, cells) for each, cells in self._reservations if each is not queue]
        for node, cells in others:
            self._ledger.tree.add(node, cells)
        fits = self._still_fits(entry)
        for node, cells in others:
            self._ledger.tree.remove(node, cells)
        return not fits

    def _reserve(self, queue: WaitingQueue, nomination: Nomination) -> None:
        """Keeps room in this round for a head that needs preemption but has no victims.

        Not needed where the queue can always reclaim what it lends.
        """
        if queue.reclaims_any:
            return
        tree, node = self._ledger.tree, queue.node
        cells: list[tuple[int, int]] = []
        for cell, amount in nomination.cells:
            most = amount
            limit = tree.borrowing_limit[cell][node]
            if nomination.level == 0:
                most = tree.nominal[cell][node] - tree.usage[cell][node]
            elif limit is not None:
                most = tree.nominal[cell][node] + limit - tree.usage[cell][node]
            cells.append((cell, max(0, min(amount, most))))
        self._reservations.append((queue, tuple(cells)))

    def _park(self, queue: WaitingQueue, line: EquivalenceClass) -> None:
        """Sets a refused line aside; a strict queue stops at it instead."""
        self.refused.append(line)
        self._wake_at_protection_end()
        if queue.strict:
            self._closed.add(queue.node)
        else:
            self._pending.park(queue, line)

    def _admit(self, queue: WaitingQueue, workload: WorkloadInfo, nomination: Nomination) -> None:
        assignment = Assignment(nomination.pod_sets, nomination.level)
        self._ledger.count(
            queue.node,
            workload,
            assignment,
            self._now_ms,
            cells=nomination.cells,
            new_in_pass=self._number,
        )
        self.admissions.append(Admission(workload.id, workload.cluster_queue, assignment))
