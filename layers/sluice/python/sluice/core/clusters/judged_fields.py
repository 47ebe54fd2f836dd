"""Of a Job or pod, the fields that are judged: what an observer keeps of tens of thousands. Pure.

A pod has 5 to 50 kB as the API server gives it, most of it what Sluice or its user wrote: managed
fields, environment, volumes. What remains has about 1 kB and the same shape.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, MutableMapping
from typing import Any, Final, Generic, TypeVar

Document = dict[str, Any]
K = TypeVar("K")

_METADATA: Final = (
    "name",
    "namespace",
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "finalizers",
)
_DOMAINS: Final = ("sluice.dev/", "kueue.x-k8s.io/", "batch.kubernetes.io/", "jobset.sigs.k8s.io/")
"""Of the labels and annotations, those below these names."""
_POD_SPEC: Final = (
    "nodeName",
    "restartPolicy",
    "schedulingGates",
    "imagePullSecrets",
    "terminationGracePeriodSeconds",
)
_POD_STATUS: Final = ("phase", "reason", "message")
_CONDITION: Final = ("type", "status", "reason", "message", "lastTransitionTime")
_CONTAINER: Final = ("name", "image", "state", "lastState")
_NESTED: Final = (dict, list)


def judged_fields(kind: str, document: Mapping[str, Any]) -> Document:
    """A smaller document of the same shape; whatever `sluice.core` reads of it is there.

    Applied again, it changes nothing.
    """
    kept: Document = {"metadata": _metadata(document["metadata"])}
    if kind == "Pod":
        kept["spec"] = _pod_spec(document["spec"])
        if "status" in document:
            kept["status"] = _pod_status(document["status"] or {})
        return kept
    kept["kind"] = document.get("kind") or kind
    for name in ("apiVersion", "spec"):
        if name in document:
            kept[name] = _without_pod_templates(document[name])
    if "status" in document:
        status = document["status"] or {}
        kept["status"] = {n: v for n, v in status.items() if n != "uncountedTerminatedPods"}
    return kept


def _metadata(metadata: Mapping[str, Any]) -> Document:
    kept = {name: metadata[name] for name in _METADATA if name in metadata}
    for name in ("labels", "annotations"):
        if found := {k: v for k, v in (metadata.get(name) or {}).items() if k.startswith(_DOMAINS)}:
            kept[name] = found
    if owners := metadata.get("ownerReferences"):
        fields = ("kind", "name", "uid", "controller")
        kept["ownerReferences"] = [{n: o[n] for n in fields if n in o} for o in owners]
    return kept


def _pod_spec(spec: Mapping[str, Any]) -> Document:
    kept = {name: spec[name] for name in _POD_SPEC if name in spec}
    kept["containers"] = [
        {"name": each["name"], **_requests(each)} for each in spec.get("containers") or ()
    ]
    return kept


def _requests(container: Mapping[str, Any]) -> Document:
    requests = (container.get("resources") or {}).get("requests")
    return {"resources": {"requests": requests}} if requests else {}


def _pod_status(status: Mapping[str, Any]) -> Document:
    kept = {name: status[name] for name in _POD_STATUS if name in status}
    if conditions := status.get("conditions"):
        kept["conditions"] = [{n: c[n] for n in _CONDITION if n in c} for c in conditions]
    for kind in ("initContainerStatuses", "containerStatuses"):
        if found := status.get(kind):
            kept[kind] = [{n: c[n] for n in _CONTAINER if c.get(n)} for c in found]
    return kept


def _without_pod_templates(value: Any) -> Any:
    """A spec whose pod templates are empty, wherever its kind has them: pod sets are counted."""
    if isinstance(value, list):
        return [_without_pod_templates(each) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        name: each
        if type(each) not in _NESTED
        else {"spec": {}}
        if _is_pod_template(each)
        else _without_pod_templates(each)
        for name, each in value.items()
    }


def _is_pod_template(value: Any) -> bool:
    spec = value.get("spec") if isinstance(value, dict) else None
    return isinstance(spec, dict) and "containers" in spec


_encode = json.JSONEncoder(separators=(",", ":"), check_circular=False).encode


class PackedDocuments(MutableMapping[K, Document], Generic[K]):
    """Documents as JSON text: a fifth of the memory of dictionaries, and some µs for each look.

    What is looked up is a copy: changing it changes nothing here.
    """

    __slots__ = ("_packed",)

    def __init__(self) -> None:
        self._packed: dict[K, str] = {}

    def __getitem__(self, key: K) -> Document:
        found: Document = json.loads(self._packed[key])
        return found

    def __setitem__(self, key: K, document: Document) -> None:
        self._packed[key] = _encode(document)

    def __delitem__(self, key: K) -> None:
        del self._packed[key]

    def __iter__(self) -> Iterator[K]:
        return iter(self._packed)

    def __len__(self) -> int:
        return len(self._packed)

    def __contains__(self, key: object) -> bool:
        return key in self._packed
