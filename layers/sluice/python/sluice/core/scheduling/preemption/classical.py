"""Classical preemption with hierarchical advantage, and borrowing while preempting.

Source: Kueue's pkg/scheduler/preemption (classical).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.config.model import BorrowWithinCohort, PreemptionReason, ReclaimWithinCohort
from sluice.core.scheduling.preemption.victims import (
    Target,
    fill_back,
    preemptor_fits,
    restore_usage,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sluice.core.scheduling.preemption.candidates import CandidateFinder
    from sluice.core.scheduling.preemption.victims import ExcludedHolders, Preemptor
    from sluice.core.scheduling.quota import QuotaTree


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible victim; `ancestor` is the lowest common one with the preemptor."""

    target: Target
    ancestor: int
    only_without_borrowing: bool


class ClassicalPreemption:
    """Searches victims by priority; those of other queues only where these borrow."""

    def __init__(self, tree: QuotaTree, finder: CandidateFinder) -> None:
        self._tree = tree
        self._finder = finder

    def find(self, preemptor: Preemptor, excluded: ExcludedHolders) -> list[Target]:
        """See `VictimSearch`."""
        # 1. Candidates: those below the hierarchical advantage, by priority, of the own queue.
        hierarchical, by_priority = self._list_other_queues(preemptor, excluded)
        own = self._list_own_queue(preemptor, excluded)
        now_ms = preemptor.now_ms
        candidates = [
            *self._order(hierarchical, now_ms),
            *self._order(by_priority, now_ms),
            *self._order(own, now_ms),
        ]
        if not candidates:
            return []
        # 2. May the preemptor borrow? Each attempt answers it otherwise.
        may_borrow = preemptor.queue.preemption.borrow_within_cohort is not BorrowWithinCohort.NEVER
        if not (hierarchical or by_priority) or (
            not may_borrow and not self._is_under_nominal(preemptor)
        ):
            attempts: tuple[bool, ...] = (True,)
        elif not may_borrow and not hierarchical:
            attempts = (False, True)
        else:
            attempts = (True, False)
        # 3. Remove candidates until the preemptor fits, then spare whom it can.
        for borrowing in attempts:
            if targets := self._attempt(preemptor, candidates, borrowing=borrowing):
                return targets
        return []

    def _order(self, found: list[Candidate], now_ms: int) -> list[Candidate]:
        by_id = {one.target.holder.workload.id: one for one in found}
        ordered = self._finder.order([one.target.holder for one in found], now_ms)
        return [by_id[holder.workload.id] for holder in ordered]

    def _list_own_queue(self, preemptor: Preemptor, excluded: ExcludedHolders) -> list[Candidate]:
        reason = PreemptionReason.IN_CLUSTER_QUEUE
        return [
            Candidate(Target(holder, reason), preemptor.node, only_without_borrowing=False)
            for holder in self._finder.list_own(preemptor, excluded)
        ]

    def _list_other_queues(
        self, preemptor: Preemptor, excluded: ExcludedHolders
    ) -> tuple[list[Candidate], list[Candidate]]:
        """Candidates over which the preemptor has the hierarchical advantage, and the others."""
        hierarchical: list[Candidate] = []
        by_priority: list[Candidate] = []
        tree = self._tree
        if preemptor.queue.preemption.reclaim_within_cohort is ReclaimWithinCohort.NEVER:
            return hierarchical, by_priority
        rest = dict(preemptor.cells)
        below = -1
        advantage = False
        for at in tree.paths[preemptor.node]:
            if tree.is_queue[at]:
                advantage, rest = self._absorb(at, rest)
                below = at
                continue
            found = hierarchical if advantage else by_priority
            for node in self._borrowing_queues(at, below, preemptor.contested):
                found.extend(self._list_queue(preemptor, node, at, excluded, advantage=advantage))
            fits, rest = self._absorb(at, rest)
            advantage = advantage or fits
            below = at
        return hierarchical, by_priority

    def _absorb(self, node: int, amounts: Mapping[int, int]) -> tuple[bool, dict[int, int]]:
        """Whether the node's quota holds the amounts on top of its usage; the rest goes up."""
        tree = self._tree
        fits = not any(tree.borrows_with(node, cell, v) for cell, v in amounts.items())
        rest = {c: max(0, v - tree.local_available(node, c)) for c, v in amounts.items()}
        return fits, rest

    def _borrowing_queues(self, top: int, skip: int, contested: frozenset[int]) -> Iterator[int]:
        """Queues below `top` that, like all nodes between, exceed their quota in a cell."""
        tree = self._tree
        for child in tree.children[top]:
            if child == skip or tree.within_nominal(child, contested):
                continue
            if tree.is_queue[child]:
                yield child
            else:
                yield from self._borrowing_queues(child, skip, contested)

    def _list_queue(
        self,
        preemptor: Preemptor,
        node: int,
        ancestor: int,
        excluded: ExcludedHolders,
        *,
        advantage: bool,
    ) -> Iterator[Candidate]:
        rules = preemptor.queue.preemption
        priority, threshold = preemptor.workload.priority, rules.max_priority_threshold
        for holder in self._finder.list_in_cohort(preemptor, node, excluded):
            reason = PreemptionReason.IN_COHORT_RECLAMATION
            only_without = False
            if not advantage:
                only_without = (
                    rules.borrow_within_cohort is BorrowWithinCohort.NEVER
                    or holder.workload.priority >= priority
                    or (threshold is not None and holder.workload.priority > threshold)
                )
                if not only_without:
                    reason = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
            yield Candidate(Target(holder, reason), ancestor, only_without)

    def _is_under_nominal(self, preemptor: Preemptor) -> bool:
        """Whether the queue uses less than nominal in every contested cell."""
        tree, node = self._tree, preemptor.node
        return all(tree.usage[c][node] < tree.nominal[c][node] for c in preemptor.contested)

    def _attempt(
        self, preemptor: Preemptor, candidates: Iterable[Candidate], *, borrowing: bool
    ) -> list[Target]:
        removed: list[Target] = []
        for candidate in candidates:
            if not self._is_still_valid(preemptor, candidate, borrowing=borrowing):
                continue
            self._tree.remove(candidate.target.holder.node, candidate.target.holder.cells)
            removed.append(candidate.target)
            if preemptor_fits(self._tree, preemptor, borrowing=borrowing):
                return fill_back(self._tree, preemptor, removed, borrowing=borrowing)
        restore_usage(self._tree, removed)
        return []

    def _is_still_valid(
        self, preemptor: Preemptor, candidate: Candidate, *, borrowing: bool
    ) -> bool:
        """A victim is spared once its queue or a cohort above it is back within nominal."""
        holder = candidate.target.holder
        if holder.node == preemptor.node:
            return True
        if borrowing and candidate.only_without_borrowing:
            return False
        for at in self._tree.paths[holder.node]:
            if at == candidate.ancestor:
                return True
            if self._tree.within_nominal(at, preemptor.contested):
                return False
        return True
