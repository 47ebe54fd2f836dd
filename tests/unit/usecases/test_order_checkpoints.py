"""Checkpoints that nobody asked for: when they are due, how often, and after which losses."""

from __future__ import annotations

import itertools
import json
import threading
from collections.abc import Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import IntentKind, State, Workload
from sluice.core.migrations import periodic
from sluice.core.migrations.losses import Loss
from sluice.core.migrations.periodic import Observed
from sluice.core.migrations.pod_annotations import DONE, ORDER
from sluice.usecases.migrations.record_checkpoint import RecordCheckpoint
from sluice.usecases.running.observe import CHECK_MS
from sluice.usecases.running.order_checkpoints import OrderCheckpoints

from tests.fakes import FakeKubernetes, RecordedInterruptions
from tests.records import options_of
from tests.unit.usecases.plane import NAMESPACE, Plane
from tests.unit.usecases.world import CLUSTER

MINUTE, HOUR = 60_000, 3_600_000
POD = "w-w1-g0-pod"
PATIENCE_SECONDS = 10
KUBELET = {"checkpoint": {"mode": "kubelet"}}


def running(plane: Plane, options: Mapping[str, Any]) -> Workload:
    """One running workload of 1 GiB, looked at once, whose trial is over."""
    plane.dispatched()
    plane.look()
    (pod_set,) = plane.record().pod_sets
    sized = replace(pod_set, requests={"cpu": 1000, "memory": 2**30})
    plane.workloads.rows["w1"] = replace(
        plane.record(), options=options_of(options), pod_sets=(sized,)
    )
    trial = json.dumps({"order": "trial-1", "error": "no"})
    mark(plane, order="trial-1", done=trial)
    return plane.record()


def mark(plane: Plane, **marks: str) -> None:
    named = {"order": ORDER, "done": DONE}
    annotations = {named[name]: text for name, text in marks.items()}
    patch = {"metadata": {"annotations": annotations}}
    plane.kubernetes.patch("Pod", NAMESPACE, POD, patch)


def done(order: str, at: int, **more: Any) -> str:
    return json.dumps({"order": order, "uri": "s3://b/1.tar", "at": at, "seconds": 5, **more})


def look(plane: Plane) -> list[dict[str, Any]]:
    """What one look orders."""
    before = len(plane.interruptions.sent)
    next_look(plane)
    return [each["detail"] for each in plane.interruptions.sent[before:]]


def next_look(plane: Plane) -> dict[str, int]:
    """What one look says of the next."""
    state = ClusterState()
    for kind in ("Job", "Pod"):
        for document in plane.kubernetes.list(kind)[0]:
            state.update(kind, "ADDED", document)
    order = OrderCheckpoints(
        nodes=plane.nodes, losses=plane.losses, interruptions=plane.interruptions, clock=plane.clock
    )
    return order(CLUSTER, [plane.record()], state)


@pytest.mark.parametrize(
    "checkpoint", [{"mode": "none"}, {"mode": "application", "interval_seconds": 60}]
)
def test_what_nobody_can_order_is_not_ordered(checkpoint: dict[str, Any]) -> None:
    plane = Plane()
    running(plane, {"checkpoint": checkpoint})
    plane.clock.pass_ms(48 * HOUR)

    assert look(plane) == []


@pytest.mark.parametrize(
    "mode", [{"mode": "kubelet"}, {"mode": "application", "signal": "SIGUSR1"}]
)
def test_the_interval_of_the_workload_is_honoured(mode: dict[str, Any]) -> None:
    plane = Plane()
    started = running(plane, {"checkpoint": mode | {"interval_seconds": 900}}).started_at
    plane.clock.pass_ms(15 * MINUTE - 1)
    assert look(plane) == []

    plane.clock.pass_ms(1)
    (order,) = look(plane)

    assert order["order"] == f"periodic-{started}-1"
    assert (order["generation"], order["reason"]) == (0, "every 15 min, as the workload asks")
    assert plane.interruptions.sent[-1]["time"].startswith(
        datetime.fromtimestamp((started + 15 * MINUTE) / 1000, UTC).isoformat()[:19]
    )


