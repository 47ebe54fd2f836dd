"""The `Cluster` document: what a cluster offers, and where it is."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.clusters.capacity import WAITING_PODS
from sluice.core.jobs.table import EVERYWHERE, KINDS

if TYPE_CHECKING:
    from sluice.core.config.document import Fields

KIND: Final = "Cluster"


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a Cluster object says; `flavors` empty: all of them."""

    flavors: tuple[str, ...] = ()
    cordoned: bool = False
    region: str = ""
    buckets: tuple[str, ...] = ()
    manages_pools: bool = True
    most_waiting_pods: int = WAITING_PODS
    always_watched: bool = False
    services: Mapping[CheckpointMode, object] = field(default_factory=dict)
    """Settings of the services that checkpoint drivers have in this cluster."""
    kinds: frozenset[str] = EVERYWHERE
    """The kinds of jobs whose controllers it has."""

    @property
    def locations(self) -> frozenset[str]:
        """The region and the buckets that are near, as placement compares them."""
        return frozenset({f"s3://{bucket}" for bucket in self.buckets} | {self.region}) - {""}


def read(fields: Fields) -> ClusterSpec:
    """`spec.flavors`: those it offers (none: all); `spec.cordoned`: takes no new work.

    `spec.managePools`: whether `provision` sets limits of labelled NodePools; switched off, it
    gives back what it has set. `spec.maxWaitingPods`: with more without a node, nobody is admitted.
    `spec.alwaysWatch`: it is watched while nothing of Sluice is there, too, so that what users
    create in it is seen at once; else within a minute.
    A field named like the service of a checkpoint driver: its settings; only there may workloads
    ask for that driver.
    `spec.kinds`: kinds of add-ons whose controllers it has, beside those that every cluster has.
    `spec.region` and `spec.buckets` say which data and checkpoints are near.
    """
    fields.ignore("apiVersion", "kind", "status")
    metadata, spec = fields.map("metadata", required=True), fields.map("spec")
    metadata.text("name", required=True)
    metadata.ignore("labels", "annotations", "namespace")
    found = ClusterSpec(
        flavors=spec.texts("flavors"),
        cordoned=spec.boolean("cordoned", default=False),
        region=spec.text("region"),
        buckets=spec.texts("buckets"),
        manages_pools=spec.boolean("managePools", default=True),
        most_waiting_pods=spec.integer("maxWaitingPods", WAITING_PODS, minimum=1),
        always_watched=spec.boolean("alwaysWatch", default=False),
        services=_services(spec),
        kinds=EVERYWHERE | set(_kinds(spec)),
    )
    for each in (fields, metadata, spec):
        each.close()
    return found


def _kinds(spec: Fields) -> tuple[str, ...]:
    asked = spec.texts("kinds")
    for kind in asked:
        if kind not in KINDS:
            spec.wrong("kinds", f"{kind[:63]!r} is no kind of job; known are {', '.join(KINDS)}")
    return asked


def _services(spec: Fields) -> dict[CheckpointMode, object]:
    return {
        mode: driver.read_service(spec.map(driver.service))
        for mode, driver in DRIVERS.items()
        if driver.service and spec.has(driver.service)
    }
