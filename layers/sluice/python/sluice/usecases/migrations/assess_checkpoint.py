"""Whether processes are saved before they go: what that needs against the time that is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.core.clusters.inventory import node_row
from sluice.core.lifecycle.options import CheckpointMode
from sluice.core.migrations import checkpointing, gangs
from sluice.core.migrations.at_risk import AtRisk
from sluice.ports import Clock, Cluster, Clusters, Migrations, Nodes
from sluice.usecases.migrations.stop_run import find, pods_of


@dataclass(frozen=True, slots=True)
class CheckpointAssessment:
    """The decision with its numbers; `pods` are those that are saved together, by name."""

    driver: CheckpointMode
    fit: checkpointing.CheckpointFit
    reason: str
    numbers: Mapping[str, Any]
    grace_ms: int
    pods: tuple[str, ...]

    @property
    def dumped(self) -> bool:
        return self.fit.action is checkpointing.CheckpointAction.DUMP


@dataclass(frozen=True)
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
        row: Mapping[str, Any],
        each: AtRisk,
        left_ms: int,
        *,
        restores: bool = False,
    ) -> CheckpointAssessment:
        """`row` of the inventory is of the machine of `each.pods`; `left_ms` until its end.

        Who `restores` another checkpoint does not want what is on the machine any more.
        """
        workload = each.workload
        asked = checkpointing.checkpoint_mode(workload.options)
        rows = self.rows(name, row, each)
        containers = max(len(pod["spec"]["containers"]) for pod in each.all_pods)
        gpus = sum(s.requests.get("nvidia.com/gpu", 0) for s in workload.pod_sets)
        chosen = checkpointing.select_driver(
            asked, common_capability(rows), containers=containers, gpus=gpus, gang=each.no_set
        )
        kept = self.migrations.checkpoints(workload.id)
        together = gangs.most_on_one_node(each.all_pods)  # the slowest node decides for all
        grace = checkpointing.grace_ms(workload.options, each.pods)
        fit = checkpointing.fit(
            chosen.driver,
            size=checkpointing.size_of(kept, workload.pod_sets, together),
            left_ms=left_ms,
            grace_ms=grace,
            bandwidth=checkpointing.observed_bandwidth(kept, checkpointing.Bandwidth()),
        )
        if restores:
            fit = checkpointing.CheckpointFit(
                checkpointing.CheckpointAction.LET_GO, 0, 0, 0, "a user restores it"
            )
        why = "" if chosen.driver is asked else f" ({asked}: {chosen.reason})"
        numbers: dict[str, Any] = fit.numbers() | {"unsaved_ms": each.unsaved_ms}
        dumped = fit.action is checkpointing.CheckpointAction.DUMP
        saved = each.all_pods if dumped else each.pods
        if dumped and len(saved) > 1:
            why = f" of {len(saved)} parts on {len(rows)} nodes"
            numbers |= {"parts": len(saved), "nodes": len(rows)}
        names = tuple(sorted(pod["metadata"]["name"] for pod in saved))
        return CheckpointAssessment(chosen.driver, fit, fit.sentence + why, numbers, grace, names)

    def row_of(self, name: str, node: str) -> Mapping[str, Any]:
        """What the inventory says of a node; its name alone if it does not know it yet."""
        rows = [row for row in self.nodes.of(name) if row["node"] == node]
        return rows[0] if rows else {"node": node}

    def rows(self, name: str, row: Mapping[str, Any], each: AtRisk) -> list[Mapping[str, Any]]:
        """The machines of all pods that would be saved together.

        The inventory lags some seconds behind new nodes, and behind what their agents say of them,
        so nobody is given up on its word alone.
        """
        names = {pod["spec"].get("nodeName", "") for pod in each.all_pods}
        known = {row["node"]: row}
        if names - known.keys():
            known = {one["node"]: one for one in self.nodes.of(name)} | known
        dumped = checkpointing.checkpoint_mode(each.workload.options) in checkpointing.DUMPING
        able = {node for node, one in known.items() if checkpointing.capability(one).kubelet}
        if self.clusters and dumped and names - able:
            nodes, _ = self.clusters.cluster(name).list("Node")
            fresh = [node_row(node, self.clock.now()) for node in nodes]
            known |= {one["node"]: one for one in fresh if one}
        return [known.get(node, {"node": node}) for node in sorted(names)]


def with_gang(cluster: Cluster, each: AtRisk) -> AtRisk:
    """Together with the members on other machines, if all are saved or none."""
    workload = each.workload
    dumped = checkpointing.checkpoint_mode(workload.options) in checkpointing.DUMPING
    if not dumped or gangs.members(workload) == 1:
        return each
    pods = pods_of(cluster, workload)
    here = {pod["metadata"]["uid"] for pod in each.pods}
    others = tuple(pod for pod in pods if pod["metadata"]["uid"] not in here)
    return replace(
        each, others=others, no_set=gangs.why_no_set(workload, find(cluster, workload), pods)
    )


def common_capability(rows: Sequence[Mapping[str, Any]]) -> checkpointing.Capability:
    """What all of these machines can do."""
    for row in rows:
        found = checkpointing.capability(row)
        if not found.kubelet:
            return (
                found if len(rows) == 1 else replace(found, reason=f"{row['node']}: {found.reason}")
            )
    return checkpointing.capability(rows[0])
