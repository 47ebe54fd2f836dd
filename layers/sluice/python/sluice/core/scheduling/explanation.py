"""Why a workload waits: the code, and the arithmetic in Kubernetes quantities."""

from __future__ import annotations

from datetime import UTC, datetime
from operator import itemgetter
from typing import TYPE_CHECKING

from sluice.core.config.model import StopPolicy
from sluice.core.values.quantity import format_quantity
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from sluice.core.config.budget import Budget
    from sluice.core.config.model import WorkloadInfo
    from sluice.core.scheduling.backlog import EquivalenceClass
    from sluice.core.scheduling.dominant_share import DominantShares
    from sluice.core.scheduling.quota import QuotaTree
    from sluice.core.scheduling.request_shape import FlavorOption, Shape
    from sluice.core.scheduling.usage_ledger import UsageLedger
    from sluice.core.scheduling.waiting_queue import WaitingQueue

_SEVERITY = {
    Reason.COHORT_EXHAUSTED: 0,
    Reason.NOMINAL_EXCEEDED: 0,
    Reason.BORROW_LIMIT: 1,
    Reason.EXCEEDS_MAXIMUM: 2,
    Reason.NO_MATCHING_FLAVOR: 3,
}


def explain(
    ledger: UsageLedger,
    queue: WaitingQueue,
    eq_class: EquivalenceClass,
    workload: WorkloadInfo,
    *,
    head: EquivalenceClass | None,
    shares: DominantShares | None,
    settled: bool,
    now_ms: int,
) -> tuple[Reason, str]:
    """Why a workload in the order of its queue does not run as things stand.

    `head` is the class that the queue would nominate next; `shares` is given with fair sharing;
    `settled` says that the last pass kept from it what it needs, or another could decide nothing.
    """
    blocked = queue.inactive or blocked_by(ledger, queue, workload)
    if blocked is None:
        blocked = shortfall(ledger.now, queue.node, eq_class.shape)
        if blocked is not None and blocked[0] is Reason.COHORT_EXHAUSTED and shares is not None:
            share = shares.share(queue.node)
            if share.borrowing:
                text = f"{blocked[1]}, share {share.rounded()} ({share.resource})"
                blocked = (Reason.LOWER_SHARE, text)
    if blocked is None:
        blocked = _over_budget(ledger, queue, eq_class, workload, now_ms)
    if blocked is None and (first := _who_goes_first(ledger, queue, eq_class, workload, head)):
        blocked = Reason.BEHIND_HIGHER, first
    if blocked is None and not settled:
        return Reason.PENDING_EVALUATION, "there is room for it; the next pass is to look at it"
    kept = "kept free for a workload that is ahead in the cohort"
    if sum(len(options) > 1 for each in eq_class.shape.pod_sets for options in each.groups) > 1:
        kept += ", or no combination of flavors that was tried holds all of its pods"
    return blocked or (Reason.BEHIND_HIGHER, kept)


def _who_goes_first(
    ledger: UsageLedger,
    queue: WaitingQueue,
    eq_class: EquivalenceClass,
    workload: WorkloadInfo,
    head: EquivalenceClass | None,
) -> str | None:
    """Who goes before a workload that would fit at this moment; None if nobody in its queue."""
    future = shortfall(ledger.tree, queue.node, eq_class.shape)
    if future is not None:
        return f"kept free for a preemptor: {future[1]}"
    if queue.strict and head is not None and head is not eq_class:
        return "the queue is StrictFIFO and its head has to wait"
    front = eq_class.front()
    if front is not None and front[2] != workload.id:
        return "equal workloads ahead of it go first"
    return None


def blocked_by(
    ledger: UsageLedger, queue: WaitingQueue, workload: WorkloadInfo
) -> tuple[Reason, str] | None:
    """The concurrency cap or the stopped LocalQueue that keeps a workload waiting."""
    config, local = queue.config, queue.local_queue(workload)
    if local is not None and local.stop_policy is not StopPolicy.NONE:
        return Reason.QUEUE_CORDONED, f"LocalQueue {local.key} is stopped"
    caps = [
        (
            Reason.CONCURRENCY_CAP,
            f"ClusterQueue {config.name}",
            ledger.running.get(queue.node, 0),
            config.max_running,
        ),
        (
            Reason.USER_CAP,
            f"user {workload.user} in ClusterQueue {config.name}",
            ledger.running_of_user.get((queue.node, workload.user), 0),
            config.max_running_per_user if workload.user is not None else None,
        ),
    ]
    if local is not None:
        running = ledger.running_of_local_queue.get(local.key, 0)
        who = f"LocalQueue {local.key}"
        caps.append((Reason.CONCURRENCY_CAP, who, running, local.max_running))
    for reason, who, running, most in caps:
        if most is not None and running >= most:
            return reason, f"{who} runs {running} of at most {most} workloads"
    return None


