"""Dominant-resource fair sharing: a node's share, and how shares compare.

Source: Kueue's fair sharing (KEP 1714); a share is borrowed over lendable in thousandths, divided
by the node's weight.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.scheduling.quota import Cells, QuotaTree

MAX_SHARE = 2**63 - 1
Rank: TypeAlias = tuple[int, float]
Order: TypeAlias = tuple[int, int, int, str]  # rank, time, sequence, id of a head


@dataclass(frozen=True, slots=True)
class DominantShare:
    """A node's dominant share.

    `ratio` is in thousandths of what its parent could lend, not yet divided by the weight.
    `borrowed` are the cells used beyond the subtree quota; one without anything lendable has
    ratio 0 and still counts as borrowing.
    """

    ratio: float
    weight: float
    resource: str
    borrowed: frozenset[int]

    @property
    def borrowing(self) -> bool:
        return bool(self.borrowed)

    @property
    def rank(self) -> Rank:
        """Sorts shares; a borrower of weight 0 is above every other node."""
        if self.ratio == 0:
            return (0, 0.0)
        return (1, self.ratio) if self.weight == 0 else (0, self.ratio / self.weight)

    def rounded(self) -> int:
        """The reported value; 9223372036854775807 for a borrower of weight 0."""
        above, value = self.rank
        return MAX_SHARE if above else math.ceil(value)

    def borrows_on(self, cells: Iterable[int]) -> bool:
        return not self.borrowed.isdisjoint(cells)


class DominantShares:
    """Computes shares against the present usage of a tree."""

    def __init__(self, tree: QuotaTree) -> None:
        self._tree = tree
        self._resources: list[str] = sorted({resource for _, resource in tree.cells})
        self._resource_of = [self._resources.index(resource) for _, resource in tree.cells]
        self._lendable = [[0] * len(self._resources) for _ in tree.names]
        for cell, resource in enumerate(self._resource_of):
            for node, amount in enumerate(tree.potential[cell]):
                self._lendable[node][resource] += amount

    def share(self, node: int) -> DominantShare:
        """The share of a node; the root's is 0."""
        tree = self._tree
        weight, parent = tree.weights[node], tree.parent[node]
        if parent < 0:
            return DominantShare(0.0, weight, "", frozenset())
        totals: dict[int, int] = {}
        borrowed = []
        for cell, resource in enumerate(self._resource_of):
            excess = tree.usage[cell][node] - tree.subtree_quota[cell][node]
            if excess > 0:
                totals[resource] = totals.get(resource, 0) + excess
                borrowed.append(cell)
        if not borrowed:
            return DominantShare(0.0, weight, "", frozenset())
        ratio, dominant = 0.0, ""
        for resource in sorted(totals):
            lendable = self._lendable[parent][resource]
            if lendable > 0 and totals[resource] * 1000.0 / lendable > ratio:
                ratio = totals[resource] * 1000.0 / lendable
                dominant = self._resources[resource]
        return DominantShare(ratio, weight, dominant, frozenset(borrowed))


class Tournament:
    """Chooses whose head goes next: at each cohort the child with the lowest share afterwards.

    Compared: not borrowing on the requested cells, lower share, then priority and time. Source:
    Kueue's fair-sharing iterator.
    """

    def __init__(self, tree: QuotaTree, shares: DominantShares) -> None:
        self._tree = tree
        self._shares = shares
        self._heads: dict[int, tuple[Cells, Order]] = {}
        # Per queue, what it shows at each node of its path; kept while its part of the tree is
        # unchanged.
        self._keys: dict[int, list[tuple[bool, Rank, Order]]] = {}

    def enter(self, node: int, cells: Cells, order: Order) -> None:
        """Adds a queue's head, or replaces it."""
        self._heads[node] = (cells, order)
        self._keys.pop(node, None)

    def withdraw(self, node: int) -> None:
        del self._heads[node]
        self._keys.pop(node, None)

    def touch(self, node: int) -> None:
        """Says that usage changed at a queue; shares in other children of the root stay."""
        part = self._tree.paths[node][-2:][0]
        for other in [each for each in self._keys if part in self._tree.paths[each]]:
            del self._keys[other]

    def winner(self) -> int | None:
        """The queue whose head wins, or None without heads."""
        winners: dict[int, tuple[tuple[bool, Rank, Order], int]] = {}
        paths = self._tree.paths
        for node in self._heads:
            if node not in self._keys:
                self._keys[node] = self._show(node)
        involved = {at for node in self._heads for at in paths[node]}
        for at in sorted(involved, reverse=True):  # children before parents
            winner = winners[at][1] if at in winners else at
            parent = self._tree.parent[at]
            if parent < 0:
                return winner
            depth = len(paths[winner]) - len(paths[at])
            candidate = (self._keys[winner][depth], winner)
            if parent not in winners or candidate < winners[parent]:
                winners[parent] = candidate
        return None

    def _show(self, node: int) -> list[tuple[bool, Rank, Order]]:
        """What a head shows at its queue and at each cohort above, as if it were admitted."""
        cells, order = self._heads[node]
        requested = [cell for cell, amount in cells if amount > 0]
        self._tree.add(node, cells)
        shares = [self._shares.share(at) for at in self._tree.paths[node]]
        self._tree.remove(node, cells)
        return [(share.borrows_on(requested), share.rank, order) for share in shares]
