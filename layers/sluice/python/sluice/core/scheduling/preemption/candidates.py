"""Candidates for eviction: whom the rules of a queue allow, and in which order."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeAlias

from sluice.core.config.model import ReclaimWithinCohort, WithinClusterQueue

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from sluice.core.config.model import WorkloadInfo
    from sluice.core.scheduling.preemption.victims import ExcludedHolders, Preemptor
    from sluice.core.scheduling.preemption_history import PreemptionHistory
    from sluice.core.scheduling.quota_holders import HolderIndex, QuotaHolder

SortKey: TypeAlias = tuple[Any, ...]


class CandidateFinder:
    """Lists and orders the holders that a preemptor may evict."""

    def __init__(
        self,
        holder_index: HolderIndex,
        history: PreemptionHistory,
        *,
        weigh_lost_work: bool,
        local_queue_usage: Callable[[WorkloadInfo], float] | None,
        usage_based: frozenset[int],
    ) -> None:
        """`usage_based` are the queues in which past usage orders LocalQueues.

        `local_queue_usage` is None without admission fair sharing.
        """
        self._holder_index = holder_index
        self._history = history
        self._weigh_lost_work = weigh_lost_work
        self._local_queue_usage = local_queue_usage
        self._usage_based = usage_based

    def list_own(self, preemptor: Preemptor, excluded: ExcludedHolders) -> Iterator[QuotaHolder]:
        """Holders in the preemptor's own queue that `withinClusterQueue` lets it evict."""
        priority = preemptor.workload.priority
        match preemptor.queue.preemption.within_cluster_queue:
            case WithinClusterQueue.NEVER:
                return iter(())
            case WithinClusterQueue.LOWER_OR_NEWER_EQUAL_PRIORITY:
                most = priority
            case _:
                most = priority - 1
        queued = preemptor.workload.queued_at_ms
        return self._list_allowed(preemptor, preemptor.node, most, excluded, queued)

    def list_in_cohort(
        self, preemptor: Preemptor, node: int, excluded: ExcludedHolders
    ) -> Iterator[QuotaHolder]:
        """Holders in another queue that `reclaimWithinCohort` lets the preemptor evict."""
        rule = preemptor.queue.preemption.reclaim_within_cohort
        if rule is ReclaimWithinCohort.NEVER:
            return iter(())
        most = None if rule is ReclaimWithinCohort.ANY else preemptor.workload.priority - 1
        return self._list_allowed(preemptor, node, most, excluded)

    def _list_allowed(
        self,
        preemptor: Preemptor,
        node: int,
        max_priority: int | None,
        excluded: ExcludedHolders,
        newer_than_ms: int | None = None,
    ) -> Iterator[QuotaHolder]:
        """`newer_than_ms` is for holders of the very `max_priority`: older ones stay."""
        for holder in self._holder_index.list_holders(node, max_priority):
            workload = holder.workload
            if (
                newer_than_ms is not None
                and workload.priority == preemptor.workload.priority
                and workload.queued_at_ms <= newer_than_ms
            ):
                continue
            if not workload.preemptible or not holder.uses(preemptor.contested):
                continue
            if self._history.forbids(preemptor.workload.id, workload.id):
                continue
            if holder.admitted_in == preemptor.pass_number:
                excluded.same_pass = True
                continue
            if holder.protected_until_ms > preemptor.now_ms:
                excluded.note_protection(holder.protected_until_ms)
                continue
            yield holder

    def order(self, found: list[QuotaHolder], now_ms: int) -> list[QuotaHolder]:
        """Whom to evict first; past usage orders those of one queue among themselves only."""
        ordered = sorted(found, key=self._sort_key(found, now_ms))
        usage = self._local_queue_usage
        if usage is None:
            return ordered
        for node in self._usage_based & {holder.node for holder in found}:
            places = [index for index, holder in enumerate(ordered) if holder.node == node]
            busiest = sorted((-usage(ordered[i].workload), i) for i in places)
            rearranged = [ordered[i] for _, i in busiest]
            for index, holder in zip(places, rearranged, strict=True):
                ordered[index] = holder
        return ordered

    def _sort_key(self, found: list[QuotaHolder], now_ms: int) -> Callable[[QuotaHolder], SortKey]:
        """Lower priority, less lost work, newer reservation.

        Without any checkpoint the newest loses least, as in Kueue; with one, work itself counts.
        """
        by_work = self._weigh_lost_work and any(holder.has_checkpoint for holder in found)

        def key(holder: QuotaHolder) -> SortKey:
            return (
                holder.workload.priority,
                holder.lost_work(now_ms) if by_work else 0,
                -holder.since_ms,
                holder.workload.id,
            )

        return key
