"""Which changes of records follow from the Jobs and pods that a cluster shows. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace

from sluice.core.accounting.machines import ended_share, pod_shares, running_share
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.clusters.cluster_state import PREPARED_MS, ClusterState, Document, Key
from sluice.core.config.pods_ready import DEFAULT_RULES, PodsReadyRules
from sluice.core.lifecycle import in_place, job_status, pods_ready
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.cost_limit import overspent
from sluice.core.lifecycle.record import Change, Intent, IntentKind, State, Workload, is_migrating
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.lifecycle.stuck_pods import Stuck, stuck
from sluice.core.migrations.interruption import epoch_ms
from sluice.core.migrations.restoring import why_not_restored
from sluice.core.values.reasons import Reason

LATE_DISPATCH_MS = 15_000


def assess_job(
    workload: Workload, cluster: ClusterState, now: int, ready: PodsReadyRules = DEFAULT_RULES
) -> Iterator[Change]:
    """What the Job of the current generation changes: running, finished, or its pods are late."""
    job = cluster.jobs.get((workload.id, workload.generation))
    if job is None or not workload.uid or job["metadata"]["uid"] != workload.uid:
        return
    pods = cluster.pods_of(workload.id, workload.generation)
    ended = job_status.outcome(job)
    if why := why_not_restored(workload, job, pods):
        if workload.state is State.DISPATCHED:
            intent = Intent(IntentKind.MIGRATE, Reason.CHECKPOINT_UNUSABLE, why)
            machine = running_share(pod_shares(pods, cluster.node_rows), workload.machine)
            yield lifecycle.noting(lifecycle.reclaim(workload, intent), machine)
    elif ended is not None:
        # Whatever the record said when it was read: the Job may have been deleted since.
        obeyed = job_status.ended_by_deletion(job)
        settled = not job_status.outlive_their_job(job, pods)
        if workload.state in (State.DISPATCHED, State.RECLAIMING) and not obeyed and settled:
            ended_at = max(
                _to_the_second(job_status.ended_at(job), now),
                workload.started_at or workload.dispatched_at,
            )
            machine = ended_share(
                pod_shares(pods, cluster.node_rows),
                workload.machine,
                _pods_at_once(workload),
                ended_at,
            )
            yield lifecycle.finish(workload, _result_of(ended, pods), ended_at, machine)
    elif workload.state is State.DISPATCHED:
        for change in _ongoing(workload, job, pods, cluster.warnings, now, ready):
            machine = running_share(pod_shares(pods, cluster.node_rows), workload.machine)
            yield lifecycle.noting(change, machine)


def _pods_at_once(workload: Workload) -> int:
    """How many pods it runs together, as it was admitted."""
    held = workload.reservation.pod_sets if workload.reservation else workload.pod_sets
    return sum(each.count for each in held)


def _to_the_second(at: int, now: int) -> int:
    """The end of the second in which something happened; now if Kubernetes has no time (0)."""
    return min(now, at + 999) if at else now


def _ongoing(
    workload: Workload,
    job: Document,
    pods: Sequence[Document],
    warnings: Mapping[str, Stuck],
    now: int,
    ready: PodsReadyRules,
) -> Iterator[Change]:
    """Of a Job that has not ended."""
    if (over_budget := overspent(workload, now)) is not None:
        yield lifecycle.reclaim(workload, over_budget)
    elif not workload.started_at:
        if job_status.all_ready(job, pods):
            seen_at = _to_the_second(job_status.ready_at(pods), now)
            yield lifecycle.start(workload, max(seen_at, workload.dispatched_at))
        else:
            yield from _not_started(workload, pods, warnings, now, ready)
    elif was_replaced_by_kubernetes(workload, pods):
        message = "its machine vanished, and Kubernetes began anew; it goes on from its checkpoint"
        intent = Intent(IntentKind.MIGRATE, Reason.RESTORING_CHECKPOINT, message)
        yield lifecycle.reclaim(workload, intent)
    elif not job_status.all_ready(job, pods) and (
        late := pods_ready.not_recovered(pods, now, ready)
    ):
        yield lifecycle.reclaim(workload, pods_ready.too_late(workload, now, ready, late))


def _not_started(
    workload: Workload,
    pods: Sequence[Document],
    warnings: Mapping[str, Stuck],
    now: int,
    ready: PodsReadyRules,
) -> Iterator[Change]:
    """An image that cannot be pulled fails it; a missing Secret, say, may still be created.

    The kubelet's message may differ between attempts, so only another reason is recorded again.
    """
    why = stuck(pods, warnings)
    if why is not None and why.code is Reason.IMAGE_PULL:
        yield lifecycle.reclaim(workload, Intent(IntentKind.FAIL, why.code, str(why)))
    elif now > pods_ready.deadline(workload, ready):
        late = pods_ready.not_ready_in_time(pods, ready)
        yield lifecycle.reclaim(workload, pods_ready.too_late(workload, now, ready, late, why))
    elif why is not None and not (why.passes and now - workload.dispatched_at <= PREPARED_MS):
        recorded = (
            workload.reason.code,
            workload.reason.message.partition(":")[0],
        )
        if recorded != (why.code, why.word):
            yield lifecycle.hinder(workload, why.code, str(why))


def was_replaced_by_kubernetes(workload: Workload, pods: Sequence[Document]) -> bool:
    """Whether a pod replaces a vanished one of which there is a later state than its own.

    A pod that was retried after a failure is no such pod: it would only fail again.
    """
    if not driver_of(workload.options).dumps or workload.checkpoint_at <= workload.started_at:
        return False
    if any(job_status.failed_by_itself(pod) for pod in pods):
        return False
    made = [pod["metadata"].get("creationTimestamp", "") for pod in pods]
    return any(text and epoch_ms(text) > workload.checkpoint_at for text in made)


def assess_missing_job(workload: Workload, cluster: ClusterState, now: int) -> Iterator[Change]:
    """The change for a Job that is gone: the end of a reclaimed generation, or a loss."""
    job = cluster.jobs.get((workload.id, workload.generation))
    if workload.state not in (State.DISPATCHED, State.RECLAIMING) or workload.gone:
        return
    if job is not None and (not workload.uid or job["metadata"]["uid"] == workload.uid):
        return
    pods = cluster.pods_of(workload.id, workload.generation)
    if any(job_status.running_pod(pod) for pod in pods):
        return  # somebody deleted the Job without its pods: they still count
    if workload.state is State.RECLAIMING:
        yield lifecycle.gone(workload)
    elif workload.object is not None:
        intent = Intent(IntentKind.CANCEL, Reason.CANCELLED_BY_USER, in_place.DELETED)
        yield lifecycle.reclaim(workload, intent)
    else:
        message = f"its Job vanished from {workload.cluster}"
        intent = Intent(IntentKind.REQUEUE, Reason.JOB_LOST, message, not_before=now)
        yield lifecycle.reclaim(workload, intent)


def list_orphans(
    asked: Iterable[str], known: Mapping[str, Workload], cluster: ClusterState
) -> Iterator[Document]:
    """Jobs of these workloads without a record: of a stale dispatcher, or an ended generation.

    What others made is theirs to delete; it stays suspended.
    """
    for key in [key for each in asked for key in cluster.keys.get(each, ())]:
        workload_id, generation = key
        workload, job = known.get(workload_id), cluster.jobs[key]
        if in_place.came_by_door(job) or job["metadata"].get("deletionTimestamp"):
            continue
        if workload is None or workload.generation != generation:
            yield job
        elif workload.state is State.ADMITTED:
            continue
        elif workload.state in (State.DISPATCHED, State.RECLAIMING, State.FINISHED):
            if workload.uid and workload.uid != job["metadata"]["uid"]:
                yield job
        else:
            yield job


def list_lost_commands(records: Iterable[Workload], cluster: ClusterState, now: int) -> list[str]:
    """Workloads whose command has to be sent again.

    Their Job is not created, un-suspended or deleted in time, or their pods wait for their parts
    of a set of dumps. A dispatch is sent again only once: under load its command may just be
    waiting in the queue, and more commands would make the queue longer.
    """
    late = []
    for workload in records:
        key = workload.id, workload.generation
        job = cluster.jobs.get(key)
        if workload.state is State.DISPATCHED and workload.id in cluster.gated.values():
            late.append(workload.id)
        elif workload.state is State.RECLAIMING:
            deleting = job is not None and bool(job["metadata"].get("deletionTimestamp"))
            if is_migrating(workload) or not (
                workload.gone or (deleting and not _only_ended_pods_are_left(cluster, key))
            ):
                late.append(workload.id)
        elif _dispatch_is_late(workload, job, now - LATE_DISPATCH_MS) and key not in cluster.resent:
            cluster.resent.add(key)
            late.append(workload.id)
    return late


def _only_ended_pods_are_left(cluster: ClusterState, key: Key) -> bool:
    """Whether a deleted Job is kept only by pods that have ended: their node may have gone, too."""
    pods = cluster.pods_of(*key)
    return bool(pods) and not any(job_status.running_pod(pod) for pod in pods)


def _dispatch_is_late(workload: Workload, job: Document | None, since: int) -> bool:
    if workload.state is State.ADMITTED:
        return not workload.gated and workload.admitted_at < since
    claimed = workload.state is State.DISPATCHED and workload.dispatched_at < since
    return claimed and job is not None and job_status.suspended(job)


def _result_of(ended: JobResult, pods: Sequence[Document]) -> JobResult:
    """The result with what the pods tell of it."""
    nodes = {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
    message = ended.message
    killed = ended.reason == job_status.TOO_LONG  # so that what its pods say is no cause
    if not (ended.succeeded or killed):
        message = job_status.why_failed(pods) or message
    return replace(
        ended,
        message=message,
        nodes=tuple(sorted(nodes)[: job_status.MOST_TOLD]),
        node_count=len(nodes) if len(nodes) > job_status.MOST_TOLD else 0,
        **job_status.told_exit_codes(job_status.exit_codes(pods)),
    )
