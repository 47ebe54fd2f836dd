"""The heads of the queues during one pass: who is next, and what each could get."""

from __future__ import annotations

from dataclasses import dataclass, field
from heapq import heappush
from typing import TYPE_CHECKING

from sluice.core.scheduling.explanation import blocked_by
from sluice.core.scheduling.flavor_assigner import (
    NO_RESTRICTIONS,
    AssignmentMode,
    FlavorRestrictions,
)

if TYPE_CHECKING:
    from sluice.core.config.model import WorkloadInfo
    from sluice.core.config.policy import Policy
    from sluice.core.scheduling.backlog import EquivalenceClass
    from sluice.core.scheduling.flavor_assigner import Nomination
    from sluice.core.scheduling.last_tried_flavor import FlavorScans
    from sluice.core.scheduling.nomination import Nominator
    from sluice.core.scheduling.pending_workloads import PendingWorkloads
    from sluice.core.scheduling.plan import Admission, PreemptionStep
    from sluice.core.scheduling.preemption.victims import ExcludedHolders, Target
    from sluice.core.scheduling.usage_ledger import UsageLedger
    from sluice.core.scheduling.waiting_queue import WaitingQueue


@dataclass(slots=True, eq=False)
class Entry:
    """A nominated head.

    `version` is the usage ledger's at the nomination. `order` is borrowing level, rank, time,
    sequence, id. `stays` marks a blocked head of a strict queue, which keeps its room in every
    later round.
    """

    queue: WaitingQueue
    eq_class: EquivalenceClass
    workload: WorkloadInfo
    nomination: Nomination
    victims: list[Target]
    excluded: ExcludedHolders
    version: int
    order: tuple[int, int, int, int, str]
    stays: bool = False


@dataclass(slots=True, eq=False)
class PassResult:
    """What one pass decided.

    `refused` are the equivalence classes whose front was nominated in vain, `stood_back` those that
    left what is reserved for others. `unfinished` says that the next pass could decide more without
    any news. `cut_short` ends the pass with the present round: a head is to be nominated again
    before those that come after it. `spared_new` says that a search for victims left out whom the
    pass admitted itself.
    """

    admissions: list[Admission] = field(default_factory=list)
    preemptions: list[PreemptionStep] = field(default_factory=list)
    refused: list[EquivalenceClass] = field(default_factory=list)
    stood_back: set[EquivalenceClass] = field(default_factory=set)
    unfinished: bool = False
    cut_short: bool = False
    spared_new: bool = False


