"""The quota tree: who may use, lend and borrow how much; all of Kueue's arithmetic in one file.

A node is a ClusterQueue (a leaf) or a Cohort. A cell is one (flavor, resource) pair. Both are
integers here, so that a walk to the root is a few list accesses; amounts are in the resource's
integer unit. Source: Kueue's quota model with borrowing limits, lending limits and nested cohorts.
"""

from __future__ import annotations

from copy import copy
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import ResourceGroup

Usage: TypeAlias = list[list[int]]
Cells: TypeAlias = tuple[tuple[int, int], ...]  # (cell, amount) of one assignment


class QuotaTree:
    """Quota and usage of every node below one root.

    `usage[cell][node]` counts against the node's subtree quota: all of a ClusterQueue's usage, and
    for a Cohort what its children use beyond their local quota. `subtree_quota` is what a node and
    its children have, without what these do not lend. `local_quota` is what a node does not lend.
    `potential` is what a node could use if nothing else ran.
    """

    def __init__(self, catalog: QueueCatalog, root: str) -> None:
        """Builds the nodes below `root`; raises KeyError if it is no root of the catalog."""
        self.names: list[str] = []
        self.parent: list[int] = []
        self.is_queue: list[bool] = []
        self.weights: list[float] = []
        self.index: dict[str, int] = {}
        self.cells: list[tuple[str, str]] = []
        self.cell_index: dict[tuple[str, str], int] = {}
        self._add_nodes(catalog, root)
        size = len(self.names)
        self.children: list[list[int]] = [[] for _ in range(size)]
        for node, parent in enumerate(self.parent):
            if parent >= 0:
                self.children[parent].append(node)
        self.paths: list[tuple[int, ...]] = [self._path(node) for node in range(size)]
        self.heights: list[int] = [0] * size
        for node in reversed(range(size)):
            self.heights[node] = max(
                (self.heights[kid] + 1 for kid in self.children[node]), default=0
            )
        self.is_flat = max(self.heights) <= 1
        self._add_quotas(catalog)
        self.usage: Usage = [[0] * size for _ in self.cells]

    def _add_nodes(self, catalog: QueueCatalog, root: str) -> None:
        """Numbers nodes so that a parent precedes its children, whatever the order of input."""
        if root in catalog.cluster_queues and catalog.cluster_queues[root].cohort is None:
            self._add_node(root, -1, is_queue=True, weight_milli=1000)
            return
        below: dict[str | None, list[str]] = {}
        for name, cohort in sorted(catalog.cohorts.items()):
            if catalog.root_of_cohort(name) == root and name != root:
                below.setdefault(cohort.parent, []).append(name)
        self._add_node(
            root, -1, is_queue=False, weight_milli=catalog.cohorts[root].fair_weight_milli
        )
        todo = [root]
        while todo:
            parent = todo.pop()
            for name in below.get(parent, ()):
                weight = catalog.cohorts[name].fair_weight_milli
                self._add_node(name, self.index[parent], is_queue=False, weight_milli=weight)
                todo.append(name)
        for name, queue in sorted(catalog.cluster_queues.items()):
            if queue.cohort is not None and catalog.root_of_cohort(queue.cohort) == root:
                parent_index = self.index[queue.cohort]
                weight = queue.fair_weight_milli
                self._add_node(name, parent_index, is_queue=True, weight_milli=weight)

    def _add_node(self, name: str, parent: int, *, is_queue: bool, weight_milli: float) -> None:
        self.index[name] = len(self.names)
        self.names.append(name)
        self.parent.append(parent)
        self.is_queue.append(is_queue)
        self.weights.append(weight_milli / 1000)

    def _path(self, node: int) -> tuple[int, ...]:
        """The node and its ancestors, root last."""
        path = [node]
        while self.parent[path[-1]] >= 0:
            path.append(self.parent[path[-1]])
        return tuple(path)

    def _add_quotas(self, catalog: QueueCatalog) -> None:
        size = len(self.names)
        self.nominal: Usage = []
        self._declared: list[set[int]] = []
        self.borrowing_limit: list[list[int | None]] = []
        self.lending_limit: list[list[int | None]] = []
        for node, name in enumerate(self.names):
            owner = catalog.cluster_queues if self.is_queue[node] else catalog.cohorts
            for cell, nominal, borrowing, lending in self._quotas(owner[name].resource_groups):
                self._declared[cell].add(node)
                self.nominal[cell][node] = nominal
                self.borrowing_limit[cell][node] = borrowing
                self.lending_limit[cell][node] = lending
        self.subtree_quota: Usage = [list(row) for row in self.nominal]
        self.local_quota: Usage = [[0] * size for _ in self.cells]
        for cell in range(len(self.cells)):
            for node in reversed(range(size)):  # children before parents
                lending = self.lending_limit[cell][node]
                if lending is not None:
                    self.local_quota[cell][node] = max(0, self.subtree_quota[cell][node] - lending)
                if self.parent[node] >= 0:
                    stored_in_parent = self.subtree_quota[cell][node] - self.local_quota[cell][node]
                    self.subtree_quota[cell][self.parent[node]] += stored_in_parent
        self.potential: Usage = [list(row) for row in self.subtree_quota]
        for cell in range(len(self.cells)):
            for node in range(1, size):
                most = self.local_quota[cell][node] + self.potential[cell][self.parent[node]]
                limit = self.borrowing_limit[cell][node]
                if limit is not None:
                    most = min(most, self.subtree_quota[cell][node] + limit)
                self.potential[cell][node] = most

    def _quotas(
        self, groups: tuple[ResourceGroup, ...]
    ) -> Iterable[tuple[int, int, int | None, int | None]]:
        for group in groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources.items():
                    cell = self._cell(flavor.name, resource)
                    yield cell, quota.nominal, quota.borrowing_limit, quota.lending_limit

    def _cell(self, flavor: str, resource: str) -> int:
        cell = self.cell_index.setdefault((flavor, resource), len(self.cells))
        if cell == len(self.cells):
            size = len(self.names)
            self.cells.append((flavor, resource))
            self._declared.append(set())
            self.nominal.append([0] * size)
            self.borrowing_limit.append([None] * size)
            self.lending_limit.append([None] * size)
        return cell

    def copy_with_usage(self) -> QuotaTree:
        """The same nodes and quota with a usage of its own, equal at first."""
        other = copy(self)
        other.usage = [list(row) for row in self.usage]
        return other

    def available(self, node: int, cell: int) -> int:
        """What the node may still use; negative after a quota cut.

        Computed from the root down: at each node, what its parent has available, at most what the
        borrowing limit allows, plus the node's unused local quota.
        """
        usage, subtree_quota = self.usage[cell], self.subtree_quota[cell]
        local_quota, borrowing_limit = self.local_quota[cell], self.borrowing_limit[cell]
        path = self.paths[node]
        root = path[-1]
        available = subtree_quota[root] - usage[root]
        for at in path[-2::-1]:
            local, used = local_quota[at], usage[at]
            limit = borrowing_limit[at]
            if limit is not None:
                stored_in_parent = subtree_quota[at] - local
                used_in_parent = used - local if used > local else 0
                available = min(available, stored_in_parent - used_in_parent + limit)
            if local > used:
                available += local - used
        return available

    def fits(self, node: int, cells: Cells) -> bool:
        """Whether the node may use all of these amounts at once; 0 fits even beside debt."""
        for cell, amount in cells:  # noqa: SIM110, the hottest question: no generator
            if amount and amount > self.available(node, cell):
                return False
        return True

    def possible(self, node: int, cells: Cells) -> bool:
        """Whether the node could ever use all of these amounts at once."""
        return all(amount <= self.potential[cell][node] for cell, amount in cells)

    def add(self, node: int, cells: Cells) -> None:
        """Counts usage at a node; what exceeds its unused local quota counts at its parent, too."""
        path = self.paths[node]
        for cell, amount in cells:
            usage, local_quota = self.usage[cell], self.local_quota[cell]
            for at in path:
                local_available = local_quota[at] - usage[at]
                usage[at] += amount
                if local_available > 0:
                    if amount <= local_available:
                        break
                    amount -= local_available  # noqa: PLW2901, the rest counts at the parent

    def remove(self, node: int, cells: Cells) -> None:
        """Undoes `add` of the same amounts, in any order of additions and removals."""
        path = self.paths[node]
        for cell, amount in cells:
            usage, local_quota = self.usage[cell], self.local_quota[cell]
            for at in path:
                used_in_parent = usage[at] - local_quota[at]
                usage[at] -= amount
                if used_in_parent <= 0:
                    break
                amount = min(amount, used_in_parent)  # noqa: PLW2901, the parent counts no more

    def declares(self, node: int, cell: int) -> bool:
        """Whether the node itself has quota for the cell, be it 0."""
        return node in self._declared[cell]

    def local_available(self, node: int, cell: int) -> int:
        """Unused quota that the node does not lend."""
        return max(0, self.local_quota[cell][node] - self.usage[cell][node])

    def borrows_with(self, node: int, cell: int, amount: int) -> bool:
        """Whether so much more would take the node beyond its subtree quota."""
        return self.usage[cell][node] + amount > self.subtree_quota[cell][node]

    def within_nominal(self, node: int, cells: Iterable[int]) -> bool:
        """Whether the node uses at most its subtree quota in each of the cells."""
        for cell in cells:  # noqa: SIM110, asked of every queue of a cohort: no generator
            if self.usage[cell][node] > self.subtree_quota[cell][node]:
                return False
        return True

    def borrowing_level(self, node: int, cell: int, amount: int) -> tuple[int, bool]:
        """Height of the smallest subtree whose quota holds the amount, and whether it has a parent.

        Without such a subtree: the height of the whole tree, and False.
        """
        usage, subtree_quota = self.usage[cell], self.subtree_quota[cell]
        local_quota = self.local_quota[cell]
        has_parent = self.parent[node] >= 0
        if usage[node] + amount <= subtree_quota[node] or not has_parent:
            return 0, has_parent
        path = self.paths[node]
        rest = amount
        for at in path:
            if usage[at] + rest <= subtree_quota[at]:
                return self.heights[at], self.parent[at] >= 0
            local_available = local_quota[at] - usage[at]
            if local_available > 0:
                rest -= local_available
        return self.heights[path[-1]], False
