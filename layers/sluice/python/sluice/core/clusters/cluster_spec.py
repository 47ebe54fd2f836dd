"""The `Cluster` document: what a cluster offers, and where it is."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluice.core.clusters.capacity import WAITING_PODS

if TYPE_CHECKING:
    from sluice.core.config.document import Fields

KIND: Final = "Cluster"
_ADDRESS: Final = re.compile(
    r"https://[a-zA-Z0-9.-]+(:\d+)?|http://(127\.0\.0\.1|localhost)(:\d+)?", re.ASCII
)
_SECRET: Final = re.compile(r"arn:aws[a-z-]*:secretsmanager:[a-z0-9-]+:\d{12}:secret:\S+", re.ASCII)


@dataclass(frozen=True, slots=True)
class CedanaSpec:
    """Cedana's service, what it calls this cluster, and the secret (ARN) that holds the token."""

    url: str
    cluster_id: str
    token_secret: str


@dataclass(frozen=True, slots=True)
class ClusterSpec:
    """What a Cluster object says; `flavors` empty: all of them."""

    flavors: tuple[str, ...] = ()
    cordoned: bool = False
    region: str = ""
    buckets: tuple[str, ...] = ()
    manages_pools: bool = True
    most_waiting_pods: int = WAITING_PODS
    cedana: CedanaSpec | None = None

    @property
    def locations(self) -> frozenset[str]:
        """The region and the buckets that are near, as placement compares them."""
        return frozenset({f"s3://{bucket}" for bucket in self.buckets} | {self.region}) - {""}


def read(fields: Fields) -> ClusterSpec:
    """`spec.flavors`: those it offers (none: all); `spec.cordoned`: takes no new work.

    `spec.managePools`: whether `provision` sets limits of labelled NodePools; switched off, it
    gives back what it has set. `spec.maxWaitingPods`: with more without a node, nobody is admitted.
    `spec.cedana`: `{url, clusterId, tokenSecret}`; only there may workloads ask for Cedana.
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
        cedana=_cedana(spec.map("cedana")) if spec.has("cedana") else None,
    )
    for each in (fields, metadata, spec):
        each.close()
    return found


def _cedana(fields: Fields) -> CedanaSpec:
    found = CedanaSpec(
        url=fields.text("url", required=True).rstrip("/"),
        cluster_id=fields.text("clusterId", required=True),
        token_secret=fields.text("tokenSecret", required=True),
    )
    if found.url and not _ADDRESS.fullmatch(found.url):
        fields.wrong("url", "must be https://HOST, without a path")
    if found.token_secret and not _SECRET.fullmatch(found.token_secret):
        fields.wrong("tokenSecret", "must be the ARN of a secret of AWS Secrets Manager")
    fields.close()
    return found
