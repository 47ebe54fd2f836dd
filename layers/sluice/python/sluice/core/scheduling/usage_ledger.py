"""The usage ledger of a root: holders, usage in two views, counters, past usage, spending.

While victims still run there are two views. In the future view, the tree that decides, victims are
gone and those they yield to have their place, so that nobody steals it; in the present view victims
still count. An admission needs room in both.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.config.budget import Spending
from sluice.core.scheduling.past_usage import LocalQueueUsage
from sluice.core.scheduling.quota import QuotaTree
from sluice.core.scheduling.quota_holders import HolderIndex, QuotaHolder
from sluice.core.scheduling.request_shape import PODS

if TYPE_CHECKING:
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import Assignment, WorkloadInfo
    from sluice.core.config.policy import Policy
    from sluice.core.scheduling.quota import Cells


NEVER_MS = 0  # before every instant: without a minimum, a clock that is ahead protects nobody


class UsageLedger:
    """All quota that is held below one root."""

    def __init__(self, catalog: QueueCatalog, root: str, policy: Policy) -> None:
        """An empty ledger; raises KeyError if `root` is no root of the catalog."""
        self.tree = QuotaTree(catalog, root)
        self.present: QuotaTree | None = None  # None: the same as the future view
        self.version = 0  # counts changes of the future view
        self.holder_index = HolderIndex(len(self.tree.names))
        self.holders: dict[str, QuotaHolder] = {}
        self.evicting: dict[str, QuotaHolder] = {}
        self.running: dict[int, int] = {}
        self.running_of_user: dict[tuple[int, str | None], int] = {}
        self.running_of_local_queue: dict[str, int] = {}
        self.spending = Spending(catalog.budgets)
        self.past: LocalQueueUsage | None = None
        if policy.admission_fair_sharing is not None:
            weights = {each.key: each.fair_weight_milli for each in catalog.local_queues.values()}
            self.past = LocalQueueUsage(policy.admission_fair_sharing, weights)
        self._min_run_ms = policy.min_run_ms
        self._places: dict[str, tuple[int, Cells]] = {}
        self._queues = [node for node, is_queue in enumerate(self.tree.is_queue) if is_queue]
        self._borrowing: dict[int, tuple[int, tuple[int, ...]]] = {}

    @property
    def now(self) -> QuotaTree:
        """The present view."""
        return self.present or self.tree

    def fits_now(self, node: int, cells: Cells) -> bool:
        """Whether there is room in the present view."""
        return self.present is None or self.present.fits(node, cells)

    def count(
        self,
        node: int,
        workload: WorkloadInfo,
        assignment: Assignment,
        since_ms: int,
        *,
        cells: Cells | None = None,
        new_in_pass: int = 0,
    ) -> QuotaHolder:
        """Adds a holding to both views and all counters.

        `new_in_pass` numbers the pass that admits it; 0 for one that was admitted before.
        """
        tree = self.tree
        if cells is None:
            cells = self._weigh(workload, assignment)
        min_run_ms = max(workload.min_run_ms, self._min_run_ms)
        holder = QuotaHolder(
            workload=workload,
            assignment=assignment,
            node=node,
            cells=cells,
            since_ms=since_ms,
            protected_until_ms=since_ms + min_run_ms if min_run_ms else NEVER_MS,
            checkpointed_at_ms=since_ms,
            has_checkpoint=False,
            admitted_in=new_in_pass,
        )
        tree.add(node, cells)
        if self.present is not None:
            self.present.add(node, cells)
        self.version += 1
        self.holders[workload.id] = holder
        self.holder_index.add(holder)
        self.running[node] = self.running.get(node, 0) + 1
        if workload.user is not None:
            key = (node, workload.user)
            self.running_of_user[key] = self.running_of_user.get(key, 0) + 1
        local = workload.local_queue
        if local is not None:
            self.running_of_local_queue[local] = self.running_of_local_queue.get(local, 0) + 1
            if self.past is not None:
                used = self._per_resource(cells)
                self.past.start(local, used, since_ms, penalty=new_in_pass > 0)
        if self.spending.budgets:
            self.spending.charge(workload, assignment, since_ms)
        return holder

    def release(self, workload_id: str, now_ms: int) -> bool:
        """Takes a holding out of both views and all counters; whether there was one."""
        holder = self.holders.pop(workload_id, None)
        if holder is None:
            return False
        node, workload = holder.node, holder.workload
        if self.evicting.pop(workload_id, None) is None:
            self.tree.remove(node, holder.cells)
            self.holder_index.remove(holder)
        if self.present is not None:
            self.present.remove(node, holder.cells)
            self._join_views()
        self.version += 1
        self.running[node] -= 1
        if workload.user is not None:
            self.running_of_user[node, workload.user] -= 1
        local = workload.local_queue
        if local is not None:
            self.running_of_local_queue[local] -= 1
            if self.past is not None:
                self.past.stop(local, self._per_resource(holder.cells), holder.since_ms, now_ms)
        if self.spending.budgets:
            self.spending.settle(workload_id, now_ms)
        return True

    def evict(self, holder: QuotaHolder) -> None:
        """Takes a holding out of the future view; it stays in the present until its release."""
        self._part_views()
        self.tree.remove(holder.node, holder.cells)
        self.holder_index.remove(holder)
        self.evicting[holder.workload.id] = holder
        self.version += 1

    def keep_place(self, workload_id: str, node: int, cells: Cells) -> None:
        """Counts a waiting workload in the future view only."""
        self._part_views()
        self.tree.add(node, cells)
        self._places[workload_id] = (node, cells)
        self.version += 1

    def give_up_place(self, workload_id: str) -> None:
        self.tree.remove(*self._places.pop(workload_id))
        self.version += 1
        self._join_views()

    def borrowing_queues(self, cell: int) -> tuple[int, ...]:
        """ClusterQueues that use more than their own quota of a cell."""
        version, found = self._borrowing.get(cell, (-1, ()))
        if version != self.version:
            usage, subtree_quota = self.tree.usage[cell], self.tree.subtree_quota[cell]
            found = tuple(node for node in self._queues if usage[node] > subtree_quota[node])
            self._borrowing[cell] = (self.version, found)
        return found

    def past_usage(self, local_queue: str, now_ms: int) -> float:
        """What orders LocalQueues where past usage counts."""
        return 0.0 if self.past is None else self.past.weighted(local_queue, now_ms)

    def _part_views(self) -> None:
        if self.present is None:
            self.present = self.tree.copy_with_usage()

    def _join_views(self) -> None:
        if not self.evicting and not self._places:
            self.present = None

    def _weigh(self, workload: WorkloadInfo, assignment: Assignment) -> Cells:
        """What an assignment weighs; a flavor that the queue no longer has weighs nothing."""
        requests = {pod_set.name: pod_set.requests for pod_set in workload.pod_sets}
        total: dict[int, int] = {}
        for assigned in assignment.pod_sets:
            for resource, flavor in assigned.flavors.items():
                cell = self.tree.cell_index.get((flavor, resource))
                per_pod = 1 if resource == PODS else requests[assigned.name].get(resource, 0)
                if cell is not None:
                    total[cell] = total.get(cell, 0) + per_pod * assigned.count
        return tuple(total.items())

    def _per_resource(self, cells: Cells) -> dict[str, int]:
        total: dict[str, int] = {}
        for cell, amount in cells:
            resource = self.tree.cells[cell][1]
            total[resource] = total.get(resource, 0) + amount
        return total
