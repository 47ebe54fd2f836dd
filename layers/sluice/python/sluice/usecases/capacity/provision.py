"""Look at what one cluster could not buy, and plan its NodePools: limits, weights, quarantine."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sluice.core.clusters.capacity import MANAGED, CapacityView, Pool, plan, read_pool, unscheduled
from sluice.core.clusters.fallback import hopeless
from sluice.core.clusters.inventory import free_by_pool
from sluice.core.clusters.launches import lessons
from sluice.core.clusters.machine_sizes import wanted_types
from sluice.core.clusters.quarantine import Ban
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.indexes import pending_key
from sluice.core.lifecycle.record import State, Workload
from sluice.errors import ClusterError
from sluice.ports import (
    Catalog,
    CatalogSnapshot,
    Clock,
    Cluster,
    Clusters,
    Commands,
    Document,
    MachineSizes,
    Nodes,
    Offerings,
    Pools,
    Workloads,
)
from sluice.usecases.configuration import cluster_spec, configured
from sluice.usecases.fleet import GONE_MS

NOT_FOUND = 404
EVENTS_NAMESPACE = "default"  # where Kubernetes keeps the events of objects without a namespace
REFUSED_PURCHASES = "involvedObject.kind=NodeClaim,reason=InsufficientCapacityError"
LOOKED_AHEAD = 100


@dataclass(frozen=True, slots=True)
class Provisioned:
    """What one look at one cluster changed, for logs and metrics."""

    cluster: str
    pools: int = 0
    changed: int = 0
    barred: tuple[Ban, ...] = ()
    closed: tuple[str, ...] = ()
    requeued: tuple[str, ...] = ()
    waiting_pods: int = 0
    without_karpenter: bool = False


@dataclass(frozen=True, kw_only=True)
class Provision:
    """Plans are replaced as a whole and commands name no content, so everything may repeat."""

    workloads: Workloads
    catalog: Catalog
    clusters: Clusters
    offerings: Offerings
    pools: Pools
    commands: Commands
    nodes: Nodes
    clock: Clock
    sizes: MachineSizes
    threads: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))

    def __call__(self, name: str) -> Provisioned:
        """Raises ClusterError for a cluster that does not answer."""
        # Gather
        snapshot, cluster = self.catalog.snapshot(), self.clusters.cluster(name)
        pools, events = self.look(cluster)
        if pools is None:
            return Provisioned(name, without_karpenter=True)
        holders = self.workloads.get_many(self.workloads.active(name))
        pods, _ = cluster.list("Pod", selector=job_status.WORKLOAD_LABEL, field="spec.nodeName=")
        waiting = unscheduled(pods)
        before = {ban.offering: ban for ban in self.offerings.banned(name)}
        # Decide
        fresh = lessons(pools, events, before, self.clock.now())
        bans = before | {ban.offering: ban for ban in fresh}
        view = self.view(name, snapshot, pools, holders, bans.values(), len(waiting))
        plans = plan(view)
        given_up = hopeless(holders, waiting, plans, pools, view.now)
        # Apply
        for ban in fresh:
            self.offerings.ban(name, ban)
        self.pools.put(name, plans)
        present = {pool.name: pool for pool in pools}
        differing = [each for each in plans if each.differs(present[each.pool])]
        if differing:
            self.commands.steer(name)
        done = self.workloads.apply(given_up)
        requeued = [c.before.id for c, ok in zip(given_up, done, strict=True) if ok]
        return Provisioned(
            name,
            pools=len(plans),
            changed=len(differing),
            barred=tuple(fresh),
            closed=tuple(each.pool for each in plans if each.closed),
            requeued=tuple(requeued),
            waiting_pods=len(waiting),
        )

    def look(self, cluster: Cluster) -> tuple[list[Pool] | None, list[Document]]:
        """The labelled NodePools and the refused purchases; None where Karpenter is not there."""
        try:
            documents, _ = cluster.list("NodePool", selector=f"{MANAGED}=true")
            claims, _ = cluster.list("NodeClaim")
        except ClusterError as error:
            if error.status == NOT_FOUND:
                return None, []
            raise
        events, _ = cluster.list("Event", field=REFUSED_PURCHASES, namespace=EVENTS_NAMESPACE)
        pools = [
            read_pool(each, claims, self.sizes.matching(wanted_types(each))) for each in documents
        ]
        return pools, events

    def view(
        self,
        name: str,
        snapshot: CatalogSnapshot,
        pools: Sequence[Pool],
        holders: Sequence[Workload],
        bans: Iterable[Ban],
        waiting_pods: int,
    ) -> CapacityView:
        queues = configured(snapshot).queues
        proposed = self.threads.map(
            lambda queue: self.workloads.inbox(pending_key(queue), limit=LOOKED_AHEAD),
            sorted(queues.cluster_queues),
        )
        pending = self.workloads.get_many([i for ids in proposed for i in ids])
        spec, now = cluster_spec(snapshot, name), self.clock.now()
        return CapacityView(
            pools=pools,
            flavors=queues.flavors,
            queues=tuple(queues.cluster_queues.values()),
            cohorts=tuple(queues.cohorts.values()),
            workloads=holders,
            waiting=[w for w in pending if w.state is State.PENDING and not w.held],
            bans=tuple(bans),
            waiting_pods=waiting_pods,
            now=now,
            free=free_by_pool(self.nodes.of(name), now - GONE_MS),
            most_waiting_pods=spec.most_waiting_pods,
            managed=spec.manages_pools,
            offered=spec.flavors,
        )
