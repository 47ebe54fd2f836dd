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


def stop(cluster: Cluster, workload: Workload, now: int) -> Change | None:
    """Delete the Job of a generation that must end; the proof that nothing runs, if any."""
    job = find(cluster, workload)
    if job is None or (workload.uid and job["metadata"]["uid"] != workload.uid):
        return lifecycle.gone(workload) if not pods_of(cluster, workload) else None
    ended = job_status.outcome(job)
    metadata = job["metadata"]
    if ended and workload.uid and not job_status.ended_by_deletion(job):
        return lifecycle.finish(workload, ended, now)
    if not metadata.get("deletionTimestamp"):
        cluster.delete(workload.kind, workload.namespace, metadata["name"], uid=metadata["uid"])
    if find(cluster, workload) is None and not pods_of(cluster, workload):
        return lifecycle.gone(workload)
    return None


def pods_of(cluster: Cluster, workload: Workload) -> list[Document]:
    """The pods of this generation that may still execute anything."""
    selector = (
        f"{job_status.WORKLOAD_LABEL}={workload.id},"
        f"{job_status.GENERATION_LABEL}={workload.generation}"
    )
    pods, _ = cluster.list("Pod", selector=selector)
    return [pod for pod in pods if job_status.running_pod(pod)]
