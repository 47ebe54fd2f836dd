"""Nomination: what the head of a queue could get now, and whom it would have to evict."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.config.model import ReclaimWithinCohort, WithinClusterQueue
from sluice.core.scheduling.flavor_assigner import (
    NO_NOMINATION,
    NO_RESTRICTIONS,
    Assigner,
    AssignmentMode,
    FlavorRestrictions,
    Nomination,
    largest_partial,
    roomiest,
)
from sluice.core.scheduling.preemption.victims import (
    ExcludedHolders,
    Preemptor,
    remove_usage,
    restore_usage,
)

if TYPE_CHECKING:
    from sluice.core.config.model import WorkloadInfo
    from sluice.core.scheduling.preemption.victims import Target, VictimSearch
    from sluice.core.scheduling.quota import Cells
    from sluice.core.scheduling.request_shape import Shape
    from sluice.core.scheduling.usage_ledger import UsageLedger
    from sluice.core.scheduling.waiting_queue import WaitingQueue

HIGHEST = 1 << 40  # above any priority, which are 32 bits wide


@dataclass(slots=True, eq=False)
class Nominated:
    """The best assignment, its victims if it needs any and there are some, and who was spared."""

    nomination: Nomination
    victims: list[Target] = field(default_factory=list)
    excluded: ExcludedHolders = field(default_factory=ExcludedHolders)


class Nominator:
    """Finds flavors and victims against the future view during one pass; changes nothing."""

    def __init__(
        self,
        ledger: UsageLedger,
        search: VictimSearch,
        *,
        fair_sharing: bool,
        now_ms: int,
        pass_number: int,
    ) -> None:
        self._ledger = ledger
        self._search = search
        self._fair_sharing = fair_sharing
        self._now_ms = now_ms
        self._pass_number = pass_number

    def nominate(
        self,
        queue: WaitingQueue,
        shape: Shape,
        workload: WorkloadInfo,
        restrictions: FlavorRestrictions = NO_RESTRICTIONS,
    ) -> Nominated:
        excluded = ExcludedHolders()
        cells = shape.cells
        if cells is not None and restrictions is NO_RESTRICTIONS:
            if self._ledger.tree.fits(queue.node, cells):
                level = self._borrowing_level(queue.node, cells)
                return Nominated(Nomination(AssignmentMode.FIT, shape.fixed, cells, level))
            hopeless, excluded.protected_until_ms = self.is_hopeless(
                queue, shape, workload.priority
            )
            if hopeless:
                return Nominated(NO_NOMINATION, [], excluded)
        attempts = _Attempts(
            self._ledger, self._search, queue, workload, excluded, self._now_ms, self._pass_number
        )
        return attempts.best(shape, restrictions, fair_sharing=self._fair_sharing)

    def cells_to_reserve(
        self, queue: WaitingQueue, shape: Shape, restrictions: FlavorRestrictions
    ) -> Cells | None:
        """What to keep free for a workload that cannot be admitted yet; None if it never can be.

        The full size if it is possible at all, else the largest; of several flavors the one that
        lacks least.
        """
        if shape.undeclared is not None:
            return None

        def attempt(counts: tuple[int, ...]) -> Cells | None:
            return roomiest(self._ledger.tree, queue.node, shape, counts, restrictions)

        return attempt(tuple(each.count for each in shape.pod_sets)) or largest_partial(
            shape, attempt
        )

    def is_hopeless(
        self, queue: WaitingQueue, shape: Shape, priority: int
    ) -> tuple[bool, int | None]:
        """Whether a request that does not fit needs no search for victims or smaller sizes.

        Answered only for queues that reserve nothing, where one refusal is as good as another.
        The second value is when the first protection ends that is in the way.
        """
        if not queue.reclaims_any or shape.cells is None or shape.slack:
            return False, None
        may_preempt, protected_until_ms = self._may_preempt(queue, shape.cells, priority)
        return not may_preempt, protected_until_ms

    def is_worth_nominating(
        self, queue: WaitingQueue, shape: Shape, priority: int
    ) -> tuple[bool, int | None]:
        """A quick necessary condition for admission or preemption; the end of a protection."""
        cells = shape.cells
        if cells is None or shape.slack > 0 or self._ledger.tree.fits(queue.node, cells):
            return True, None
        return self._may_preempt(queue, cells, priority)

    def _borrowing_level(self, node: int, cells: Cells) -> int:
        """The highest borrowing level over the cells."""
        tree, level = self._ledger.tree, 0
        for cell, amount in cells:
            if tree.borrows_with(node, cell, amount):
                level = max(level, tree.borrowing_level(node, cell, amount)[0])
        return level

    def _may_preempt(
        self, queue: WaitingQueue, cells: Cells, priority: int
    ) -> tuple[bool, int | None]:
        """A quick necessary condition for finding victims; else when a protection ends."""
        node, tree = queue.node, self._ledger.tree
        rules = queue.config.preemption
        end_ms: int | None = None
        if rules.within_cluster_queue is not WithinClusterQueue.NEVER:
            equal = rules.within_cluster_queue is not WithinClusterQueue.LOWER_PRIORITY
            found, end_ms = self._ledger.holder_index.has_unprotected(
                node, priority, self._now_ms, equal=equal
            )
            if found:
                return True, None
        if rules.reclaim_within_cohort is ReclaimWithinCohort.NEVER or tree.parent[node] < 0:
            return False, end_ms
        if not tree.is_flat or queue.preempts_while_borrowing:
            return True, end_ms
        # In a flat tree borrowing queues yield, and only to one that stays within its own quota.
        for cell, amount in cells:
            if amount and tree.borrows_with(node, cell, amount):
                return False, end_ms
        return self._has_unprotected_borrower(queue, cells, priority, end_ms)

    def _has_unprotected_borrower(
        self, queue: WaitingQueue, cells: Cells, priority: int, end_ms: int | None
    ) -> tuple[bool, int | None]:
        """Whether a queue that borrows has a holder that the rules let this one evict."""
        if queue.reclaims_any:
            priority = HIGHEST
        excluded = ExcludedHolders(end_ms)
        for cell, _ in cells:
            for node in self._ledger.borrowing_queues(cell):
                found, protected_until_ms = self._ledger.holder_index.has_unprotected(
                    node, priority, self._now_ms, equal=False
                )
                if found:
                    return True, end_ms
                excluded.note_protection(protected_until_ms)
        return False, excluded.protected_until_ms


class _Attempts:
    """The attempts for one workload; no set of victims is searched twice."""

    def __init__(
        self,
        ledger: UsageLedger,
        search: VictimSearch,
        queue: WaitingQueue,
        workload: WorkloadInfo,
        excluded: ExcludedHolders,
        now_ms: int,
        pass_number: int,
    ) -> None:
        self._tree = ledger.tree
        self._search = search
        self._queue = queue
        self._workload = workload
        self._now_ms = now_ms
        self._pass_number = pass_number
        self._excluded = excluded
        self._searched: dict[tuple[Cells, frozenset[int]], list[Target]] = {}

    def best(
        self, shape: Shape, restrictions: FlavorRestrictions, *, fair_sharing: bool
    ) -> Nominated:
        """Full size first, preemption included; then the largest partial size."""
        queue = self._queue
        oracle = self._simulate_preemption
        assigner = Assigner(
            self._tree, queue.node, queue.config, fair_sharing, oracle, restrictions
        )
        counts = tuple(pod_set.count for pod_set in shape.pod_sets)
        full = assigner.assign(shape, counts)
        found = self._with_victims(full)
        if found is None:
            found = largest_partial(shape, lambda c: self._with_victims(assigner.assign(shape, c)))
        return found or Nominated(full, [], self._excluded)

    def _with_victims(self, nomination: Nomination) -> Nominated | None:
        """The nomination with the victims it needs; None if it cannot be admitted."""
        if nomination.mode is AssignmentMode.FIT:
            return Nominated(nomination, [], self._excluded)
        if nomination.mode is AssignmentMode.NO_FIT:
            return None
        needed = tuple((cell, amount) for cell, amount in nomination.cells if amount)
        victims = self._find_victims(needed, nomination.contested)
        return Nominated(nomination, victims, self._excluded) if victims else None

    def _find_victims(self, cells: Cells, contested: frozenset[int]) -> list[Target]:
        key = (cells, contested)
        if key not in self._searched:
            queue = self._queue
            preemptor = Preemptor(
                queue.node,
                queue.config,
                self._workload,
                cells,
                contested,
                self._now_ms,
                self._pass_number,
            )
            self._searched[key] = self._search.find(preemptor, self._excluded)
        return self._searched[key]

    def _simulate_preemption(self, cell: int, amount: int) -> tuple[AssignmentMode, int]:
        """Whether preemption could make room in one cell, and the borrowing level then."""
        tree, node = self._tree, self._queue.node
        victims = self._find_victims(((cell, amount),), frozenset((cell,)))
        remove_usage(tree, victims)
        level, _ = tree.borrowing_level(node, cell, amount)
        restore_usage(tree, victims)
        if not victims:
            return AssignmentMode.NO_CANDIDATES, level
        own = any(target.holder.node == node for target in victims)
        return (AssignmentMode.PREEMPT if own else AssignmentMode.RECLAIM), level
