"""Pods that Cedana saves and restores: what is written on them, and what follows from it.

Cedana knows pods, not Jobs: it restores a bare pod under the labels of the generation that was
saved. So a generation that starts from there has a stand-in: a pod of its Job that is never
scheduled (a gate) and that nobody can forget (a finalizer). What is asked of Cedana is written on
it before it is asked, and it stays until the restored pod counts for itself or is known never to
come. Until then the generation is not proven gone, whatever becomes of its Job.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any, Final, TypeVar

from sluice.cedana.driver import SCHEME
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State, Workload
from sluice.core.migrations.pod_annotations import (
    DONE,
    LEAVING,
    ORDER,
    annotations_of,
)

Document = Mapping[str, Any]
Pod = TypeVar("Pod", bound=Mapping[str, Any])

SAVING: Final = "sluice.dev/cedana-checkpoint"
"""On a pod, as JSON: the `Saving` under way or the last one."""
RESTORING: Final = "sluice.dev/cedana-restore"
"""On a stand-in, as JSON: its `Restoring`."""
VOID: Final = "sluice.dev/restore-void"
"""An administrator's word on a stand-in: nothing was restored, and nothing will be."""
GIVE_UP_MS: Final = 600_000
"""How long a checkpoint may take; a move gives it up earlier."""
TELL_MS: Final = 120_000
"""After which time somebody should know that a restore is waited for."""


class ActionProgress(StrEnum):
    """What Cedana says of an action."""

    UNDER_WAY = "under way"
    READY = "ready"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class CedanaAction:
    progress: ActionProgress
    details: str = ""


@dataclass(frozen=True, slots=True)
class Saving:
    """A checkpoint that was asked for an order.

    `before` is the pod's newest action until then: a later one is ours, even if its answer is lost.
    """

    order: str
    at: int
    before: str = ""
    action: str = ""


@dataclass(frozen=True, slots=True)
class Restoring:
    """What was asked in place of a stand-in.

    `source`: from which checkpoint, empty while nothing is asked; `action`: what Cedana calls it,
    empty while its answer is unknown; `found`: the UID of the pod that came.
    """

    source: str = ""
    at: int = 0
    action: str = ""
    found: str = ""


def uri(cluster: str, action: str) -> str:
    return f"{SCHEME}{cluster}/{action}"


def place(source: str) -> tuple[str, str]:
    """Cluster and action of a checkpoint's address."""
    cluster, _, action = source.removeprefix(SCHEME).partition("/")
    return cluster, action


def saving(pod: Document) -> Saving | None:
    """What was asked for the order that the pod bears."""
    found = _read(pod, SAVING)
    if found is None or found.get("order") != annotations_of(pod).get(ORDER):
        return None
    return Saving(**found)


def restoring(stand_in: Document) -> Restoring:
    return Restoring(**(_read(stand_in, RESTORING) or {}))


def _read(pod: Document, mark: str) -> dict[str, Any] | None:
    found = json.loads(annotations_of(pod).get(mark, "null"))
    return dict(found) if found else None


def written(mark: Saving | Restoring) -> str:
    return json.dumps({name: value for name, value in asdict(mark).items() if value})


def answered(asked: Saving, cluster: str, action: CedanaAction, now: int) -> str | None:
    """The answer to an order, as agents give it; None while there is none.

    The state that was saved is not older than the request.
    """
    error = ""
    if action.progress is ActionProgress.FAILED:
        error = f"Cedana could not save it: {action.details or 'no details'}"
    elif action.progress is ActionProgress.UNDER_WAY and now - asked.at > GIVE_UP_MS:
        error = f"Cedana has not saved it within {GIVE_UP_MS // 1000} s"
    told: dict[str, Any] = {"order": asked.order, "at": asked.at}
    if error:
        return json.dumps(told | {"error": error})
    if action.progress is ActionProgress.UNDER_WAY:
        return None
    seconds = round((now - asked.at) / 1000, 3)
    return json.dumps(told | {"uri": uri(cluster, asked.action), "seconds": seconds})


def is_current(workload: Workload, stand_in: Document) -> bool:
    """Whether the workload is to run in this very generation, whose Job has not let the pod go."""
    metadata = stand_in["metadata"]
    owners = {each["uid"] for each in metadata.get("ownerReferences") or ()}
    return (
        workload.state is State.DISPATCHED
        and job_status.owner(stand_in) == (workload.id, workload.generation)
        and workload.uid in owners
        and not metadata.get("deletionTimestamp")
    )


def generation(pod: Document) -> int:
    return (job_status.owner(pod) or ("", -1))[1]


def restored(pods: Iterable[Pod], before: int) -> list[Pod]:
    """Bare pods of generations `before` this one, oldest first.

    All pods of those are proven gone, so these were made since; tenants can make none.
    """
    found = [
        pod
        for pod in pods
        if generation(pod) < before and job_status.bare(pod) and not job_status.stands_in(pod)
    ]
    return sorted(
        found,
        key=lambda pod: (pod["metadata"].get("creationTimestamp", ""), pod["metadata"]["uid"]),
    )


def taken_over(pod: Document, stand_in: Document) -> dict[str, Any]:
    """The patch by which a restored pod counts for the stand-in's generation.

    With these labels the Job controller adopts it, and removes the stand-in as one pod too many.
    """
    labels = dict(stand_in["metadata"]["labels"])
    kept = {
        name: text
        for name, text in annotations_of(stand_in).items()
        if name not in (RESTORING, VOID)
    }
    stale = dict.fromkeys((ORDER, DONE, LEAVING, SAVING))
    return {
        "metadata": {
            "uid": pod["metadata"]["uid"],
            "labels": labels,
            "annotations": {**stale, **kept},
        }
    }


def released(stand_in: Document) -> dict[str, Any]:
    """The patch by which a stand-in becomes a pod that may vanish like any other."""
    metadata = stand_in["metadata"]
    finalizers = [name for name in metadata["finalizers"] if name != job_status.STAND_IN]
    return {"metadata": {**_as_read(stand_in), "finalizers": finalizers}}


def marked(pod: Document, name: str, mark: Saving | Restoring) -> dict[str, Any]:
    """The patch that writes down what is asked; it holds only if nobody has changed the pod."""
    return {"metadata": {**_as_read(pod), "annotations": {name: written(mark)}}}


def _as_read(pod: Document) -> dict[str, str]:
    metadata = pod["metadata"]
    return {"uid": metadata["uid"], "resourceVersion": metadata["resourceVersion"]}


def waiting(stand_in: Document, asked: Restoring) -> str:
    """What an operator is to know of a restore that does not come."""
    action = asked.action or "that it has not confirmed"
    name = stand_in["metadata"]["name"]
    return (
        f"Cedana was asked to restore {asked.source} (action {action}), and no pod has come; once"
        f" Cedana shows that none will, annotate pod {name} with {VOID}=true"
    )
