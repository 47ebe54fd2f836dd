"""The inventory of nodes: what each machine is, and how much of it our pods request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations.cpu_compatibility import cpu_of
from sluice.core.values.quantity import parse_quantity

Document = dict[str, Any]

CHECKPOINT = "sluice.dev/checkpoint"


def requested_cpu(cluster: ClusterState) -> dict[str, int]:
    """Node → millicores that our running pods request there."""
    total: dict[str, int] = {}
    for pods in cluster.pods.values():
        for pod in pods.values():
            node = pod["spec"].get("nodeName")
            if node and job_status.running_pod(pod):
                for container in pod["spec"]["containers"]:
                    requests = (container.get("resources") or {}).get("requests") or {}
                    total[node] = total.get(node, 0) + parse_quantity(
                        "cpu", str(requests.get("cpu", "0"))
                    )
    return total


def node_row(node: Document, now: int) -> InventoryRow | None:
    """One line of the inventory; None for a machine that is no EC2 instance."""
    metadata, labels = node["metadata"], node["metadata"].get("labels") or {}
    provider = (node.get("spec") or {}).get("providerID", "")
    if not provider.startswith("aws:///"):
        return None
    conditions: Sequence[Document] = (node.get("status") or {}).get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return InventoryRow(
        instance=provider.rsplit("/", 1)[-1],
        node=metadata["name"],
        type=labels.get("node.kubernetes.io/instance-type", ""),
        zone=labels.get("topology.kubernetes.io/zone", ""),
        capacity_type=labels.get("karpenter.sh/capacity-type", ""),
        nodepool=labels.get("karpenter.sh/nodepool", ""),
        created=metadata.get("creationTimestamp", ""),
        allocatable=dict((node.get("status") or {}).get("allocatable") or {}),
        ready=ready,
        reservation=labels.get("karpenter.k8s.aws/capacity-reservation-id", ""),
        cpu=cpu_of(labels),
        checkpoint=labels.get(CHECKPOINT, ""),
        connections=labels.get(f"{CHECKPOINT}-connections", ""),
        checkpoint_reason=(metadata.get("annotations") or {}).get(f"{CHECKPOINT}-reason", ""),
        seen_at=now,
    )


def free_by_pool(rows: Iterable[InventoryRow], since: int) -> dict[str, list[int]]:
    """NodePool → free millicores of each of its nodes that were ready when last seen.

    Nodes that were not seen `since` (epoch ms) are gone.
    """
    free: dict[str, list[int]] = {}
    for row in rows:
        if row.ready and row.seen_at >= since:
            given, taken = (
                parse_quantity("cpu", str(amounts.get("cpu", "0")))
                for amounts in (row.allocatable, row.requested)
            )
            free.setdefault(row.nodepool, []).append(max(0, given - taken))
    return free


def newest_by_node(rows: Iterable[InventoryRow]) -> dict[str, InventoryRow]:
    """Rows of the inventory by node name; names are given again, to later machines."""
    return {row.node: row for row in sorted(rows, key=lambda row: row.seen_at) if row.node}
