"""Preemption by dominant shares: whoever borrows most yields first.

Source: Kueue's fair-sharing preemption (KEP 1714), rules S2-a and S2-b.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.config.model import FairPreemptionStrategy, PreemptionReason, ReclaimWithinCohort
from sluice.core.scheduling.preemption.victims import Target, fill_back, restore_usage

if TYPE_CHECKING:
    from sluice.core.scheduling.dominant_share import DominantShares, Rank
    from sluice.core.scheduling.preemption.candidates import CandidateFinder
    from sluice.core.scheduling.preemption.victims import ExcludedHolders, Preemptor
    from sluice.core.scheduling.quota import QuotaTree
    from sluice.core.scheduling.quota_holders import QuotaHolder


class FairSharingPreemption:
    """Searches victims in the queues whose shares are highest."""

    def __init__(
        self,
        tree: QuotaTree,
        finder: CandidateFinder,
        shares: DominantShares,
        strategies: tuple[FairPreemptionStrategy, ...],
    ) -> None:
        self._tree = tree
        self._finder = finder
        self._shares = shares
        self._strategies = strategies

    def find(self, preemptor: Preemptor, excluded: ExcludedHolders) -> list[Target]:
        """See `VictimSearch`."""
        candidates = self._list_candidates(preemptor, excluded)
        if not candidates:
            return []
        candidates = self._finder.order(candidates, preemptor.now_ms)
        # At equal shares the queue with the first candidate yields first: others before the own.
        candidates.sort(key=lambda holder: holder.node == preemptor.node)
        self._tree.add(preemptor.node, preemptor.cells)  # shares include the newcomer
        search = _ShareSearch(self._tree, self._shares, preemptor)
        fits, retry = search.first_strategy(candidates, self._strategies[0])
        if not fits and len(self._strategies) > 1:
            fits = search.second_strategy(retry)
        self._tree.remove(preemptor.node, preemptor.cells)
        if not fits:
            restore_usage(self._tree, search.targets)
            return []
        return fill_back(self._tree, preemptor, search.targets, borrowing=True)

    def _list_candidates(
        self, preemptor: Preemptor, excluded: ExcludedHolders
    ) -> list[QuotaHolder]:
        tree = self._tree
        found = list(self._finder.list_own(preemptor, excluded))
        if preemptor.queue.preemption.reclaim_within_cohort is ReclaimWithinCohort.NEVER:
            return found
        for node, is_queue in enumerate(tree.is_queue):
            if not is_queue or node == preemptor.node:
                continue
            if not tree.within_nominal(node, preemptor.contested):
                found.extend(self._finder.list_in_cohort(preemptor, node, excluded))
        return found


class _ShareSearch:
    """One search with the preemptor's usage already added to the tree."""

    def __init__(self, tree: QuotaTree, shares: DominantShares, preemptor: Preemptor) -> None:
        self._tree = tree
        self._shares = shares
        self._preemptor = preemptor
        self._ancestors = set(tree.paths[preemptor.node])
        self.targets: list[Target] = []

    def first_strategy(
        self, found: list[QuotaHolder], strategy: FairPreemptionStrategy
    ) -> tuple[bool, list[QuotaHolder]]:
        """Returns whether the preemptor fits, and the candidates to try once more."""
        within_nominal = self._tree.within_nominal(self._preemptor.node, self._preemptor.contested)
        order = _QueueOrder(self._tree, self._shares, self._preemptor, found)
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
                holder = order.pop(node)
                if self._passes(strategy, holder, theirs, new_share, old_share):
                    if self._take(holder, PreemptionReason.IN_COHORT_FAIR_SHARING):
                        return True, []
                    break  # shares changed, another queue may have the highest now
                retry.append(holder)
        return False, retry

    def second_strategy(self, retry: list[QuotaHolder]) -> bool:
        """Rule S2-b: at most one more victim of each queue whose share was higher before."""
        order = _QueueOrder(self._tree, self._shares, self._preemptor, retry)
        while (node := order.next_queue()) is not None:
            mine, theirs = self._below_common_ancestor(node)
            holder = order.pop(node)
            if self._shares.share(mine).rank < self._shares.share(theirs).rank and self._take(
                holder, PreemptionReason.IN_COHORT_FAIR_SHARING
            ):
                return True
            order.drop(node)
        return False

    def _passes(
        self,
        strategy: FairPreemptionStrategy,
        holder: QuotaHolder,
        theirs: int,
        new_share: Rank,
        old_share: Rank,
    ) -> bool:
        if strategy is FairPreemptionStrategy.LESS_THAN_INITIAL_SHARE:
            return new_share < old_share
        self._tree.remove(holder.node, holder.cells)
        final_share = self._shares.share(theirs).rank
        self._tree.add(holder.node, holder.cells)
        return new_share <= final_share

    def _take(self, holder: QuotaHolder, reason: PreemptionReason) -> bool:
        """Removes a victim; whether the preemptor fits now."""
        tree, preemptor = self._tree, self._preemptor
        tree.remove(holder.node, holder.cells)
        self.targets.append(Target(holder, reason))
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


class _QueueOrder:
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
        for holder in reversed(found):
            self._left.setdefault(holder.node, []).append(holder)
        self._position = {holder.workload.id: index for index, holder in enumerate(found)}
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
