"""End the run of one generation, and prove that nothing of it runs any more."""

from __future__ import annotations

from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Change, Workload
from sluice.core.migrations.pod_annotations import is_proven_ended
from sluice.core.migrations.restoring import awaits_restore, why_not_restored
from sluice.core.values.identity import job_name
from sluice.ports import Cluster, Document
from sluice.usecases.migrations import pod_writer
from sluice.usecases.migrations.pods_of_run import all_pods_of, end_bare, hurry, pods_of
from sluice.usecases.migrations.stop_in_place import find_object, stop_in_place

LEFT_BEHIND_MS = 3_000
"""How long after its end a node may take to remove a deleted pod; meanwhile its log is read."""


def find(cluster: Cluster, workload: Workload) -> Document | None:
    if workload.object is not None:
        return find_object(cluster, workload)
    name = job_name(workload.id, workload.generation)
    return cluster.get(workload.kind, workload.namespace, name)


def stop(
    cluster: Cluster, workload: Workload, now: int, grace_seconds: int | None = None
) -> Change | None:
    """End the run of a generation; the proof that nothing of it runs, if any.

    The Job is deleted, or only suspended where others have made it.

    `grace_seconds` shortens what its pods are given after SIGTERM. Never 0: Kubernetes would forget
    such a pod at once, before its node has ended it, and with it the proof. A pod whose end its
    node has reported is the proof itself: it is removed where that node has left it behind, since
    the Job stays as long as it does, and Kubernetes takes a minute to clear up after a machine.
    The word of a node's agent that it has killed all it held of a pod is proof as well.
    """
    way = _delete if workload.object is None else stop_in_place
    return way(cluster, workload, now, grace_seconds)


def _delete(
    cluster: Cluster, workload: Workload, now: int, grace_seconds: int | None
) -> Change | None:
    job = find(cluster, workload)
    if job is None or (workload.uid and job["metadata"]["uid"] != workload.uid):
        left = pods_of(cluster, workload)
        end_bare(cluster, left)
        return None if left else lifecycle.gone(workload)
    ended = job_status.outcome(job)
    metadata = job["metadata"]
    if ended and workload.uid and is_its_own_end(cluster, workload, job):
        if job_status.outlive_their_job(job, pods_of(cluster, workload)):
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
