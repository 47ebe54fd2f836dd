"""Preemption: the smallest set of running workloads that must yield to a waiting one.

Victims that were chosen earlier and whose pods still run are no candidates: their quota already
counts as free in the tree that is searched. Source: Kueue's classical preemption with hierarchical
advantage, and its fair-sharing preemption.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from sluice.core.config.model import (
    BorrowWithinCohort,
    FairPreemptionStrategy,
    PreemptionReason,
    ReclaimWithinCohort,
    WithinClusterQueue,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping

    from sluice.core.config.model import Assignment, ClusterQueue, Policy, WorkloadInfo
    from sluice.core.scheduling.dominant_share import DominantShares, Rank
    from sluice.core.scheduling.preemption_history import PreemptionHistory
    from sluice.core.scheduling.quota import Cells, QuotaTree

SortKey: TypeAlias = tuple[Any, ...]


@dataclass(slots=True, eq=False)
class QuotaHolder:
    """A workload that holds quota, as the tree counts it.

    It may be evicted from `protected_until_ms` on; work since `saved_at_ms` would be lost.
    `admitted_in` numbers the pass that admitted it: no pass evicts what it admitted itself.
    """

    workload: WorkloadInfo
    assignment: Assignment
    node: int
    cells: Cells
    since_ms: int
    protected_until_ms: int
    saved_at_ms: int
    has_checkpoint: bool
    admitted_in: int = 0

    def uses(self, cells: frozenset[int]) -> bool:
        return any(cell in cells for cell, _ in self.cells)

    def lost_work(self, now_ms: int) -> int:
        """Work that an eviction now would lose: milliseconds times resource units."""
        return (now_ms - self.saved_at_ms) * sum(amount for _, amount in self.cells)


class HolderIndex:
    """The evictable and other holdings of each ClusterQueue, by priority."""

    def __init__(self, size: int) -> None:
        self._by_priority: list[dict[int, dict[str, QuotaHolder]]] = [{} for _ in range(size)]

    def add(self, held: QuotaHolder) -> None:
        of_queue = self._by_priority[held.node]
        of_queue.setdefault(held.workload.priority, {})[held.workload.id] = held

    def remove(self, held: QuotaHolder) -> None:
        of_queue = self._by_priority[held.node]
        same = of_queue[held.workload.priority]
        del same[held.workload.id]
        if not same:
            del of_queue[held.workload.priority]

    def exposed(
        self, node: int, priority: int, now_ms: int, *, equal: bool
    ) -> tuple[bool, int | None]:
        """Whether a queue holds anything of lower (or equal) priority that is not protected.

        If not: when the first protection of such a holding ends, or None.
        """
        first_end: int | None = None
        for value, same in self._by_priority[node].items():
            if value > priority or (value == priority and not equal):
                continue
            for held in same.values():  # the longest running first, so this is short
                end = held.protected_until_ms
                if end <= now_ms:
                    return True, None
                if first_end is None or end < first_end:
                    first_end = end
        return False, first_end

    def up_to(self, node: int, priority: int | None) -> Iterator[QuotaHolder]:
        """Holdings of a queue with at most this priority (None: all)."""
        for value, same in self._by_priority[node].items():
            if priority is None or value <= priority:
                yield from same.values()


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting workload that may evict others for `cells`; `contested` are those short of room."""

    node: int
    queue: ClusterQueue
    workload: WorkloadInfo
    cells: Cells
    contested: frozenset[int]


@dataclass(frozen=True, slots=True)
class Target:
    """A victim and Kueue's reason for it."""

    held: QuotaHolder
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Candidate:
    """A possible victim; `ancestor` is the lowest common one with the preemptor."""

    target: Target
    ancestor: int
    only_without_borrowing: bool


