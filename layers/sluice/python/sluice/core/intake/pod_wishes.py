"""What the pods of a vetted job ask for besides amounts: nodes, and a priority."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from sluice.core.config.tenants import matches
from sluice.core.jobs.node_wishes import NodeKey, list_keys, requirements, tolerations
from sluice.core.jobs.table import list_pod_sets
from sluice.core.lifecycle.record import PodSet

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config.tenants import Tenant
    from sluice.core.jobs.pod_sets import PodSetRequests


def with_wishes(counted: PodSetRequests, pod: Mapping[str, Any]) -> PodSet:
    """The pod set of a record, of which `pod` is the PodSpec."""
    return PodSet(
        counted.name,
        counted.count,
        dict(counted.requests),
        counted.min_count,
        node_selector=dict(pod.get("nodeSelector") or {}),
        affinity=requirements(pod),
        tolerations=tolerations(pod),
    )


def keys_to_know(job: Mapping[str, Any], path: str, tenant: Tenant) -> Iterator[NodeKey]:
    """The labels and taints that pods name and that their tenant may not name by itself."""
    for pod_set in list_pod_sets(job, path):
        for named in list_keys(pod_set.template["spec"], f"{pod_set.template_path}.spec"):
            granted = tenant.taints if named.taint else tenant.node_labels
            if not (named.key and matches(named.key, granted)):
                yield named


def priority_of_pods(job: Mapping[str, Any], path: str) -> NodeKey:
    """The class that pods name, meant as a WorkloadPriorityClass, and where; empty if none."""
    for pod_set in list_pod_sets(job, path):
        if name := pod_set.template["spec"].get("priorityClassName"):
            return NodeKey(f"{pod_set.template_path}.spec.priorityClassName", str(name))
    return NodeKey("spec.priority", "")
