"""The clusters as inventory and heartbeats show them, and which one gets an assignment."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import needed_service
from sluice.core.clusters.capacity import pack
from sluice.core.clusters.placement import (
    ClusterOffering,
    ClusterView,
    Health,
    Placement,
    PlacementRequest,
    place,
)
from sluice.core.jobs.table import EVERYWHERE
from sluice.core.lifecycle.inventory_row import InventoryRow, MachineGroup, MachineTotals
from sluice.core.values.quantity import parse_quantity
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sluice.core.clusters.capacity import Closure
    from sluice.core.config.model import PodSetAssignment, ResourceFlavor
    from sluice.core.lifecycle.record import Workload

# `observe` says every minute that the cluster answers.
SILENT_MS = 180_000
MICRO = 1_000_000
_MOST = 500  # groups of equal machines of which a cluster tells
_LABELS = {
    "karpenter.sh/nodepool": "nodepool",
    "karpenter.sh/capacity-type": "capacity_type",
    "node.kubernetes.io/instance-type": "type",
    "topology.kubernetes.io/zone": "zone",
}

Rate = tuple[int, int]
"""Micro-dollars an hour for an amount of a resource in its base unit."""


@dataclass(frozen=True, slots=True)
class Site:
    """One cluster: `rates` by flavor and resource, where prices are known; `busy` millicores."""

    name: str
    flavors: frozenset[str]
    health: Health = Health.READY
    locations: frozenset[str] = frozenset()
    rates: Mapping[str, Mapping[str, Rate]] = field(default_factory=dict)
    busy: int = 0
    services: frozenset[CheckpointMode] = frozenset()
    """Checkpoint drivers whose service the cluster has."""
    kinds: frozenset[str] = EVERYWHERE
    """Kinds of jobs whose controllers it has."""


def health(*, cordoned: bool, seen_at: int, now: int) -> Health:
    """A cluster of which nothing was heard for a while gets no new work."""
    if now - seen_at > SILENT_MS:
        return Health.UNREACHABLE
    return Health.CORDONED if cordoned else Health.READY


def is_of_flavor(row: InventoryRow, flavor: ResourceFlavor) -> bool:
    """Whether a row of the inventory, as far as it tells, is of a machine of the flavor."""
    return all(
        getattr(row, name) in ("", flavor.node_labels[label])
        for label, name in _LABELS.items()
        if label in flavor.node_labels
    )


def observed_rate(
    flavor: ResourceFlavor, nodes: Iterable[tuple[InventoryRow, Mapping[str, int]]]
) -> dict[str, Rate]:
    """What a flavor costs on the machines that are there; nothing if none is, or none is priced.

    `nodes` are rows of the inventory with what each can give, in base units. The middle one of
    the prices per core counts.
    """
    wanted = {row: flavor.node_labels[label] for label, row in _LABELS.items()
              if label in flavor.node_labels}  # fmt: skip
    priced = [
        (float(row.price) / gives["cpu"], row.instance, row, gives)
        for row, gives in nodes
        if wanted
        and row.price
        and gives.get("cpu")
        and all(getattr(row, name) == value for name, value in wanted.items())
    ]
    if not priced:
        return {}
    _, _, row, gives = sorted(priced, key=lambda each: each[:2])[len(priced) // 2]
    price = round(float(row.price or 0) * MICRO)
    return {resource: (price, amount) for resource, amount in gives.items() if amount > 0}


def totals(cluster: str, rows: Iterable[InventoryRow]) -> MachineTotals:
    """What `admit` has to know of the inventory: some dozens of lines for 5,000 nodes.

    `busy` in whole cores: it would otherwise be written again with every pod that comes or goes.
    """
    busy, first = 0, dict[tuple[Any, ...], InventoryRow]()
    count = Counter[tuple[Any, ...]]()
    for row in sorted(rows, key=lambda row: row.instance):
        busy += parse_quantity("cpu", str(row.requested.get("cpu", "0")))
        key = (*(getattr(row, name) for name in _LABELS.values()), row.price)
        count[key] += 1
        first.setdefault(key, row)
    groups = [MachineGroup(each, _alike(first[key])) for key, each in count.most_common(_MOST)]
    return MachineTotals(cluster, busy // 1000 * 1000, tuple(groups))


def _alike(row: InventoryRow) -> InventoryRow:
    """What equal machines have in common."""
    common = {name: getattr(row, name) for name in _LABELS.values()}
    given = dict(row.allocatable)
    return InventoryRow(row.instance, price=row.price, allocatable=given, **common)


def cost(requests: Mapping[str, int], rate: Mapping[str, Rate]) -> int | None:
    """Micro-dollars an hour of a request: the dearest of its resources' shares; None: unknown."""
    shares = [
        -(-price * requests[resource] // amount)
        for resource, (price, amount) in rate.items()
        if resource in requests
    ]
    return max(shares, default=None)


def by_flavor(workload: Workload, assigned: Sequence[PodSetAssignment]) -> dict[str, Counter[str]]:
    """Flavor → resource → what an assignment takes of it."""
    requests = {pod_set.name: pod_set.requests for pod_set in workload.pod_sets}
    found: dict[str, Counter[str]] = {}
    for each in assigned:
        for resource, flavor in each.flavors.items():
            amount = requests[each.name].get(resource, 1) * each.count
            found.setdefault(flavor, Counter())[resource] += amount
    return found


def choose_cluster(
    workload: Workload,
    assigned: Sequence[PodSetAssignment],
    sites: Sequence[Site],
    *,
    allowed: tuple[str, ...] | None = None,
    closed: Mapping[str, Mapping[str, Closure]] = MappingProxyType({}),
    now: int,
) -> Placement:
    """The cluster for an assignment; `allowed`, if given, are those it may use, best first.

    `closed` says by cluster and flavor what cannot be bought. A cluster that can buy comes before
    one that only has so much room left.
    """
    taken = by_flavor(workload, assigned)
    request = PlacementRequest(
        frozenset(taken),
        allowed,
        checkpoint_places(workload),
        data_places(workload),
        service=needed_service(workload.options),
        kind=workload.kind,
    )
    buying = place(request, [_view(site, sites, taken, closed) for site in sites], now)
    if buying.cluster is not None or buying.reason is not Reason.INSUFFICIENT_INSTANCE:
        return buying
    full = {
        cluster: {
            flavor: closure
            for flavor, closure in flavors.items()
            if pack(workload, closure.rests()) is None
        }
        for cluster, flavors in closed.items()
    }
    return place(request, [_view(site, sites, taken, full) for site in sites], now)


def busier(site: Site, workload: Workload, assigned: Sequence[PodSetAssignment]) -> Site:
    """The cluster with one more assignment on it, for the next in the same pass."""
    more = sum(amounts["cpu"] for amounts in by_flavor(workload, assigned).values())
    return replace(site, busy=site.busy + more)


def _view(
    site: Site,
    sites: Sequence[Site],
    taken: Mapping[str, Mapping[str, int]],
    closed: Mapping[str, Mapping[str, Closure]],
) -> ClusterView:
    """A price that is unknown here is taken to be the highest that is known elsewhere."""
    offerings = {}
    for flavor in site.flavors:
        here = cost(taken.get(flavor, {}), site.rates.get(flavor, {}))
        if here is None:
            others = (cost(taken.get(flavor, {}), s.rates.get(flavor, {})) for s in sites)
            here = max((other for other in others if other is not None), default=0)
        closure = closed.get(site.name, {}).get(flavor)
        until = None if closure is None else closure.until
        offerings[flavor] = ClusterOffering(microusd_per_hour=here, quarantined_until_ms=until)
    return ClusterView(
        site.name,
        offerings,
        site.health,
        site.locations,
        site.busy,
        site.services,
        site.kinds,
    )


def checkpoint_places(workload: Workload) -> frozenset[str]:
    """The bucket that it is restored from."""
    uri = workload.restore_from
    return frozenset({_bucket(uri)} if uri.startswith("s3://") else ())


def data_places(workload: Workload) -> frozenset[str]:
    """Regions and buckets of its volumes."""
    volumes = workload.options.volumes
    regions = {volume.region for volume in volumes if volume.region}
    return frozenset(regions | {_bucket(f"s3://{volume.bucket}") for volume in volumes})


def _bucket(uri: str) -> str:
    return "s3://" + uri.removeprefix("s3://").partition("/")[0]


def reasons(placement: Placement) -> str:
    """What is said of the chosen cluster, then of the others; for people."""
    chosen = [placement.cluster] if placement.cluster else []
    rest = [name for name in sorted(placement.why) if name not in chosen]
    return "; ".join(f"{name}: {placement.why[name]}" for name in [*chosen, *rest][:_SHOWN])


_SHOWN = 5
