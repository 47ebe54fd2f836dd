"""End the run of one generation, and prove that nothing of it runs any more."""

from __future__ import annotations

from collections.abc import Iterable

from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Change, Workload
from sluice.core.migrations.pod_annotations import is_proven_ended
from sluice.core.migrations.restoring import awaits_restore, why_not_restored
from sluice.core.values.identity import job_name
from sluice.ports import Cluster, Document
from sluice.usecases.migrations import pod_writer

LEFT_BEHIND_MS = 3_000
"""How long after its end a node may take to remove a deleted pod; meanwhile its log is read."""


def find(cluster: Cluster, workload: Workload) -> Document | None:
    name = job_name(workload.id, workload.generation)
    return cluster.get(workload.kind, workload.namespace, name)


def stop(
    cluster: Cluster, workload: Workload, now: int, grace_seconds: int | None = None
) -> Change | None:
    """Delete the Job of a generation that must end; the proof that nothing runs, if any.

    `grace_seconds` shortens what its pods are given after SIGTERM. Never 0: Kubernetes would forget
    such a pod at once, before its node has ended it, and with it the proof. A pod whose end its
    node has reported is the proof itself: it is removed where that node has left it behind, since
    the Job stays as long as it does, and Kubernetes takes a minute to clear up after a machine.
    The word of a node's agent that it has killed all it held of a pod is proof as well.
    """
    job = find(cluster, workload)
    if job is None or (workload.uid and job["metadata"]["uid"] != workload.uid):
        left = pods_of(cluster, workload)
        end_bare(cluster, left)
        return None if left else lifecycle.gone(workload)
    ended = job_status.outcome(job)
    metadata = job["metadata"]
    if ended and workload.uid and is_its_own_end(cluster, workload, job):
        if job_status.outlive_their_job(pods_of(cluster, workload)):
            return None
        return lifecycle.finish(workload, ended, now)
    if not metadata.get("deletionTimestamp"):
        cluster.delete(workload.kind, workload.namespace, metadata["name"], uid=metadata["uid"])
    pods = all_pods_of(cluster, workload)
    left = [pod for pod in pods if job_status.running_pod(pod)]
    for pod in pods:
        if 0 < job_status.ended_when_deleted(pod) <= now - LEFT_BEHIND_MS:
            pod_writer.delete(cluster, pod, grace_seconds=0)
    final = KINDS[workload.kind].makes_no_pods_once_deleted and metadata.get("deletionTimestamp")
    if left and final and all(map(is_proven_ended, left)):
        return lifecycle.gone(workload)
    if find(cluster, workload) is None and not left:
        return lifecycle.gone(workload)
    end_bare(cluster, left)
    if grace_seconds is not None:
        hurry(cluster, left, grace_seconds)
    return None


def is_its_own_end(cluster: Cluster, workload: Workload, job: Document) -> bool:
    """Neither our deletion nor a checkpoint from which it could not start made the Job end."""
    if job_status.ended_by_deletion(job):
        return False
    if not awaits_restore(workload):
        return True  # without a look at its pods
    return not why_not_restored(workload, job, all_pods_of(cluster, workload))


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
