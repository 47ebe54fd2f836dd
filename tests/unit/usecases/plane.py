"""A control plane on in-memory ports, without crashes and dice, and what to put into it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload
from sluice.ports import CatalogEdit, LedgerState
from sluice.usecases.admitting.admit import Admit
from sluice.usecases.admitting.submit import Message, Submit
from sluice.usecases.capacity.provision import Provision
from sluice.usecases.fleet import Fleet, beat
from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint
from sluice.usecases.migrations.migrate import Migrate
from sluice.usecases.running.act import Act
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes
from sluice.usecases.running.observe import Observe, compose_observe
from sluice.usecases.running.order_checkpoints import OrderCheckpoints
from sluice.usecases.running.remove_leftovers import RemoveLeftovers
from sluice.usecases.upkeep.complete import Complete
from sluice.usecases.upkeep.sweep import Sweep
from sluice.usecases.upkeep.unanswered import Unanswered

from tests.fakes import (
    FakeClock,
    FakeKubernetes,
    FakeTasks,
    FixedPrices,
    MemoryArchives,
    MemoryCatalog,
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
    MemoryTaskTokens,
    MemoryWorkloads,
    RecordedCommands,
    RecordedCompletions,
    RecordedInterruptions,
    RecordedKicks,
    RecordedObservers,
    RecordedTimeline,
)
from tests.records import typed
from tests.unit.usecases.world import CLUSTER, FLAVOR, MANIFEST, ROOT, Inline, queue

NAMESPACE, SENDER = "team", "AROATEAM:session"
TENANT = {
    "apiVersion": "sluice.dev/v1",
    "kind": "Tenant",
    "metadata": {"name": "blue"},
    "spec": {
        "principals": ["AROATEAM"],
        "namespaces": [NAMESPACE],
        "eventSources": ["blue.pipeline"],
        "images": ["docker.io/library/*"],
        "requireDigest": False,
        "buckets": ["manifests/*"],
    },
}
LOCAL_QUEUE = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "LocalQueue",
    "metadata": {"name": "research", "namespace": NAMESPACE},
    "spec": {"clusterQueue": "a"},
}


@dataclass
class Plane:
    """ClusterQueue `a` with two cores in one cohort; LocalQueue team/research; tenant `blue`."""

    clock: FakeClock = field(default_factory=FakeClock)
    workloads: MemoryWorkloads = field(default_factory=MemoryWorkloads)
    catalog: MemoryCatalog = field(default_factory=MemoryCatalog)
    manifests: MemoryManifests = field(default_factory=MemoryManifests)
    kubernetes: FakeKubernetes = field(default_factory=FakeKubernetes)
    kicks: RecordedKicks = field(default_factory=RecordedKicks)
    commands: RecordedCommands = field(default_factory=RecordedCommands)
    observers: RecordedObservers = field(default_factory=RecordedObservers)
    timeline: RecordedTimeline = field(default_factory=RecordedTimeline)
    nodes: MemoryNodes = field(default_factory=MemoryNodes)
    logs: MemoryLogs = field(default_factory=MemoryLogs)
    leases: MemoryLeases = field(default_factory=MemoryLeases)
    losses: MemoryLosses = field(default_factory=MemoryLosses)
    migrations: MemoryMigrations = field(default_factory=MemoryMigrations)
    archives: MemoryArchives = field(default_factory=MemoryArchives)
    wishes: RecordedInterruptions = field(default_factory=RecordedInterruptions)
    machines: MemoryMachines = field(default_factory=MemoryMachines)
    offerings: MemoryOfferings = field(default_factory=MemoryOfferings)
    pools: MemoryPools = field(default_factory=MemoryPools)
    completions: RecordedCompletions = field(default_factory=RecordedCompletions)
    tasks: FakeTasks = field(default_factory=FakeTasks)

    def __post_init__(self) -> None:
        self.tokens = MemoryTaskTokens(self.clock)
        self.ledgers = MemoryLedgers(self.workloads, self.catalog)
        self.catalog.ledgers = self.ledgers
        put = (
            ("ResourceFlavor", "spot", FLAVOR),
            ("Cluster", CLUSTER, {"spec": {}}),
            ("ClusterQueue", "a", queue("a", 2)),
            ("LocalQueue", f"{NAMESPACE}/research", LOCAL_QUEUE),
            ("Tenant", "blue", TENANT),
        )
        assert self.catalog.edit(CatalogEdit(0, put, roots=(ROOT,)))

    def put(self, workload: Workload) -> Workload:
        """Record a workload as it is, with its manifest and its quota in the ledger."""
        self.workloads.write(workload)
        self.manifests.put_many({workload.manifest_key: MANIFEST})
        if workload.reservation:
            old = self.ledgers.read(ROOT)
            cells = {"spot|cpu": 1000 + old.usage.get("a", {}).get("spot|cpu", 0)}
            self.ledgers.ledgers[ROOT] = LedgerState(ROOT, old.version + 1, 0, {"a": cells})
        return workload

    def record(self, workload_id: str = "w1") -> Workload:
        return self.workloads.rows[workload_id]

    def submit(self, workloads: Any = None) -> Submit:
        ports = (workloads or self.workloads, self.manifests, self.catalog, self.clock)
        return Submit(*ports, self.tokens, self.completions, pool=Inline())  # type: ignore[arg-type]

    def admit(self, ledgers: Any = None) -> Admit:
        beat(self.nodes, CLUSTER, self.clock.now())
        fleet = Fleet(self.nodes, self.clock)
        ledgers = ledgers or self.ledgers
        ports = (self.workloads, ledgers, self.catalog, self.kicks, self.clock, self.pools, fleet)
        return Admit(*ports, pool=Inline())  # type: ignore[arg-type]

    def provision(self, kubernetes: Any = None) -> Provision:
        ports = (self.workloads, self.catalog, kubernetes or self.kubernetes, self.offerings)
        return Provision(*ports, self.pools, self.commands, self.clock, threads=Inline())  # type: ignore[arg-type]

    def migrate(self) -> Migrate:
        return Migrate(
            self.workloads,
            self.migrations,
            self.archives,
            self.timeline,
            self.nodes,
            self.clock,
        )

    def weigh(self) -> AssessCheckpoint:
        return AssessCheckpoint(self.nodes, self.migrations, self.clock)

    def act(self, kubernetes: Any = None) -> Act:
        return Act(
            self.workloads,
            self.manifests,
            self.catalog,
            kubernetes or self.kubernetes,
            self.observers,
            self.clock,
            self.migrate(),
            self.weigh(),
            self.offerings,
            self.pools,
            pool=Inline(),  # type: ignore[arg-type]
        )

    def observe(self, kubernetes: Any = None, pods_ready_ms: int = 900_000) -> Observe:
        return compose_observe(
            workloads=self.workloads,
            clusters=kubernetes or self.kubernetes,
            commands=self.commands,
            nodes=self.nodes,
            archive=self.logs,
            leases=self.leases,
            prices=FixedPrices(),
            clock=self.clock,
            migrate=self.migrate(),
            order_checkpoints=OrderCheckpoints(self.nodes, self.losses, self.wishes, self.clock),
            detect_lost_nodes=DetectLostNodes(self.machines, self.wishes),
            pods_ready_ms=pods_ready_ms,
            pool=Inline(),  # type: ignore[arg-type]
        )

    def look(self, **options: Any) -> None:
        """One full comparison of records and cluster."""
        self.observe(**options).reconcile(CLUSTER, self.kubernetes)

    def sweep(self) -> Sweep:
        unanswered = Unanswered(self.workloads, self.tokens, self.completions, self.clock)
        return Sweep(self.workloads, self.ledgers, self.catalog, self.kicks, self.clock, unanswered)

    def remove_leftovers(self) -> RemoveLeftovers:
        return RemoveLeftovers(self.archives, self.migrations, self.workloads, self.clock)

    def complete(self) -> Complete:
        return Complete(self.workloads, self.tokens, self.tasks, self.timeline, self.clock)

    def dispatched(self, workload_id: str = "w1") -> Workload:
        """A workload that `act` has put on the cluster."""
        self.put(admitted(workload_id))
        self.act()(CLUSTER, [workload_id])
        found = self.record(workload_id)
        assert found.state is State.DISPATCHED
        return found

    def job(self, workload_id: str = "w1", generation: int = 0) -> dict[str, Any] | None:
        return self.kubernetes.get("Job", NAMESPACE, f"w-{workload_id}-g{generation}")


def a_workload(workload_id: str = "w1", **fields: Any) -> Workload:
    """One core in queue `a`, pending."""
    pending = Workload(
        workload_id,
        workload_id,
        NAMESPACE,
        f"{NAMESPACE}/research",
        State.PENDING,
        cq="a",
        root=ROOT,
        digest=workload_id,
        created_at=FakeClock.time,
        pod_sets=(PodSet("main", 1, {"cpu": 1000}),),
    )
    return replace(pending, **typed(fields))


def admitted(workload_id: str = "w1", generation: int = 0, **fields: Any) -> Workload:
    assigned = PodSetAssignment("main", 1, {"cpu": "spot"})
    reservation = Reservation(generation, "a", CLUSTER, FakeClock.time, (assigned,))
    held = {
        "state": State.ADMITTED,
        "generation": generation,
        "reservation": reservation,
        "cluster": CLUSTER,
        "admitted_at": FakeClock.time,
    }
    return a_workload(workload_id, **(held | fields))


def a_document(key: str = "k1", **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": "train", "namespace": NAMESPACE, "idempotencyKey": key},
        "spec": {
            "queue": "research",
            "image": "python:3.11",
            "command": ["true"],
            "resources": {"cpu": 1},
            **spec,
        },
    }


def a_message(body: Any, message_id: str = "m1", **fields: Any) -> Message:
    text = body if isinstance(body, str) else json.dumps(body)
    return replace(Message(message_id, SENDER, FakeClock.time, text), **fields)
