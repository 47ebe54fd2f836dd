"""Why a request finds no room: the code, and the arithmetic in Kubernetes quantities."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.quantity import format_quantity
from sluice.core.reasons import Reason

if TYPE_CHECKING:
    from sluice.core.flavors import FlavorOption, Shape
    from sluice.core.quota import QuotaTree

_SEVERITY = {
    Reason.COHORT_EXHAUSTED: 0,
    Reason.NOMINAL_EXCEEDED: 0,
    Reason.BORROW_LIMIT: 1,
    Reason.EXCEEDS_MAXIMUM: 2,
    Reason.NO_MATCHING_FLAVOR: 3,
}


def shortfall(tree: QuotaTree, node: int, shape: Shape) -> tuple[Reason, str] | None:
    """The reason and the arithmetic, or None if the full request would fit as things stand.

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
            found = [_of_option(tree, node, each, pod_set.count, assumed) for each in options]
            fitting = [o for o, miss in zip(options, found, strict=True) if miss is None]
            if not fitting:
                misses = [miss for miss in found if miss is not None]
                texts.extend(text for _, text in misses)
                closest = min((reason for reason, _ in misses), key=_SEVERITY.__getitem__)
                if worst is None or _SEVERITY[closest] > _SEVERITY[worst]:
                    worst = closest
            for _, cell, per_pod in (fitting or list(options))[0].cells:
                assumed[cell] = assumed.get(cell, 0) + per_pod * pod_set.count
    return None if worst is None else (worst, "; ".join(dict.fromkeys(texts)))


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
        f"of {shown(tree.subtree[cell][root])}"
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
    return tree.subtree[cell][root] - tree.usage[cell][root] + unlent
