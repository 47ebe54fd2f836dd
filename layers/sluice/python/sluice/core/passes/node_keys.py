"""Which labels and taints of nodes a submission may name: those of its queue's flavors. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from sluice.core.config.catalog import QueueCatalog
from sluice.core.jobs.node_wishes import NodeKey


def unknown_keys(
    catalog: QueueCatalog, cluster_queue: str, named: Iterable[NodeKey]
) -> Iterator[tuple[str, str]]:
    """Field and words for each key that no flavor of the queue defines."""
    groups = catalog.cluster_queues[cluster_queue].resource_groups
    names = [each.name for group in groups for each in group.flavors]
    flavors = [catalog.flavors[name] for name in names if name in catalog.flavors]
    labels = {key for flavor in flavors for key in flavor.node_labels}
    taints = {taint.key for flavor in flavors for taint in flavor.node_taints}
    for each in named:
        known = taints if each.taint else labels
        if each.key in known:
            continue
        what, grant = ("taint", "taints") if each.taint else ("label", "nodeLabels")
        if not each.key:
            yield each.field, "tolerates every taint; name the key of one"
            continue
        there = ", ".join(sorted(known)) or "none"
        text = f"no flavor of ClusterQueue {cluster_queue} has the {what} {each.key[:100]} (there:"
        yield each.field, f"{text} {there}); remove it, or ask for it in `{grant}` of the Tenant"
