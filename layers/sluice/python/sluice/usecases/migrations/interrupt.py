"""Within the two minutes: see whose work is on a dying machine, save it, and order another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.core.accounting.machines import PRICES, share
from sluice.core.accounting.recovery import interruptions
from sluice.core.clusters.fallback import INTERRUPTIONS, STEADY
from sluice.core.clusters.inventory import node_row
from sluice.core.clusters.quarantine import Cause, Offering, avoiding, banned
from sluice.core.intake.rendering import POD_SET
from sluice.core.intake.replacement import placeholder
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload, is_migrating
from sluice.core.migrations import at_risk, checkpointing, migration, migration_timeline
from sluice.core.migrations.at_risk import AtRisk, most_valuable_first
from sluice.core.migrations.interruption import (
    ADVICE,
    LOSSES,
    NOTICE_MS,
    Notice,
    NoticeKind,
    ReservationNotice,
    UnreadableEvent,
    UserRequest,
    read_agent_notice,
    read_event,
)
from sluice.core.migrations.losses import loss_of
from sluice.core.migrations.migration import Migration, eviction_id
from sluice.core.migrations.periodic import can_be_ordered
from sluice.core.migrations.pod_annotations import LEAVING, MIGRATE, ORDER, order_of, under_way
from sluice.core.values.reasons import Reason
from sluice.ports import (
    Catalog,
    Clock,
    Cluster,
    Clusters,
    Document,
    Ledgers,
    Losses,
    Migrations,
    Nodes,
    Offerings,
    Pools,
    Timeline,
    Workloads,
)
from sluice.usecases.configuration import configured
from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint, with_gang
from sluice.usecases.migrations.migration_steps import record_step
from sluice.usecases.migrations.on_demand_fallback import OnDemandQuota, leaving_spot
from sluice.usecases.migrations.stop_run import pods_of, stop

PARALLEL = 16
DUMP_MS = 600_000  # how long a dump may take when no machine goes away


@dataclass(frozen=True, slots=True)
class NoticeOutcome:
    """What became of one event: workloads that move or were ordered to save themselves."""

    dropped: str = ""
    moved: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    repeated: bool = False


@dataclass(frozen=True)
class Interrupt:
    """Every effect is conditional or idempotent: an event may come late, often, or not at all."""

    workloads: Workloads
    catalog: Catalog
    clusters: Clusters
    nodes: Nodes
    offerings: Offerings
    losses: Losses
    migrations: Migrations
    timeline: Timeline
    clock: Clock
    pools: Pools
    ledgers: Ledgers
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    @property
    def weigh(self) -> AssessCheckpoint:
        return AssessCheckpoint(self.nodes, self.migrations, self.clock, self.clusters)

    def __call__(
        self, envelope: Mapping[str, Any], *, account: str, region: str, of_agent: bool = False
    ) -> list[NoticeOutcome]:
        heard = read_agent_notice(envelope) if of_agent else read_event(envelope)
        if isinstance(heard, UnreadableEvent):
            return [NoticeOutcome(dropped=heard.why)]
        if isinstance(heard, UserRequest):
            return [self.obey(heard)]
        if isinstance(heard, ReservationNotice):
            heard = self.of_reservation(heard)
        return [self.handle(notice, account, region) for notice in heard]

    def of_reservation(self, ending: ReservationNotice) -> list[Notice]:
        """The instances of a Capacity Block, which its events do not name."""
        return [
            Notice(
                NoticeKind.BLOCK,
                row["instance"],
                ending.at,
                ending.deadline,
                ending.account,
                ending.region,
            )
            for cluster in self.catalog.snapshot().of("Cluster")
            for row in self.nodes.of(cluster)
            if row.get("reservation") == ending.reservation
        ]

    def handle(self, notice: Notice, account: str, region: str) -> NoticeOutcome:
        if (notice.account, notice.region) != (account, region):
            return NoticeOutcome(dropped=f"of account {notice.account}, region {notice.region}")
        found = self.find(notice)
        if found is None:
            return NoticeOutcome(dropped=f"instance {notice.instance} is none of ours")
        name, row = found
        cluster = self.clusters.cluster(name)
        first = self.migrations.note(notice.key(str(row.get("created", ""))), notice)
        at_risk = self.at_risk(cluster, row["node"])
        if notice.kind in ADVICE:
            ordered = self.order_extra(cluster, at_risk, notice)
            return NoticeOutcome(ordered=ordered, repeated=not first)
        moved = self.leave(name, cluster, row, notice, at_risk)
        return NoticeOutcome(moved=moved, repeated=not first)

    def obey(self, request: UserRequest) -> NoticeOutcome:
        """Save a workload, or move it: dumped or signalled, and started again from there."""
        workload = self.workloads.get(request.workload)
        if workload is None or workload.state is not State.DISPATCHED:
            return NoticeOutcome(dropped=f"workload {request.workload} does not run")
        if request.generation not in (None, workload.generation):
            return NoticeOutcome(
                dropped=f"generation {request.generation} of {workload.id} is over"
            )
        if request.checkpoint and request.checkpoint not in {
            each.source for each in self.migrations.checkpoints(workload.id)
        }:
            return NoticeOutcome(
                dropped=f"{request.checkpoint:.200} is no checkpoint of {workload.id}"
            )
        cluster = self.clusters.cluster(workload.cluster)
        pods = tuple(pods_of(cluster, workload))
        if not pods:
            return NoticeOutcome(dropped=f"workload {request.workload} has no pods")
        each = with_gang(cluster, AtRisk(workload, pods, 0))
        if not request.moves:
            if each.no_set:
                failed = Happening(workload, request.at, "CheckpointFailed", each.no_set)
                self.timeline.append([failed])
                return NoticeOutcome(dropped=f"workload {workload.id}: {each.no_set}")
            self.mark(cluster, pods, {ORDER: request.order or f"request-{request.at}"})
            why = request.reason or "a user asked for it"
            ordered = Happening(workload, request.at, "CheckpointOrdered", why)
            self.timeline.append([ordered])
            return NoticeOutcome(ordered=(workload.id,))
        node = pods[0]["spec"].get("nodeName", "")
        row = self.weigh.row_of(workload.cluster, node)
        notice = Notice(
            NoticeKind.REQUEST, row.get("instance", ""), request.at, request.at + DUMP_MS, "", ""
        )
        begun = self.begin(workload.cluster, row, notice, each, request.checkpoint)
        if begun is None:
            return NoticeOutcome(dropped=f"workload {request.workload} does not run any more")
        self.mark(cluster, pods, marks_of(begun[1], workload))
        return NoticeOutcome(moved=(workload.id,))

    def find(self, notice: Notice) -> tuple[str, Mapping[str, Any]] | None:
        """Cluster and inventory row of an instance.

        The inventory may lag behind a new node, so a warning is looked up in the cluster too;
        state changes come for every instance of the account, and are not.
        """
        clusters = list(self.catalog.snapshot().of("Cluster"))
        for name in clusters:
            if row := self.nodes.find(name, notice.instance):
                return name, row
        if notice.kind in LOSSES:
            return None
        for name in clusters:
            nodes, _ = self.clusters.cluster(name).list("Node")
            for node in nodes:
                if (row := node_row(node, self.clock.now())) and row["instance"] == notice.instance:
                    return name, row
        return None

    def doomed(self, notice: Notice) -> list[AtRisk]:
        """Whose work is on the machine of a notice, the dearest first."""
        found = self.find(notice)
        if found is None:
            return []
        name, row = found
        return self.at_risk(self.clusters.cluster(name), row["node"])

    def at_risk(self, cluster: Cluster, node: str) -> list[AtRisk]:
        """The workloads with pods of their present generation on a node, the dearest first."""
        pods, _ = cluster.list(
            "Pod", selector=job_status.WORKLOAD_LABEL, field=f"spec.nodeName={node}"
        )
        by_owner: dict[tuple[str, int], list[Document]] = {}
        for pod in pods:
            if job_status.running_pod(pod) and (owner := job_status.owner(pod)):
                by_owner.setdefault(owner, []).append(pod)
        now = self.clock.now()
        found = []
        for workload in self.workloads.get_many(owner[0] for owner in by_owner):
            if here := by_owner.get((workload.id, workload.generation)):
                kept = self.migrations.checkpoints(workload.id)
                last = max((each.at for each in kept), default=0)
                unsaved = at_risk.unsaved_ms(workload, last, now)
                found.append(with_gang(cluster, AtRisk(workload, tuple(here), unsaved)))
        return most_valuable_first(found)

    def order_extra(
        self, cluster: Cluster, at_risk: Iterable[AtRisk], notice: Notice
    ) -> tuple[str, ...]:
        """A checkpoint more, and nobody moves: recommendations far outnumber interruptions.

        Event bus and metadata tell the same at times seconds apart, often with the warning itself:
        it is one order, and none for who moves already.
        """
        able = [
            r
            for r in at_risk
            if r.workload.state is State.DISPATCHED
            and can_be_ordered(r.workload.options)
            and not r.no_set
        ]
        for each in able:
            self.mark(cluster, each.all_pods, {ORDER: f"{notice.kind}-{notice.at // NOTICE_MS}"})
        return tuple(each.workload.id for each in able)

    def leave(
        self,
        name: str,
        cluster: Cluster,
        row: Mapping[str, Any],
        notice: Notice,
        at_risk: Sequence[AtRisk],
    ) -> tuple[str, ...]:
        """Everybody off this node: the dearest first, and nobody new onto it."""
        moving = [m for each in at_risk if (m := self.begin(name, row, notice, each))]
        if notice.kind not in LOSSES:
            for each, move in moving:
                dumped = move.action is checkpointing.CheckpointAction.DUMP
                concerned = each.all_pods if dumped else each.pods
                self.mark(cluster, concerned, marks_of(move, each.workload))
                self.advance(each.workload, migration.order(move))
        if moving and row.get("capacity_type") == "spot":
            self.bar(name, row)
        if at_risk and notice.instance:  # an empty machine that goes is no loss
            noticed = notice.kind not in LOSSES
            lost = loss_of(row, notice.at, notice.kind.value, noticed=noticed)
            self.losses.record(name, lost)
        self.retire(cluster, row["node"])
        self.order_replacements(name, cluster, notice, moving, str(row.get("cpu", "")))
        if notice.kind in LOSSES:
            self.bury(cluster, at_risk, proven=notice.kind is NoticeKind.TERMINATED)
        return tuple(each.workload.id for each, _ in moving)

    def begin(
        self,
        name: str,
        row: Mapping[str, Any],
        notice: Notice,
        each: AtRisk,
        checkpoint: str = "",
    ) -> tuple[AtRisk, Migration] | None:
        """Record the move and take the workload off; None if it is not ours to move any more."""
        workload = each.workload
        if notice.kind is not NoticeKind.REQUEST and (spent := exhausted(workload)):
            end = Intent(IntentKind.FAIL, Reason.RECOVERY_EXHAUSTED, spent)
            self.workloads.apply([lifecycle.reclaim(workload, end)])
            return None
        planned = self.plan(name, row, notice, each, restores=bool(checkpoint))
        made = replace(planned, checkpoint=checkpoint)
        if workload.state is State.DISPATCHED:
            known: Migration | None = self.migrations.create(made)
            intent = Intent(
                IntentKind.MIGRATE, Reason.WAITING_FOR_REPLACEMENT, f"{row['node']}: {notice.kind}"
            )
            self.workloads.apply([lifecycle.reclaim(workload, intent)])
            current = self.workloads.get(workload.id)
        else:
            known, current = self.migrations.get(made.id), workload
        if current is None or known is None or not is_moving(current, workload.generation):
            self.hurry(workload, notice)
            return None
        if notice.deadline is not None and notice.deadline < known.deadline:
            known = self.advance(current, migration.sooner(known, notice.deadline))
        self.timeline.append(list(migration_timeline.timeline_events(known, current)))
        return replace(each, workload=current), known

    def hurry(self, workload: Workload, notice: Notice) -> None:
        """Who makes room already is to be saved before its machine goes away."""
        known = self.migrations.get(eviction_id(workload.id, workload.generation))
        if known is not None and notice.deadline is not None:
            self.advance(workload, migration.sooner(known, notice.deadline))

    def plan(
        self,
        name: str,
        row: Mapping[str, Any],
        notice: Notice,
        each: AtRisk,
        *,
        restores: bool = False,
    ) -> Migration:
        """The decision at T+0, with its numbers."""
        workload, now = each.workload, self.clock.now()
        deadline = notice.deadline if notice.deadline is not None else now + NOTICE_MS
        left_ms = 0 if notice.kind in LOSSES else deadline - now
        weighed = self.weigh(name, row, each, left_ms, restores=restores)
        # Who moves by a wish loses no machine, and waits for none.
        # A second dump of the same processes would only begin when the first has ended.
        waits = weighed.dumped and notice.kind is not NoticeKind.REQUEST
        extra = under_way(each.all_pods) if waits else ""
        twice = waits and (bool(extra) or checkpointing.fits_twice(weighed.fit))
        return Migration(
            workload=workload.id,
            generation=workload.generation,
            cluster=name,
            instance=notice.instance,
            node=row["node"],
            kind=notice.kind.value,
            noticed_at=notice.at,
            received_at=now,
            deadline=deadline,
            driver=weighed.driver,
            action=weighed.fit.action,
            reason=weighed.reason,
            numbers={**weighed.numbers, "left_ms": deadline - now, **prices(workload, row)},
            instance_type=str(row.get("type", "")),
            zone=str(row.get("zone", "")),
            grace_ms=weighed.grace_ms,
            pods=weighed.pods,
            first_order=extra,
            last_at=now if weighed.dumped and not twice else 0,
        )

    def advance(self, workload: Workload, step: migration.MigrationStep) -> Migration:
        return record_step(self.migrations, self.timeline, workload, step)

    def mark(
        self, cluster: Cluster, pods: Iterable[Mapping[str, Any]], marks: Mapping[str, str]
    ) -> None:
        """Annotate pods; their node agents and `observe` see it at once."""

        def one(pod: Mapping[str, Any]) -> None:
            metadata = pod["metadata"]
            patch = {"metadata": {"uid": metadata["uid"], "annotations": dict(marks)}}
            cluster.patch("Pod", metadata["namespace"], metadata["name"], patch)

        list(self.pool.map(one, pods))

    def bar(self, name: str, row: Mapping[str, Any]) -> None:
        """Nothing more of the offering that was just lost."""
        lost = Offering(
            str(row.get("type", "")), str(row.get("zone", "")), str(row["capacity_type"])
        )
        before = {ban.offering: ban for ban in self.offerings.banned(name)}
        ban = banned(lost, Cause.LOST, self.clock.now(), before.get(lost))
        self.offerings.ban(name, ban)

    def retire(self, cluster: Cluster, node: str) -> None:
        """Nobody new onto the node, and Karpenter ends it as soon as it is empty.

        The same that Karpenter does with an interruption queue of its own, so both agree.
        """
        cluster.patch("Node", "", node, {"spec": {"unschedulable": True}})
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
        moving: Sequence[tuple[AtRisk, Migration]],
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
            left = (each.workload for each, _ in moving)
            leaving = leaving_spot(left, self.catalog, self.pools, now)
        room = OnDemandQuota(configured(self.catalog.snapshot()).queues, self.ledgers)
        for each, move in moving:
            workload, places = each.workload, None
            needed = cpu if move.driver in checkpointing.DUMPING else ""
            if flavor := leaving.get(workload.id):
                places = room.placements(workload, flavor)
                if places is None:
                    continue
            terms = avoiding(bans, now, STEADY if places else ())
            for pod in each.pods:
                place = places[pod["metadata"]["labels"][POD_SET]] if places else None
                made = placeholder(pod, workload.id, workload.generation + 1, terms, place, needed)
                wanted.append(made)
        list(self.pool.map(cluster.create, wanted))

    def bury(self, cluster: Cluster, lost: Iterable[AtRisk], *, proven: bool) -> None:
        """The machine is gone: so are its pods, once EC2 proves it, whatever Kubernetes says."""
        for each in lost:
            current = self.workloads.get(each.workload.id)
            if current is None or not is_stopping(current, each.workload.generation):
                continue
            # The Job first, or its controller would replace the pods.
            change = stop(cluster, current, self.clock.now())
            if proven:
                for pod in each.pods:
                    at = pod["metadata"]
                    cluster.delete(
                        "Pod", at["namespace"], at["name"], uid=at["uid"], grace_seconds=0
                    )
                change = change or stop(cluster, current, self.clock.now())
            if change:
                self.workloads.apply([change])


def prices(workload: Workload, row: Mapping[str, Any]) -> dict[str, float]:
    """Dollars per hour for the whole workload, where known: as noted, else as on this machine."""
    if workload.machine.usd_per_hour:
        noted = {name: getattr(workload.machine, name) for name in PRICES}
        return {name: price for name, price in noted.items() if price is not None}
    parts = [
        each.count * (share(each.requests, row.get("allocatable") or {}) or 0.0)
        for each in workload.pod_sets
    ]
    return {
        name: round(float(row[price]) * sum(parts), 6)
        for name, price in PRICES.items()
        if sum(parts) and row.get(price)
    }


def is_moving(workload: Workload, generation: int) -> bool:
    return is_migrating(workload) and workload.generation == generation


def is_stopping(workload: Workload, generation: int) -> bool:
    return workload.state is State.RECLAIMING and workload.generation == generation


def marks_of(move: Migration, workload: Workload) -> dict[str, str]:
    """What the node agent has to know: until when, and whether to save."""
    marks = {LEAVING: str(move.deadline)}
    if move.action is checkpointing.CheckpointAction.DUMP:
        marks[ORDER] = order_of(move)
    elif saves_on_signal(workload):
        marks[ORDER] = f"{MIGRATE}{move.generation}"
    return marks


def saves_on_signal(workload: Workload) -> bool:
    return bool(workload.options.checkpoint_signal)


def exhausted(workload: Workload) -> str:
    """What to tell of a workload that was interrupted as often as it allows; else nothing."""
    most = workload.options.max_recoveries
    if workload.state is not State.DISPATCHED:
        return ""
    moved = interruptions(workload)
    if most is None or moved < most:
        return ""
    return f"interrupted again after {moved} of at most {most} recoveries"
