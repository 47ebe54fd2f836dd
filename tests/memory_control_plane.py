"""Every use case on in-memory ports, wired in one place for all tests."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from sluice.cedana.reconciler import CedanaReconciler
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.config.pods_ready import PodsReadyRules
from sluice.ports import CheckpointReconciler
from sluice.usecases.admitting.admit import Admit
from sluice.usecases.admitting.submit import Submit
from sluice.usecases.capacity.provision import Provision
from sluice.usecases.fleet import Fleet
from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint
from sluice.usecases.migrations.interrupt import Interrupt
from sluice.usecases.migrations.migrate import Migrate
from sluice.usecases.running.act import Act
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes
from sluice.usecases.running.observe import Observe, compose_observe
from sluice.usecases.running.order_checkpoints import OrderCheckpoints
from sluice.usecases.running.remove_leftovers import RemoveLeftovers
from sluice.usecases.upkeep.complete import Complete
from sluice.usecases.upkeep.relay import Relay
from sluice.usecases.upkeep.sweep import Sweep
from sluice.usecases.upkeep.unanswered import Unanswered

from tests.fakes import (
    FakeClock,
    FakeKubernetes,
    FakeTasks,
    FixedPrices,
    FixedSizes,
    InlineExecutor,
    MemoryArchives,
    MemoryCatalog,
    MemoryFaults,
    MemoryLeases,
    MemoryLedgers,
    MemoryLogs,
    MemoryLosses,
    MemoryMachines,
    MemoryManifests,
    MemoryMigrations,
    MemoryNodes,
    MemoryOfferings,
    MemoryPools,
    MemoryRecordings,
    MemoryTaskTokens,
    MemoryWorkloads,
    RecordedCommands,
    RecordedCompletions,
    RecordedInterruptions,
    RecordedKicks,
    RecordedObservers,
    RecordedProvisions,
    RecordedTimeline,
)

Port = TypeVar("Port")


def unchanged(port: Port) -> Port:
    return port


@dataclass(frozen=True)
class SameCedana:
    """The same service for every cluster."""

    service: Any

    def of(self, cluster: str) -> Any:
        assert cluster
        return self.service


class MemoryControlPlane:
    """The ports, and each use case on them.

    `wrap` puts something before the ports whose calls matter to a test of faults. A test that needs
    another port takes `dataclasses.replace`.
    """

    def __init__(
        self, *, clock: FakeClock | None = None, kubernetes: FakeKubernetes | None = None
    ) -> None:
        self.clock = clock or FakeClock()
        self.kubernetes = kubernetes or FakeKubernetes()
        self.workloads = MemoryWorkloads()
        self.catalog = MemoryCatalog()
        self.ledgers = MemoryLedgers(self.workloads, self.catalog)
        self.catalog.ledgers = self.ledgers
        self.manifests = MemoryManifests()
        self.timeline, self.bus = RecordedTimeline(), RecordedTimeline()
        self.kicks, self.commands = RecordedKicks(), RecordedCommands()
        self.provisions, self.observers = RecordedProvisions(), RecordedObservers()
        self.interruptions, self.completions = RecordedInterruptions(), RecordedCompletions()
        self.nodes, self.logs, self.leases = MemoryNodes(), MemoryLogs(), MemoryLeases()
        self.sizes = FixedSizes()
        self.losses, self.offerings, self.pools = MemoryLosses(), MemoryOfferings(), MemoryPools()
        self.migrations, self.archives = MemoryMigrations(), MemoryArchives()
        self.ec2: Any = MemoryMachines()
        self.cedana: Any = None
        self.tokens, self.tasks = MemoryTaskTokens(self.clock), FakeTasks()
        self.recordings, self.faults = MemoryRecordings(), MemoryFaults()

    def submit_use_case(self) -> Submit:
        return Submit(
            workloads=self.workloads,
            manifests=self.manifests,
            catalog=self.catalog,
            clock=self.clock,
            tokens=self.tokens,
            completions=self.completions,
            pools=self.pools,
            pool=InlineExecutor(),
        )

    def admit_use_case(self, wrap: Callable[[Any], Any] = unchanged) -> Admit:
        return Admit(
            workloads=wrap(self.workloads),
            ledgers=wrap(self.ledgers),
            catalog=self.catalog,
            kicks=wrap(self.kicks),
            clock=self.clock,
            pools=self.pools,
            fleet=Fleet(nodes=self.nodes, clock=self.clock),
            pool=InlineExecutor(),
        )

    def relay_use_case(self, wrap: Callable[[Any], Any] = unchanged) -> Relay:
        return Relay(
            kicks=wrap(self.kicks),
            commands=self.commands,
            provisions=self.provisions,
            timeline=self.timeline,
            bus=self.bus,
        )

    def migrate_use_case(self, wrap: Callable[[Any], Any] = unchanged) -> Migrate:
        return Migrate(
            workloads=wrap(self.workloads),
            migrations=wrap(self.migrations),
            archives=self.archives,
            timeline=self.timeline,
            nodes=self.nodes,
            clock=self.clock,
        )

    def assess_use_case(self, wrap: Callable[[Any], Any] = unchanged) -> AssessCheckpoint:
        return AssessCheckpoint(
            nodes=self.nodes, migrations=wrap(self.migrations), clock=self.clock
        )

    def reconcilers(
        self, wrap: Callable[[Any], Any] = unchanged
    ) -> dict[CheckpointMode, CheckpointReconciler]:
        if self.cedana is None:
            return {}
        reconciler = CedanaReconciler(
            workloads=wrap(self.workloads),
            timeline=self.timeline,
            clock=self.clock,
            apis=SameCedana(wrap(self.cedana)),
        )
        return {CheckpointMode.CEDANA: reconciler}

    def act_use_case(self, wrap: Callable[[Any], Any] = unchanged) -> Act:
        return Act(
            workloads=wrap(self.workloads),
            manifests=wrap(self.manifests),
            catalog=self.catalog,
            clusters=wrap(self.kubernetes),
            observers=self.observers,
            clock=self.clock,
            migrate=self.migrate_use_case(wrap),
            weigh=self.assess_use_case(wrap),
            offerings=self.offerings,
            pools=self.pools,
            reconcilers=self.reconcilers(wrap),
            pool=InlineExecutor(),
        )

    def observe_use_case(
        self,
        wrap: Callable[[Any], Any] = unchanged,
        *,
        clusters: Any = None,
        pods_ready_ms: int | None = None,
    ) -> Observe:
        made = compose_observe(
            workloads=wrap(self.workloads),
            catalog=self.catalog,
            clusters=clusters or self.kubernetes,
            commands=self.commands,
            nodes=self.nodes,
            archive=self.logs,
            leases=self.leases,
            prices=FixedPrices(),
            clock=self.clock,
            migrate=self.migrate_use_case(wrap),
            order_checkpoints=OrderCheckpoints(
                nodes=self.nodes,
                losses=self.losses,
                interruptions=self.interruptions,
                clock=self.clock,
            ),
            detect_lost_nodes=self.detect_lost_nodes(),
            submit=self.submit_use_case(),
            pool=InlineExecutor(),
        )
        if pods_ready_ms is not None:
            made.update.rules = lambda _: PodsReadyRules(timeout_ms=pods_ready_ms)
        return made

    def detect_lost_nodes(self) -> DetectLostNodes:
        return DetectLostNodes(self.ec2, self.interruptions)

    def interrupt_use_case(self, wrap: Callable[[Any], Any] = unchanged) -> Interrupt:
        return Interrupt(
            workloads=wrap(self.workloads),
            catalog=self.catalog,
            clusters=wrap(self.kubernetes),
            nodes=self.nodes,
            offerings=wrap(self.offerings),
            losses=self.losses,
            migrations=wrap(self.migrations),
            timeline=self.timeline,
            clock=self.clock,
            pools=self.pools,
            ledgers=self.ledgers,
            ec2=self.ec2,
            pool=InlineExecutor(),
        )

    def provision_use_case(self) -> Provision:
        return Provision(
            workloads=self.workloads,
            catalog=self.catalog,
            clusters=self.kubernetes,
            offerings=self.offerings,
            pools=self.pools,
            commands=self.commands,
            nodes=self.nodes,
            clock=self.clock,
            sizes=self.sizes,
            threads=InlineExecutor(),
        )

    def sweep_use_case(self) -> Sweep:
        return Sweep(
            workloads=self.workloads,
            ledgers=self.ledgers,
            catalog=self.catalog,
            kicks=self.kicks,
            clock=self.clock,
            unanswered=Unanswered(
                workloads=self.workloads,
                tokens=self.tokens,
                completions=self.completions,
                clock=self.clock,
            ),
            pool=InlineExecutor(),
        )

    def remove_leftovers_use_case(self) -> RemoveLeftovers:
        return RemoveLeftovers(
            archives=self.archives,
            migrations=self.migrations,
            workloads=self.workloads,
            clock=self.clock,
        )

    def complete_use_case(self) -> Complete:
        return Complete(
            workloads=self.workloads,
            tokens=self.tokens,
            tasks=self.tasks,
            timeline=self.timeline,
            clock=self.clock,
        )
