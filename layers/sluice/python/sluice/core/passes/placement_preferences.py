"""What narrows a workload's choice: its `placement` and its queue's namespaces.

Flavors of a resource group of which `placement` names none are not narrowed by it: a pod's CPU
may come from another group than the GPUs that it is choosy about.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.core.config.model import Gate
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config import model
    from sluice.core.lifecycle.options import PlacementRule
    from sluice.core.lifecycle.record import Workload

# Kubernetes gives it to every namespace.
NAMESPACE_LABEL = "kubernetes.io/metadata.name"


def restrict_to_selected_namespaces(
    asking: model.WorkloadInfo,
    namespace: str,
    queue: model.ClusterQueue,
    labels: Mapping[str, Mapping[str, str]],
) -> model.WorkloadInfo:
    """The workload, kept out if its namespace has not the labels that the queue selects.

    `labels` are those of namespaces, as far as they are known; its name is a label of each.
    """
    has = {NAMESPACE_LABEL: namespace, **labels.get(namespace, {})}
    required = sorted((queue.namespace_selector or {}).items())
    unmet = [f"{key}={value}" for key, value in required if has.get(key) != value]
    unmet += [str(one) for one in queue.namespace_expressions if not one.selects(has)]
    if not unmet:
        return asking
    wanted = ", ".join(unmet)
    message = f"ClusterQueue {queue.name} selects namespaces with {wanted}; {namespace} has not"
    return replace(asking, gate=Gate(Reason.NAMESPACE_NOT_SELECTED, message))


def allowed_clusters(
    workload: Workload, flavors: frozenset[str], now: int
) -> tuple[str, ...] | None:
    """The clusters that `placement` allows for these flavors, best first; None: any.

    What came through the door of one cluster runs there.
    """
    allowed = None if workload.object is None else [workload.object.cluster]
    for flavor in sorted(flavors):
        entries = [e for e in _open(workload, now) if e.flavor == flavor]
        if not entries or any(not entry.clusters for entry in entries):
            continue
        named = list(dict.fromkeys(name for entry in entries for name in entry.clusters))
        allowed = named if allowed is None else [name for name in allowed if name in named]
    return None if allowed is None else tuple(allowed)


def restrict_to_placement(
    asking: model.WorkloadInfo, workload: Workload, queue: model.ClusterQueue, now: int
) -> model.WorkloadInfo:
    """The workload as the scheduler sees it, with its pods' flavors in the order of its wishes."""
    if not workload.options.placement:
        return asking
    named = {entry.flavor for entry in workload.options.placement}
    tried = list(dict.fromkeys(entry.flavor for entry in _open(workload, now)))
    wanted: list[str] = []
    for group in queue.resource_groups:
        offered = [each.name for each in group.flavors]
        wanted += [f for f in tried if f in offered] if named & set(offered) else offered
    pod_sets = tuple(
        replace(
            pod_set,
            flavors=tuple(f for f in wanted if pod_set.flavors is None or f in pod_set.flavors),
        )
        for pod_set in asking.pod_sets
    )
    return replace(asking, pod_sets=pod_sets)


def _open(workload: Workload, now: int) -> list[PlacementRule]:
    """The entries of `placement` whose time has come, in the order of writing."""
    waited = now - workload.created_at
    return [
        entry
        for entry in workload.options.placement
        if waited >= 1000 * entry.after_pending_seconds
    ]
