"""A cluster that is lost for good: on an administrator's word its work goes on elsewhere."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.clusters.fleet import SILENT_MS
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.usecases.fleet import beat

from tests.unit.api.control_plane import ADMIN, COMPANY, RED, ControlPlane, Signer, cluster, native

LOST, OTHER = "batch-1", "batch-2"


def declare(
    plane: ControlPlane, signer: Signer = ADMIN, reason: str = "the region burnt down", **body: Any
) -> tuple[int, Any]:
    return plane.call("POST", f"/clusters/{LOST}/lost", signer, {"reason": reason, **body})


def a_plane(*, silent: bool = True) -> tuple[ControlPlane, str]:
    """A workload runs in the cluster, of which nothing was heard for a while."""
    plane = ControlPlane((*COMPANY, cluster(OTHER)))
    job = plane.send(native("job", 64))
    assert plane.workloads.rows[job].cluster == LOST
    plane.run(job)
    if silent:
        plane.silent.add(LOST)
        plane.clock.pass_ms(SILENT_MS + 1)
    return plane, job


def test_its_work_gives_its_quota_back_and_goes_on_from_its_checkpoint_elsewhere() -> None:
    plane, job = a_plane()
    running = plane.workloads.rows[job]
    assert plane.workloads.apply([lifecycle.saved(running, 1, "s3://kept/1")]) == [True]
    used = plane.ledgers.read("company").usage

    status, answer = declare(plane)

    assert (status, answer["declared"], answer["left"]) == (200, 1, 0)
    assert plane.ledgers.read("company").usage == used, "only admit writes the ledger"
    plane.settle()
    record = plane.workloads.rows[job]
    assert (record.state, record.generation, record.cluster) == (State.ADMITTED, 1, OTHER)
    assert record.restore_from == "s3://kept/1"
    assert record.runs[-1].outcome == "requeue"
    assert plane.ledgers.read("company").usage == used
    assert plane.admit("company").released == 0


def test_the_word_stands_in_the_timeline_and_in_doctor_until_the_cluster_answers() -> None:
    plane, job = a_plane()
    declare(plane)
    plane.settle()

    told = [line["message"] for line in plane.call("GET", f"/workloads/{job}/events")[1]["items"]]
    assert any("was declared lost by" in line and "burnt down" in line for line in told)

    def doctor() -> str:
        items = plane.call("GET", "/doctor")[1]["items"]
        return next(each["message"] for each in items if each["check"] == f"cluster {LOST}")

    assert "burnt down" in doctor()
    beat(plane.nodes, LOST, plane.clock.now())
    assert "burnt down" not in doctor()


def test_a_cluster_that_answers_is_not_lost() -> None:
    plane, job = a_plane(silent=False)

    status, answer = declare(plane)

    assert (status, "it is not lost" in answer["error"]["message"]) == (409, True)
    assert plane.workloads.rows[job].state is State.DISPATCHED


@pytest.mark.parametrize(
    ("signer", "reason", "status"),
    [(RED, "no", 403), (ADMIN, " ", 422)],
    ids=["a tenant may not", "without a reason nobody may"],
)
def test_whom_nobody_believes(signer: Signer, reason: str, status: int) -> None:
    plane, job = a_plane()

    assert declare(plane, signer, reason)[0] == status
    assert plane.workloads.rows[job].state is State.DISPATCHED
    assert plane.call("POST", "/clusters/none/lost", ADMIN, {"reason": "x"})[0] == 404


def test_a_dry_run_changes_nothing() -> None:
    plane, job = a_plane()

    assert declare(plane, dryRun=True)[1]["left"] == 1
    assert plane.workloads.rows[job].state is State.DISPATCHED


@pytest.mark.parametrize(
    ("kind", "state"),
    [
        (IntentKind.CANCEL, State.CANCELLED),
        (IntentKind.FAIL, State.FINISHED),
        (IntentKind.PREEMPT, State.ADMITTED),
        (IntentKind.MIGRATE, State.ADMITTED),
    ],
)
def test_what_was_being_stopped_ends_as_it_was_to_end(kind: IntentKind, state: State) -> None:
    plane, job = a_plane()
    record = plane.workloads.rows[job]
    assert plane.workloads.apply([lifecycle.reclaim(record, Intent(kind, "x:Y"))]) == [True]

    assert declare(plane)[1]["declared"] == 1
    plane.settle()

    record = plane.workloads.rows[job]
    assert record.state is state
    assert (record.reservation is not None) is (state is State.ADMITTED)
    assert record.cluster in {"", OTHER}


def test_a_cancel_that_came_between_is_not_undone() -> None:
    plane, job = a_plane()
    seen = plane.workloads.rows[job]
    moving = lifecycle.reclaim(seen, Intent(IntentKind.MIGRATE, "x:Y"))
    assert plane.workloads.apply([moving]) == [True]
    late = lifecycle.lose(plane.workloads.rows[job], Intent(IntentKind.REQUEUE, "x:Y"))
    cancel = Intent(IntentKind.CANCEL, "CANCELLED:User")
    cancelled = lifecycle.change_intent(plane.workloads.rows[job], cancel)
    assert plane.workloads.apply([cancelled]) == [True]

    assert plane.workloads.apply([late]) == [False]
    assert plane.workloads.rows[job].intent == cancel
