"""Records for the suites; each shows only what matters to its test."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload

from tests.records import typed

QUEUE, CQ, ROOT, CLUSTER = "team/queue", "cq", "root", "batch-1"
NOW = 1_800_000_000_000


def a_workload(workload_id: str = "w1", **fields: Any) -> Workload:
    pending = Workload(
        workload_id,
        f"name-{workload_id}",
        "team",
        QUEUE,
        State.PENDING,
        cq=CQ,
        root=ROOT,
        digest=f"digest-{workload_id}",
        created_at=NOW,
        pod_sets=(PodSet("main", 2, {"cpu": 500, "memory": 2**33}),),
    )
    return replace(pending, **typed(fields))


def a_reservation(generation: int = 0) -> Reservation:
    assigned = PodSetAssignment("main", 2, {"cpu": "spot", "memory": "spot"})
    return Reservation(generation, CQ, CLUSTER, NOW, (assigned,))


def admitted(workload_id: str = "w1", **fields: Any) -> Workload:
    held = {"state": State.ADMITTED, "reservation": a_reservation(), "cluster": CLUSTER}
    return a_workload(workload_id, **(held | fields))


def dispatched(workload_id: str = "w1", **fields: Any) -> Workload:
    return admitted(workload_id, **({"state": State.DISPATCHED, "uid": "uid-1"} | fields))
