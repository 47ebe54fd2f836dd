"""Placement: which cluster runs an admitted workload; the same question gets the same answer.

A cluster must be healthy, open and able to give every flavor. Among those: the workload's own
order of preference, then where its checkpoint and its data are, then the price, then free room.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.jobs.job import JOB
from sluice.core.jobs.table import EVERYWHERE
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Health(StrEnum):
    """What is known of a cluster's API server."""

    READY = "Ready"
    CORDONED = "Cordoned"
    UNREACHABLE = "Unreachable"


@dataclass(frozen=True, slots=True)
class ClusterOffering:
    """A flavor as one cluster provides it; price is for the whole request."""

    microusd_per_hour: int = 0
    free: int = 0
    quarantined_until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """A cluster as placement sees it; `locations` are the region, zones and bucket prefixes near.

    `running` breaks ties, so that equal clusters fill evenly.
    """

    name: str
    offerings: Mapping[str, ClusterOffering]
    health: Health = Health.READY
    locations: frozenset[str] = frozenset()
    running: int = 0
    services: frozenset[CheckpointMode] = frozenset()
    kinds: frozenset[str] = EVERYWHERE


@dataclass(frozen=True, slots=True)
class PlacementRequest:
    """What the assignment needs.

    `clusters`, if given, are the only ones allowed, best first. `checkpoint` and `data` name
    locations where they are; `current` is the cluster that the workload comes from.
    """

    flavors: frozenset[str]
    clusters: tuple[str, ...] | None = None
    checkpoint: frozenset[str] = frozenset()
    data: frozenset[str] = frozenset()
    current: str | None = None
    service: CheckpointMode | None = None
    """The checkpoint driver whose service it needs in its cluster."""
    kind: str = JOB.kind


@dataclass(frozen=True, slots=True)
class Placement:
    """The chosen cluster, or None with the reason; `why` says something of every cluster."""

    cluster: str | None
    reason: Reason | None
    why: Mapping[str, str] = field(default_factory=dict)


def place(request: PlacementRequest, clusters: Iterable[ClusterView], now_ms: int) -> Placement:
    """Chooses a cluster; the order of `clusters` does not matter."""
    why: dict[str, str] = {}
    refused: list[Reason] = []
    open_ones: list[tuple[tuple[object, ...], str]] = []
    for cluster in sorted(clusters, key=lambda each: each.name):
        refusal = _refusal(request, cluster, now_ms)
        if refusal is not None:
            refused.append(refusal[0])
            why[cluster.name] = refusal[1]
            continue
        open_ones.append((_preference(request, cluster), cluster.name))
        why[cluster.name] = _praise(request, cluster)
    if open_ones:
        return Placement(min(open_ones)[1], None, why)
    return Placement(None, _overall(refused), why)


def _refusal(
    request: PlacementRequest, cluster: ClusterView, now_ms: int
) -> tuple[Reason, str] | None:
    if request.clusters is not None and cluster.name not in request.clusters:
        return Reason.NO_MATCHING_FLAVOR, "the workload does not allow it"
    if request.service is not None and request.service not in cluster.services:
        field = DRIVERS[request.service].service
        text = f"has no {field.capitalize()} (spec.{field} of the Cluster)"
        return Reason.NO_MATCHING_FLAVOR, text
    if request.kind not in cluster.kinds:
        return Reason.NO_MATCHING_FLAVOR, f"runs no {request.kind} (spec.kinds of the Cluster)"
    missing = sorted(request.flavors - cluster.offerings.keys())
    if missing:
        return Reason.NO_MATCHING_FLAVOR, f"does not offer {', '.join(missing)}"
    if cluster.health is Health.UNREACHABLE:
        return Reason.CLUSTER_UNREACHABLE, "its API server does not answer"
    if cluster.health is Health.CORDONED:
        return Reason.CLUSTER_CORDONED, "is cordoned"
    for flavor in sorted(request.flavors):
        until_ms = cluster.offerings[flavor].quarantined_until_ms
        if until_ms is not None and until_ms > now_ms:
            seconds = -(-(until_ms - now_ms) // 1000)
            return Reason.INSUFFICIENT_INSTANCE, f"{flavor} is sold out, tried again in {seconds} s"
    return None


def _preference(request: PlacementRequest, cluster: ClusterView) -> tuple[object, ...]:
    """Lower is better; ends in numbers only, the name breaks the last tie."""
    offered = [cluster.offerings[flavor] for flavor in request.flavors]
    return (
        request.clusters.index(cluster.name) if request.clusters is not None else 0,
        bool(request.checkpoint) and not request.checkpoint & cluster.locations,
        bool(request.data) and not request.data & cluster.locations,
        sum(each.microusd_per_hour for each in offered),
        cluster.name != request.current,
        -min((each.free for each in offered), default=0),
        cluster.running,
    )


def _praise(request: PlacementRequest, cluster: ClusterView) -> str:
    price = sum(cluster.offerings[flavor].microusd_per_hour for flavor in request.flavors)
    near = [
        name
        for name, places in (("checkpoint", request.checkpoint), ("data", request.data))
        if places & cluster.locations
    ]
    text = f"possible at ${price / 1_000_000:.4f} an hour" if price else "possible"
    return f"{text}, near its {' and '.join(near)}" if near else text


def _overall(refused: list[Reason]) -> Reason:
    """The most hopeful reason: what passes by itself before what somebody must change."""
    for reason in (
        Reason.INSUFFICIENT_INSTANCE,
        Reason.CLUSTER_UNREACHABLE,
        Reason.CLUSTER_CORDONED,
    ):
        if reason in refused:
            return reason
    return Reason.NO_MATCHING_FLAVOR