class VictimSearch:
    """Finds victims in a tree; leaves usage as it found it."""

    def __init__(
        self,
        tree: QuotaTree,
        shares: DominantShares,
        holdings: HolderIndex,
        policy: Policy,
        local_queue_usage: Callable[[WorkloadInfo], float],
        history: PreemptionHistory,
        usage_based: frozenset[int] = frozenset(),
    ) -> None:
        """`usage_based` are the queues in which past usage orders LocalQueues."""
        self._tree = tree
        self._usage_based = usage_based
        self._history = history
        self._shares = shares
        self._holdings = holdings
        self._fair_sharing = policy.fair_sharing
        self._local_queue_usage = (
            local_queue_usage if policy.admission_fair_sharing is not None else None
        )
        self._weigh_lost_work = policy.prefer_least_lost_work
        # When the first protection ends that kept a search from a candidate; the caller resets it.
        self.next_end_ms: int | None = None
        # The pass that searches, and whether it left out a candidate that it admitted itself.
        self.pass_number = 0
        self.spared_new = False

    def find(self, preemptor: Preemptor, now_ms: int) -> list[Target]:
        """A locally minimal set of victims that makes the preemptor fit; empty if there is none."""
        if self._fair_sharing is not None:
            return self._fair(preemptor, self._fair_sharing.preemption_strategies, now_ms)
        return self._classical(preemptor, now_ms)

    def note_protection(self, end_ms: int | None) -> None:
        """Remembers when a protection ends that stood in the way."""
        if end_ms is not None and (self.next_end_ms is None or end_ms < self.next_end_ms):
            self.next_end_ms = end_ms

    # Candidates

    def _allowed(
        self,
        preemptor: Preemptor,
        node: int,
        rule: WithinClusterQueue | ReclaimWithinCohort,
        now_ms: int,
    ) -> Iterator[QuotaHolder]:
        """Holdings of a queue that a rule lets the preemptor evict."""
        priority = preemptor.workload.priority
        if rule == ReclaimWithinCohort.ANY:
            most, equal = None, True
        elif rule == WithinClusterQueue.LOWER_OR_NEWER_EQUAL_PRIORITY:
            most, equal = priority, True
        else:
            most, equal = priority - 1, False
        queued = preemptor.workload.queued_at_ms
        for held in self._holdings.up_to(node, most):
            if equal and most == held.workload.priority and held.workload.queued_at_ms <= queued:
                continue
            if not held.workload.preemptible or not held.uses(preemptor.contested):
                continue
            if self._history.forbids(preemptor.workload.id, held.workload.id):
                continue
            if held.admitted_in == self.pass_number:
                self.spared_new = True
                continue
            if held.protected_until_ms > now_ms:
                self.note_protection(held.protected_until_ms)
                continue
            yield held

    def _sorted(self, found: list[Candidate], now_ms: int) -> list[Candidate]:
        by_held = {each.target.held.workload.id: each for each in found}
        held = self._in_order([each.target.held for each in found], now_ms)
        return [by_held[each.workload.id] for each in held]

    def _in_order(self, found: list[QuotaHolder], now_ms: int) -> list[QuotaHolder]:
        """Whom to evict first; past use orders those of one queue among themselves only."""
        key = self._key(found, now_ms)
        ordered = sorted(found, key=key)
        usage = self._local_queue_usage
        if usage is None:
            return ordered
        for node in self._usage_based & {held.node for held in found}:
            places = [index for index, held in enumerate(ordered) if held.node == node]
            busiest = sorted((-usage(ordered[i].workload), i) for i in places)
            rearranged = [ordered[i] for _, i in busiest]
            for index, held in zip(places, rearranged, strict=True):
                ordered[index] = held
        return ordered

    def _key(self, found: list[QuotaHolder], now_ms: int) -> Callable[[QuotaHolder], SortKey]:
        """Lower priority, less lost work, newer; own and other queues are told apart elsewhere.

        Without any checkpoint the newest loses least, as in Kueue; with one, work itself counts.
        """
        by_work = self._weigh_lost_work and any(held.has_checkpoint for held in found)

        def key(held: QuotaHolder) -> SortKey:
            workload = held.workload
            return (
                workload.priority,
                held.lost_work(now_ms) if by_work else 0,
                -held.since_ms,
                workload.id,
            )

        return key

    # Classical preemption

    def _classical(self, preemptor: Preemptor, now_ms: int) -> list[Target]:
        hierarchical, by_priority = self._other_queues(preemptor, now_ms)
        own = self._own_queue(preemptor, now_ms)
        candidates = [
            *self._sorted(hierarchical, now_ms),
            *self._sorted(by_priority, now_ms),
            *self._sorted(own, now_ms),
        ]
        if not candidates:
            return []
        may_borrow = preemptor.queue.preemption.borrow_within_cohort is not BorrowWithinCohort.NEVER
        if not (hierarchical or by_priority) or (
            not may_borrow and not self._under_nominal(preemptor)
        ):
            attempts: tuple[bool, ...] = (True,)
        elif not may_borrow and not hierarchical:
            attempts = (False, True)
        else:
            attempts = (True, False)
        for borrowing in attempts:
            if targets := self._attempt(preemptor, candidates, borrowing=borrowing):
                return targets
        return []

    def _own_queue(self, preemptor: Preemptor, now_ms: int) -> list[Candidate]:
        rule = preemptor.queue.preemption.within_cluster_queue
        if rule is WithinClusterQueue.NEVER:
            return []
        reason = PreemptionReason.IN_CLUSTER_QUEUE
        return [
            Candidate(Target(held, reason), preemptor.node, only_without_borrowing=False)
            for held in self._allowed(preemptor, preemptor.node, rule, now_ms)
        ]

    def _other_queues(
        self, preemptor: Preemptor, now_ms: int
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
                found.extend(self._candidates(preemptor, node, at, advantage, now_ms))
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

    def _candidates(
        self, preemptor: Preemptor, node: int, ancestor: int, advantage: bool, now_ms: int
    ) -> Iterator[Candidate]:
        rules = preemptor.queue.preemption
        priority, threshold = preemptor.workload.priority, rules.max_priority_threshold
        for held in self._allowed(preemptor, node, rules.reclaim_within_cohort, now_ms):
            reason = PreemptionReason.IN_COHORT_RECLAMATION
            only_without = False
            if not advantage:
                only_without = (
                    rules.borrow_within_cohort is BorrowWithinCohort.NEVER
                    or held.workload.priority >= priority
                    or (threshold is not None and held.workload.priority > threshold)
                )
                if not only_without:
                    reason = PreemptionReason.IN_COHORT_RECLAIM_WHILE_BORROWING
            yield Candidate(Target(held, reason), ancestor, only_without)

    def _under_nominal(self, preemptor: Preemptor) -> bool:
        """Whether the queue uses less than nominal in every contested cell."""
        tree, node = self._tree, preemptor.node
        return all(tree.usage[c][node] < tree.nominal[c][node] for c in preemptor.contested)

    def _attempt(
        self, preemptor: Preemptor, candidates: Iterable[Candidate], *, borrowing: bool
    ) -> list[Target]:
        removed: list[Target] = []
        for candidate in candidates:
            if not self._still_valid(preemptor, candidate, borrowing=borrowing):
                continue
            self._tree.remove(candidate.target.held.node, candidate.target.held.cells)
            removed.append(candidate.target)
            if self._fits(preemptor, borrowing=borrowing):
                return self._fill_back(preemptor, removed, borrowing=borrowing)
        self._restore(removed)
        return []

    def _still_valid(self, preemptor: Preemptor, candidate: Candidate, *, borrowing: bool) -> bool:
        """A victim is spared once its queue or a cohort above it is back within nominal."""
        held = candidate.target.held
        if held.node == preemptor.node:
            return True
        if borrowing and candidate.only_without_borrowing:
            return False
        for at in self._tree.paths[held.node]:
            if at == candidate.ancestor:
                return True
            if self._tree.within_nominal(at, preemptor.contested):
                return False
        return True

    def _fits(self, preemptor: Preemptor, *, borrowing: bool) -> bool:
        tree, node = self._tree, preemptor.node
        for cell, amount in preemptor.cells:
            if not borrowing and tree.borrows_with(node, cell, amount):
                return False
            if amount > tree.available(node, cell):
                return False
        return True

    def _fill_back(
        self, preemptor: Preemptor, removed: list[Target], *, borrowing: bool
    ) -> list[Target]:
        """Spares, in reverse order, every victim whose return still leaves room; restores usage."""
        tree = self._tree
        kept = [removed[-1]]
        for target in removed[-2::-1]:
            tree.add(target.held.node, target.held.cells)
            if not self._fits(preemptor, borrowing=borrowing):
                tree.remove(target.held.node, target.held.cells)
                kept.append(target)
        self._restore(kept)
        kept.reverse()
        return kept

    def _restore(self, targets: Iterable[Target]) -> None:
        for target in targets:
            self._tree.add(target.held.node, target.held.cells)

    # Fair sharing

    def _fair(
        self,
        preemptor: Preemptor,
        strategies: tuple[FairPreemptionStrategy, ...],
        now_ms: int,
    ) -> list[Target]:
        found = self._fair_candidates(preemptor, now_ms)
        if not found:
            return []
        found = self._in_order(found, now_ms)
        self._tree.add(preemptor.node, preemptor.cells)  # shares include the newcomer
        targets: list[Target] = []
        search = _FairSearch(self._tree, self._shares, preemptor, targets)
        fits, retry = search.first_strategy(found, strategies[0])
        if not fits and len(strategies) > 1:
            fits = search.second_strategy(retry)
        self._tree.remove(preemptor.node, preemptor.cells)
        if not fits:
            self._restore(targets)
            return []
        return self._fill_back(preemptor, targets, borrowing=True)

    def _fair_candidates(self, preemptor: Preemptor, now_ms: int) -> list[QuotaHolder]:
        tree, rules = self._tree, preemptor.queue.preemption
        found: list[QuotaHolder] = []
        if rules.within_cluster_queue is not WithinClusterQueue.NEVER:
            rule = rules.within_cluster_queue
            found.extend(self._allowed(preemptor, preemptor.node, rule, now_ms))
        if rules.reclaim_within_cohort is not ReclaimWithinCohort.NEVER:
            for node, is_queue in enumerate(tree.is_queue):
                if not is_queue or node == preemptor.node:
                    continue
                if not tree.within_nominal(node, preemptor.contested):
                    rule_of_cohort = rules.reclaim_within_cohort
                    found.extend(self._allowed(preemptor, node, rule_of_cohort, now_ms))
        return found


class _FairSearch:
    """One search with the preemptor's usage already added to the tree."""

    def __init__(
        self, tree: QuotaTree, shares: DominantShares, preemptor: Preemptor, targets: list[Target]
    ) -> None:
        self._tree = tree
        self._shares = shares
        self._preemptor = preemptor
        self._ancestors = set(tree.paths[preemptor.node])
        self._targets = targets

    def first_strategy(
        self, found: list[QuotaHolder], strategy: FairPreemptionStrategy
    ) -> tuple[bool, list[QuotaHolder]]:
        """Returns whether the preemptor fits, and the candidates to try once more."""
        within_nominal = self._tree.within_nominal(self._preemptor.node, self._preemptor.contested)
        order = _TargetOrder(self._tree, self._shares, self._preemptor, found)
        retry: list[QuotaHolder] = []
        while (node := order.next_queue()) is not None:
            if node == self._preemptor.node:
                if self._take(order.pop(node), PreemptionReason.IN_CLUSTER_QUEUE):
                    return True, []
                continue
            if within_nominal:
                if self._take(order.pop(node), PreemptionReason.IN_COHORT_RECLAMATION):
                    return True, []
                continue
            mine, theirs = self._below_common_ancestor(node)
            new_share = self._shares.share(mine).rank
            old_share = self._shares.share(theirs).rank
            while order.has_candidates(node):
                held = order.pop(node)
                if self._passes(strategy, held, theirs, new_share, old_share):
                    if self._take(held, PreemptionReason.IN_COHORT_FAIR_SHARING):
                        return True, []
                    break  # shares changed, another queue may have the highest now
                retry.append(held)
        return False, retry

    def second_strategy(self, retry: list[QuotaHolder]) -> bool:
        """Rule S2-b: at most one more victim of each queue whose share was higher before."""
        order = _TargetOrder(self._tree, self._shares, self._preemptor, retry)
        while (node := order.next_queue()) is not None:
            mine, theirs = self._below_common_ancestor(node)
            held = order.pop(node)
            if self._shares.share(mine).rank < self._shares.share(theirs).rank and self._take(
                held, PreemptionReason.IN_COHORT_FAIR_SHARING
            ):
                return True
            order.drop(node)
        return False

    def _passes(
        self,
        strategy: FairPreemptionStrategy,
        held: QuotaHolder,
        theirs: int,
        new_share: Rank,
        old_share: Rank,
    ) -> bool:
        if strategy is FairPreemptionStrategy.LESS_THAN_INITIAL_SHARE:
            return new_share < old_share
        self._tree.remove(held.node, held.cells)
        final_share = self._shares.share(theirs).rank
        self._tree.add(held.node, held.cells)
        return new_share <= final_share

    def _take(self, held: QuotaHolder, reason: PreemptionReason) -> bool:
        """Removes a victim; whether the preemptor fits now."""
        tree, preemptor = self._tree, self._preemptor
        tree.remove(held.node, held.cells)
        self._targets.append(Target(held, reason))
        tree.remove(preemptor.node, preemptor.cells)
        fits = tree.fits(preemptor.node, preemptor.cells)
        tree.add(preemptor.node, preemptor.cells)
        return fits

    def _below_common_ancestor(self, node: int) -> tuple[int, int]:
        """The nodes just below the lowest common ancestor: the preemptor's and the target's."""
        tree = self._tree
        theirs = node
        while tree.parent[theirs] not in self._ancestors:
            theirs = tree.parent[theirs]
        common = tree.parent[theirs]
        mine = self._preemptor.node
        while tree.parent[mine] != common:
            mine = tree.parent[mine]
        return mine, theirs


class _TargetOrder:
    """Walks down from the root into the child with the highest share, again and again."""

    def __init__(
        self,
        tree: QuotaTree,
        shares: DominantShares,
        preemptor: Preemptor,
        found: list[QuotaHolder],
    ) -> None:
        self._tree = tree
        self._shares = shares
        self._node = preemptor.node
        self._ancestors = set(tree.paths[preemptor.node])
        self._left: dict[int, list[QuotaHolder]] = {}
        for held in reversed(found):
            self._left.setdefault(held.node, []).append(held)
        self._position = {held.workload.id: index for index, held in enumerate(found)}
        self._dropped: set[int] = set()

    def has_candidates(self, node: int) -> bool:
        return bool(self._left.get(node))

    def pop(self, node: int) -> QuotaHolder:
        return self._left[node].pop()

    def drop(self, node: int) -> None:
        self._dropped.add(node)

    def next_queue(self) -> int | None:
        """The queue to take the next victim from, or None if there is none left."""
        root = self._tree.paths[self._node][-1]
        if root == self._node:
            return root if self.has_candidates(root) and root not in self._dropped else None
        while root not in self._dropped:
            at = root
            while not self._tree.is_queue[at]:
                below = self._highest(at)
                if below is None:
                    self._dropped.add(at)
                    break
                at = below
            else:
                return at
        return None

    def _highest(self, cohort: int) -> int | None:
        """The child with the highest share; cohorts before queues where shares are equal."""
        best: tuple[Rank, int, int] | None = None
        chosen: int | None = None
        for child in self._tree.children[cohort]:
            if child in self._dropped:
                continue
            share = self._shares.share(child)
            if self._tree.is_queue[child]:
                if not self.has_candidates(child) or not (share.borrowing or child == self._node):
                    self._dropped.add(child)
                    continue
                rank = (share.rank, 0, -self._position[self._left[child][-1].workload.id])
            else:
                if not share.borrowing and child not in self._ancestors:
                    self._dropped.add(child)
                    continue
                rank = (share.rank, 1, child)
            if best is None or rank > best:
                best, chosen = rank, child
        return chosen
