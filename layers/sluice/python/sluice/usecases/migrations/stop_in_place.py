"""End a generation of an object that somebody else made: it is suspended, and stays."""

from __future__ import annotations

from sluice.core.lifecycle import in_place, job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.in_place import Stopping
from sluice.core.lifecycle.record import Change, IntentKind, Workload, intent_of
from sluice.ports import Cluster, Document
from sluice.usecases.migrations.pods_of_run import all_pods_of, end_bare, hurry, pods_of
from sluice.usecases.object_events import WARNING, tell

ATTEMPTS = 3
_WORDS = {
    IntentKind.CANCEL: "Cancelled",
    IntentKind.FAIL: "Refused",
    IntentKind.PREEMPT: "Preempted",
    IntentKind.MIGRATE: "Moving",
}


def find_object(cluster: Cluster, workload: Workload) -> Document | None:
    """The object that came through the door, and no later one of its name."""
    if workload.object is None:
        return None
    found = cluster.get(workload.kind, workload.namespace, workload.object.name)
    return found if found and found["metadata"]["uid"] == workload.object.uid else None


def stop_in_place(
    cluster: Cluster, workload: Workload, now: int, grace_seconds: int | None
) -> Change | None:
    """Suspend it; the proof that nothing of this generation runs, if any."""
    for _ in range(ATTEMPTS):
        job = find_object(cluster, workload)
        if job is None:
            left = pods_of(cluster, workload)
            end_bare(cluster, left)
            return None if left else lifecycle.gone(workload)
        ended = job_status.outcome(job)
        of_this_run = workload.uid and in_place.generation_of(job) == workload.generation
        if ended and of_this_run and not job_status.ended_by_deletion(job):
            left = pods_of(cluster, workload)
            if job_status.outlive_their_job(job, left):
                end_bare(cluster, left)
                return None
            return lifecycle.finish(workload, ended, now)
        step = in_place.stop(job, workload.generation)
        if step is Stopping.PROVEN:
            return proof(cluster, workload, job, grace_seconds)
        if step is Stopping.WAIT:
            return None
        if not isinstance(step, Stopping) and patch(cluster, job, step):
            intent = intent_of(workload)
            word = _WORDS.get(intent.kind, "Stopped")
            tell(cluster, job, word, intent.message, kind=WARNING, now=now)
    return None


def proof(
    cluster: Cluster, workload: Workload, job: Document, grace_seconds: int | None
) -> Change | None:
    """Its controller makes no more pods; those that are left have to end."""
    left = [pod for pod in all_pods_of(cluster, workload) if job_status.running_pod(pod)]
    if left:
        end_bare(cluster, left)
        if grace_seconds is not None:
            hurry(cluster, left, grace_seconds)
        return None
    forget = in_place.forget_start(job)
    if forget and patch(cluster, job, forget, status=True) is None:
        return None
    return lifecycle.gone(workload)


def patch(
    cluster: Cluster, job: Document, change: Document, *, status: bool = False
) -> Document | None:
    """The object after a change that depends on nobody having written since; None if one has."""
    at = job["metadata"]
    return cluster.patch(job["kind"], at["namespace"], at["name"], change, status=status)
