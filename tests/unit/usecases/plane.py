"""A control plane on in-memory ports, without crashes and dice, and what to put into it."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload
from sluice.ports import CatalogEdit, LedgerState
from sluice.usecases.admitting.admit import Admit
from sluice.usecases.admitting.submit import Message, Submit
from sluice.usecases.capacity.provision import Provision
from sluice.usecases.fleet import beat
from sluice.usecases.running.act import Act
from sluice.usecases.running.observe import Observe

from tests.fakes import (
    FakeClock,
    FakeKubernetes,
)
from tests.memory_control_plane import MemoryControlPlane
from tests.records import typed
from tests.unit.usecases.world import CLUSTER, FLAVOR, MANIFEST, ROOT, queue

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


class Plane(MemoryControlPlane):
    """ClusterQueue `a` with two cores in one cohort; LocalQueue team/research; tenant `blue`."""

    def __init__(
        self, *, clock: FakeClock | None = None, kubernetes: FakeKubernetes | None = None
    ) -> None:
        super().__init__(clock=clock, kubernetes=kubernetes)
        put: tuple[tuple[str, str, dict[str, Any]], ...] = (
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
        return replace(self.submit_use_case(), workloads=workloads or self.workloads)

    def admit(self, ledgers: Any = None) -> Admit:
        beat(self.nodes, CLUSTER, self.clock.now())
        return replace(self.admit_use_case(), ledgers=ledgers or self.ledgers)

    def provision(self, kubernetes: Any = None) -> Provision:
        return replace(self.provision_use_case(), clusters=kubernetes or self.kubernetes)

    def act(self, kubernetes: Any = None) -> Act:
        return replace(self.act_use_case(), clusters=kubernetes or self.kubernetes)

    def observe(self, kubernetes: Any = None, pods_ready_ms: int | None = None) -> Observe:
        return self.observe_use_case(clusters=kubernetes, pods_ready_ms=pods_ready_ms)

    def look(self, **options: Any) -> None:
        """One full comparison of records and cluster."""
        self.observe(**options).reconcile(CLUSTER, self.kubernetes)

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
