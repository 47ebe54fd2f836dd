"""An object that somebody created in a tenant's namespace, as a document for the intake. Pure."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from datetime import datetime
from typing import Any, Final

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.config.document import Flaw
from sluice.core.jobs.table import list_pod_sets
from sluice.core.lifecycle import in_place
from sluice.core.lifecycle.options import Options

Document = Mapping[str, Any]

_METADATA: Final = ("name", "labels", "annotations", "namespace")
_OF_CONTROLLERS: Final = (
    "batch.kubernetes.io/controller-uid",
    "batch.kubernetes.io/job-name",
    "controller-uid",
    "job-name",
)
_KEY: Final = "sluice.dev/idempotency-key"
"""An object has its UID; with a key, two objects might claim one record."""
_BY_SERVER: Final = ("selector", "manualSelector")


def document_of(job: Document) -> dict[str, Any]:
    """What its creator meant, without what the API server and Sluice have added."""
    metadata = {name: job["metadata"][name] for name in _METADATA if job["metadata"].get(name)}
    for field in ("labels", "annotations"):
        if field in metadata:
            kept = {k: v for k, v in metadata[field].items() if not _ours(k) and k != _KEY}
            metadata[field] = kept
    spec = {name: each for name, each in job["spec"].items() if name not in _BY_SERVER}
    made = {"apiVersion": job["apiVersion"], "kind": job["kind"], "metadata": metadata}
    made["spec"] = spec
    copied: dict[str, Any] = copy.deepcopy(made)
    for pod_set in list_pod_sets(copied):
        labels = (pod_set.template.get("metadata") or {}).get("labels") or {}
        for name in _OF_CONTROLLERS:
            labels.pop(name, None)
        (pod_set.template.get("metadata") or {}).pop("creationTimestamp", None)
    return copied


def created_ms(job: Document) -> int:
    """When it was created (epoch ms)."""
    return int(datetime.fromisoformat(job["metadata"]["creationTimestamp"]).timestamp() * 1000)


def user_of(job: Document) -> str:
    """Who created it, as its policy has noted it; empty where no policy did."""
    return str((job["metadata"].get("annotations") or {}).get(in_place.USER, ""))


def refuse_options(options: Options) -> list[Flaw]:
    """What needs a new object, or a changed container, which this door has not."""
    if not driver_of(options).dumps:
        return []
    text = (
        "needs other containers at a restore than this object has; say `application` or `none`, "
        "or submit it with `sluice submit`"
    )
    return [Flaw("", "metadata.annotations[sluice.dev/checkpoint]", text)]


def _ours(key: str) -> bool:
    return key in {
        in_place.USER,
        in_place.STARTED,
        in_place.STOPPED,
        in_place.WORKLOAD,
        in_place.GENERATION,
        "sluice.dev/queue",
        "sluice.dev/managed",
        "sluice.dev/name",
    }
