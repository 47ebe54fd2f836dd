"""The inventory of nodes: what each machine is, and how much of it our pods request. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace
from typing import Any

from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations.cpu_compatibility import cpu_of
from sluice.core.values.quantity import parse_quantity

Document = dict[str, Any]

CHECKPOINT = "sluice.dev/checkpoint"
COUNTED = "#counted"
"""The row of a cluster that says when its machines were counted last."""
REQUESTS_MS = 60_000
"""What our pods request of a machine changes with every pod, and is written this often at most."""
REFRESH_MS = 24 * 3_600_000
KEPT_MS = 30 * REFRESH_MS
"""How long the row of a machine outlives it: losses are counted per machine time."""


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


def present(row: InventoryRow, now: int) -> InventoryRow:
    """The row as it is stored while its machine is there."""
    return replace(row, present=True, expires=(now + KEPT_MS) // 1000)


def gone(row: InventoryRow, seen_at: int) -> InventoryRow:
    """The row of a machine that was seen last at a time (epoch ms); it expires."""
    return replace(row, present=False, seen_at=seen_at, expires=(seen_at + KEPT_MS) // 1000)


def is_news(row: InventoryRow, stored: InventoryRow | None) -> bool:
    """Whether a present machine's row is to be written; `stored` is what was written last."""
    if stored is None:
        return True
    alike = replace(stored, seen_at=row.seen_at, expires=row.expires, requested=row.requested)
    if alike != replace(row, present=True):
        return True
    age = row.seen_at - stored.seen_at
    return age > REFRESH_MS or (age > REQUESTS_MS and row.requested != stored.requested)


def as_counted(rows: Iterable[InventoryRow]) -> list[InventoryRow]:
    """Rows of one cluster, those of present machines as seen when they were counted last."""
    found = list(rows)
    at = max((row.seen_at for row in found if row.instance == COUNTED), default=0)
    return [
        replace(row, seen_at=max(at, row.seen_at)) if row.present else row
        for row in found
        if row.instance != COUNTED
    ]


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