def _over_budget(
    ledger: UsageLedger,
    queue: WaitingQueue,
    eq_class: EquivalenceClass,
    workload: WorkloadInfo,
    now_ms: int,
) -> tuple[Reason, str] | None:
    """Whether a budget is too small for the workload in every flavor that has room."""
    over = ledger.spending.exceeded(workload, now_ms) if queue.priced else {}
    for pod_set in eq_class.shape.pod_sets if over else ():
        for options in pod_set.groups:
            with_room = [
                option.flavor
                for option in options
                if _of_option(ledger.now, queue.node, option, pod_set.count, {}) is None
            ]
            if with_room and over.keys() >= set(with_room):
                cheapest = min((over[flavor] for flavor in with_room), key=itemgetter(1))
                return Reason.BUDGET_EXHAUSTED, _too_dear(ledger, *cheapest, now_ms)
    return None


def _too_dear(ledger: UsageLedger, budget: Budget, cost: int, now_ms: int) -> str:
    def dollars(microusd: int) -> str:
        return f"${microusd / 1_000_000:.2f}"

    spent = ledger.spending.spent(budget, now_ms)
    turn = datetime.fromtimestamp(budget.next_window_ms(now_ms) / 1000, UTC)
    return (
        f"expected to cost {dollars(cost)}, budget {budget.name} has spent or committed "
        f"{dollars(spent)} of {dollars(budget.limit_microusd)} in this window, which ends at "
        f"{turn:%Y-%m-%dT%H:%M:%SZ}"
    )


def shortfall(tree: QuotaTree, node: int, shape: Shape) -> tuple[Reason, str] | None:
    """The reason and the arithmetic, or None if the request would fit as things stand.

    Work that may shrink waits until its least size fits, so that is what the arithmetic is about.
    Of several flavors the one that comes closest gives the code; of several pod sets or groups the
    one that is furthest away. The text names every flavor that was considered.
    """
    if shape.undeclared is not None:
        text = f"ClusterQueue {tree.names[node]} has no quota for {shape.undeclared}"
        return Reason.NO_QUOTA_FOR_RESOURCE, text
    worst: Reason | None = None
    texts: list[str] = []
    assumed: dict[int, int] = {}
    for pod_set in shape.pod_sets:
        for options in pod_set.groups:
            found = [_of_option(tree, node, each, pod_set.min_count, assumed) for each in options]
            fitting = [o for o, miss in zip(options, found, strict=True) if miss is None]
            if not fitting:
                misses = [miss for miss in found if miss is not None]
                texts.extend(text for _, text in misses)
                closest = min((reason for reason, _ in misses), key=_SEVERITY.__getitem__)
                if worst is None or _SEVERITY[closest] > _SEVERITY[worst]:
                    worst = closest
            for _, cell, per_pod in (fitting or list(options))[0].cells:
                assumed[cell] = assumed.get(cell, 0) + per_pod * pod_set.min_count
    if worst is None:
        return None
    if shape.slack:
        texts.append("that is the least it can do with (minCount)")
    return worst, "; ".join(dict.fromkeys(texts))


def _of_option(
    tree: QuotaTree, node: int, option: FlavorOption, count: int, assumed: dict[int, int]
) -> tuple[Reason, str] | None:
    if option.mismatch is not None:
        return Reason.NO_MATCHING_FLAVOR, option.mismatch
    for resource, cell, per_pod in option.cells:
        amount = assumed.get(cell, 0) + per_pod * count
        if amount > max(0, tree.available(node, cell)) or amount > tree.potential[cell][node]:
            return _of_cell(tree, node, cell, resource, amount)
    return None


def _of_cell(
    tree: QuotaTree, node: int, cell: int, resource: str, amount: int
) -> tuple[Reason, str]:
    def shown(value: int) -> str:
        return format_quantity(resource, value)

    flavor = tree.cells[cell][0]
    request = f"{shown(amount)} {resource} requested in flavor {flavor}"
    potential = tree.potential[cell][node]
    if amount > potential:
        return Reason.EXCEEDS_MAXIMUM, f"{request}, at most {shown(potential)} can ever be used"
    own = (
        f"{tree.names[node]} uses {shown(tree.usage[cell][node])} "
        f"of {shown(tree.nominal[cell][node])}"
    )
    if tree.parent[node] < 0:
        return Reason.NOMINAL_EXCEEDED, f"{request}, {own}"
    limit = tree.borrowing_limit[cell][node]
    if limit is not None:
        own += f" (may borrow {shown(limit)})"
    root = tree.paths[node][-1]
    left = max(0, tree.available(node, cell))
    cohort = (
        f"cohort {tree.names[root]} uses {shown(tree.usage[cell][root])} "
        f"of {shown(tree.subtree_quota[cell][root])}"
    )
    reason = Reason.COHORT_EXHAUSTED
    if _available_without_limits(tree, node, cell) >= amount:
        reason = Reason.BORROW_LIMIT
    return reason, f"{request}, {own}, {cohort}, {shown(left)} available"


def _available_without_limits(tree: QuotaTree, node: int, cell: int) -> int:
    """What would be available if no node on the way up had a borrowing limit."""
    path = tree.paths[node]
    root = path[-1]
    unlent = sum(tree.local_available(at, cell) for at in path[:-1])
    return tree.subtree_quota[cell][root] - tree.usage[cell][root] + unlent
