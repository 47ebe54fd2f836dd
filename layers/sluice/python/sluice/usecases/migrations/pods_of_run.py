"""The pods of one generation, and how those end that no controller ends."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import Workload
from sluice.ports import Cluster, Document
from sluice.usecases.migrations import pod_writer


def hurry(cluster: Cluster, pods: Iterable[Document], grace_seconds: int) -> None:
    for pod in pods:
        given = pod["metadata"].get("deletionGracePeriodSeconds", grace_seconds + 1)
        if given > grace_seconds:
            pod_writer.delete(cluster, pod, grace_seconds=max(1, grace_seconds))


def end_bare(cluster: Cluster, pods: Iterable[Document]) -> None:
    """Pods that no Job takes with it."""
    for pod in pods:
        if job_status.bare(pod) and not pod["metadata"].get("deletionTimestamp"):
            pod_writer.delete(cluster, pod)


def pods_of(cluster: Cluster, workload: Workload) -> list[Document]:
    """The pods of this generation that may still execute anything."""
    return [pod for pod in all_pods_of(cluster, workload) if job_status.running_pod(pod)]


def all_pods_of(cluster: Cluster, workload: Workload) -> list[Document]:
    selector = (
        f"{job_status.WORKLOAD_LABEL}={workload.id},"
        f"{job_status.GENERATION_LABEL}={workload.generation}"
    )
    pods, _ = cluster.list("Pod", selector=selector)
    return pods