def test_an_order_is_the_same_until_the_next_one_is_due() -> None:
    plane = Plane()
    started = running(plane, {"checkpoint": {"mode": "kubelet", "interval_seconds": 60}}).started_at
    names = []
    for _ in range(5):
        plane.clock.pass_ms(30_000)
        names += [order["order"] for order in look(plane)]

    one, two = f"periodic-{started}-1", f"periodic-{started}-2"
    assert names == [one, one, two, two]


def test_a_pod_that_bears_the_order_or_another_one_is_left_alone() -> None:
    plane = Plane()
    started = running(plane, {"checkpoint": {"mode": "kubelet", "interval_seconds": 60}}).started_at
    plane.clock.pass_ms(HOUR)
    mark(plane, order="request-7")
    assert look(plane) == []
    mark(plane, done=done("request-7", started + 50 * MINUTE))

    (order,) = look(plane)
    assert order["order"] == f"periodic-{started + 50 * MINUTE}-10"


def test_a_dump_that_failed_is_ordered_again_only_when_the_next_is_due() -> None:
    plane = Plane()
    running(plane, {"checkpoint": {"mode": "kubelet", "interval_seconds": 600}})
    plane.clock.pass_ms(10 * MINUTE)
    (order,) = look(plane)
    mark(plane, order=order["order"], done=json.dumps({"order": order["order"], "error": "criu"}))

    assert look(plane) == []
    plane.clock.pass_ms(10 * MINUTE)
    assert [again["order"] != order["order"] for again in look(plane)] == [True]


def test_without_an_interval_youngs_and_dalys_holds() -> None:
    plane = Plane()
    started = running(plane, KUBELET).started_at
    (pod,) = plane.kubernetes.list("Pod", selector="sluice.dev/workload")[0]
    mark(plane, order="request-1", done=done("request-1", started))  # it took 5 s
    found = periodic.rhythm(
        plane.record(), plane.kubernetes.list("Pod")[0], Observed([], [], started)
    )

    assert found is not None
    assert found.every_ms == pytest.approx(1000 * (2 * 86_400 * 5) ** 0.5, abs=1)
    assert found.reason == (
        "every 15 min: a checkpoint costs 5 s, one loss without warning of spot in 24.0 h"
    )
    assert pod["spec"]["nodeName"]


def test_losses_without_warning_bring_the_checkpoints_closer() -> None:
    plane = Plane()
    now = running(plane, KUBELET).started_at
    pods = plane.kubernetes.list("Pod")[0]
    losses = [Loss(f"i-{n}", now - n, "terminated", noticed=n > 3, capacity_type="spot")
              for n in range(1, 9)]  # fmt: skip

    def every(known: list[Loss]) -> int:
        found = periodic.rhythm(plane.record(), pods, Observed([], known, now))
        assert found is not None
        return found.every_ms

    assert every(losses) == pytest.approx(every([]) / 2, abs=2), "three of eight came unwarned"


def test_a_dump_too_slow_for_the_notice_is_made_against_every_loss() -> None:
    plane = Plane()
    now = running(plane, KUBELET).started_at
    mark(plane, order="r", done=done("r", now, seconds=200))
    found = periodic.rhythm(plane.record(), plane.kubernetes.list("Pod")[0], Observed([], [], now))

    assert found is not None
    assert "one loss of spot" in found.reason


def test_machines_on_demand_are_trusted_longer() -> None:
    plane = Plane()
    now = running(plane, KUBELET).started_at
    pods = plane.kubernetes.list("Pod")[0]
    node = InventoryRow(node=pods[0]["spec"]["nodeName"])

    def every(capacity_type: str) -> int:
        observed = Observed([replace(node, capacity_type=capacity_type)], [], now)
        found = periodic.rhythm(plane.record(), pods, observed)
        assert found is not None
        return found.every_ms

    assert every("on-demand") == pytest.approx(every("spot") * 30**0.5, rel=1e-3)


