"""Admission to one root cohort: the state between passes, the passes, and questions about both."""

from __future__ import annotations

from copy import deepcopy
from types import MappingProxyType
from typing import TYPE_CHECKING

from sluice.core.scheduling.admission_pass import AdmissionPass, PassContext
from sluice.core.scheduling.dominant_share import DominantShares
from sluice.core.scheduling.explanation import explain
from sluice.core.scheduling.pending_workloads import PendingWorkloads
from sluice.core.scheduling.plan import Admission, Plan, PreemptionStep, Refusal
from sluice.core.scheduling.preemption.candidates import CandidateFinder
from sluice.core.scheduling.preemption.classical import ClassicalPreemption
from sluice.core.scheduling.preemption.fair_sharing import FairSharingPreemption
from sluice.core.scheduling.preemption_history import PreemptionHistory
from sluice.core.scheduling.usage_ledger import UsageLedger
from sluice.core.scheduling.waiting_queue import open_queue
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.config.model import Holding, WorkloadInfo
    from sluice.core.config.policy import Policy
    from sluice.core.scheduling.backlog import EquivalenceClass
    from sluice.core.scheduling.past_usage import PastUsage
    from sluice.core.scheduling.preemption.victims import VictimSearch
    from sluice.core.scheduling.quota import QuotaTree

__all__ = ["Admission", "Plan", "PreemptionStep", "Refusal", "Scheduler"]


