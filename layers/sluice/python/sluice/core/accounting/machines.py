"""What a run has of its machines, and what that costs: noted while its pods can be seen.

An account `{bound_at, capacity, usd_per_hour, on_demand_usd_per_hour}`: since when it has a machine
(epoch ms; of several pods the mean, so that time times price is the sum over them), `spot`,
`on-demand` or both, and the price of its share of the machines. What is not known is left out; no
price is told unless that of every pod is known.

A pod's share of a machine is the largest of its shares in what the machine can give, as in budgets
(core.clusters.fleet). What nobody has of a machine is nobody's cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import fields
from typing import Any, Final

from sluice.core.lifecycle.run import MachineShare
from sluice.core.migrations.interruption import epoch_ms
from sluice.core.values.quantity import parse_quantity

Document = Mapping[str, Any]

PRICES: Final = {"usd_per_hour": "price", "on_demand_usd_per_hour": "on_demand_price"}
"""Name in an account → in a row of the inventory."""
_DIGITS: Final = 6  # micro-dollars


def held(
    pods: Iterable[Document], inventory: Mapping[str, Mapping[str, Any]], known: MachineShare
) -> MachineShare:
    """The share of a run by its pods; `inventory` by node name, `known` what was noted before.

    What was noted stays: pods come and go, and the machines of those that ended may be gone.
    """
    if known.usd_per_hour is not None and known.on_demand_usd_per_hour is not None:
        return known
    placed = [pod for pod in pods if pod["spec"].get("nodeName")]
    if not placed:
        return known
    rows = [inventory.get(pod["spec"]["nodeName"], {}) for pod in placed]
    found: dict[str, Any] = {}
    if bound := [at for at in map(_bound_at, placed) if at]:
        found["bound_at"] = sum(bound) // len(bound)
    if all(row.get("capacity_type") for row in rows):
        found["capacity"] = ",".join(sorted({str(row["capacity_type"]) for row in rows}))
    requested = [_requested(pod) for pod in placed]
    for name, price in PRICES.items():
        costs = [_cost(request, row, price) for request, row in zip(requested, rows, strict=True)]
        if (total := _sum(costs)) is not None:
            found[name] = round(total, _DIGITS)
    noted = {each.name: getattr(known, each.name) for each in fields(known)}
    return MachineShare(**found | {name: value for name, value in noted.items() if value})


def share(requests: Mapping[str, int], allocatable: Mapping[str, Any]) -> float | None:
    """The part of a machine that requests in base units take, at most 1; None: it tells nothing."""
    parts = [
        amount / offered
        for resource, amount in requests.items()
        if (offered := parse_quantity(resource, str(allocatable.get(resource, "0"))))
    ]
    return min(1.0, max(parts)) if parts else None


def _cost(requests: Mapping[str, int], row: Mapping[str, Any], price: str) -> float | None:
    taken = share(requests, row.get("allocatable") or {})
    return None if taken is None or not row.get(price) else float(row[price]) * taken


def _sum(costs: Iterable[float | None]) -> float | None:
    known = 0.0
    for each in costs:
        if each is None:
            return None
        known += each
    return known


def _bound_at(pod: Document) -> int:
    """When the scheduler gave it a node; 0 if it does not say."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "PodScheduled" and condition["status"] == "True":
            at = condition.get("lastTransitionTime")
            return epoch_ms(at) if at else 0
    return 0


def _requested(pod: Document) -> dict[str, int]:
    """The sum over its containers, in base units."""
    total: dict[str, int] = {}
    for container in pod["spec"]["containers"]:
        for resource, amount in ((container.get("resources") or {}).get("requests") or {}).items():
            total[resource] = total.get(resource, 0) + parse_quantity(resource, str(amount))
    return total
