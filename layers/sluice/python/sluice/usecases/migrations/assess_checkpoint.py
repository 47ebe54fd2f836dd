"""Whether processes are saved before they go: what that needs against the time that is left."""

from __future__ import annotations

from dataclasses import dataclass, replace

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.clusters.inventory import node_row
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations import checkpointing, gangs
from sluice.core.migrations.assessment import CheckpointAssessment, assess_checkpoint
from sluice.core.migrations.at_risk import AtRisk
from sluice.ports import Clock, Cluster, Clusters, Migrations, Nodes
from sluice.usecases.migrations.pods_of_run import pods_of
from sluice.usecases.migrations.stop_run import find


@dataclass(frozen=True, kw_only=True)
class AssessCheckpoint:
    """The machines tell what they can do, earlier checkpoints what saving takes.

    `clusters` are asked for nodes that the inventory does not know yet; None: nobody is.
    """

    nodes: Nodes
    migrations: Migrations
    clock: Clock
    clusters: Clusters | None = None

    def __call__(
        self,
        name: str,
        row: InventoryRow,
        each: AtRisk,
        left_ms: int,
        *,
        restores: bool = False,
    ) -> CheckpointAssessment:
        """`row` of the inventory is of the machine of `each.pods`; `left_ms` until its end.

        Who `restores` another checkpoint does not want what is on the machine any more.
        """
        kept = self.migrations.checkpoints(each.workload.id)
        return assess_checkpoint(
            each,
            self.rows(name, row, each),
            kept,
            left_ms,
            restores=restores,
            refused=self.migrations.refused(each.workload.id),
        )

    def row_of(self, name: str, node: str) -> InventoryRow:
        """What the inventory says of a node; its name alone if it does not know it yet."""
        rows = [row for row in self.nodes.of(name) if row.node == node]
        return rows[0] if rows else InventoryRow(node=node)

    def rows(self, name: str, row: InventoryRow, each: AtRisk) -> list[InventoryRow]:
        """The machines of all pods that would be saved together.

        The inventory lags some seconds behind new nodes, and behind what their agents say of them,
        so nobody is given up on its word alone.
        """
        names = {pod["spec"].get("nodeName", "") for pod in each.all_pods}
        known = {row.node: row}
        if names - known.keys():
            known = {one.node: one for one in self.nodes.of(name)} | known
        dumped = driver_of(each.workload.options).dumps
        able = {node for node, one in known.items() if checkpointing.capability(one).kubelet}
        if self.clusters and dumped and names - able:
            nodes, _ = self.clusters.cluster(name).list("Node")
            fresh = [node_row(node, self.clock.now()) for node in nodes]
            known |= {one.node: one for one in fresh if one}
        return [known.get(node, InventoryRow(node=node)) for node in sorted(names)]


def with_gang(cluster: Cluster, each: AtRisk) -> AtRisk:
    """Together with the members on other machines, if all are saved or none."""
    workload = each.workload
    dumped = driver_of(workload.options).dumps
    if not dumped or gangs.members(workload) == 1:
        return each
    pods = pods_of(cluster, workload)
    here = {pod["metadata"]["uid"] for pod in each.pods}
    others = tuple(pod for pod in pods if pod["metadata"]["uid"] not in here)
    return replace(
        each, others=others, no_set=gangs.why_no_set(workload, find(cluster, workload), pods)
    )
