"""What becomes of a machine that goes away: cordoned, banned, replaced, and proven gone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.clusters.fallback import INTERRUPTIONS, STEADY
from sluice.core.clusters.quarantine import Cause, Offering, avoiding, banned
from sluice.core.intake.replacement import placeholder
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.job_status import POD_SET_LABEL
from sluice.core.lifecycle.record import State, Workload
from sluice.core.migrations.at_risk import AtRisk
from sluice.core.migrations.interruption import LOSSES, Notice, NoticeKind
from sluice.core.migrations.losses import loss_of
from sluice.core.migrations.migration import Migration
from sluice.ports import (
    Catalog,
    Clock,
    Cluster,
    Document,
    Ledgers,
    Losses,
    Offerings,
    Pools,
    Workloads,
)
from sluice.usecases.configuration import configured
from sluice.usecases.migrations import pod_writer
from sluice.usecases.migrations.machines_at_risk import MachineAtRisk
from sluice.usecases.migrations.on_demand_fallback import OnDemandQuota, leaving_spot
from sluice.usecases.migrations.stop_run import stop

Migrating = Sequence[tuple[AtRisk, Migration]]


@dataclass(frozen=True, kw_only=True)
class RetireMachine:
    workloads: Workloads
    catalog: Catalog
    offerings: Offerings
    losses: Losses
    pools: Pools
    ledgers: Ledgers
    clock: Clock
    pool: ThreadPoolExecutor

    def __call__(
        self, cluster: Cluster, machine: MachineAtRisk, notice: Notice, migrating: Migrating
    ) -> None:
        name, row = machine.cluster, machine.row
        if migrating and row.capacity_type == "spot":
            self.bar(name, row)
        if machine.at_risk and notice.instance:  # an empty machine that goes is no loss
            noticed = notice.kind not in LOSSES
            lost = loss_of(row, notice.at, notice.kind.value, noticed=noticed)
            self.losses.record(name, lost)
        self.retire(cluster, row.node)
        self.order_replacements(name, cluster, notice, migrating, row.cpu)
        if notice.kind in LOSSES:
            proven = notice.kind is NoticeKind.TERMINATED
            self.bury(cluster, machine.at_risk, proven=proven)

    def bar(self, name: str, row: InventoryRow) -> None:
        """Nothing more of the offering that was just lost."""
        lost = Offering(row.type, row.zone, row.capacity_type)
        before = {ban.offering: ban for ban in self.offerings.banned(name)}
        ban = banned(lost, Cause.LOST, self.clock.now(), before.get(lost))
        self.offerings.ban(name, ban)

    def retire(self, cluster: Cluster, node: str) -> None:
        """Nobody new onto the node, and Karpenter ends it as soon as it is empty.

        The same that Karpenter does with an interruption queue of its own, so both agree.
        """
        patched = cluster.patch("Node", "", node, {"spec": {"unschedulable": True}})
        owners = ((patched or {}).get("metadata") or {}).get("ownerReferences") or ()
        if named := [owner for owner in owners if owner["kind"] == "NodeClaim"]:
            for owner in named:  # Karpenter says so on each of its nodes
                cluster.delete("NodeClaim", "", owner["name"], uid=owner["uid"])
            return
        claims, _ = cluster.list("NodeClaim")
        for claim in claims:
            metadata = claim["metadata"]
            of_node = (claim.get("status") or {}).get("nodeName") == node
            if of_node and not metadata.get("deletionTimestamp"):
                cluster.delete("NodeClaim", "", metadata["name"], uid=metadata["uid"])

    def order_replacements(
        self,
        name: str,
        cluster: Cluster,
        notice: Notice,
        migrating: Migrating,
        cpu: str,
    ) -> None:
        """One placeholder for each pod that loses its machine; the rest keep theirs.

        On the same kind of CPU where processes are to go on; their last dump is of here, too.

        For those that leave spot for good, of the kind that they go to, if they have quota there:
        no machine is bought for who has to wait.
        """
        now, bans = self.clock.now(), self.offerings.banned(name)
        leaving, wanted = dict[str, str](), list[Document]()
        if notice.kind in INTERRUPTIONS:
            left = (each.workload for each, _ in migrating)
            leaving = leaving_spot(left, self.catalog, self.pools, now)
        room = OnDemandQuota(configured(self.catalog.snapshot()).queues, self.ledgers)
        for each, move in migrating:
            workload, places = each.workload, None
            needed = cpu if DRIVERS[move.driver].dumps else ""
            if flavor := leaving.get(workload.id):
                places = room.placements(workload, flavor)
                if places is None:
                    continue
            terms = avoiding(bans, now, STEADY if places else ())
            for pod in each.pods:
                place = places[pod["metadata"]["labels"][POD_SET_LABEL]] if places else None
                made = placeholder(pod, workload.id, workload.generation + 1, terms, place, needed)
                wanted.append(made)
        list(self.pool.map(cluster.create, wanted))

    def bury(self, cluster: Cluster, lost: Iterable[AtRisk], *, proven: bool) -> None:
        """The machine is gone: so are its pods, once EC2 proves it, whatever Kubernetes says."""
        for each in lost:
            current = self.workloads.get(each.workload.id)
            if current is None or not is_stopping(current, each.workload.generation):
                continue
            # The Job first, or its controller would replace the pods. `act` alone may suspend one
            # that others made; its generation is stopping, so what is replaced ends with it.
            ours = current.object is None
            change = stop(cluster, current, self.clock.now()) if ours else None
            if proven:
                for pod in each.pods:
                    pod_writer.delete(cluster, pod, grace_seconds=0)
                if ours:
                    change = change or stop(cluster, current, self.clock.now())
            if change:
                self.workloads.apply([change])


def is_stopping(workload: Workload, generation: int) -> bool:
    return workload.state is State.RECLAIMING and workload.generation == generation
