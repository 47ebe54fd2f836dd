"""Configuration that changes under work: what is refused, and what `why` says of the rest."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import Intent, IntentKind, State

from tests.records import options_of
from tests.unit.api.control_plane import (
    KUEUE,
    RED,
    ControlPlane,
    cluster,
    cluster_queue,
    flavor,
    local_queue,
    native,
)


def apply(plane: ControlPlane, *documents: dict[str, Any]) -> tuple[int, Any]:
    answer = plane.call("POST", "/catalog", body={"documents": list(documents)})
    plane.settle()
    return answer


def delete(plane: ControlPlane, kind: str, name: str) -> tuple[int, str]:
    status, answer = plane.call("DELETE", f"/catalog/{kind}/{name}")
    return status, str(answer.get("error", {}).get("message", ""))


def why(plane: ControlPlane, workload: str) -> Any:
    return plane.call("GET", f"/workloads/{workload}/why", RED)[1]


def cohort(name: str, parent: str) -> dict[str, Any]:
    spec = {"parentName": parent}
    return {"apiVersion": KUEUE, "kind": "Cohort", "metadata": {"name": name}, "spec": spec}


def with_flavor(queue: dict[str, Any], name: str) -> dict[str, Any]:
    (group,) = queue["spec"]["resourceGroups"]
    (quotas,) = group["flavors"]
    groups = [group | {"flavors": [quotas | {"name": name}]}]
    return queue | {"spec": queue["spec"] | {"resourceGroups": groups}}


@pytest.mark.parametrize(
    "moved",
    [
        pytest.param(cohort("company", "group"), id="its cohort is put below another one"),
        pytest.param(cluster_queue("red-cq", 64, "group"), id="the queue is put into another one"),
        pytest.param(cluster_queue("red-cq", 64, None), id="the queue stands alone"),
    ],
)
def test_work_that_waits_in_a_queue_that_moves_is_looked_after_by_its_new_tree(
    moved: dict[str, Any],
) -> None:
    plane = ControlPlane()
    holder = plane.send(native("holder", 64))
    waiting = plane.send(native("waiting", 64))
    plane.call("POST", f"/workloads/{waiting}/hold", RED)
    plane.call("POST", f"/workloads/{holder}/cancel", RED)
    plane.stopped(holder)

    assert apply(plane, moved)[0] == 200
    larger = plane.send(native("larger", 64))
    plane.call("POST", f"/workloads/{waiting}/release", RED)

    told = why(plane, waiting)
    assert told["reason"]["code"].startswith("QUOTA:")
    assert larger in str(told["holders"])
    plane.call("POST", f"/workloads/{larger}/cancel", RED)
    plane.stopped(larger)
    plane.call("POST", f"/workloads/{waiting}/hold", RED)
    plane.kicks.roots.clear()
    plane.call("POST", f"/workloads/{waiting}/release", RED)
    plane.workloads.changed.clear()  # whatever the stream would say
    plane.settle()
    assert plane.workloads.rows[waiting].state is State.ADMITTED


def test_a_queue_that_holds_quota_stays_in_its_tree_and_in_the_configuration() -> None:
    plane = ControlPlane()
    holder = plane.send(native("holder", 64))

    for moved in (cluster_queue("red-cq", 64, None), cohort("company", "group")):
        status, answer = apply(plane, moved)
        assert status == 409
        assert "HoldAndDrain" in answer["error"]["message"]
    assert holder in delete(plane, "LocalQueue", "red/batch")[1]
    assert delete(plane, "ClusterQueue", "red-cq")[0] == 409
    assert holder in delete(plane, "Cluster", "batch-1")[1]


def test_a_local_queue_does_not_change_its_cluster_queue() -> None:
    plane = ControlPlane()

    status, answer = apply(plane, local_queue("red", "batch", "blue-cq"))

    assert status == 422
    assert "make another LocalQueue for blue-cq" in str(answer["error"]["errors"])


def test_a_flavor_stays_until_nothing_holds_it_though_its_queue_has_it_no_longer() -> None:
    plane = ControlPlane()
    holder = plane.send(native("holder", 64))
    queues = [with_flavor(cluster_queue(f"{team}-cq", 64), "fast") for team in ("red", "blue")]
    assert apply(plane, flavor("fast"), *queues)[0] == 200

    status, message = delete(plane, "ResourceFlavor", "spot")
    assert (status, "red-cq" in message) == (409, True)

    plane.call("POST", f"/workloads/{holder}/cancel", RED)
    plane.stopped(holder)
    assert delete(plane, "ResourceFlavor", "spot") == (200, "")


def test_quota_that_is_cut_below_what_is_used_takes_nothing_and_gives_nothing() -> None:
    plane = ControlPlane()
    first, second = plane.send(native("first", 60)), plane.send(native("second", 30))
    plane.run(first)
    plane.run(second)
    assert apply(plane, cluster_queue("red-cq", 40, None))[0] == 409
    assert apply(plane, cluster_queue("red-cq", 8), cluster_queue("blue-cq", 0))[0] == 200

    third = plane.send(native("third", 8))
    plane.finish(first)
    assert plane.workloads.rows[second].state is State.DISPATCHED
    assert plane.workloads.rows[third].state is State.PENDING
    assert "0 of 8 free; 1 workload holds the rest" in why(plane, third)["headline"]

    plane.finish(second)
    assert plane.workloads.rows[third].state is State.ADMITTED


def test_more_quota_is_no_help_where_a_queue_is_stopped() -> None:
    plane = ControlPlane()
    holder = plane.send(native("holder", 96))
    assert apply(plane, cluster_queue("red-cq", 64, stopPolicy="Hold"))[0] == 200
    waiting = plane.send(native("waiting", 96))

    told = why(plane, waiting)

    assert told["headline"] == "It waits: ClusterQueue red-cq is stopped"
    assert told["wouldHelp"] == []
    dry = plane.call("POST", "/whatif", RED, {"documents": [native("dry", 96)]})[1]
    assert "is stopped" in dry["items"][0]["message"]
    assert plane.workloads.rows[holder].state is State.ADMITTED


def test_who_is_drained_hears_of_the_queue_and_of_nobody_else() -> None:
    plane = ControlPlane()
    runs = plane.send(native("runs", 8))
    plane.run(runs)

    apply(plane, cluster_queue("red-cq", 64, stopPolicy="HoldAndDrain"))

    intent = plane.workloads.rows[runs].intent
    assert intent is not None
    assert (intent.reason, intent.by) == ("HELD:QueueCordoned", "")
    assert intent.message == "its queue is stopped (QueueDrained)"


def test_work_whose_cluster_may_no_longer_have_it_runs_on_and_new_work_is_told() -> None:
    plane = ControlPlane()
    runs = plane.send(native("runs", 8))
    plane.run(runs)

    other = cluster("batch-1") | {"spec": {"flavors": ["none"]}}
    assert apply(plane, other)[0] == 200
    waiting = plane.send(native("waiting", 8))

    assert plane.workloads.rows[runs].state is State.DISPATCHED
    assert "spot" in why(plane, waiting)["headline"]


@pytest.mark.parametrize(("mode", "told"), [("kubelet", True), ("application", False)])
def test_why_says_how_far_the_dump_of_who_makes_room_is(mode: str, told: bool) -> None:
    plane = ControlPlane()
    job = plane.send(native("low", 8))
    plane.settle()
    row = plane.workloads.rows[job]
    intent = Intent(IntentKind.PREEMPT, "PRIORITY:Preempted", "yields to high")
    stopping = replace(
        row,
        state=State.RECLAIMING,
        intent=intent,
        started_at=plane.clock.now(),
        options=options_of({"checkpoint": {"mode": mode}}),
    )
    plane.workloads.write(stopping)
    lines = ("needs 3 s, has 60 s: dump", "1.0 MB saved in 2.9 s")
    for at, message in enumerate(lines):
        what = ("CheckpointDecided", "CheckpointCompleted")[at]
        plane.timeline.append([Happening(stopping, at, what, message)])

    headline = why(plane, job)["headline"]

    dump = "; before it goes: 1.0 MB saved in 2.9 s" if told else ""
    assert headline == f"It is STOPPING: yields to high{dump}"
