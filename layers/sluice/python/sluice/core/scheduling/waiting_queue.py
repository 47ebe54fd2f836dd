"""One ClusterQueue with its pending workloads, in equivalence classes."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.config.budget import covering
from sluice.core.config.model import QueueingStrategy, ReclaimWithinCohort, StopPolicy
from sluice.core.scheduling.backlog import Backlog, ClassHeap, EquivalenceClass
from sluice.core.scheduling.flavor_assigner import may_preempt_while_borrowing
from sluice.core.scheduling.request_shape import compile_shape, shape_key
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Hashable

    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import ClusterQueue, LocalQueue, PodSetInfo, WorkloadInfo
    from sluice.core.config.policy import Policy
    from sluice.core.scheduling.quota import QuotaTree
    from sluice.core.scheduling.request_shape import Shape
    from sluice.core.scheduling.usage_ledger import UsageLedger

# Classes and shapes that nobody waits in are forgotten beyond this many per queue.
MAX_IDLE = 1024


@dataclass(slots=True, eq=False)
class WaitingQueue:
    """A ClusterQueue, what is fixed about it, and its backlog.

    `inactive` says why nothing can be admitted at all, `may_drain` that it or one of its
    LocalQueues is stopped for good. `priced` and `per_user` tell whether
    budgets and caps per user have to keep workloads apart that are equal otherwise.
    """

    node: int
    config: ClusterQueue
    catalog: QueueCatalog
    tree: QuotaTree
    backlog: Backlog
    strict: bool
    by_usage: bool
    reclaims_any: bool
    preempts_while_borrowing: bool
    ignore_undeclared: bool
    priced: bool
    inactive: tuple[Reason, str] | None
    may_drain: bool
    classes: dict[Hashable, EquivalenceClass] = field(default_factory=dict)
    _shapes: dict[Hashable, Shape] = field(default_factory=dict)
    _seen: dict[int, tuple[tuple[PodSetInfo, ...], Shape]] = field(default_factory=dict)

    def class_for(self, workload: WorkloadInfo) -> EquivalenceClass:
        """The equivalence class of a workload."""
        shape = self._shape(workload.pod_sets)
        user = workload.user if self.config.max_running_per_user is not None else None
        cost: Hashable = None
        if self.priced:
            prices = tuple(sorted(workload.cost_microusd_per_hour.items()))
            cost = (prices, workload.max_runtime_ms)
        key = (shape, workload.priority, workload.local_queue, user, cost)
        eq_class = self.classes.get(key)
        if eq_class is None:
            if len(self.classes) >= MAX_IDLE:
                self.classes = {k: v for k, v in self.classes.items() if v.front() is not None}
            eq_class = EquivalenceClass(
                self.backlog, self._heap_for(workload), shape, workload.priority
            )
            eq_class.limited = self._is_limited(workload)
            self.classes[key] = eq_class
        return eq_class

    def head(self, ledger: UsageLedger, now_ms: int) -> EquivalenceClass | None:
        """The class to nominate next, by past usage where that orders LocalQueues."""
        if not self.by_usage:
            return self.backlog.head(None)
        return self.backlog.head(lambda local_queue: ledger.past_usage(local_queue, now_ms))

    def local_queue(self, workload: WorkloadInfo) -> LocalQueue | None:
        if workload.local_queue is None:
            return None
        return self.catalog.local_queues.get(workload.local_queue)

    def _heap_for(self, workload: WorkloadInfo) -> ClassHeap:
        key = workload.local_queue if self.by_usage else None
        class_heap = self.backlog.heaps.get(key)
        if class_heap is None:
            class_heap = self.backlog.heaps[key] = ClassHeap(key, [])
        return class_heap

    def _is_limited(self, workload: WorkloadInfo) -> bool:
        """Whether a cap, a budget or a stopped LocalQueue can ever keep it waiting."""
        config, local = self.config, self.local_queue(workload)
        return (
            self.priced
            or config.max_running is not None
            or config.max_running_per_user is not None
            or (
                local is not None
                and (local.max_running is not None or local.stop_policy is not StopPolicy.NONE)
            )
        )

    def _shape(self, pod_sets: tuple[PodSetInfo, ...]) -> Shape:
        """Equal pod sets share one shape; the very same object is recognised at once."""
        seen = self._seen.get(id(pod_sets))
        if seen is not None and seen[0] is pod_sets:
            return seen[1]
        key = shape_key(pod_sets)
        shape = self._shapes.get(key)
        if shape is None:
            if len(self._shapes) >= MAX_IDLE:
                used = {eq_class.shape for eq_class in self.classes.values()}
                self._shapes = {k: v for k, v in self._shapes.items() if v in used}
            shape = self._shapes[key] = compile_shape(
                pod_sets,
                self.config,
                self.catalog.flavors,
                self.tree,
                ignore_undeclared=self.ignore_undeclared,
            )
        if len(self._seen) >= MAX_IDLE:
            self._seen.clear()
        self._seen[id(pod_sets)] = (pod_sets, shape)
        return shape


def open_queue(
    config: ClusterQueue, node: int, catalog: QueueCatalog, tree: QuotaTree, policy: Policy
) -> WaitingQueue:
    """An empty queue with the settings that follow from its configuration."""
    aging = policy.aging

    def rank(priority: int, queued_at_ms: int) -> int:
        return -priority if aging is None else queued_at_ms - priority * aging.interval_ms

    locals_here = {
        key: local
        for key, local in catalog.local_queues.items()
        if local.cluster_queue == config.name
    }
    stop_policies = {config.stop_policy, *(local.stop_policy for local in locals_here.values())}
    return WaitingQueue(
        node=node,
        config=config,
        catalog=catalog,
        tree=tree,
        backlog=Backlog(rank),
        strict=config.queueing_strategy is QueueingStrategy.STRICT_FIFO,
        by_usage=policy.admission_fair_sharing is not None and config.usage_based_admission,
        reclaims_any=config.preemption.reclaim_within_cohort is ReclaimWithinCohort.ANY,
        preempts_while_borrowing=may_preempt_while_borrowing(
            config, fair_sharing=policy.fair_sharing is not None
        ),
        ignore_undeclared=policy.ignore_undeclared,
        priced=covering(catalog.budgets, config.name, locals_here),
        inactive=_inactive(config, catalog),
        may_drain=StopPolicy.HOLD_AND_DRAIN in stop_policies,
    )


def _inactive(config: ClusterQueue, catalog: QueueCatalog) -> tuple[Reason, str] | None:
    if config.stop_policy is not StopPolicy.NONE:
        return Reason.QUEUE_CORDONED, f"ClusterQueue {config.name} is stopped"
    if config.namespace_selector is None:
        text = f"ClusterQueue {config.name} has no namespaceSelector and admits no namespace"
        return Reason.QUEUE_INACTIVE, text
    problem = catalog.inactive_reason(config)
    return None if problem is None else (Reason.QUEUE_INACTIVE, problem)