class QueueHeads:
    """Takes heads from the queues, nominates them, and sets aside those without a chance."""

    def __init__(
        self,
        policy: Policy,
        ledger: UsageLedger,
        pending: PendingWorkloads,
        scans: FlavorScans,
        wakeups: list[int],
        nominator: Nominator,
        result: PassResult,
        now_ms: int,
        pass_number: int,
    ) -> None:
        """`wakeups` is a heap of instants at which time alone may change a decision."""
        self._policy = policy
        self._ledger = ledger
        self._pending = pending
        self._scans = scans
        self._wakeups = wakeups
        self._nominator = nominator
        self._result = result
        self._now_ms = now_ms
        self._pass_number = pass_number
        self._nominated: dict[int, int] = {}  # heads per queue, where their number is limited
        self._closed: set[int] = set()

    def open_queues(self) -> list[int]:
        """Queues that may have a head to nominate."""
        return sorted(self._pending.ready - self._closed)

    def close(self, queue: WaitingQueue) -> None:
        """Ends this pass for a queue."""
        self._closed.add(queue.node)

    def next_entry(self, queue: WaitingQueue) -> Entry | None:
        """The first head of an open queue that has any chance; None if it has no such head."""
        while queue.node in self._pending.ready and queue.node not in self._closed:
            entry = self.nominate_head(queue)
            if entry is not None:
                return entry
        return None

    def nominate_head(self, queue: WaitingQueue) -> Entry | None:
        """The head of one queue, or None if it has none that could be admitted."""
        limit = self._policy.heads_per_pass
        if limit is not None:
            nominated = self._nominated.get(queue.node, 0)
            if nominated >= limit:
                self.close(queue)
                self._result.unfinished = True
                return None
            self._nominated[queue.node] = nominated + 1
        eq_class = self.head(queue)
        if eq_class is None:
            self._pending.settle(queue)
            return None
        workload = self.eligible_front(queue, eq_class)
        if workload is None:
            return None
        entry = self.nominate(queue, eq_class, workload)
        if entry.nomination.mode is AssignmentMode.NO_FIT:
            self.set_aside(entry)
            return None
        if entry.nomination.mode is AssignmentMode.FIT and not self._ledger.fits_now(
            queue.node, entry.nomination.cells
        ):
            # What victims of earlier rounds leave is for those who come first once they are gone.
            self.park(queue, eq_class)
            return None
        return entry

    def head(self, queue: WaitingQueue) -> EquivalenceClass | None:
        """The class to nominate next; a parked one returns only if that is worth while."""
        eq_class = queue.head(self._ledger, self._now_ms)
        first = eq_class.entry if eq_class is not None and not queue.by_usage else None
        rousable = queue.backlog.rousable
        while rousable:
            position, roused = rousable[-1]
            if first is not None and first[0] < position:
                break
            rousable.pop()
            if not roused.parked:
                continue
            worth_nominating, protected_until_ms = self._nominator.is_worth_nominating(
                queue, roused.shape, roused.priority
            )
            if queue.strict or worth_nominating:  # nobody overtakes the head of a strict queue
                queue.backlog.wake(roused)
                if not queue.by_usage:
                    return roused
            self._wake_at(protected_until_ms)
        return queue.head(self._ledger, self._now_ms) if queue.by_usage else eq_class

    def eligible_front(
        self, queue: WaitingQueue, eq_class: EquivalenceClass
    ) -> WorkloadInfo | None:
        """The front of a class; None if nothing in it can be admitted whatever is free."""
        item = eq_class.front()
        if item is None:
            queue.backlog.offer(eq_class)
            return None
        workload = item[3]
        if self.is_late(workload):
            self._pending.expire(workload)
            return None
        if eq_class.limited and blocked_by(self._ledger, queue, workload) is not None:
            self._park_blocked(queue, eq_class)
            return None
        return workload

    def _park_blocked(self, queue: WaitingQueue, eq_class: EquivalenceClass) -> None:
        """Parks a class that a cap or a stopped LocalQueue keeps waiting.

        In a strict queue the cap of the ClusterQueue stops everybody. A stopped LocalQueue, its cap
        and the cap of a user concern nobody else, so that the queue goes on behind the class.
        """
        cap = queue.config.max_running
        if queue.strict and cap is not None and self._ledger.running.get(queue.node, 0) >= cap:
            self.park(queue, eq_class)
            return
        self._result.refused.append(eq_class)
        self._pending.park(queue, eq_class)

    def is_late(self, workload: WorkloadInfo) -> bool:
        return workload.deadline_ms is not None and workload.deadline_ms < self._now_ms

    def nominate(
        self, queue: WaitingQueue, eq_class: EquivalenceClass, workload: WorkloadInfo
    ) -> Entry:
        """A head with what it could get now."""
        restrictions = NO_RESTRICTIONS
        if queue.priced or self._scans:
            restrictions = self.restrictions(queue, workload)
        version = self._ledger.version
        nominated = self._nominator.nominate(queue, eq_class.shape, workload, restrictions)
        self._result.spared_new |= nominated.excluded.same_pass
        nomination, at = nominated.nomination, workload.queued_at_ms
        rank = queue.backlog.rank(eq_class.priority, at)
        order = (nomination.level, rank, at, workload.sequence, workload.id)
        return Entry(
            queue,
            eq_class,
            workload,
            nomination,
            nominated.victims,
            nominated.excluded,
            version,
            order,
        )

    def nominate_again(self, entry: Entry) -> None:
        """Searches other victims for the same flavors, as Kueue does after overlapping victims."""
        pinned = FlavorRestrictions(pinned=entry.nomination.pod_sets)
        nominated = self._nominator.nominate(
            entry.queue, entry.eq_class.shape, entry.workload, pinned
        )
        entry.nomination, entry.victims = nominated.nomination, nominated.victims
        entry.excluded.note_protection(nominated.excluded.protected_until_ms)
        entry.version = self._ledger.version
        self._result.spared_new |= nominated.excluded.same_pass

    def restrictions(self, queue: WaitingQueue, workload: WorkloadInfo) -> FlavorRestrictions:
        """Leaves out flavors that a budget cannot pay, and those that were tried just before."""
        starts = self._scans.starts(workload.id, self._pass_number)
        over = self._ledger.spending.exceeded(workload, self._now_ms) if queue.priced else {}
        for budget, _ in over.values():
            heappush(self._wakeups, budget.next_window_ms(self._now_ms))
        if not starts and not over:
            return NO_RESTRICTIONS
        return FlavorRestrictions(starts or NO_RESTRICTIONS.starts, frozenset(over))

    def set_aside(self, entry: Entry) -> bool:
        """Parks a refused head, unless its search for a flavor goes on in the next pass.

        Returns whether it was parked.
        """
        if self.resumes(entry):
            self.look_again(entry)
            return False
        self.park(entry.queue, entry.eq_class, entry.excluded.protected_until_ms)
        return True

    def resumes(self, entry: Entry) -> bool:
        """Whether the search for a flavor has somewhere to go on in the next pass."""
        resume, scans = entry.nomination.resume or {}, self._scans
        return bool(resume or scans) and scans.resume(entry.workload.id, resume, self._pass_number)

    def look_again(self, entry: Entry) -> None:
        """Ends this pass with this round; the next one nominates the head again."""
        self.close(entry.queue)
        self._result.refused.append(entry.eq_class)
        self.end_pass()

    def end_pass(self) -> None:
        """Ends the pass with this round: another one begins with whoever did not get its turn."""
        self._result.unfinished = self._result.cut_short = True

    def park(
        self, queue: WaitingQueue, eq_class: EquivalenceClass, protected_until_ms: int | None = None
    ) -> None:
        """Sets a refused class aside; a strict queue stops at it instead.

        It is nominated again after a release, and when the protection ends that was in the way.
        """
        self._result.refused.append(eq_class)
        self._wake_at(protected_until_ms)
        if queue.strict:
            self.close(queue)
        else:
            self._pending.park(queue, eq_class)

    def _wake_at(self, at_ms: int | None) -> None:
        if at_ms is not None:
            heappush(self._wakeups, at_ms)
