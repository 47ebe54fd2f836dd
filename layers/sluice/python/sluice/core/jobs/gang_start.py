"""Gangs start as one: no container runs before every pod of the gang has a machine. Pure.

Every container of a gang reads one environment variable from a ConfigMap that does not exist yet.
The scheduler places such pods and Karpenter buys for them, and their nodes pull the images; but a
kubelet starts no container before the ConfigMap is there. `act` creates it once every pod is bound.
Source: docs/decisions/0028-gangs-start-as-one.md.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluice.core.values.identity import job_name

Document = Mapping[str, Any]

VARIABLE: Final = "SLUICE_GANG_SIZE"
SIZE: Final = "sluice.dev/gang-size"
"""Annotation of the pods: how many start together."""
STARTED: Final = "sluice.dev/gang-started"
"""Annotation that a pod gets when the ConfigMap exists; its node looks again at once."""
_WAITING: Final = "CreateContainerConfigError"
_KEY: Final = "size"
_NAME: Final = re.compile(r"\bw-[a-z0-9]+-g\d+-gang\b", re.ASCII)


def config_map_name(workload: str, generation: int) -> str:
    return f"{job_name(workload, generation)}-gang"


def variable(workload: str, generation: int) -> dict[str, Any]:
    """The environment variable that holds a container until the ConfigMap exists."""
    source = {"name": config_map_name(workload, generation), "key": _KEY}
    return {"name": VARIABLE, "valueFrom": {"configMapKeyRef": source}}


def config_map(job: Document, workload: str, generation: int, size: int) -> dict[str, Any]:
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
            "name": config_map_name(workload, generation),
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
    """Whether its containers wait for the other pods of its gang."""
    return _size(pod) > 0 and STARTED not in _annotations(pod)


def may_start(pods: Sequence[Document]) -> bool:
    """Whether some pod waits, and as many as start together have a machine.

    `pods` are those of one generation that have not ended. A pod that is being deleted leaves its
    machine, so its successor has to have one first.
    """
    bound = [
        pod
        for pod in pods
        if pod["spec"].get("nodeName") and not pod["metadata"].get("deletionTimestamp")
    ]
    return any(waits(pod) for pod in bound) and len(bound) >= size_of(pods)


def _size(pod: Document) -> int:
    text = str(_annotations(pod).get(SIZE, ""))
    return int(text) if text.isdigit() else 0


def _annotations(pod: Document) -> Mapping[str, Any]:
    return pod["metadata"].get("annotations") or {}
