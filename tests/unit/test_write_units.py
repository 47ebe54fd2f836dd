"""What the life of a job costs in DynamoDB write units, as the README adds them up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

import pytest
from sluice.adapters.dynamodb_timeline import DynamoDBTimeline
from sluice.adapters.workload_items import item_of, workload_of
from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import unrecorded
from sluice.core.lifecycle.indexes import index_keys
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload, after
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.lifecycle.run import MachineShare

from tests.records import options_of

NOW, SECOND = 1_800_000_000_000, 1_000
UNIT = 1024
INDEXES = {
    "inbox": ("inbox", "inbox_order"),
    "active": ("active", "active_order"),
    "listed": ("listed",),
    "ran": ("ran",),
}
POD = "w-25pbcvsf6riuo-g0-vxfhg"
RESULT = JobResult(
    succeeded=True,
    reason="CompletionsReached",
    message="Reached expected number of succeeded pods",
    exit_codes={POD: {"main": 0}},
    nodes=("ip-172-31-32-4.ec2.internal",),
)
MACHINE = MachineShare(
    bound_at=NOW + 2 * SECOND,
    capacity="spot",
    usd_per_hour=0.450584,
    on_demand_usd_per_hour=1.365405,
)
SUBMITTED = Workload(
    "25pbcvsf6riuo",
    "nightly-training-0421",
    "team-blue",
    "team-blue/research",
    State.PENDING,
    cq="research",
    root="research",
    tenant="team-blue",
    submitted_by="AROAEXAMPLEEXAMPLE123",
    digest="5f6d1aacbd283ee93f8951b7ab91c787b4f659ccaba0e0070d58d43ebaaae86a",
    created_at=NOW,
    pod_sets=(PodSet("main", 1, {"memory": 2**25, "cpu": 50}),),
    options=options_of({"security": {"level": "restricted"}}),
)


def versions() -> list[Workload]:
    """The record of a job that runs undisturbed, after each of its six writes."""
    assigned = PodSetAssignment("main", 1, {"cpu": "spot", "memory": "spot"})
    quota = Reservation(0, "research", "batch-1", NOW + SECOND, (assigned,))
    life = [SUBMITTED]
    for step in (
        lambda w: lifecycle.admit(w, quota, "research", NOW + SECOND, placed="batch-1: possible"),
        lambda w: lifecycle.claim(w, "395b1e6a-dec1-4f33-9b6f-b500907d2b2c", NOW + 2 * SECOND),
        lambda w: lifecycle.noting(lifecycle.start(w, NOW + 3 * SECOND), MACHINE),
        lambda w: lifecycle.finish(w, RESULT, NOW + 4 * SECOND),
        lambda w: lifecycle.release(w, NOW + 5 * SECOND),
    ):
        life.append(after(step(life[-1])))
    return life


def size(value: Mapping[str, Any]) -> int:
    """Bytes of an attribute value as DynamoDB counts them."""
    ((kind, inner),) = value.items()
    match kind:
        case "S":
            return len(inner.encode())
        case "N":
            return (len(inner.strip("-0")) + 1) // 2 + 1
        case "M":
            return 3 + sum(len(name) + size(each) + 1 for name, each in inner.items())
        case "L":
            return 3 + sum(size(each) + 1 for each in inner)
    return 1


def units(item: Mapping[str, Any]) -> int:
    return -(-sum(len(name) + size(value) for name, value in item.items()) // UNIT)


class Table:
    """Keeps what is put."""

    def __init__(self) -> None:
        self.items: list[Mapping[str, Any]] = []

    def batch_write_item(self, RequestItems: Mapping[str, Any]) -> dict[str, Any]:  # noqa: N803, AWS's name
        self.items += [each["PutRequest"]["Item"] for each in RequestItems["timeline"]]
        return {}


def test_a_job_that_runs_undisturbed_costs_eighteen_units_with_its_manifest() -> None:
    spent, table = Counter(manifest=1), Table()
    timeline = DynamoDBTimeline(table, "timeline")  # type: ignore[arg-type]
    life = versions()

    spent["record"] = units(item_of(life[0]))
    spent["indexes"] = len(INDEXES) - 2  # it neither runs at first nor has run
    if lines := unrecorded(None, life[0], NOW):
        timeline.append_together([lines])
    for before, now in pairwise(life):
        written = max(units(item_of(before)), units(item_of(now)))
        twice = now.state is State.ADMITTED or (before.reservation and not now.reservation)
        spent["record"] += 2 * written if twice else written
        old, new = index_keys(before), index_keys(now)
        for keys in INDEXES.values():
            was, is_now = ([each.get(key) for key in keys] for each in (old, new))
            if was != is_now:
                spent["indexes"] += (None not in was) + (None not in is_now)
        if lines := unrecorded(before, now, now.finished_at or NOW):
            timeline.append_together([lines])
    spent["timeline"] = sum(units(item) for item in table.items)

    assert spent == {"record": 8, "indexes": 8, "timeline": 1, "manifest": 1}


@pytest.mark.parametrize("version", range(6))
def test_what_a_record_says_once_is_read_as_if_it_stood_everywhere(version: int) -> None:
    workload = versions()[version]

    assert workload_of(item_of(workload)) == workload
