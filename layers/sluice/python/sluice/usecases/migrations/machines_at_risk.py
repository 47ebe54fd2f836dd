"""Which machine a notice is about, and whose work is on it."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.clusters.inventory import node_row
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations import at_risk
from sluice.core.migrations.at_risk import AtRisk, most_valuable_first
from sluice.core.migrations.interruption import LOSSES, Notice
from sluice.ports import (
    Catalog,
    Clock,
    Cluster,
    Clusters,
    Document,
    Machines,
    Migrations,
    Nodes,
    Workloads,
)
from sluice.usecases.migrations.assess_checkpoint import with_gang


@dataclass(frozen=True, slots=True)
class MachineAtRisk:
    """A machine of ours by cluster and inventory row, and the workloads on it."""

    cluster: str
    row: InventoryRow
    at_risk: tuple[AtRisk, ...]


@dataclass(frozen=True, kw_only=True)
class MachinesAtRisk:
    workloads: Workloads
    catalog: Catalog
    clusters: Clusters
    nodes: Nodes
    migrations: Migrations
    clock: Clock
    ec2: Machines

    def look(self, notice: Notice) -> MachineAtRisk | None:
        """The machine of a notice with the work on it, the dearest first; None: not ours."""
        found = self.find(notice)
        if found is None:
            return None
        name, row = found
        return MachineAtRisk(name, row, self.list(self.clusters.cluster(name), row.node))

    def find(self, notice: Notice) -> tuple[str, InventoryRow] | None:
        """Cluster and inventory row of an instance.

        The inventory may lag behind a new node, so a warning is looked up in the cluster too,
        unless EC2 says that the instance is of no cluster of ours; state changes come for every
        instance of the account, and are not.
        """
        clusters = list(self.catalog.snapshot().of("Cluster"))
        for name in clusters:
            if row := self.nodes.find(name, notice.instance):
                return name, row
        if notice.kind in LOSSES:
            return None
        told = self.ec2.clusters_of([notice.instance])
        for name in clusters:
            if notice.instance in told and name not in told[notice.instance]:
                continue
            if row := self.find_node(self.clusters.cluster(name), notice.instance):
                return name, row
        return None

    def find_node(self, cluster: Cluster, instance: str) -> InventoryRow | None:
        """The inventory row of a node, if the cluster has one for the instance."""
        now, keep = self.clock.now(), lambda node: {"row": node_row(node, now)}
        for page, _ in cluster.pages("Node", selector="", keep=keep):
            for each in page:
                row: InventoryRow | None = each["row"]
                if row is not None and row.instance == instance:
                    return row
        return None

    def list(self, cluster: Cluster, node: str) -> tuple[AtRisk, ...]:
        """The workloads with pods of their present generation on a node, the dearest first."""
        pods, _ = cluster.list(
            "Pod", selector=job_status.WORKLOAD_LABEL, field=f"spec.nodeName={node}"
        )
        by_owner: dict[tuple[str, int], list[Document]] = {}
        for pod in pods:
            if job_status.running_pod(pod) and (owner := job_status.owner(pod)):
                by_owner.setdefault(owner, []).append(pod)
        now = self.clock.now()
        found = []
        for workload in self.workloads.get_many(owner[0] for owner in by_owner):
            if here := by_owner.get((workload.id, workload.generation)):
                kept = self.migrations.checkpoints(workload.id)
                last = max((each.at for each in kept), default=0)
                unsaved = at_risk.unsaved_ms(workload, last, now)
                found.append(with_gang(cluster, AtRisk(workload, tuple(here), unsaved)))
        return tuple(most_valuable_first(found))
