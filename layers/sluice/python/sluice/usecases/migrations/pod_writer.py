"""The one way to change or delete a pod: this very pod by its UID, and no other of its name."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from sluice.ports import Cluster, Document


def annotate(
    cluster: Cluster, pod: Mapping[str, Any], annotations: Mapping[str, str | None]
) -> Document | None:
    """The pod with these annotations, None removes one; None if the pod is gone."""
    return patch(cluster, pod, {"metadata": {"annotations": dict(annotations)}})


def patch(cluster: Cluster, pod: Mapping[str, Any], change: Document) -> Document | None:
    """The pod after a merge patch; None if it is gone, or if a precondition does not hold."""
    at = pod["metadata"]
    metadata = {"uid": at["uid"], **change.get("metadata", {})}
    return cluster.patch("Pod", at["namespace"], at["name"], {**change, "metadata": metadata})


def delete(cluster: Cluster, pod: Mapping[str, Any], grace_seconds: int | None = None) -> None:
    """Without `grace_seconds` the pod has its own; 0 only where its machine is proven gone."""
    at = pod["metadata"]
    cluster.delete("Pod", at["namespace"], at["name"], uid=at["uid"], grace_seconds=grace_seconds)
