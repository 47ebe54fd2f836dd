"""What a run has of its machines, and what that costs: noted while its pods can be seen.

A run costs what each of its pods has of its machine, from the time when the pod is bound until it
ends. The record keeps one price and one time for all pods, chosen so that price times time is that
sum: while a run goes on, the mean of the times, weighted by price; at its end, the first time and
the mean price since then. No price is noted unless that of every pod is known.

A pod's share of a machine is the largest of its shares in what the machine can give, as in budgets
(core.clusters.fleet). What nobody has of a machine is nobody's cost.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Final

from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.run import MachineShare
from sluice.core.migrations.interruption import epoch_ms
from sluice.core.values.quantity import parse_quantity

Document = Mapping[str, Any]

PRICES: Final = {"usd_per_hour": "price", "on_demand_usd_per_hour": "on_demand_price"}
"""Name in an account → in a row of the inventory."""
_DIGITS: Final = 6  # micro-dollars


@dataclass(frozen=True, slots=True)
class PodShare:
    """What one pod has of its machine, in dollars an hour (None: unknown), and since when.

    `ended_at` is 0 while it has it; times in epoch milliseconds, `bound_at` 0 if unknown.
    """

    bound_at: int
    ended_at: int
    capacity: str
    usd_per_hour: float | None
    on_demand_usd_per_hour: float | None


def pod_shares(pods: Iterable[Document], inventory: Mapping[str, InventoryRow]) -> list[PodShare]:
    """The shares of those pods that have a node; `inventory` by node name."""
    found = []
    for pod in pods:
        if not (node := pod["spec"].get("nodeName")):
            continue
        row, requests = inventory.get(node, InventoryRow()), _requested(pod)
        found.append(
            PodShare(
                _bound_at(pod),
                _ended_at(pod),
                row.capacity_type,
                _cost(requests, row, row.price),
                _cost(requests, row, row.on_demand_price),
            )
        )
    return found


def running_share(shares: Sequence[PodShare], known: MachineShare) -> MachineShare:
    """The share of a run that goes on; `known` is what was noted before.

    What was noted stays: pods come and go, and the machines of those that ended may be gone.
    """
    if known.usd_per_hour is not None and known.on_demand_usd_per_hour is not None:
        return known
    live = [each for each in shares if not each.ended_at]
    if not live:
        return known
    usd = _sum(each.usd_per_hour for each in live)
    full = _sum(each.on_demand_usd_per_hour for each in live)
    return MachineShare(
        bound_at=known.bound_at or _mean_bound_at(shares, live),
        capacity=known.capacity or _capacity(live),
        usd_per_hour=usd if known.usd_per_hour is None else known.usd_per_hour,
        on_demand_usd_per_hour=full,
    )


def ended_share(
    shares: Sequence[PodShare], known: MachineShare, pods: int, ended_at: int
) -> MachineShare:
    """The share of a run that ended at `ended_at`; it has had at least so many `pods`.

    What was noted before stands where pods or prices are missing.
    """
    began = min((each.bound_at for each in shares), default=0)
    usd = _spent(shares, [each.usd_per_hour for each in shares], ended_at)
    if len(shares) < pods or not 0 < began < ended_at or usd is None:
        ended = [replace(each, ended_at=0) for each in shares]
        return running_share(ended, known)
    full = _spent(shares, [each.on_demand_usd_per_hour for each in shares], ended_at)
    hours = ended_at - began
    return MachineShare(
        bound_at=began,
        capacity=_capacity(shares),
        usd_per_hour=round(usd / hours, _DIGITS),
        on_demand_usd_per_hour=None if full is None else round(full / hours, _DIGITS),
    )


def _mean_bound_at(shares: Sequence[PodShare], live: Sequence[PodShare]) -> int:
    """Price times the time since then is what all shares cost, also those of pods that ended."""
    bound = [each for each in live if each.bound_at]
    if not bound:
        return 0
    first = min(each.bound_at for each in bound)
    rate = sum(each.usd_per_hour or 0.0 for each in bound)
    if not rate or any(each.usd_per_hour is None for each in bound):
        return sum(each.bound_at for each in bound) // len(bound)
    late = sum((each.bound_at - first) * (each.usd_per_hour or 0.0) for each in bound)
    over = [each for each in shares if each.ended_at and each.bound_at]
    spent = sum((each.ended_at - each.bound_at) * (each.usd_per_hour or 0.0) for each in over)
    return first + int((late - spent) / rate)


def _spent(
    shares: Sequence[PodShare], prices: Sequence[float | None], ended_at: int
) -> float | None:
    """Dollars an hour times milliseconds; None if a price is unknown."""
    total = 0.0
    for each, price in zip(shares, prices, strict=True):
        if price is None:
            return None
        total += price * max(0, min(each.ended_at or ended_at, ended_at) - each.bound_at)
    return total


def _capacity(shares: Sequence[PodShare]) -> str:
    """`spot`, `on-demand` or both with a comma; empty if that of one is unknown."""
    kinds = {each.capacity for each in shares}
    return "" if "" in kinds else ",".join(sorted(kinds))


def share(requests: Mapping[str, int], allocatable: Mapping[str, Any]) -> float | None:
    """The part of a machine that requests in base units take, at most 1; None: it tells nothing."""
    parts = [
        amount / offered
        for resource, amount in requests.items()
        if (offered := parse_quantity(resource, str(allocatable.get(resource, "0"))))
    ]
    return min(1.0, max(parts)) if parts else None


def _cost(requests: Mapping[str, int], row: InventoryRow, price: float | None) -> float | None:
    taken = share(requests, row.allocatable)
    return None if taken is None or not price else float(price) * taken


def _sum(costs: Iterable[float | None]) -> float | None:
    total = 0.0
    for each in costs:
        if each is None:
            return None
        total += each
    return round(total, _DIGITS)


def _ended_at(pod: Document) -> int:
    """When its last container ended; 0 while one runs."""
    status = pod.get("status") or {}
    if status.get("phase") not in {"Succeeded", "Failed"}:
        return 0
    ends = [
        epoch_ms(ended["finishedAt"])
        for container in status.get("containerStatuses") or ()
        if (ended := (container.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    return max(ends, default=0)


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
