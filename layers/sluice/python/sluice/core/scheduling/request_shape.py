"""Requests as one ClusterQueue sees them: cells of its quota tree, and flavors the pods may use.

A shape is compiled once, so that the pass over many equal workloads does integer work only.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.config.model import PodSetAssignment, TaintEffect

if TYPE_CHECKING:
    from collections.abc import Hashable, Mapping

    from sluice.core.config.model import (
        ClusterQueue,
        LabelRequirement,
        PodSetInfo,
        ResourceFlavor,
        ResourceGroup,
    )
    from sluice.core.scheduling.quota import Cells, QuotaTree

PODS = "pods"


@dataclass(frozen=True, slots=True)
class FlavorOption:
    """One flavor of a resource group; `mismatch` says why the pods cannot use it."""

    flavor: str
    cells: tuple[tuple[str, int, int], ...]  # resource, cell, amount per pod
    mismatch: str | None


@dataclass(frozen=True, slots=True)
class ShapedPodSet:
    """A pod set with its options, one tuple of options per resource group."""

    name: str
    count: int
    min_count: int
    groups: tuple[tuple[FlavorOption, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A request as one ClusterQueue sees it.

    `cells` is set where every pod set has exactly one usable flavor per group: then the whole
    request is one fixed tuple of amounts, and `pod_sets_fixed` its assignment.
    """

    pod_sets: tuple[ShapedPodSet, ...]
    slack: int
    undeclared: str | None
    cells: Cells | None
    fixed: tuple[PodSetAssignment, ...]


def shape_key(pod_sets: tuple[PodSetInfo, ...]) -> Hashable:
    """Equal for pod sets that no decision can tell apart."""
    return tuple(
        (
            each.name,
            each.count,
            each.min_count,
            tuple(sorted(each.requests.items())),
            tuple(sorted(each.node_selector.items())),
            each.affinity,
            each.tolerations,
            each.flavors,
        )
        for each in pod_sets
    )


def compile_shape(
    pod_sets: tuple[PodSetInfo, ...],
    queue: ClusterQueue,
    flavors: Mapping[str, ResourceFlavor],
    tree: QuotaTree,
    *,
    ignore_undeclared: bool,
) -> Shape:
    """Resolves requests to cells and flavors to those that the pods may use."""
    covered = {name for group in queue.resource_groups for name in group.covered_resources}
    undeclared = None
    shaped = []
    for pod_set in pod_sets:
        requests = dict(pod_set.requests)
        if PODS in covered:
            requests[PODS] = 1
        missing = [name for name, amount in requests.items() if name not in covered and amount]
        if missing and not ignore_undeclared:
            undeclared = min(missing)
        groups = tuple(
            options
            for group in queue.resource_groups
            if (options := _options(pod_set, requests, group, flavors, tree))
        )
        least = pod_set.count if pod_set.min_count is None else pod_set.min_count
        shaped.append(ShapedPodSet(pod_set.name, pod_set.count, least, groups))
    slack = sum(pod_set.count - pod_set.min_count for pod_set in shaped)
    cells, fixed = _fixed(shaped) if undeclared is None else (None, ())
    return Shape(tuple(shaped), slack, undeclared, cells, fixed)


def _options(
    pod_set: PodSetInfo,
    requests: Mapping[str, int],
    group: ResourceGroup,
    flavors: Mapping[str, ResourceFlavor],
    tree: QuotaTree,
) -> tuple[FlavorOption, ...]:
    needed = [name for name in group.covered_resources if name in requests]
    if not needed:
        return ()
    order = {name: place for place, name in enumerate(pod_set.flavors or ())}
    known = (flavors[each.name] for each in group.flavors if each.name in flavors)
    keys = frozenset(key for flavor in known for key in flavor.node_labels)
    return tuple(
        FlavorOption(
            quotas.name,
            tuple((r, tree.cell_index[quotas.name, r], requests[r]) for r in needed),
            mismatch(pod_set, flavors.get(quotas.name), quotas.name, keys),
        )
        for quotas in sorted(group.flavors, key=lambda each: order.get(each.name, len(order)))
    )


def mismatch(
    pod_set: PodSetInfo,
    flavor: ResourceFlavor | None,
    name: str,
    keys: frozenset[str] = frozenset(),
) -> str | None:
    """Why pods cannot run on a flavor's nodes, or None if they can.

    As in Kueue, only labels that flavors of the resource group define restrict: `keys`, besides
    the flavor's own. An affinity term without any of them matches.
    """
    if flavor is None:
        return f"flavor {name} does not exist"
    if pod_set.flavors is not None and name not in pod_set.flavors:
        return f"the workload does not allow flavor {name}"
    tolerations = pod_set.tolerations + flavor.tolerations
    for taint in flavor.node_taints:
        if taint.effect is TaintEffect.PREFER_NO_SCHEDULE:
            continue
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return f"untolerated taint {taint.key}={taint.value}:{taint.effect} in flavor {name}"
    labels = flavor.node_labels
    keys = keys | labels.keys()
    selected = all(labels.get(k) == v for k, v in pod_set.node_selector.items() if k in keys)
    if not selected or not _affinity_matches(pod_set.affinity, labels, keys):
        return f"flavor {name} does not match the node affinity"
    return None


def _affinity_matches(
    terms: tuple[tuple[LabelRequirement, ...], ...],
    labels: Mapping[str, str],
    keys: frozenset[str],
) -> bool:
    relevant = [[need for need in term if need.key in keys] for term in terms]
    if not all(relevant):
        return True
    return not relevant or any(
        all(_requirement_holds(need, labels.get(need.key)) for need in term) for term in relevant
    )


def _requirement_holds(need: LabelRequirement, value: str | None) -> bool:
    """Compares with a label; None: the flavor has not got it."""
    if value is None:
        return need.operator in ("NotIn", "DoesNotExist")
    match need.operator:
        case "In":
            return value in need.values
        case "NotIn":
            return value not in need.values
        case "Exists":
            return True
        case "Gt" | "Lt":
            if not value.lstrip("-").isdigit():
                return False
            bound = int(need.values[0])
            return int(value) > bound if need.operator == "Gt" else int(value) < bound
        case _:
            return False


def _fixed(shaped: list[ShapedPodSet]) -> tuple[Cells | None, tuple[PodSetAssignment, ...]]:
    total: dict[int, int] = {}
    assigned = []
    for pod_set in shaped:
        flavors: dict[str, str] = {}
        for options in pod_set.groups:
            usable = [option for option in options if option.mismatch is None]
            if len(usable) != 1:
                return None, ()
            for resource, cell, per_pod in usable[0].cells:
                total[cell] = total.get(cell, 0) + per_pod * pod_set.count
                flavors[resource] = usable[0].flavor
        assigned.append(PodSetAssignment(pod_set.name, pod_set.count, flavors))
    return tuple(total.items()), tuple(assigned)
