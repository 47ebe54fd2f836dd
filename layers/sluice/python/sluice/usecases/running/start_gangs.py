"""Lets the containers of a gang start once every pod of it has a machine."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from sluice.core.jobs import gang_start
from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State, Workload
from sluice.usecases.migrations.pods_of_run import all_pods_of
from sluice.usecases.migrations.stop_run import find

if TYPE_CHECKING:
    from collections.abc import Callable

    from sluice.core.jobs.gang_start import Document
    from sluice.ports import Cluster


def may_be_waiting(workload: Workload) -> bool:
    """Once all of its pods were ready, none of them waits for another any more."""
    pods = workload.reservation.pod_sets if workload.reservation else ()
    starting = workload.state is State.DISPATCHED and not workload.started_at
    return starting and sum(assigned.count for assigned in pods) > 1


def start_gang(cluster: Cluster, workload: Workload) -> list[Callable[[], object]]:
    """Makes the ConfigMaps of its gangs that may start; what is left is to wake their nodes.

    Each waking is one request for one pod, so that a large gang is not woken one by one. Repeats
    are harmless: a ConfigMap is created once, and pods are annotated once each. The Job is looked
    for after its pods, and the ConfigMap belongs to it: a Job that was deleted in between takes the
    ConfigMap along. Raises ClusterError.
    """
    gangs = gang_start.group(all_pods_of(cluster, workload))
    ready = {name: gang for name, gang in gangs.items() if job_status.gang_may_start(gang)}
    if not ready:
        return []
    job = find(cluster, workload)
    claimed = job is not None and job["metadata"]["uid"] == workload.uid
    if job is None or not claimed or job["metadata"].get("deletionTimestamp"):
        return []
    document = {"kind": workload.kind, "apiVersion": api_version(workload), **job}
    for name, gang in ready.items():
        cluster.create(gang_start.config_map(document, name, gang_start.size_of(gang)))
    return [*_wakings(cluster, [pod for gang in ready.values() for pod in gang])]


def _wakings(cluster: Cluster, pods: Sequence[Document]) -> list[Callable[[], object]]:
    found: list[Callable[[], object]] = []
    for pod in filter(gang_start.waits, pods):
        at = pod["metadata"]
        started = {"uid": at["uid"], "annotations": {gang_start.STARTED: "true"}}
        patch = {"metadata": started}
        found.append(partial(cluster.patch, "Pod", at["namespace"], at["name"], patch))
    return found


def api_version(workload: Workload) -> str:
    return KINDS[workload.kind].api_version
