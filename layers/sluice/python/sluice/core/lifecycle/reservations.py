"""What a reservation weighs in its ledger: cells "flavor|resource" → amount."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from sluice.core.lifecycle.record import PodSet, Reservation, Workload

Cells = dict[str, int]
PODS = "pods"


def cell(flavor: str, resource: str) -> str:
    return f"{flavor}|{resource}"


def cells(pod_sets: Iterable[PodSet], reservation: Reservation) -> Cells:
    """Millicores, bytes, else counts; pods count themselves where a queue has quota for them."""
    requests = {pod_set.name: pod_set.requests for pod_set in pod_sets}
    weight: Cells = {}
    for assigned in reservation.pod_sets:
        for resource, flavor in assigned.flavors.items():
            per_pod = 1 if resource == PODS else requests[assigned.name].get(resource, 0)
            key = cell(flavor, resource)
            weight[key] = weight.get(key, 0) + per_pod * assigned.count
    return weight


def held_by(workload: Workload) -> Cells:
    return cells(workload.pod_sets, workload.reservation) if workload.reservation else {}


def added(usage: Mapping[str, Mapping[str, int]], cq: str, weight: Cells) -> dict[str, Cells]:
    """Usage with `weight` more in one ClusterQueue; cells that reach zero vanish.

    Raises ValueError when a cell would fall below zero: a release without its reservation.
    """
    of_queue = dict(usage.get(cq, {}))
    for key, amount in weight.items():
        total = of_queue.get(key, 0) + amount
        if total < 0:
            raise ValueError(f"{cq} would hold {total} of {key}")
        of_queue[key] = total
    of_queue = {key: amount for key, amount in of_queue.items() if amount}
    rest = {name: dict(amounts) for name, amounts in usage.items() if name != cq}
    return rest | {cq: of_queue} if of_queue else rest


def per_resource(weight: Cells) -> dict[str, int]:
    """The sum over flavors."""
    total: dict[str, int] = {}
    for key, amount in weight.items():
        resource = key.partition("|")[2]
        total[resource] = total.get(resource, 0) + amount
    return total


def negative(weight: Cells) -> Cells:
    return {key: -amount for key, amount in weight.items()}


def total(pod_sets: Iterable[PodSet]) -> dict[str, int]:
    """The sum over all pods of a workload, in base units."""
    sums: dict[str, int] = {}
    for pod_set in pod_sets:
        for resource, amount in pod_set.requests.items():
            sums[resource] = sums.get(resource, 0) + amount * pod_set.count
    return {name: sums[name] for name in sorted(sums, key=_cpu_first)}


def _cpu_first(resource: str) -> tuple[int, str]:
    return (("cpu", "memory").index(resource) if resource in {"cpu", "memory"} else 2, resource)