class Scheduler:
    """The quota tree, holdings and backlog of one root cohort, kept between passes.

    A victim keeps its quota until the caller says `release`; what it gives back is kept for the
    workload that it yields to.
    """

    def __init__(self, catalog: QueueCatalog, root: str, policy: Policy) -> None:
        """Takes a root of `catalog.roots()`; raises KeyError for any other name."""
        self.root = root
        self._catalog = catalog
        self._policy = policy
        self._ledger = ledger = UsageLedger(catalog, root, policy)
        tree = ledger.tree
        self._shares = DominantShares(tree)
        self._history = PreemptionHistory()
        self._pending = PendingWorkloads(
            {
                name: open_queue(catalog.cluster_queues[name], node, catalog, tree, policy)
                for name, node in tree.index.items()
                if tree.is_queue[node]
            }
        )
        self._context = PassContext(
            policy=policy,
            ledger=ledger,
            pending=self._pending,
            shares=self._shares,
            search=self._victim_search(),
            history=self._history,
        )
        self._pass_number = 0
        self._now_ms = 0
        self._freed = False
        self._changed = True
        self._stood_back: set[EquivalenceClass] = set()  # in the last pass

    def _victim_search(self) -> VictimSearch:
        tree, policy = self._ledger.tree, self._policy
        finder = CandidateFinder(
            self._ledger.holder_index,
            self._history,
            weigh_lost_work=policy.prefer_least_lost_work,
            local_queue_usage=(
                None if policy.admission_fair_sharing is None else self._past_usage_behind
            ),
            usage_based=frozenset(
                node
                for name, node in tree.index.items()
                if tree.is_queue[node] and self._catalog.cluster_queues[name].usage_based_admission
            ),
        )
        if policy.fair_sharing is None:
            return ClassicalPreemption(tree, finder)
        strategies = policy.fair_sharing.preemption_strategies
        return FairSharingPreemption(tree, finder, self._shares, strategies)

    # Work comes and goes

    def enqueue(self, workload: WorkloadInfo, *, parked: bool = False) -> None:
        """Adds a waiting workload, or replaces the waiting one of the same id.

        `parked` says that an earlier pass refused it and nothing was released since.
        Raises KeyError for a ClusterQueue that is not below this root.
        """
        self.remove(workload.id)
        if not self._history.has_yielded(workload.id):
            self._history.forget()  # a newcomer
        if self._pending.enter(workload, parked=parked):
            self._changed = True

    def make_room_for(self, workload_id: str) -> None:
        """Notes that others were evicted for a waiting workload before this state was built.

        What they give back is kept for it (or an equal one ahead of it) before anybody else.
        """
        self._pending.made_room_for[workload_id] = None

    def note_yield(self, victim: str, preemptor: str) -> None:
        """Notes that `victim` yielded to `preemptor` lately, so that it may not evict it in turn.

        To be called after `enqueue`, since a new workload clears the history.
        """
        self._history.note(victim, preemptor)

    def hold(self, holding: Holding) -> None:
        """Counts a workload that already holds quota, even beyond quota, as after a quota cut."""
        workload = holding.workload
        node = self._pending.queues[workload.cluster_queue].node
        holder = self._ledger.count(node, workload, holding.assignment, holding.since_ms)
        if holding.checkpoint_at_ms is not None:
            self.checkpointed(workload.id, holding.checkpoint_at_ms)
        if holding.evicting:
            self._ledger.evict(holder)
        self._changed = True

    def checkpointed(self, workload_id: str, at_ms: int) -> None:
        """Notes a durable checkpoint of an admitted workload; unknown ids are ignored."""
        holder = self._ledger.holders.get(workload_id)
        if holder is not None:
            holder.checkpointed_at_ms = max(holder.checkpointed_at_ms, at_ms)
            holder.has_checkpoint = True

    def release(self, workload_id: str, now_ms: int | None = None) -> None:
        """Gives back the quota of a finished or stopped workload; unknown ids are ignored.

        `now_ms` is when it stopped, for past usage and budgets; by default the last pass.
        """
        at_ms = self._now_ms if now_ms is None else now_ms
        if workload_id in self._ledger.holders and workload_id not in self._ledger.evicting:
            self._history.forget()  # it finished
        self._freed = self._ledger.release(workload_id, at_ms) or self._freed

    def remove(self, workload_id: str) -> None:
        """Forgets a waiting workload; unknown ids are ignored."""
        if self._pending.preemptors.pop(workload_id, None) is not None:
            self._ledger.give_up_place(workload_id)
            self._freed = True
        else:
            self._pending.leave(workload_id)

    def set_local_queue_usage(
        self, local_queue: str, consumed: Mapping[str, float], at_ms: int
    ) -> None:
        """Sets past usage per resource; without admission fair sharing it counts for nothing."""
        if self._ledger.past is not None:
            self._ledger.past.set_consumed(local_queue, consumed, at_ms)

    def set_account(self, local_queue: str, account: PastUsage) -> None:
        """Replaces all that is known of a LocalQueue's past usage, present use included."""
        if self._ledger.past is not None:
            self._ledger.past.set_account(local_queue, account)

    def set_spent(self, budget: str, microusd: int, now_ms: int) -> None:
        """Sets what the present window of a budget has cost; raises KeyError if there is none."""
        budgets = {each.name: each for each in self._catalog.budgets}
        self._ledger.spending.set_spent(budgets[budget], microusd, now_ms)

    # The pass

    def run_pass(self, now_ms: int, *, explain: bool = False) -> Plan:
        """Decides for every queue; admitted workloads hold quota afterwards.

        The same state and time give the same plan. With `explain` the plan says why the refused
        ones wait, which costs more than the decision.
        """
        self._now_ms = now_ms
        self._pass_number += 1
        for workload in self._pending.open_gates(now_ms):
            self.enqueue(workload)
        result = AdmissionPass(self._context, now_ms, self._pass_number).run(freed=self._freed)
        # Whom the pass admitted itself, the next one may evict for somebody that it set aside.
        self._freed = result.spared_new
        self._changed, self._stood_back = result.unfinished, result.stood_back
        return Plan(
            tuple(result.admissions),
            tuple(result.preemptions),
            MappingProxyType(self._refusals(result.refused) if explain else {}),
        )

    def has_candidates(self) -> bool:
        """Whether another pass at the same time could decide anything."""
        return self._changed or self._freed

    def next_wakeup_ms(self) -> int | None:
        """When time alone can change a decision: a gate opens, a protection or a window ends."""
        times = (*self._context.wakeups[:1], *self._pending.next_gate_ms())
        return min(times, default=None)

    def _past_usage_behind(self, workload: WorkloadInfo) -> float:
        if workload.local_queue is None:
            return 0.0
        return self._ledger.past_usage(workload.local_queue, self._now_ms)

    # Questions

    def why(self, workload_id: str) -> Refusal:
        """Why a waiting workload waits; raises KeyError if it does not wait here."""
        queue = self._pending.waiting_in.get(workload_id)
        if queue is None:
            return self._why_outside_the_order(workload_id)
        item = queue.backlog.waiting[workload_id]
        ahead, first = queue.backlog.ahead_of(item)
        reason, text = explain(
            self._ledger,
            queue,
            item[4],
            item[3],
            head=queue.head(self._ledger, self._now_ms),
            shares=self._shares if self._policy.fair_sharing is not None else None,
            settled=not self.has_candidates() or (item[4] in self._stood_back and not self._freed),
            now_ms=self._now_ms,
        )
        if first is not None:
            text = f"{text}; {ahead} ahead in ClusterQueue {queue.config.name}, first {first}"
        return Refusal(workload_id, queue.config.name, reason, text, ahead)

    def _why_outside_the_order(self, workload_id: str) -> Refusal:
        pending = self._pending
        if workload_id in pending.preemptors:
            workload, reason = (
                pending.preemptors[workload_id].workload,
                Reason.WAITING_FOR_PREEMPTED,
            )
            stopping = len(self._ledger.evicting)
            text = "all that were preempted for it have stopped; the next pass admits it"
            if stopping:
                text = f"its place is held until {stopping} preempted workload(s) have stopped"
        elif workload_id in pending.gated:
            workload, gate = pending.gated[workload_id]
            reason, text = Reason(gate.code), gate.message
        else:
            workload, reason = pending.expired[workload_id], Reason.DEADLINE_PASSED
            text = "it was not admitted before its deadline"
        return Refusal(workload_id, workload.cluster_queue, reason, text, 0)

    def _refusals(self, refused: Iterable[EquivalenceClass]) -> dict[str, Refusal]:
        fronts = [front[2] for eq_class in refused if (front := eq_class.front()) is not None]
        ids = dict.fromkeys(
            [*fronts, *self._pending.preemptors, *self._pending.gated, *self._pending.expired]
        )
        return {workload_id: self.why(workload_id) for workload_id in ids}

    def waiting(self) -> int:
        """How many workloads wait, whatever for."""
        return len(self._pending)

    def waiting_ids(self) -> list[str]:
        """Every waiting workload's id, sorted."""
        return self._pending.ids()

    def usage(self, node: str) -> dict[tuple[str, str], int]:
        """Usage of a ClusterQueue or Cohort per (flavor, resource), victims included.

        Covers the cells that the node or what is below it has quota for, and those it uses.
        Raises KeyError for another node.
        """
        return self._per_cell(node, lambda tree, at, cell: tree.usage[cell][at])

    def available(self, node: str) -> dict[tuple[str, str], int]:
        """What the node may still use per (flavor, resource), never below 0."""
        return self._per_cell(node, lambda tree, at, cell: max(0, tree.available(at, cell)))

    def potential(self, node: str) -> dict[tuple[str, str], int]:
        """What the node could use if nothing ran, per (flavor, resource)."""
        return self._per_cell(node, lambda tree, at, cell: tree.potential[cell][at])

    def _per_cell(
        self, node: str, value: Callable[[QuotaTree, int, int], int]
    ) -> dict[tuple[str, str], int]:
        tree = self._ledger.now
        at = tree.index[node]
        return {
            key: value(tree, at, cell)
            for cell, key in enumerate(tree.cells)
            if tree.declares(at, cell) or tree.subtree_quota[cell][at] or tree.usage[cell][at]
        }

    def share(self, node: str) -> tuple[int, str]:
        """Dominant share as Kueue reports it, and its resource; (0, "") if nothing is borrowed."""
        tree = self._ledger.now
        share = DominantShares(tree).share(tree.index[node])
        return share.rounded(), share.resource

    def consumed(self, local_queue: str, now_ms: int) -> dict[str, float]:
        """Faded past usage of a LocalQueue; empty without admission fair sharing."""
        past = self._ledger.past
        return {} if past is None else past.consumed(local_queue, now_ms)

    def spent(self, budget: str, now_ms: int) -> int:
        """Micro-dollars spent or committed in a budget's present window; KeyError if unknown."""
        budgets = {each.name: each for each in self._catalog.budgets}
        return self._ledger.spending.spent(budgets[budget], now_ms)

    def copy(self) -> Scheduler:
        """An independent scheduler in the same state, for what-if questions."""
        known = (self._catalog, self._policy)
        return deepcopy(self, {id(each): each for each in known})
