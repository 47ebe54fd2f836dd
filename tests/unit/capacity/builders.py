"""NodePools, NodeClaims and events as Karpenter writes them; CPU is given in whole cores."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

NOW = 1_800_000_000_000
MINUTE = 60_000
SPOT_REFUSED = "UnfulfillableCapacity: Unable to fulfill capacity due to your request configuration"
NAMED = (
    "InsufficientInstanceCapacity: We currently do not have sufficient {} capacity in the "
    "Availability Zone you requested ({})."
)


def iso(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")


def a_node_pool(
    name: str = "spot", kind: str | tuple[str, ...] = "spot", *, running: int = 0, **spec: Any
) -> dict[str, Any]:
    """A pool with our label whose nodes carry `sluice.dev/flavor: NAME`."""
    kinds = [kind] if isinstance(kind, str) else list(kind)
    requirement = {"key": "karpenter.sh/capacity-type", "operator": "In", "values": kinds}
    template = {
        "metadata": {"labels": {"sluice.dev/flavor": name}},
        "spec": {"requirements": [requirement]},
    }
    return {
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name, "labels": {"sluice.dev/managed": "true"}},
        "spec": {"template": template, **spec},
        "status": {
            "resources": {"cpu": str(running)},
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def a_claim(pool: str, launched: str, at: int = NOW, message: str = "") -> dict[str, Any]:
    condition = {
        "type": "Launched",
        "status": launched,
        "lastTransitionTime": iso(at),
        "message": message,
    }
    return {
        "kind": "NodeClaim",
        "metadata": {"name": f"{pool}-abcde", "labels": {"karpenter.sh/nodepool": pool}},
        "spec": {},
        "status": {"conditions": [condition]},
    }


def a_refusal(pool: str, at: int = NOW, message: str = SPOT_REFUSED) -> dict[str, Any]:
    """The event that is left of a NodeClaim which Karpenter has given up."""
    return {
        "kind": "Event",
        "metadata": {"name": f"{pool}-x1y2z.{at}", "namespace": "default"},
        "involvedObject": {"kind": "NodeClaim", "name": f"{pool}-x1y2z"},
        "reason": "InsufficientCapacityError",
        "message": f"NodeClaim {pool}-x1y2z event: with fleet error(s), {message}",
        "lastTimestamp": iso(at),
    }
