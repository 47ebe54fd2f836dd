"""What a record keeps of arrays of ten thousand and more: little, and the rest beside the logs."""

from __future__ import annotations

import json
from typing import Any

from sluice.adapters.workload_items import item_of
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State

from tests.unit.usecases.plane import NAMESPACE, Plane

ITEM_BYTES = 400_000


def ended_array(plane: Plane, pods: int, failed: set[int]) -> None:
    """The Job of `w1` has ended, with so many pods on as many nodes."""
    plane.dispatched()
    plane.kubernetes.finish(NAMESPACE, "w-w1-g0", exit_code=3 if failed else 0)
    key = ("Pod", NAMESPACE, "w-w1-g0-pod")
    pod = plane.kubernetes.objects.pop(key)
    status = pod["status"]
    for number in range(pods):
        name = f"w-w1-g0-{number}-abcde"
        code = 3 if number in failed else 0
        container = {"name": "main", "state": {"terminated": {"exitCode": code}}}
        plane.kubernetes.objects["Pod", NAMESPACE, name] = {
            **pod,
            "metadata": {**pod["metadata"], "name": name, "uid": name},
            "spec": {**pod["spec"], "nodeName": f"ip-10-0-{number}.eu-west-1.compute.internal"},
            "status": {**status, "containerStatuses": [container]},
        }
    job = plane.kubernetes.objects["Job", NAMESPACE, "w-w1-g0"]
    every = {"completionMode": "Indexed", "completions": pods}
    plane.kubernetes.objects["Job", NAMESPACE, "w-w1-g0"] = {**job, "spec": job["spec"] | every}


def test_an_array_of_ten_thousand_ends_in_a_small_record_that_says_what_failed() -> None:
    plane = Plane()
    ended_array(plane, 10_000, failed={7, 9})

    plane.look()

    record = plane.record()
    assert record.state is State.FINISHED
    assert record.result.exit_code_counts == {"0": 9_998, "3": 2}
    assert set(record.result.exit_codes) == {"w-w1-g0-7-abcde", "w-w1-g0-9-abcde"}
    assert (len(record.result.nodes), record.result.node_count) == (64, 10_000)
    assert len(json.dumps(item_of(record))) < ITEM_BYTES // 20
    whole = json.loads(plane.logs.get("w1", 0, "exit-codes", "all"))
    assert len(whole) == 10_000
    assert whole["w-w1-g0-7-abcde"] == {"main": 3}


def test_a_small_gang_keeps_every_exit_code() -> None:
    plane = Plane()
    ended_array(plane, 10, failed={3})

    plane.look()

    assert len(plane.record().result.exit_codes) == 10
    assert not plane.record().result.exit_code_counts
    assert not [each for each in plane.logs.list("w1") if "exit-codes" in each]


def test_every_other_index_of_a_hundred_thousand_is_told_by_its_first_ranges_and_counts() -> None:
    completed = ",".join(str(each) for each in range(0, 100_000, 2))
    job: dict[str, Any] = {
        "kind": "Job",
        "metadata": {},
        "spec": {"completionMode": "Indexed", "completions": 100_000},
        "status": {
            "completedIndexes": completed,
            "conditions": [{"type": "Failed", "status": "True"}],
        },
    }

    told = job_status.outcome(job)

    assert told is not None
    assert told.index_counts == {"completed": 50_000, "unfinished": 50_000}
    assert told.indexes["completed"].startswith("0,2,4,")
    assert told.indexes["completed"].endswith(",…")
    assert len(json.dumps(told.as_json())) < ITEM_BYTES // 50
