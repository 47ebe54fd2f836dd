"""Gangs start as one: no container runs before every pod of the gang has a machine. Pure.

Every container of a gang reads one environment variable from a ConfigMap that does not exist yet.
The scheduler places such pods and Karpenter buys for them, and their nodes pull the images; but a
kubelet starts no container before the ConfigMap is there. `act` creates it once every pod is bound.
Source: docs/decisions/0028-gangs-start-as-one.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sluice.core.values.identity import job_name

Document = Mapping[str, Any]

VARIABLE: Final = "SLUICE_GANG_SIZE"
SIZE: Final = "sluice.dev/gang-size"
"""Annotation of the pods: how many start together."""
GANG: Final = "sluice.dev/gang"
"""Annotation of the pods: the ConfigMap that they wait for; without it, that of the generation."""
STARTED: Final = "sluice.dev/gang-started"
"""Annotation that a pod gets when the ConfigMap exists; its node looks again at once."""
_WAITING: Final = "CreateContainerConfigError"
_KEY: Final = "size"
_NAME: Final = re.compile(r"\bw-[a-z0-9]+-g\d+-gang\b", re.ASCII)


def config_map_name(workload: str, generation: int, stage: str = "") -> str:
    """`stage` is the pod set where each starts as one for itself, in an order."""
    name = f"{job_name(workload, generation)}-gang"
    return f"{name}-{stage}" if stage else name


def variable(name: str) -> dict[str, Any]:
    """The environment variable that holds a container until the ConfigMap exists."""
    return {"name": VARIABLE, "valueFrom": {"configMapKeyRef": {"name": name, "key": _KEY}}}


def config_map(job: Document, name: str, size: int) -> dict[str, Any]:
    """Belongs to the job, so that it goes with it."""
    metadata = job["metadata"]
    owner = {
        "apiVersion": job["apiVersion"],
        "kind": job["kind"],
        "name": metadata["name"],
        "uid": metadata["uid"],
    }
    return {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {
            "name": name,
            "namespace": metadata["namespace"],
            "labels": dict(metadata["labels"]),
            "ownerReferences": [owner],
        },
        "immutable": True,
        "data": {_KEY: str(size)},
    }


def is_held(waiting: Document) -> bool:
    """Whether a container's `state.waiting` says that it waits for the ConfigMap of its gang."""
    held = waiting.get("reason") == _WAITING
    return held and _NAME.search(str(waiting.get("message", ""))) is not None


def size_of(pods: Sequence[Document]) -> int:
    """How many pods of their gang start together; 0 if they wait for nobody."""
    return max((_size(pod) for pod in pods), default=0)


def waits(pod: Document) -> bool:
    """Whether its containers may wait for the other pods of its gang: none has begun."""
    return _size(pod) > 0 and STARTED not in _annotations(pod) and not _has_begun(pod)


def group(pods: Iterable[Document]) -> dict[str, list[Document]]:
    """ConfigMap → the pods of one generation that wait for it, or have waited."""
    gangs: dict[str, list[Document]] = {}
    for pod in pods:
        if _size(pod):
            gangs.setdefault(_gang_of(pod), []).append(pod)
    return gangs


def may_start(pods: Sequence[Document], ended: Iterable[Document] = ()) -> bool:
    """Whether a gang waits for its ConfigMap alone: as many as start together have a machine.

    `pods` are those of one gang that have not ended, `ended` the others. A pod that is being
    deleted leaves its machine, so its successor has to have one first. Once a pod has begun the
    ConfigMap is there: what comes later, such as the next indexes of an array, starts by itself,
    unless its kubelet says that it is held.
    """
    bound = [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    ]
    if len(bound) < size_of(pods):
        return False
    waiting = [pod for pod in bound if waits(pod)]
    begun = any(STARTED in _annotations(pod) or _has_begun(pod) for pod in (*pods, *ended))
    return any(map(_held_by_kubelet, waiting)) if begun else bool(waiting)


def _has_begun(pod: Document) -> bool:
    return any(
        "running" in state or "terminated" in state for state in map(_state, _containers(pod))
    )


def _held_by_kubelet(pod: Document) -> bool:
    return any(is_held(_state(each).get("waiting") or {}) for each in _containers(pod))


def _containers(pod: Document) -> list[Document]:
    """Their statuses."""
    status = pod.get("status") or {}
    kinds = ("initContainerStatuses", "containerStatuses")
    return [each for kind in kinds for each in status.get(kind) or ()]


def _state(container: Document) -> Mapping[str, Any]:
    return container.get("state") or {}


def _gang_of(pod: Document) -> str:
    named = _annotations(pod).get(GANG)
    labels = pod["metadata"].get("labels") or {}
    of = labels.get("sluice.dev/workload", ""), int(labels.get("sluice.dev/generation") or 0)
    return str(named or config_map_name(*of))


def _size(pod: Document) -> int:
    text = str(_annotations(pod).get(SIZE, ""))
    return int(text) if text.isdigit() else 0


def _annotations(pod: Document) -> Mapping[str, Any]:
    return pod["metadata"].get("annotations") or {}
