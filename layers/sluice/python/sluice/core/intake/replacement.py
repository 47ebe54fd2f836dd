"""Replacement capacity: placeholder pods that order it before the real pods may exist."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluice.core.intake.rendering import PodPlacement
from sluice.core.jobs.pod_sets import pod_requests
from sluice.core.lifecycle.stuck_pods import stuck
from sluice.core.migrations.cpu_compatibility import node_labels

Document = dict[str, Any]

NAMESPACE: Final = "sluice-system"
PRIORITY_CLASS: Final = "sluice-placeholder"
PLACEHOLDER: Final = "sluice.dev/placeholder"
IMAGE: Final = "public.ecr.aws/docker/library/busybox:stable"
LIFE_SECONDS: Final = 900
_NOBODY: Final = 65_534


def placeholder(
    pod: Mapping[str, Any],
    workload: str,
    generation: int,
    terms: Sequence[Mapping[str, Any]],
    instead: PodPlacement | None = None,
    cpu: str = "",
) -> Document:
    """A pod of the same size and demands that orders a node before the real pod may exist.

    It has less priority than anything and is deleted when its successor is started. `instead` is
    where the successor will run if that is another kind of node; `cpu` what its processes need to
    go on (core.migrations.cpu_compatibility), if they are saved.
    """
    spec = pod["spec"]
    requests = pod_requests(spec, [], "")
    made: Document = {
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 0,
        "activeDeadlineSeconds": LIFE_SECONDS,
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "priorityClassName": PRIORITY_CLASS,
        "securityContext": {
            "runAsNonRoot": True,
            "runAsUser": _NOBODY,
            "seccompProfile": {"type": "RuntimeDefault"},
        },
        "containers": [
            {
                "name": "placeholder",
                "image": IMAGE,
                "command": ["sleep", str(LIFE_SECONDS)],
                "resources": _resources(requests),
                "securityContext": {
                    "allowPrivilegeEscalation": False,
                    "capabilities": {"drop": ["ALL"]},
                },
            }
        ],
    }
    asked = instead.node_labels if instead else spec.get("nodeSelector") or {}
    if selector := {**node_labels(cpu), **asked}:
        made["nodeSelector"] = selector
    tolerated = instead.tolerations if instead else spec.get("tolerations") or ()
    if tolerations := [dict(t) for t in tolerated if not _added_by_kubernetes(t)]:
        made["tolerations"] = tolerations
    if terms:
        required = {"nodeSelectorTerms": [dict(term) for term in terms]}
        node_affinity = {"requiredDuringSchedulingIgnoredDuringExecution": required}
        made["affinity"] = {"nodeAffinity": node_affinity}
    labels = {PLACEHOLDER: workload, "sluice.dev/generation": str(generation)}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": f"placeholder-{pod['metadata']['name']}"[:253],
            "namespace": NAMESPACE,
            "labels": labels,
        },
        "spec": made,
    }


def ready(placeholders: Sequence[Mapping[str, Any]]) -> bool:
    """Whether every placeholder's node is ready for the real pod.

    One that runs shows it, and so does one that its kubelet cannot find an image for: that is no
    reason to let the source wait until its machine is nearly gone.
    """
    return bool(placeholders) and all(
        (pod.get("status") or {}).get("phase") == "Running" or stuck([pod], {}) is not None
        for pod in placeholders
    )


def _resources(requests: Mapping[str, int]) -> Document:
    shown = {name: f"{n}m" if name == "cpu" else str(n) for name, n in requests.items()}
    # Devices and huge pages cannot be overcommitted: Kubernetes wants their limits.
    whole = ("cpu", "memory", "ephemeral-storage")
    limits = {name: text for name, text in shown.items() if name not in whole}
    return {"requests": shown} | ({"limits": limits} if limits else {})


def _added_by_kubernetes(toleration: Mapping[str, Any]) -> bool:
    return str(toleration.get("key", "")).startswith("node.kubernetes.io/")
