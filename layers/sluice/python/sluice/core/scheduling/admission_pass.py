"""One admission pass over a root cohort: who runs, who yields, who waits.

A pass is a sequence of rounds. Each round nominates the head of every queue as one scheduling cycle
of Kueue does: nominate, order, then admit or preempt one by one while re-checking the fit. Rounds
go on until no queue has a head that was not nominated, or until a head has to be nominated again:
the next pass begins with it, before anybody who stood behind others gets its room. With fair
sharing a queue's next head joins the running tournament at once, so that shares and not the number
of queues divide the cohort.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappop
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING

from sluice.core.config.model import Assignment, PreemptionReason, StopPolicy, WithinClusterQueue
from sluice.core.scheduling.capacity_reservations import CapacityReservations
from sluice.core.scheduling.dominant_share import DominantShares, Tournament
from sluice.core.scheduling.flavor_assigner import AssignmentMode
from sluice.core.scheduling.last_tried_flavor import FlavorScans
from sluice.core.scheduling.nomination import Nominator
from sluice.core.scheduling.pending_workloads import PendingWorkloads, WaitingPreemptor
from sluice.core.scheduling.plan import Admission, PreemptionStep
from sluice.core.scheduling.preemption.victims import remove_usage, restore_usage
from sluice.core.scheduling.queue_heads import PassResult, QueueHeads

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from sluice.core.config.model import WorkloadInfo
    from sluice.core.config.policy import Policy
    from sluice.core.scheduling.backlog import EquivalenceClass
    from sluice.core.scheduling.flavor_assigner import Nomination
    from sluice.core.scheduling.preemption.victims import VictimSearch
    from sluice.core.scheduling.preemption_history import PreemptionHistory
    from sluice.core.scheduling.queue_heads import Entry
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
    history: PreemptionHistory
    scans: FlavorScans = field(default_factory=FlavorScans)
    wakeups: list[int] = field(default_factory=list)


class AdmissionPass:
    """What happens during one pass; `run` is called once."""

    def __init__(self, context: PassContext, now_ms: int, number: int) -> None:
        """`number` counts the passes of this root; no pass evicts what it admitted itself."""
        self._policy = context.policy
        self._ledger = context.ledger
        self._pending = context.pending
        self._context = context
        self._now_ms = now_ms
        self._number = number
        self._fair_sharing = context.policy.fair_sharing is not None
        self._result = PassResult()
        self._nominator = Nominator(
            context.ledger,
            context.search,
            fair_sharing=self._fair_sharing,
            now_ms=now_ms,
            pass_number=number,
        )
        self._heads = QueueHeads(
            context.policy,
            context.ledger,
            context.pending,
            context.scans,
            context.wakeups,
            self._nominator,
            self._result,
            now_ms,
            number,
        )
        self._reservations = CapacityReservations(context.ledger.tree)
        self._blocking: list[Entry] = []  # heads of strict queues that stay
        self._stood_back_at: int | None = None  # version when one first yielded to a strict queue

    def run(self, *, freed: bool) -> PassResult:
        """Decides for every queue; `freed` says that something was released since the last pass."""
        # 1. Evict what runs in queues that are stopped for good.
        self._drain_stopped_queues()
        # 2. Admit those whose victims have stopped.
        served, given_up = self._admit_waiting_preemptors()
        # 3. Return parked workloads to their queues if anything was released.
        self._requeue_parked(freed=freed or given_up)
        # 4. Nominate those first for whom others stopped, then those who have waited too long.
        self._serve_expected_preemptors()
        kept_free = self._serve_longest_waiting()
        # 5. Round by round: nominate the heads, order them, then admit or preempt one by one.
        while not self._result.cut_short and (nodes := self._heads.open_queues()):
            if entries := self._nominate_heads(nodes, served):
                for entry in self._ordered([*entries, *self._blocking]):
                    self._process(entry)
                self._reservations.clear()
            served = set()
        # 6. Note whether another pass could decide more.
        if self._stood_back_at not in {None, self._ledger.version}:
            self._result.unfinished = True
        for node, cells in kept_free:
            self._ledger.tree.remove(node, cells)
        return self._result

    # 1. and 2.: what earlier decisions ask for

    def _drain_stopped_queues(self) -> None:
        ledger = self._ledger
        draining = [queue for queue in self._pending.queues.values() if queue.may_drain]
        found = [
            holder for queue in draining for holder in ledger.holder_index.list_holders(queue.node)
        ]
        for holder in sorted(found, key=lambda holder: holder.workload.id):
            queue = self._pending.by_node[holder.node]
            local = queue.local_queue(holder.workload)
            policies = {queue.config.stop_policy, local.stop_policy if local else StopPolicy.NONE}
            if StopPolicy.HOLD_AND_DRAIN in policies:
                ledger.evict(holder)
                reason = PreemptionReason.QUEUE_DRAINED
                step = PreemptionStep(holder.workload.id, queue.config.name, "", reason)
                self._result.preemptions.append(step)

    def _admit_waiting_preemptors(self) -> tuple[set[int], bool]:
        """Admits preemptors that have room now; a strict queue waits for its own.

        Returns the queues that had their head, and whether one came too late for its deadline and
        left its place to others.
        """
        ledger, pending = self._ledger, self._pending
        served, given_up = set[int](), False
        for workload_id, preemptor in [*pending.preemptors.items()]:
            queue, nomination = preemptor.queue, preemptor.nomination
            if self._heads.is_late(preemptor.workload):
                del pending.preemptors[workload_id]
                ledger.give_up_place(workload_id)
                pending.expire(preemptor.workload)
                given_up = True
            elif ledger.fits_now(queue.node, nomination.cells):
                del pending.preemptors[workload_id]
                ledger.give_up_place(workload_id)
                self._admit(queue, preemptor.workload, nomination)
                served.add(queue.node)
            elif not ledger.evicting:
                del pending.preemptors[workload_id]
                ledger.give_up_place(workload_id)
                pending.enter(preemptor.workload, parked=False)
            elif queue.strict:
                self._heads.close(queue)
        return served, given_up

    # 3. and 4.: who is nominated before the rounds

    def _requeue_parked(self, *, freed: bool) -> None:
        """After a release, or once a protection or a budget's window has ended."""
        wakeups = self._context.wakeups
        while wakeups and wakeups[0] <= self._now_ms:
            heappop(wakeups)
            freed = True
        if freed:
            self._pending.rouse()
            self._context.scans.forget()

    def _serve_expected_preemptors(self) -> None:
        """Those for whom others stopped take their place first: Kueue's sticky preemptor.

        Not before one that could evict it in turn as soon as it runs.
        """
        pending = self._pending
        waiting: list[tuple[int, tuple[int, int, str], WaitingQueue, EquivalenceClass]] = []
        for workload_id in pending.made_room_for:
            queue = pending.waiting_in.get(workload_id)
            if queue is None or queue.inactive is not None:
                continue
            eq_class = queue.backlog.waiting[workload_id][4]
            front, head = eq_class.front(), self._heads.head(queue)
            if queue.config.preemption.within_cluster_queue is not WithinClusterQueue.NEVER and (
                head is not None and head.priority > eq_class.priority
            ):
                continue
            if front is not None:
                waiting.append((-eq_class.priority, front[:3], queue, eq_class))
        pending.made_room_for.clear()
        for _, _, queue, eq_class in sorted(waiting, key=itemgetter(0, 1)):
            workload = self._heads.eligible_front(queue, eq_class)
            if workload is None:
                continue
            entry = self._heads.nominate(queue, eq_class, workload)
            if entry.nomination.mode is AssignmentMode.FIT:
                self._process(entry)

    def _serve_longest_waiting(self) -> list[tuple[int, Cells]]:
        """Nominates those who have waited too long, and keeps free what they lack.

        Returns what the tree counts for them until the end of the pass.
        """
        kept_free: list[tuple[int, Cells]] = []
        for queue, eq_class in self._list_longest_waiting():
            workload = self._heads.eligible_front(queue, eq_class)
            if workload is None:
                continue
            entry = self._heads.nominate(queue, eq_class, workload)
            if entry.nomination.mode is AssignmentMode.FIT or entry.victims:
                self._process(entry)
                continue
            restrictions = self._heads.restrictions(queue, workload)
            cells = self._nominator.cells_to_reserve(queue, eq_class.shape, restrictions)
            if cells is not None:
                self._ledger.tree.add(queue.node, cells)
                kept_free.append((queue.node, cells))
                self._heads.park(queue, eq_class, entry.excluded.protected_until_ms)
        return kept_free

    def _list_longest_waiting(self) -> list[tuple[WaitingQueue, EquivalenceClass]]:
        """The longest waiting class of each queue, if that has waited too long; oldest first."""
        aging = self._policy.aging
        if aging is None or aging.reserve_after_ms is None:
            return []
        latest = self._now_ms - aging.reserve_after_ms
        waiting: list[tuple[tuple[int, int, str], WaitingQueue, EquivalenceClass]] = []
        for queue in self._pending.queues.values():
            fronts = [
                (front[:3], queue, eq_class)
                for eq_class in queue.classes.values()
                if queue.inactive is None and (front := eq_class.front()) and front[0] <= latest
            ]
            if fronts:
                waiting.append(min(fronts, key=itemgetter(0)))
        return [(queue, eq_class) for _, queue, eq_class in sorted(waiting, key=itemgetter(0))]

    # 5. One round

    def _nominate_heads(self, nodes: Iterable[int], served: set[int]) -> list[Entry]:
        """One head of each open queue that has a chance.

        `served` are queues that had their head of this round already.
        """
        found = []
        for node in nodes:
            if node in served and not self._fair_sharing:
                continue
            queue = self._pending.by_node[node]
            entry = (
                self._heads.next_entry(queue)
                if self._fair_sharing
                else self._heads.nominate_head(queue)
            )
            if entry is not None:
                found.append(entry)
        return found

    def _ordered(self, entries: list[Entry]) -> Iterable[Entry]:
        if self._fair_sharing:
            return self._by_share(entries)
        if len(entries) > 1:
            entries.sort(key=_order)
        return entries

    def _by_share(self, entries: list[Entry]) -> Iterator[Entry]:
        """Winner after winner; a queue's next head competes as soon as the one before is done."""
        ledger = self._ledger
        tournament = Tournament(ledger.tree, self._context.shares)
        heads: dict[int, Entry] = {}

        def enter(entry: Entry) -> None:
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
                    tournament.touch(target.holder.node)
            following = None if self._result.cut_short else self._heads.next_entry(winner.queue)
            if following is not None:
                enter(following)

    def _process(self, entry: Entry) -> None:
        """Admits, preempts or refuses one nominated head against the state as it is now."""
        ledger = self._ledger
        if any(target.holder.workload.id in ledger.evicting for target in entry.victims):
            self._heads.nominate_again(entry)
        mode = entry.nomination.mode
        if mode is not AssignmentMode.FIT and not entry.victims:
            if mode is not AssignmentMode.NO_FIT:
                self._reservations.reserve(entry.queue, entry.nomination)
            self._refuse(entry)
        elif entry.version != ledger.version and not self._still_fits(entry):
            self._lose(entry)
        elif self._reservations and self._needs_what_is_reserved(entry):
            self._stand_back(entry)
        elif entry.victims and entry.excluded.same_pass:
            # Others would be better victims, who are ordinary holders in the next pass.
            self._heads.look_again(entry)
        else:
            self._grant(entry)

    def _refuse(self, entry: Entry) -> None:
        """Sets a head aside; one of a strict queue keeps its room in the later rounds."""
        if entry.stays:
            return
        parked = self._heads.set_aside(entry)
        if parked and entry.queue.strict and entry.nomination.mode is not AssignmentMode.NO_FIT:
            entry.stays = True
            self._blocking.append(entry)

    def _lose(self, entry: Entry) -> None:
        """Another head was faster; the next pass nominates this one again, if it has a chance."""
        queue, eq_class = entry.queue, entry.eq_class
        hopeless, protected_until_ms = self._nominator.is_hopeless(
            queue, eq_class.shape, eq_class.priority
        )
        if hopeless:
            self._heads.park(queue, eq_class, protected_until_ms)
            return
        if resume := entry.nomination.resume:
            self._context.scans.resume(entry.workload.id, resume, self._number)
        self._heads.look_again(entry)

    def _stand_back(self, entry: Entry) -> None:
        """Leaves what is reserved for others; nominated again where that could go differently.

        A parked head reserves once, and whoever comes first in the next pass may get what was
        reserved for a later one, or another flavor. Before a strict head that stays, it takes a
        change to be nominated with more, or with a smaller size of a lower borrowing level.
        """
        self._heads.close(entry.queue)
        self._result.refused.append(entry.eq_class)
        self._result.stood_back.add(entry.eq_class)
        parked = self._reservations.has_parked_head()
        if self._heads.resumes(entry) or parked:
            self._heads.end_pass()
        elif self._stood_back_at is None:
            self._stood_back_at = self._ledger.version

    def _grant(self, entry: Entry) -> None:
        """Admits a head, or evicts its victims and keeps its place until they are gone."""
        ledger, queue, workload = self._ledger, entry.queue, entry.workload
        nomination = entry.nomination
        del self._pending.waiting_in[workload.id]
        queue.backlog.discard(workload.id)
        for target in entry.victims:
            victim = target.holder.workload
            ledger.evict(target.holder)
            self._context.history.note(victim.id, workload.id)
            step = PreemptionStep(victim.id, victim.cluster_queue, workload.id, target.reason)
            self._result.preemptions.append(step)
        if not entry.victims and ledger.fits_now(queue.node, nomination.cells):
            self._admit(queue, workload, nomination)
            return
        ledger.keep_place(workload.id, queue.node, nomination.cells)
        self._pending.preemptors[workload.id] = WaitingPreemptor(queue, workload, nomination)
        if queue.strict:
            self._heads.close(queue)

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
        self._result.admissions.append(Admission(workload.id, workload.cluster_queue, assignment))

    def _still_fits(self, entry: Entry) -> bool:
        """Whether the nominated cells fit once its victims are gone."""
        tree = self._ledger.tree
        remove_usage(tree, entry.victims)
        fits = tree.fits(entry.queue.node, entry.nomination.cells)
        restore_usage(tree, entry.victims)
        return fits

    def _needs_what_is_reserved(self, entry: Entry) -> bool:
        """Whether it fits only in what the round reserves for blocked heads of other queues."""
        with self._reservations.counted_for_others(entry.queue):
            return not self._still_fits(entry)
