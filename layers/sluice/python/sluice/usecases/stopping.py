"""End the run of one generation, and prove that nothing of it runs any more."""

from __future__ import annotations

from sluice.core import job_status
from sluice.core import workload as lifecycle
from sluice.core.identity import job_name
from sluice.core.workload import Change, Workload
from sluice.ports import Cluster, Document


def find(cluster: Cluster, workload: Workload) -> Document | None:
    name = job_name(workload.id, workload.generation)
    return cluster.get(workload.kind, workload.namespace, name)


def stop(
    cluster: Cluster, workload: Workload, now: int, grace_seconds: int | None = None
) -> Change | None:
    """Delete the Job of a generation that must end; the proof that nothing runs, if any.

    `grace_seconds` shortens what its pods are given after SIGTERM. Never 0: Kubernetes would forget
    such a pod at once, before its node has ended it, and with it the proof.
    """
    job = find(cluster, workload)
    if job is None or (workload.uid and job["metadata"]["uid"] != workload.uid):
        return lifecycle.gone(workload) if not pods_of(cluster, workload) else None
    ended = job_status.outcome(job)
    metadata = job["metadata"]
    if ended and workload.uid and not job_status.ended_by_deletion(job):
        return lifecycle.finish(workload, ended, now)
    if not metadata.get("deletionTimestamp"):
        cluster.delete(workload.kind, workload.namespace, metadata["name"], uid=metadata["uid"])
    left = pods_of(cluster, workload)
    if find(cluster, workload) is None and not left:
        return lifecycle.gone(workload)
    if grace_seconds is not None:
        for pod in left:
            at = pod["metadata"]
            if at.get("deletionGracePeriodSeconds", grace_seconds + 1) > grace_seconds:
                cluster.delete(
                    "Pod",
                    at["namespace"],
                    at["name"],
                    uid=at["uid"],
                    grace_seconds=max(1, grace_seconds),
                )
    return None


def pods_of(cluster: Cluster, workload: Workload) -> list[Document]:
    """The pods of this generation that may still execute anything."""
    selector = (
        f"{job_status.WORKLOAD_LABEL}={workload.id},"
        f"{job_status.GENERATION_LABEL}={workload.generation}"
    )
    pods, _ = cluster.list("Pod", selector=selector)
    return [pod for pod in pods if job_status.running_pod(pod)]
