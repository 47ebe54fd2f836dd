"""Within the two minutes: see whose work is on a dying machine, save it, and order another one."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.checkpoints.fit import CheckpointAction
from sluice.core.clusters.interruption_plan import (
    MigrationPlan,
    left_ms,
    order_annotations,
    plan_interruption,
)
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload, is_migrating
from sluice.core.migrations import migration, migration_timeline
from sluice.core.migrations.at_risk import AtRisk
from sluice.core.migrations.interruption import (
    ADVICE,
    LOSSES,
    NOTICE_MS,
    REQUEST_MS,
    Notice,
    NoticeKind,
    ReservationNotice,
    UnreadableEvent,
    UserRequest,
    read_agent_notice,
    read_event,
)
from sluice.core.migrations.migration import Migration, eviction_id
from sluice.core.migrations.periodic import can_be_ordered
from sluice.core.migrations.pod_annotations import ORDER
from sluice.core.values.reasons import Reason
from sluice.errors import SluiceError
from sluice.ports import (
    Catalog,
    Clock,
    Cluster,
    Clusters,
    Ledgers,
    Losses,
    Machines,
    Migrations,
    Nodes,
    Offerings,
    Pools,
    Timeline,
    Workloads,
)
from sluice.usecases.migrations import pod_writer
from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint, with_gang
from sluice.usecases.migrations.machines_at_risk import MachineAtRisk, MachinesAtRisk
from sluice.usecases.migrations.migration_steps import record_step
from sluice.usecases.migrations.pods_of_run import pods_of
from sluice.usecases.migrations.retire_machine import RetireMachine

PARALLEL = 16


@dataclass(frozen=True, slots=True)
class NoticeOutcome:
    """What became of one event: workloads that move or were ordered to save themselves."""

    dropped: str = ""
    moved: tuple[str, ...] = ()
    ordered: tuple[str, ...] = ()
    repeated: bool = False


@dataclass(frozen=True, kw_only=True)
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
    ec2: Machines
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    @property
    def assess(self) -> AssessCheckpoint:
        return AssessCheckpoint(
            nodes=self.nodes, migrations=self.migrations, clock=self.clock, clusters=self.clusters
        )

    @property
    def machines(self) -> MachinesAtRisk:
        return MachinesAtRisk(
            workloads=self.workloads,
            catalog=self.catalog,
            clusters=self.clusters,
            nodes=self.nodes,
            migrations=self.migrations,
            clock=self.clock,
            ec2=self.ec2,
        )

    @property
    def retire(self) -> RetireMachine:
        return RetireMachine(
            workloads=self.workloads,
            catalog=self.catalog,
            offerings=self.offerings,
            losses=self.losses,
            pools=self.pools,
            ledgers=self.ledgers,
            clock=self.clock,
            pool=self.pool,
        )

    def __call__(
        self,
        envelope: Mapping[str, Any],
        *,
        account: str,
        region: str,
        of_agent: bool = False,
        seen: Mapping[str, MachineAtRisk | None] | None = None,
    ) -> list[NoticeOutcome]:
        """`seen`: by instance, what was looked at already; None: it is none of ours.

        `of_agent`: whether a node agent sent it, who may say less than EC2.
        """
        content = read_agent_notice(envelope) if of_agent else read_event(envelope)
        if isinstance(content, UnreadableEvent):
            return [NoticeOutcome(dropped=content.why)]
        if isinstance(content, UserRequest):
            return [self.serve(content)]
        if isinstance(content, ReservationNotice):
            content = self.of_reservation(content)
        return [self.handle(notice, account, region, seen or {}) for notice in content]

    def of_reservation(self, ending: ReservationNotice) -> list[Notice]:
        """The instances of a Capacity Block, which its events do not name."""
        return [
            Notice(
                NoticeKind.BLOCK,
                row.instance,
                ending.at,
                ending.deadline,
                ending.account,
                ending.region,
            )
            for cluster in self.catalog.snapshot().of("Cluster")
            for row in self.nodes.of(cluster)
            if row.reservation == ending.reservation
        ]

    def handle(
        self, notice: Notice, account: str, region: str, seen: Mapping[str, MachineAtRisk | None]
    ) -> NoticeOutcome:
        if (notice.account, notice.region) != (account, region):
            return NoticeOutcome(dropped=f"of account {notice.account}, region {notice.region}")
        known = notice.instance in seen
        machine = seen[notice.instance] if known else self.machines.look(notice)
        if machine is None:
            return NoticeOutcome(dropped=f"instance {notice.instance} is none of ours")
        cluster = self.clusters.cluster(machine.cluster)
        created = machine.row.created
        first = self.migrations.note(notice.key(created), notice)
        if notice.kind in ADVICE:
            ordered = self.order_extra(cluster, machine.at_risk, notice)
            return NoticeOutcome(ordered=ordered, repeated=not first)
        moved = self.leave(cluster, machine, notice)
        return NoticeOutcome(moved=moved, repeated=not first)

    def serve(self, request: UserRequest) -> NoticeOutcome:
        """Save a workload, or migrate it: dumped or signalled, and started again from there."""
        workload = self.workloads.get(request.workload)
        if workload is None or workload.state is not State.DISPATCHED:
            return NoticeOutcome(dropped=f"workload {request.workload} does not run")
        if request.generation not in (None, workload.generation):
            over = f"generation {request.generation} of {workload.id} is over"
            return NoticeOutcome(dropped=over)
        if request.checkpoint and request.checkpoint not in {
            each.source for each in self.migrations.checkpoints(workload.id)
        }:
            unknown = f"{request.checkpoint:.200} is no checkpoint of {workload.id}"
            return NoticeOutcome(dropped=unknown)
        cluster = self.clusters.cluster(workload.cluster)
        pods = tuple(pods_of(cluster, workload))
        if not pods:
            return NoticeOutcome(dropped=f"workload {request.workload} has no pods")
        at_risk = with_gang(cluster, AtRisk(workload, pods, 0))
        if request.moves:
            return self.serve_migration(cluster, request, at_risk)
        return self.serve_checkpoint(cluster, request, at_risk)

    def serve_checkpoint(
        self, cluster: Cluster, request: UserRequest, at_risk: AtRisk
    ) -> NoticeOutcome:
        workload = at_risk.workload
        if at_risk.no_set:
            failed = Happening(workload, request.at, "CheckpointFailed", at_risk.no_set)
            self.timeline.append([failed])
            return NoticeOutcome(dropped=f"workload {workload.id}: {at_risk.no_set}")
        order = request.order or f"request-{request.at}"
        self.annotate(cluster, at_risk.pods, {ORDER: order})
        why = request.reason or "a user asked for it"
        self.timeline.append([Happening(workload, request.at, "CheckpointOrdered", why)])
        return NoticeOutcome(ordered=(workload.id,))

    def serve_migration(
        self, cluster: Cluster, request: UserRequest, at_risk: AtRisk
    ) -> NoticeOutcome:
        workload, at = at_risk.workload, request.at
        node = at_risk.pods[0]["spec"].get("nodeName", "")
        row = self.assess.row_of(workload.cluster, node)
        instance = row.instance
        notice = Notice(NoticeKind.REQUEST, instance, at, at + REQUEST_MS, account="", region="")
        now, restores = self.clock.now(), bool(request.checkpoint)
        assessment = self.assess(
            workload.cluster, row, at_risk, left_ms(notice, now), restores=restores
        )
        if driver_of(workload.options).dumps and not (restores or assessment.dumped):
            text = f"{assessment.reason}; it keeps running on {node}"
            self.timeline.append([Happening(workload, at, "MigrationCalledOff", text)])
            return NoticeOutcome(dropped=f"workload {workload.id}: {assessment.reason}")
        (plan,) = plan_interruption(
            notice, workload.cluster, row, [(at_risk, assessment)], now, request.checkpoint
        )
        begun = self.begin(plan, notice)
        if begun is None:
            return NoticeOutcome(dropped=f"workload {request.workload} does not run any more")
        if begun[1].called_off:
            return NoticeOutcome(dropped=f"workload {request.workload} was called off just now")
        self.annotate(cluster, at_risk.pods, order_annotations(begun[1], workload))
        return NoticeOutcome(moved=(workload.id,))

    def order_extra(
        self, cluster: Cluster, at_risk: Iterable[AtRisk], notice: Notice
    ) -> tuple[str, ...]:
        """One more checkpoint and no migration: recommendations far outnumber interruptions.

        Event bus and metadata tell the same at times seconds apart, often with the warning itself:
        it is one order, and none for a workload that already migrates.
        """
        able = [
            r
            for r in at_risk
            if r.workload.state is State.DISPATCHED
            and can_be_ordered(r.workload.options)
            and not r.no_set
        ]
        for each in able:
            self.annotate(
                cluster, each.all_pods, {ORDER: f"{notice.kind}-{notice.at // NOTICE_MS}"}
            )
        return tuple(each.workload.id for each in able)

    def leave(self, cluster: Cluster, machine: MachineAtRisk, notice: Notice) -> tuple[str, ...]:
        """Everybody off this machine, the dearest first, and nobody new onto it."""
        # 1. Facts: what saving takes, and what the machines can do.
        now = self.clock.now()
        left = left_ms(notice, now)
        assess = lambda each: self.assess(machine.cluster, machine.row, each, left)  # noqa: E731
        assessed = zip(machine.at_risk, self.pool.map(assess, machine.at_risk), strict=True)
        # 2. What becomes of each workload.
        plans = plan_interruption(notice, machine.cluster, machine.row, assessed, now)
        # 3. Record it, tell the pods, and give the machine up.
        begun, again = self.begin_all(plans, notice)
        if notice.kind not in LOSSES:
            for each, made in begun:
                dumped = made.action is CheckpointAction.DUMP
                concerned = each.all_pods if dumped else each.pods
                self.annotate(cluster, concerned, order_annotations(made, each.workload))
                self.advance(each.workload, migration.order(made))
        self.retire(cluster, machine, notice, begun)
        if again:  # the others are on their way; the notice is delivered again
            raise SluiceError(f"called off just now, to be migrated again: {', '.join(again)}")
        return tuple(each.workload.id for each, _ in begun)

    def begin_all(
        self, plans: Iterable[MigrationPlan], notice: Notice
    ) -> tuple[list[tuple[AtRisk, Migration]], list[str]]:
        """Those that have begun, and the ids of those whose earlier migration ends just now."""
        begun: list[tuple[AtRisk, Migration]] = []
        again: list[str] = []
        for plan in plans:
            found = self.begin(plan, notice)
            if found is not None and found[1].called_off:
                again.append(found[1].workload)
            elif found is not None:
                begun.append(found)
        return begun, again

    def begin(self, plan: MigrationPlan, notice: Notice) -> tuple[AtRisk, Migration] | None:
        """Record the migration and take the workload off; None if somebody was faster.

        One that is being called off is answered as it is: it runs again in a moment.
        """
        workload, made = plan.at_risk.workload, plan.migration
        if plan.end is not None:
            self.workloads.apply([lifecycle.reclaim(workload, plan.end)])
            return None
        if workload.state is State.DISPATCHED:
            known: Migration | None = self.migrations.create(made)
            why = f"{made.node}: {notice.kind}"
            intent = Intent(IntentKind.MIGRATE, Reason.WAITING_FOR_REPLACEMENT, why)
            self.workloads.apply([lifecycle.reclaim(workload, intent)])
            current = self.workloads.get(workload.id)
        else:
            known, current = self.migrations.get(made.id), workload
        if current is None or known is None or not is_current(current, workload.generation):
            self.advance_eviction(workload, notice)
            return None
        if notice.deadline is not None and notice.deadline < known.deadline:
            known = self.advance(current, migration.sooner(known, notice.deadline))
        if known.called_off:
            return plan.at_risk, known
        self.timeline.append(list(migration_timeline.timeline_events(known, current)))
        return replace(plan.at_risk, workload=current), known

    def advance_eviction(self, workload: Workload, notice: Notice) -> None:
        """A workload that is already being preempted is checkpointed before its node ends."""
        known = self.migrations.get(eviction_id(workload.id, workload.generation))
        if known is not None and notice.deadline is not None:
            self.advance(workload, migration.sooner(known, notice.deadline))

    def advance(self, workload: Workload, step: migration.MigrationStep) -> Migration:
        return record_step(self.migrations, self.timeline, workload, step)

    def annotate(
        self,
        cluster: Cluster,
        pods: Iterable[Mapping[str, Any]],
        annotations: Mapping[str, str],
    ) -> None:
        """Side by side; their node agents and `observe` see it at once."""
        list(self.pool.map(lambda pod: pod_writer.annotate(cluster, pod, annotations), pods))


def is_current(workload: Workload, generation: int) -> bool:
    """Whether the workload migrates, and from this generation."""
    return is_migrating(workload) and workload.generation == generation
