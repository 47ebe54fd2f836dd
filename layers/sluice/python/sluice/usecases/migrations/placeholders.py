"""Placeholders: pods that order a machine for the next generation before its own pods exist."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.accounting.recovery import was_migrated
from sluice.core.intake.replacement import PLACEHOLDER
from sluice.core.lifecycle.record import State, Workload, is_migrating
from sluice.core.lifecycle.runs import queued_at
from sluice.core.migrations.restoring import waits_at_gate
from sluice.ports import Clock, Cluster, Document, Workloads
from sluice.usecases.migrations import pod_writer

REQUEUED_MS = 60_000
"""How long a machine is kept for a workload that left spot and has not been admitted again."""


@dataclass(frozen=True)
class Placeholders:
    """Removes placeholders that no workload will use, such as those of a cancelled one."""

    workloads: Workloads
    clock: Clock

    def remove_unused(self, cluster: Cluster) -> None:
        placeholders, _ = cluster.list("Pod", selector=PLACEHOLDER)
        owners = {pod["metadata"]["labels"][PLACEHOLDER] for pod in placeholders}
        known = {w.id: w for w in self.workloads.get_many(owners)} if owners else {}
        for pod in placeholders:
            workload = known.get(pod["metadata"]["labels"][PLACEHOLDER])
            if workload is None or not will_be_used(workload, self.clock.now()):
                pod_writer.delete(cluster, pod, grace_seconds=0)


def list_placeholders(cluster: Cluster, workload: Workload) -> list[Document]:
    found, _ = cluster.list("Pod", selector=f"{PLACEHOLDER}={workload.id}")
    return found


def remove_placeholders(cluster: Cluster, workload: Workload) -> None:
    """Placeholders leave just before the pods for which they ordered the node."""
    for pod in list_placeholders(cluster, workload):
        pod_writer.delete(cluster, pod, grace_seconds=0)


def will_be_used(workload: Workload, now: int) -> bool:
    """It migrates, is about to be dispatched, or waits at a gate; or it has just left spot."""
    if is_migrating(workload) or workload.state is State.ADMITTED:
        return True
    if workload.state is State.DISPATCHED:
        return waits_at_gate(workload) and not workload.started_at
    if workload.steady and workload.state is State.RECLAIMING:
        return workload.gone
    queued = workload.steady and workload.state is State.PENDING and was_migrated(workload)
    return queued and now - queued_at(workload) < REQUEUED_MS
