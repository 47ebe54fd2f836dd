"""Soon after its start a workload is saved once, so that its users know whether it can be."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations.assessment import assess_checkpoint
from sluice.core.migrations.at_risk import AtRisk
from sluice.core.migrations.checkpointing import Checkpoint, CheckpointEntries, SaveFailure
from sluice.core.migrations.lasting_failures import in_plain_words
from sluice.core.migrations.periodic import TRIAL_MS, TRIAL_REASON
from sluice.core.migrations.pod_annotations import DONE, ORDER
from sluice.usecases.migrations.record_checkpoint import RecordCheckpoint
from sluice.usecases.running.order_checkpoints import OrderCheckpoints

from tests.records import options_of
from tests.unit.usecases.plane import NAMESPACE, Plane
from tests.unit.usecases.world import CLUSTER

POD = "w-w1-g0-pod"
MACHINE = InventoryRow(node="n", checkpoint="criu-4.2")
IO_URING = "CRIU refuses it: Can't dump file 5 of that type [0] (unknown anon_inode:[io_uring])"


def started(checkpoint: dict[str, Any]) -> Plane:
    plane = Plane()
    plane.dispatched()
    plane.look()
    options = options_of({"checkpoint": checkpoint})
    plane.workloads.rows["w1"] = replace(plane.record(), options=options)
    return plane


def orders(plane: Plane) -> list[dict[str, Any]]:
    """What one look orders."""
    before, state = len(plane.interruptions.sent), ClusterState()
    for kind in ("Job", "Pod"):
        for document in plane.kubernetes.list(kind)[0]:
            state.update(kind, "ADDED", document)
    order = OrderCheckpoints(
        nodes=plane.nodes, losses=plane.losses, interruptions=plane.interruptions, clock=plane.clock
    )
    order(CLUSTER, [plane.record()], state)
    return [each["detail"] for each in plane.interruptions.sent[before:]]


def answer(plane: Plane, order: str, **said: Any) -> None:
    """The node's answer to an order, and what Sluice makes of it."""
    marks = {ORDER: order, DONE: json.dumps({"order": order, "at": plane.clock.now(), **said})}
    plane.kubernetes.patch("Pod", NAMESPACE, POD, {"metadata": {"annotations": marks}})
    pods = plane.kubernetes.list("Pod")[0]
    migrate = plane.migrate_use_case()
    RecordCheckpoint(migrate.catalog, migrate.timeline)(plane.record(), pods[0], pods)


def told(plane: Plane) -> list[tuple[str, str]]:
    return [(line["what"], line["message"]) for line in plane.timeline.of("w1")]


def test_a_workload_is_saved_soon_after_its_start() -> None:
    plane = started({"mode": "kubelet"})
    plane.clock.pass_ms(TRIAL_MS - 1)
    assert orders(plane) == []

    plane.clock.pass_ms(1)
    (order,) = orders(plane)

    assert order["order"] == f"trial-{plane.record().started_at}"
    assert order["reason"] == TRIAL_REASON
    assert [again["order"] for again in orders(plane)] == [order["order"]]


@pytest.mark.parametrize("mode", [{"mode": "none"}, {"mode": "application", "signal": "SIGUSR1"}])
def test_what_is_not_dumped_has_no_trial(mode: dict[str, Any]) -> None:
    plane = started(mode)
    plane.clock.pass_ms(2 * TRIAL_MS)

    assert orders(plane) == []


@pytest.mark.parametrize(
    "said", [{"uri": "s3://b/1.tar", "bytes": 9, "seconds": 1}, {"error": IO_URING}]
)
def test_one_trial_is_enough(said: dict[str, Any]) -> None:
    plane = started({"mode": "kubelet", "interval_seconds": 600})
    plane.clock.pass_ms(TRIAL_MS)
    (order,) = orders(plane)
    answer(plane, order["order"], **said)

    plane.clock.pass_ms(2 * TRIAL_MS)
    assert orders(plane) == []

    plane.clock.pass_ms(600_000)
    assert [each["order"].partition("-")[0] for each in orders(plane)] == ["periodic"]


def test_what_a_trial_showed_is_known_and_told() -> None:
    plane = started({"mode": "kubelet"})

    answer(plane, "trial-1", error=IO_URING)

    refused = plane.migrations.refused("w1")
    assert refused is not None
    assert refused.why == f"it uses io_uring: {IO_URING}"
    assert told(plane)[-1] == ("CheckpointFailed", refused.why)

    plane.clock.pass_ms(1_000)
    answer(plane, "request-2", uri="s3://b/2.tar", bytes=393_000_000, seconds=2.1)

    assert plane.migrations.refused("w1") is None
    assert told(plane)[-1] == ("CheckpointCompleted", "393.0 MB saved in 2.1 s")


def test_an_older_answer_does_not_undo_a_later_one() -> None:
    made = Checkpoint("w1", 0, "s3://b/1.tar", 20, CheckpointMode.KUBELET)
    saved = CheckpointEntries().keep(made, 3, "")

    assert saved.refuse(SaveFailure(10, 0, "criu")).refused is None
    failed = saved.refuse(SaveFailure(30, 0, "criu"))
    assert failed.refused == SaveFailure(30, 0, "criu")
    assert failed.refuse(SaveFailure(30, 0, "other")) is failed
    assert failed.keep(made, 3, "").refused == failed.refused, "a report that came late"


@pytest.mark.parametrize(
    ("why", "driver", "reason"),
    [
        (
            f"it uses io_uring: {IO_URING}",
            CheckpointMode.APPLICATION,
            "its trial failed: it uses io_uring",
        ),
        ("the kubelet could not save it: HTTP 500", CheckpointMode.KUBELET, ""),
        ("Can't dump ghost file /tmp/x", CheckpointMode.KUBELET, ""),
    ],
)
def test_who_can_never_be_saved_is_signalled_at_the_warning(
    why: str, driver: CheckpointMode, reason: str
) -> None:
    plane = started({"mode": "kubelet"})
    pods = tuple(plane.kubernetes.list("Pod")[0])

    found = assess_checkpoint(
        AtRisk(plane.record(), pods, 0), [MACHINE], [], 110_000, refused=SaveFailure(1, 0, why)
    )

    assert found.driver is driver
    assert reason in found.reason
    assert driver_of(plane.record().options).mode is CheckpointMode.KUBELET


def test_plain_words_lead_and_are_said_once() -> None:
    once = in_plain_words("criu dump ended with 1: Error (criu/tty.c): --shell-job")

    assert once == "it has a terminal: criu dump ended with 1: Error (criu/tty.c): --shell-job"
    assert in_plain_words(once) == once
    assert in_plain_words("no space left") == "no space left"
