"""Lets the containers of a gang start once every pod of it has a machine."""

from __future__ import annotations

from sluice.core.jobs import gang_start
from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State, Workload
from sluice.ports import Cluster
from sluice.usecases.migrations.stop_run import find, pods_of


def may_be_waiting(workload: Workload) -> bool:
    pods = workload.reservation.pod_sets if workload.reservation else ()
    return workload.state is State.DISPATCHED and sum(assigned.count for assigned in pods) > 1


def start_gang(cluster: Cluster, workload: Workload) -> None:
    """Repeats are harmless: the ConfigMap is created once, and pods are annotated once each.

    Raises ClusterError. The Job is looked for after its pods, and the ConfigMap belongs to it: a
    Job that was deleted in between takes the ConfigMap along.
    """
    pods = [pod for pod in pods_of(cluster, workload) if job_status.running_pod(pod)]
    if not gang_start.may_start(pods):
        return
    job = find(cluster, workload)
    claimed = job is not None and job["metadata"]["uid"] == workload.uid
    if job is None or not claimed or job["metadata"].get("deletionTimestamp"):
        return
    size = gang_start.size_of(pods)
    document = {"kind": workload.kind, "apiVersion": api_version(workload), **job}
    cluster.create(gang_start.config_map(document, workload.id, workload.generation, size))
    for pod in pods:
        if gang_start.waits(pod):
            at = pod["metadata"]
            started = {"uid": at["uid"], "annotations": {gang_start.STARTED: "true"}}
            cluster.patch("Pod", at["namespace"], at["name"], {"metadata": started})


def api_version(workload: Workload) -> str:
    return KINDS[workload.kind].api_version