def test_a_look_says_when_the_next_is_due_whatever_was_ordered_or_borne() -> None:
    plane = Plane()
    started = running(plane, {"checkpoint": {"mode": "kubelet", "interval_seconds": 60}}).started_at
    first, second = started + MINUTE, started + 2 * MINUTE

    assert next_look(plane) == {"w1": first}
    plane.clock.pass_ms(MINUTE)
    assert next_look(plane) == {"w1": second}
    order = f"periodic-{started}-1"
    mark(plane, order=order)
    assert next_look(plane) == {}, "until the node has answered"
    mark(plane, done=done(order, first + 5))
    assert next_look(plane) == {"w1": second + 5}


def test_observe_orders_when_it_is_due_and_not_at_its_next_check() -> None:
    plane = Plane()
    started = running(plane, {"checkpoint": {"mode": "kubelet", "interval_seconds": 60}}).started_at
    plane.clock.pass_ms(MINUTE - CHECK_MS // 2)
    ordered = threading.Event()

    class Quiet(FakeKubernetes):
        """Nothing happens there while time goes on."""

        def watch(self, kind: str, **_: Any) -> Any:
            if kind == "Pod":
                plane.clock.pass_ms(CHECK_MS // 2)
            ordered.wait(PATIENCE_SECONDS)
            yield from ()

    @dataclass
    class Heard(RecordedInterruptions):
        def send(self, envelope: Mapping[str, Any]) -> None:
            super().send(envelope)
            ordered.set()

    plane.interruptions = Heard()
    quiet = Quiet(objects=plane.kubernetes.objects, numbers=itertools.count(100))

    plane.observe(quiet)(CLUSTER, owner="me", until=plane.clock.now() + 2 * CHECK_MS)

    (wish,) = plane.interruptions.sent
    assert wish["detail"]["order"] == f"periodic-{started}-1"
    assert plane.clock.now() == started + MINUTE


def test_observe_orders_and_remembers_what_was_saved() -> None:
    plane = Plane()
    started = running(plane, {"checkpoint": {"mode": "kubelet", "interval_seconds": 60}}).started_at
    plane.clock.pass_ms(2 * MINUTE)
    plane.look()
    (wish,) = plane.interruptions.sent
    mark(plane, order=wish["detail"]["order"], done=done(wish["detail"]["order"], started + 99_000))

    plane.look()

    assert plane.record().checkpoint_at == started + 99_000
    assert [each.uri for each in plane.migrations.checkpoints("w1")] == ["s3://b/1.tar"]
    assert "CheckpointCompleted" in [line.what for line in plane.timeline.lines]


@pytest.mark.parametrize(
    ("answer", "what"),
    [({"error": "no CRIU"}, "CheckpointFailed"), ({"uri": ""}, "CheckpointSignalled")],
)
def test_an_order_without_an_archive_is_answered_once_to_people(
    answer: dict[str, Any], what: str
) -> None:
    plane = Plane()
    at = running(plane, KUBELET).started_at + 5_000
    mark(plane, order="request-1", done=json.dumps({"order": "request-1", "at": at} | answer))

    plane.look()
    plane.look()

    told = [(line.at, line.message) for line in plane.timeline.lines if line.what == what]
    assert len(set(told)) == 1
    assert told[0][0] == at


def begins_anew(plane: Plane, minutes: int, phase: str = "Running", **status: Any) -> None:
    """Kubernetes replaces the pod so many minutes after the start."""
    created = plane.record().started_at + minutes * MINUTE
    text = datetime.fromtimestamp(created / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    pod = plane.kubernetes.objects["Pod", NAMESPACE, POD]
    metadata = {**pod["metadata"], "creationTimestamp": text}
    new = {**pod, "metadata": metadata, "status": {"phase": phase, **status}}
    plane.kubernetes.objects["Pod", NAMESPACE, POD] = new


@pytest.mark.parametrize(("saved_at", "moves"), [(0, False), (5, True), (9, False)])
def test_a_pod_that_vanished_without_a_word_goes_on_from_its_last_checkpoint(
    saved_at: int, moves: bool
) -> None:
    plane = Plane()
    started = running(plane, KUBELET).started_at
    saved = replace(plane.record(), checkpoint_at=started + saved_at * MINUTE if saved_at else 0)
    plane.workloads.rows["w1"] = saved
    begins_anew(plane, 7)

    plane.look()

    intent = plane.record().intent
    assert (plane.record().state is State.RECLAIMING) is moves
    assert (intent is not None and intent.kind is IntentKind.MIGRATE) is moves


@pytest.mark.parametrize("mode", ["application", "none"])
def test_applications_find_their_own_way_back(mode: str) -> None:
    plane = Plane()
    record = running(plane, {"checkpoint": {"mode": mode}})
    plane.workloads.rows["w1"] = replace(record, checkpoint_at=record.started_at + MINUTE)
    begins_anew(plane, 7)

    plane.look()

    assert plane.record().state is State.DISPATCHED


def test_a_retry_after_a_failure_begins_where_kubernetes_begins_it() -> None:
    plane = Plane()
    record = running(plane, KUBELET)
    plane.workloads.rows["w1"] = replace(record, checkpoint_at=record.started_at + MINUTE)
    begins_anew(plane, 7, phase="Failed")

    plane.look()

    assert plane.record().state is State.DISPATCHED


def saves(plane: Plane, *numbers: int) -> None:
    """Checkpoints 1, 2 … of the running workload, as observe notes them."""
    (pod,) = plane.kubernetes.list("Pod", selector="sluice.dev/workload")[0]
    for n in numbers:
        at = plane.record().started_at + n
        answer = done(f"o-{n}", at, uri=f"s3://b/{n}.tar", image=f"repo/x:{n}")
        marks = {ORDER: f"o-{n}", DONE: answer}
        saved = {**pod, "metadata": {**pod["metadata"], "annotations": marks}}
        migrate = plane.migrate_use_case()
        RecordCheckpoint(migrate.catalog, migrate.timeline)(plane.record(), saved, [saved])


def test_what_is_not_kept_is_removed_but_never_what_the_run_started_from() -> None:
    plane = Plane()
    record = running(plane, {"checkpoint": {"mode": "kubelet", "retain": 2}})
    plane.workloads.rows["w1"] = replace(record, restore_from="repo/x:1")

    saves(plane, 1, 2, 3, 4)

    kept = {each.image for each in plane.migrations.checkpoints("w1")}
    assert kept == {"repo/x:1", "repo/x:3", "repo/x:4"}
    assert plane.archives.removed == ["repo/x:2"]
    assert plane.migrations.dropped("w1") == []


def test_an_archive_that_cannot_be_removed_is_tried_again() -> None:
    plane = Plane()
    running(plane, {"checkpoint": {"mode": "kubelet", "retain": 1}})
    plane.archives.broken.add("s3://b/1.tar")
    saves(plane, 1, 2)
    assert [each.uri for each in plane.migrations.dropped("w1")] == ["s3://b/1.tar"]

    plane.archives.broken.clear()
    saves(plane, 3)

    assert sorted(plane.archives.removed) == ["repo/x:1", "repo/x:2"]


@pytest.mark.parametrize(("code", "gone"), [(0, 2), (1, 0)])
def test_what_succeeded_needs_no_archives_and_what_failed_keeps_them(code: int, gone: int) -> None:
    plane = Plane()
    running(plane, KUBELET)
    saves(plane, 1, 2)
    plane.kubernetes.finish(NAMESPACE, "w-w1-g0", exit_code=code)

    plane.look()

    assert plane.record().state is State.FINISHED
    assert len(plane.archives.removed) == gone
    listed = [each.removed for each in plane.migrations.checkpoints("w1")]
    assert listed == [bool(gone)] * 2, "the lineage stays"
