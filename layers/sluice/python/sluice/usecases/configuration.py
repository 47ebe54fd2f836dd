"""The applied objects as the core's configuration; parsed once per catalog version."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.clusters.capacity import PoolPlan, closed_flavors
from sluice.core.clusters.cluster_spec import ClusterSpec
from sluice.core.clusters.cluster_spec import read as read_cluster
from sluice.core.clusters.fallback import Market, kinds_of
from sluice.core.config import scheduling_policy, tenants
from sluice.core.config.catalog import Problem, QueueCatalog
from sluice.core.config.document import Fields
from sluice.core.config.kueue_objects import parse_objects
from sluice.core.config.scheduling_policy import Policies
from sluice.core.config.tenants import Tenant
from sluice.core.jobs.table import EVERYWHERE
from sluice.core.passes import budget_charges
from sluice.ports import CatalogSnapshot, Pools

Plans = Mapping[str, Sequence[PoolPlan]]
"""What `provision` planned, by cluster."""
NO_PLANS: Plans = {}
QUEUEING_KINDS = (
    "ResourceFlavor",
    "Cohort",
    "ClusterQueue",
    "LocalQueue",
    "WorkloadPriorityClass",
    "AdmissionCheck",
)


@dataclass(frozen=True, slots=True)
class Configured:
    """`problems` are those of the policies; the queues' own stand in their catalog."""

    queues: QueueCatalog
    policies: Policies
    problems: tuple[Problem, ...] = ()


@dataclass(frozen=True, slots=True)
class Senders:
    """Whose submissions are whose: Tenants by principal, source of events, and namespace."""

    by_principal: Mapping[str, Tenant]
    by_source: Mapping[str, Tenant]
    by_namespace: Mapping[str, Tenant]


def senders(snapshot: CatalogSnapshot) -> Senders:
    """Raises core.config.document.DocumentError as `configured` does."""
    found: Senders = _senders(_Keyed(snapshot))
    return found


def configured(snapshot: CatalogSnapshot) -> Configured:
    """Raises core.document.DocumentError only if something was stored that `apply` refuses."""
    found: Configured = _parsed(_Keyed(snapshot))
    return found


def cluster_spec(snapshot: CatalogSnapshot, name: str) -> ClusterSpec:
    """What `apply` took; all defaults for a cluster that there is not."""
    return read_cluster(Fields(snapshot.of("Cluster").get(name), "", []))


def clusters_of(snapshot: CatalogSnapshot) -> Mapping[str, Sequence[str]]:
    """Cluster → the flavors it offers; empty means all of them. Cordoned clusters are left out."""
    specs = {name: cluster_spec(snapshot, name) for name in snapshot.of("Cluster")}
    return {name: spec.flavors for name, spec in specs.items() if not spec.cordoned}


def clusters_with_service(snapshot: CatalogSnapshot, driver: CheckpointMode) -> list[str]:
    """Those that have the service of a checkpoint driver."""
    names = sorted(snapshot.of("Cluster"))
    return [name for name in names if driver in cluster_spec(snapshot, name).services]


def kinds_somewhere(snapshot: CatalogSnapshot) -> frozenset[str]:
    """Kinds of jobs that some cluster runs."""
    specs = [cluster_spec(snapshot, name) for name in snapshot.of("Cluster")]
    return EVERYWHERE.union(*(spec.kinds for spec in specs))


def namespace_labels(snapshot: CatalogSnapshot) -> dict[str, dict[str, str]]:
    """Namespace → its labels: those of the Tenant whose it is."""
    labels: dict[str, dict[str, str]] = {}
    for _, document in sorted(snapshot.of("Tenant").items()):
        given = document["metadata"].get("labels") or {}
        for namespace in document["spec"].get("namespaces", ()):
            labels.setdefault(str(namespace), {}).update(given)
    return labels


def market_of(
    snapshot: CatalogSnapshot, plans: Mapping[str, Sequence[PoolPlan]], now: int
) -> Market:
    """What the clusters offer, and what `provision` found out about it."""
    served: dict[str, set[str]] = {}
    for of_cluster in plans.values():
        for each in of_cluster:
            for flavor in each.flavors:
                served.setdefault(flavor, set()).update(each.capacity_types)
    closed = {cluster: closed_flavors(of_cluster, now) for cluster, of_cluster in plans.items()}
    flavors = configured(snapshot).queues.flavors
    return Market(clusters_of(snapshot), kinds_of(flavors, served), closed, now, plans)


def plans_of(snapshot: CatalogSnapshot, pools: Pools) -> dict[str, list[PoolPlan]]:
    """What `provision` planned for each cluster."""
    return {cluster: pools.plans(cluster) for cluster in snapshot.of("Cluster")}


class _Keyed:
    """A snapshot by identity: the catalog keeps one object while its version stays."""

    def __init__(self, snapshot: CatalogSnapshot) -> None:
        self.snapshot = snapshot

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Keyed) and other.snapshot is self.snapshot

    def __hash__(self) -> int:
        return id(self.snapshot)


@lru_cache(maxsize=2)
def _senders(keyed: _Keyed) -> Senders:
    """Of two that name the same the first by name counts."""
    known = [tenants.parse(document) for document in keyed.snapshot.of("Tenant").values()]
    known.reverse()
    return Senders(
        {principal: tenant for tenant in known for principal in tenant.principals},
        {source: tenant for tenant in known for source in tenant.event_sources},
        {namespace: tenant for tenant in known for namespace in tenant.namespaces},
    )


@lru_cache(maxsize=2)
def _parsed(keyed: _Keyed) -> Configured:
    documents = [
        document for kind in QUEUEING_KINDS for document in keyed.snapshot.of(kind).values()
    ]
    objects = parse_objects(documents, stored=True)
    queues = QueueCatalog(
        flavors=objects.resource_flavors,
        cohorts=objects.cohorts,
        cluster_queues=objects.cluster_queues,
        local_queues=objects.local_queues,
        priority_classes=objects.priority_classes,
        admission_checks=objects.admission_checks,
        budgets=map(budget_charges.parse, keyed.snapshot.of(budget_charges.KIND).values()),
    )
    found = [
        scheduling_policy.parse(document)
        for document in keyed.snapshot.of(scheduling_policy.KIND).values()
    ]
    return Configured(
        queues,
        scheduling_policy.policies(found),
        tuple(scheduling_policy.problems(found, queues)),
    )
