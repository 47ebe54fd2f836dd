"""Starts and stops an object that somebody else made, by its `suspend`; never a second one. Pure.

Such an object runs every generation of its workload. Three marks keep stale writers apart; each
write depends on the resource version in which the marks were read:

- the label `sluice.dev/generation`: for whom its pod templates are prepared;
- STARTED: the generation that was un-suspended;
- STOPPED: the generation that may not be un-suspended any more.

A stop is proven once the controller has answered to it: Kubernetes' controllers set the condition
Suspended, and take it back when they see the object un-suspended. So nobody suspends before the
controller has seen the start, and the condition that comes then can only be the answer.
Source: docs/decisions/0031-the-kubernetes-door.md.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from enum import Enum
from typing import Any, Final

from sluice.core.jobs.kind import nested
from sluice.core.jobs.table import kind_of, list_pod_sets
from sluice.core.lifecycle import job_status

Document = Mapping[str, Any]

QUEUE_LABEL: Final = "kueue.x-k8s.io/queue-name"
"""Whoever has it came through the Kubernetes door: rendered objects do not carry it."""
USER: Final = "sluice.dev/user"
"""Annotation: who created it. A policy lets nobody write another name than the request's own."""
STARTED: Final = "sluice.dev/started"
STOPPED: Final = "sluice.dev/stopped"
DELETED: Final = "its object was deleted in the cluster"
WORKLOAD: Final = job_status.WORKLOAD_LABEL
GENERATION: Final = job_status.GENERATION_LABEL
_DIRECTIVES: Final = ("nodeSelector", "tolerations", "affinity", "schedulingGates")
"""What may change in the pods of a suspended Job, besides labels and annotations."""
_OF_JOBS: Final = ("parallelism", "activeDeadlineSeconds")


class Stopping(Enum):
    """What there is to do besides a patch."""

    WAIT = "wait"
    PROVEN = "proven"
    """Its controller makes no pods of this generation any more; those that run are left to see."""


def came_by_door(job: Document) -> bool:
    return QUEUE_LABEL in (job["metadata"].get("labels") or {})


def generation_of(job: Document) -> int:
    """The generation for which its pods are prepared; -1 if for none."""
    owner = job_status.owner(job)
    return -1 if owner is None else owner[1]


def prepare(job: Document, rendered: Document, generation: int) -> dict[str, Any] | None:
    """The patch that lets a suspended object run this generation; empty if it does already.

    None: it belongs to a later generation, or is still being stopped.
    """
    present = generation_of(job)
    if present == generation:
        return None if _mark(job, STOPPED) >= generation else {}
    if present > generation or not job_status.suspended(job):
        return None
    if present >= 0 and _mark(job, STOPPED) < present:
        return None
    wanted = _with_directives(job, rendered)
    patch = merge_patch(job, wanted)
    patch["metadata"] = {**patch.get("metadata", {}), **_unchanged(job)}
    return patch


def start(job: Document, generation: int) -> dict[str, Any] | None:
    """The patch that un-suspends what was prepared; None if there is nothing to do."""
    if not job_status.suspended(job) or generation_of(job) != generation:
        return None
    if _mark(job, STOPPED) >= generation:
        return None
    metadata = {**_unchanged(job), "annotations": {STARTED: str(generation)}}
    return {"metadata": metadata, **nested(kind_of(job).suspend, value=False)}


def stop(job: Document, generation: int) -> dict[str, Any] | Stopping:
    """The next step of stopping a generation: a patch, or what a look at it says."""
    ran = _mark(job, STARTED) == generation
    if _mark(job, STOPPED) >= generation:
        return Stopping.PROVEN if not ran or _says_suspended(job) else Stopping.WAIT
    if not job_status.suspended(job) and not _has_seen_start(job):
        return Stopping.WAIT
    metadata = {**_unchanged(job), "annotations": {STOPPED: str(generation)}}
    return {"metadata": metadata, **nested(kind_of(job).suspend, value=True)}


def answers(job: Document) -> str:
    """What its controller says to a stop that is under way; empty if none is."""
    if _mark(job, STOPPED) < generation_of(job):
        return ""
    return "suspended" if _says_suspended(job) else "stopping"


def forget_start(job: Document) -> dict[str, Any] | None:
    """The patch of its status without which Kubernetes keeps its pod template; None if needless.

    Source: Kubernetes allows other scheduling directives only before `startTime` is set; Kueue
    clears it likewise.
    """
    if not (job.get("status") or {}).get("startTime"):
        return None
    return {"metadata": _unchanged(job), "status": {"startTime": None}}


def merge_patch(before: Any, after: Any) -> dict[str, Any]:
    """The JSON merge patch that makes `after` of `before`; lists are replaced whole."""
    patch: dict[str, Any] = {name: None for name in before if name not in after}
    for name, value in after.items():
        old = before.get(name)
        if isinstance(value, Mapping) and isinstance(old, Mapping):
            if inner := merge_patch(old, value):
                patch[name] = inner
        elif value != old:
            patch[name] = value
    return patch


def _with_directives(job: Document, rendered: Document) -> dict[str, Any]:
    """The object with what `rendered` says of placement and identity, and otherwise unchanged."""
    made: dict[str, Any] = copy.deepcopy(dict(job))
    labels = made["metadata"].setdefault("labels", {})
    labels |= rendered["metadata"]["labels"]
    wanted = {pod_set.name: pod_set for pod_set in list_pod_sets(rendered)}
    for pod_set in list_pod_sets(made):
        new = wanted[pod_set.name]
        metadata = pod_set.template.setdefault("metadata", {})
        for field in ("labels", "annotations"):
            theirs = new.template["metadata"].get(field) or {}
            metadata[field] = (metadata.get(field) or {}) | theirs
        _replace(pod_set.template["spec"], new.template["spec"], _DIRECTIVES)
        if pod_set.job is not None and new.job is not None:
            _replace(pod_set.job, new.job, _OF_JOBS)
    return made


def _replace(target: dict[str, Any], source: Document, fields: tuple[str, ...]) -> None:
    for field in fields:
        target.pop(field, None)
        if field in source:
            target[field] = source[field]


def _has_seen_start(job: Document) -> bool:
    """Whether the controller knows that the object was un-suspended."""
    status = job.get("status") or {}
    return bool(status.get("startTime")) and not _says_suspended(job)


def _says_suspended(job: Document) -> bool:
    conditions = (job.get("status") or {}).get("conditions") or ()
    return any(each["type"] == "Suspended" and each["status"] == "True" for each in conditions)


def _mark(job: Document, name: str) -> int:
    text = str((job["metadata"].get("annotations") or {}).get(name, ""))
    return int(text) if text.isdigit() else -1


def _unchanged(job: Document) -> dict[str, Any]:
    """The precondition that nobody has written since."""
    metadata = job["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}
