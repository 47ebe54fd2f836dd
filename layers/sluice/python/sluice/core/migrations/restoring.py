"""A checkpoint from which a run cannot start, and what its successor starts from instead.

A missing or damaged archive, another CPU, a file that has changed: the kubelet tells any of it as a
container that it cannot create or start. One more try, then the checkpoint before it counts, and in
the end the beginning: a workload that could run is never stuck behind what was saved of it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.run import RunEnd
from sluice.core.migrations.checkpointing import Checkpoint, newest
from sluice.core.migrations.pod_annotations import RESTORE_FROM, annotations_of
from sluice.core.values.reasons import Reason

Document = Mapping[str, Any]

RESTORE: Final = "restore"
"""The `why` of a run that could not start from its checkpoint (core.accounting.recovery)."""
_PULLED: Final = frozenset({"ImagePullBackOff", "InvalidImageName"})
"""Not `ErrImagePull`, the first attempt: registries fail for a moment, too."""
_CREATED: Final = frozenset({"CreateContainerError", "RunContainerError"})
"""Not `CreateContainerConfigError`: a missing Secret is nothing that a checkpoint could help."""
_STARTED: Final = "StartError"
"""Why a container has ended that its runtime could not start."""


def awaits_restore(workload: Workload) -> bool:
    """Whether its run starts from dumped processes, and has not started yet."""
    dumped = driver_of(workload.options).dumps
    return dumped and bool(workload.restore_from) and not workload.started_at


def waits_at_gate(workload: Workload) -> bool:
    """Whether no pod of its Job is scheduled before it is known what it is restored from."""
    return driver_of(workload.options).restore_needs(workload.restore_from).gated


def why_not_restored(workload: Workload, job: Document, pods: Sequence[Document]) -> str:
    """Why its run cannot start from its checkpoint, in the node's words; empty if it may yet.

    Nothing that happens after it has started is the checkpoint's fault. Of a Job that has failed
    and whose pods went with their machine nobody knows; it is given the benefit of the doubt.
    """
    if not awaits_restore(workload):
        return ""
    ended = job_status.outcome(job)
    if ended is not None and (ended.succeeded or job_status.ended_by_deletion(job)):
        return ""
    unknown = "it failed before it was seen running, and its pods are gone"
    otherwise = unknown if ended is not None and not pods else ""
    return next((why for pod in pods for why in _said(pod)), otherwise)


def _said(pod: Document) -> Iterator[str]:
    for container in (pod.get("status") or {}).get("containerStatuses") or ():
        for state in (container.get("state") or {}, container.get("lastState") or {}):
            waiting, ended = state.get("waiting") or {}, state.get("terminated") or {}
            word = waiting.get("reason", "")
            pulled = word in _PULLED and container.get("image") == annotations_of(pod).get(
                RESTORE_FROM
            )
            if pulled or word in _CREATED:
                yield f"{word}: {_one_line(waiting)}"
            elif ended.get("reason") == _STARTED:
                yield f"{_STARTED}: {_one_line(ended)}"


def _one_line(state: Document) -> str:
    return " ".join(str(state.get("message") or "").split())


def next_source(workload: Workload, kept: Sequence[Checkpoint], members: int) -> str:
    """What the successor of a run that could not be restored starts from; empty: the beginning.

    `kept`: its catalogue, in which that failure is noted.
    """
    known = newest(kept, members)
    if known is not None:
        return known.source
    listed = any(each.source == workload.restore_from for each in kept)
    return "" if listed or unusable(workload) else workload.restore_from


def run_entry(workload: Workload, source: str, kept: Sequence[Checkpoint]) -> RunEnd:
    """What the entry of a run that could not be restored says besides (core.accounting.recovery).

    Its workload stands still since the end of the run before it, if that one was moved.
    """
    back_to = None
    if source != workload.restore_from:
        back_to = next((each.at for each in kept if each.source == source), 0)
    stopped_at = workload.runs[-1].stopped_at if workload.runs else 0
    return RunEnd(why=RESTORE, lost_ms=0, stopped_at=stopped_at, back_to=back_to)


def unusable(workload: Workload) -> bool:
    """Whether its run ends because it could not start from its checkpoint."""
    return workload.intent is not None and workload.intent.reason == Reason.CHECKPOINT_UNUSABLE
