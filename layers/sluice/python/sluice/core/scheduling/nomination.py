"""Nomination: what the head of a queue could get now, and whom it would have to evict."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from sluice.core.config.model import ReclaimWithinCohort, WithinClusterQueue
from sluice.core.scheduling.flavors import (
    NO_NOMINATION,
    NO_RESTRICTIONS,
    Assigner,
    AssignmentMode,
    FlavorRestrictions,
    Nomination,
    largest_partial,
    roomiest,
)
from sluice.core.scheduling.preemption import Preemptor

if TYPE_CHECKING:
    from sluice.core.config.model import WorkloadInfo
    from sluice.core.scheduling.flavors import Shape
    from sluice.core.scheduling.preemption import Target, VictimSearch
    from sluice.core.scheduling.quota import Cells
    from sluice.core.scheduling.usage_ledger import UsageLedger
    from sluice.core.scheduling.waiting_queue import WaitingQueue

HIGHEST = 1 << 40  # above any priority, which are 32 bits wide

Nominated: TypeAlias = tuple[Nomination, list["Target"]]


class Nominator:
    """Finds flavors and victims against the future view; changes nothing."""

    def __init__(self, ledger: UsageLedger, search: VictimSearch, *, fair_sharing: bool) -> None:
        self._ledger = ledger
        self._search = search
        self._fair_sharing = fair_sharing
        self._flat = max(ledger.tree.heights) <= 1

    def nominate(
        self,
        queue: WaitingQueue,
        shape: Shape,
        workload: WorkloadInfo,
        now_ms: int,
        choice: FlavorRestrictions = NO_RESTRICTIONS,
    ) -> Nominated:
        """The best assignment, and its victims if it needs any and there are some."""
        cells = shape.cells
        if cells is not None and choice is NO_RESTRICTIONS:
            if self._ledger.tree.fits(queue.node, cells):
                return Nomination(
                    AssignmentMode.FIT, shape.fixed, cells, self._level(queue.node, cells)
                ), []
            if self.is_hopeless(queue, shape, workload.priority, now_ms):
                return NO_NOMINATION, []
        return _Attempts(self._ledger, self._search, queue, workload, now_ms).best(
            shape, choice, fair_sharing=self._fair_sharing
        )

    def worth_keeping(
        self, queue: WaitingQueue, shape: Shape, choice: FlavorRestrictions
    ) -> Cells | None:
        """What to keep free for a workload that cannot be admitted yet; None if it never can be.

        The full size if it is possible at all, else the largest; of several flavors the one that
        lacks least.
        """
        if shape.undeclared is not None:
            return None

        def attempt(counts: tuple[int, ...]) -> Cells | None:
            return roomiest(self._ledger.tree, queue.node, shape, counts, choice)

        return attempt(tuple(each.count for each in shape.pod_sets)) or largest_partial(
            shape, attempt
        )

    def is_hopeless(self, queue: WaitingQueue, shape: Shape, priority: int, now_ms: int) -> bool:
        """Whether a request that does not fit needs no search for victims or smaller sizes.

        Only said of queues that reserve nothing, where one refusal is as good as another.
        """
        return (
            queue.reclaims_any
            and shape.cells is not None
            and not shape.slack
            and not self._may_preempt(queue, shape.cells, priority, now_ms)
        )

    def worth_a_look(self, queue: WaitingQueue, shape: Shape, priority: int, now_ms: int) -> bool:
        """A quick necessary condition for admission or preemption."""
        cells = shape.cells
        return (
            cells is None
            or shape.slack > 0
            or self._ledger.tree.fits(queue.node, cells)
            or self._may_preempt(queue, cells, priority, now_ms)
        )

    def _level(self, node: int, cells: Cells) -> int:
        """The highest borrowing level over the cells."""
        tree, level = self._ledger.tree, 0
        for cell, amount in cells:
            if tree.borrows_with(node, cell, amount):
                level = max(level, tree.borrowing_level(node, cell, amount)[0])
        return level

    def _may_preempt(self, queue: WaitingQueue, cells: Cells, priority: int, now_ms: int) -> bool:
        """A quick necessary condition for finding victims."""
        node, tree = queue.node, self._ledger.tree
        rules = queue.config.preemption
        if rules.within_cluster_queue is not WithinClusterQueue.NEVER:
            equal = rules.within_cluster_queue is not WithinClusterQueue.LOWER_PRIORITY
            exposed, end_ms = self._ledger.holdings.exposed(node, priority, now_ms, equal=equal)
            if exposed:
                return True
            self._search.note_protection(end_ms)
        if rules.reclaim_within_cohort is ReclaimWithinCohort.NEVER or tree.parent[node] < 0:
            return False
        if not self._flat or queue.preempts_while_borrowing:
            return True
        # In a flat tree borrowing queues yield, and only to one that stays within its own quota.
        for cell, amount in cells:
            if amount and tree.borrows_with(node, cell, amount):
                return False
        return self._exposed_borrower(queue, cells, priority, now_ms)

    def _exposed_borrower(
        self, queue: WaitingQueue, cells: Cells, priority: int, now_ms: int
    ) -> bool:
        """Whether a queue that borrows holds anything that the rules let this one evict."""
        if queue.reclaims_any:
            priority = HIGHEST
        holdings, ends = self._ledger.holdings, []
        for cell, _ in cells:
            for node in self._ledger.borrowing_queues(cell):
                exposed, end_ms = holdings.exposed(node, priority, now_ms, equal=False)
                if exposed:
                    return True
                ends.append(end_ms)
        for end_ms in ends:
            self._search.note_protection(end_ms)
        return False


class _Attempts:
    """The attempts for one workload; no set of victims is searched twice."""

    def __init__(
        self,
        ledger: UsageLedger,
        search: VictimSearch,
        queue: WaitingQueue,
        workload: WorkloadInfo,
        now_ms: int,
    ) -> None:
        self._tree = ledger.tree
        self._search = search
        self._queue = queue
        self._workload = workload
        self._now_ms = now_ms
        self._searched: dict[tuple[Cells, frozenset[int]], list[Target]] = {}

    def best(self, shape: Shape, choice: FlavorRestrictions, *, fair_sharing: bool) -> Nominated:
        """Full size first, preemption included; then the largest partial size."""
        queue = self._queue
        assigner = Assigner(
            self._tree, queue.node, queue.config, fair_sharing, self._oracle, choice
        )
        counts = tuple(pod_set.count for pod_set in shape.pod_sets)
        full = assigner.assign(shape, counts)
        found = self._with_victims(full)
        if found is None:
            found = largest_partial(shape, lambda c: self._with_victims(assigner.assign(shape, c)))
        return found or (full, [])

    def _with_victims(self, nomination: Nomination) -> Nominated | None:
        """The nomination with the victims it needs; None if it cannot be admitted."""
        if nomination.fit is AssignmentMode.FIT:
            return nomination, []
        if nomination.fit is AssignmentMode.NO_FIT:
            return None
        needed = tuple((cell, amount) for cell, amount in nomination.cells if amount)
        victims = self._victims(needed, nomination.contested)
        return (nomination, victims) if victims else None

    def _victims(self, cells: Cells, contested: frozenset[int]) -> list[Target]:
        key = (cells, contested)
        if key not in self._searched:
            queue = self._queue
            preemptor = Preemptor(queue.node, queue.config, self._workload, cells, contested)
            self._searched[key] = self._search.find(preemptor, self._now_ms)
        return self._searched[key]

    def _oracle(self, cell: int, amount: int) -> tuple[AssignmentMode, int]:
        """Whether preemption could make room in one cell, and the borrowing level then."""
        tree, node = self._tree, self._queue.node
        victims = self._victims(((cell, amount),), frozenset((cell,)))
        for target in victims:
            tree.remove(target.held.node, target.held.cells)
        level, _ = tree.borrowing_level(node, cell, amount)
        for target in victims:
            tree.add(target.held.node, target.held.cells)
        if not victims:
            return AssignmentMode.NO_CANDIDATES, level
        own = any(target.held.node == node for target in victims)
        return (AssignmentMode.PREEMPT if own else AssignmentMode.RECLAIM), level
