"""Replacement capacity: placeholder pods that order it, and offerings that are barred from it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final

from sluice.core.requests import pod_requests

Document = dict[str, Any]

NAMESPACE: Final = "sluice-system"
PRIORITY_CLASS: Final = "sluice-placeholder"
PLACEHOLDER: Final = "sluice.dev/placeholder"
IMAGE: Final = "public.ecr.aws/docker/library/busybox:stable"
LIFE_SECONDS: Final = 900
INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"

FIRST_BAN_MS: Final = 15 * 60_000
LONGEST_BAN_MS: Final = 60 * 60_000
FORGIVEN_AFTER_MS: Final = 6 * 3_600_000
_NOBODY: Final = 65_534


@dataclass(frozen=True, slots=True)
class Ban:
    """A (type, zone) that lost an instance: nothing is bought there until `until` (epoch ms)."""

    instance_type: str
    zone: str
    at: int
    until: int
    strikes: int = 1


def banned(instance_type: str, zone: str, at: int, before: Ban | None) -> Ban:
    """15 minutes after the first loss, doubled by each further one, at most an hour.

    A loss while the offering is barred is no new lesson: those instances were bought before.
    """
    if before is not None and at <= before.until:
        return before
    recent = before is not None and at - before.until < FORGIVEN_AFTER_MS
    strikes = before.strikes + 1 if before is not None and recent else 1
    length = min(FIRST_BAN_MS * 2 ** (strikes - 1), LONGEST_BAN_MS)
    return Ban(instance_type, zone, at, at + length, strikes)


def avoiding(bans: Iterable[Ban], now: int) -> list[dict[str, Any]]:
    """Alternatives for required node affinity that keep clear of every barred (type, zone).

    Two terms, since exact ones would be 2ⁿ; Karpenter tries them in this order, the scheduler takes
    any. Over-excludes for several pairs, is exact for one. Source: facts, spot-and-karpenter §3.3.
    """
    current = [ban for ban in bans if ban.until > now]
    if not current:
        return []
    types = sorted({ban.instance_type for ban in current})
    zones = sorted({ban.zone for ban in current})
    return [
        {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}]}
        for key, values in ((INSTANCE_TYPE, types), (ZONE, zones))
    ]


def placeholder(
    pod: Mapping[str, Any], workload: str, generation: int, terms: Sequence[Mapping[str, Any]]
) -> Document:
    """A pod of the same size and demands that orders a node before the real pod may exist.

    It has less priority than anything and is deleted when its successor is started.
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
    if selector := spec.get("nodeSelector"):
        made["nodeSelector"] = dict(selector)
    if tolerations := [t for t in spec.get("tolerations") or () if not _added_by_kubernetes(t)]:
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
    """Whether every placeholder runs, so that its node is ready for the real pod."""
    return bool(placeholders) and all(
        (pod.get("status") or {}).get("phase") == "Running" for pod in placeholders
    )


def _resources(requests: Mapping[str, int]) -> Document:
    shown = {name: f"{n}m" if name == "cpu" else str(n) for name, n in requests.items()}
    # Devices and huge pages cannot be overcommitted: Kubernetes wants their limits.
    whole = ("cpu", "memory", "ephemeral-storage")
    limits = {name: text for name, text in shown.items() if name not in whole}
    return {"requests": shown} | ({"limits": limits} if limits else {})


def _added_by_kubernetes(toleration: Mapping[str, Any]) -> bool:
    return str(toleration.get("key", "")).startswith("node.kubernetes.io/")
