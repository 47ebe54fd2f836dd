"""Admission checks: quota first, then the answers, and only then a Job."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.config.model import CheckState
from sluice.core.lifecycle.checks import states, token
from sluice.core.lifecycle.record import IntentKind, State, Workload, phase
from sluice.core.lifecycle.record_entries import CheckAnswer, StatusReason
from sluice.core.lifecycle.runs import ordering_time
from sluice.core.lifecycle.transitions import answer, claim, hold
from sluice.ports import CatalogEdit, StreamRecord
from sluice.usecases.upkeep.relay import Relay

from tests.fakes import RecordedCommands, RecordedKicks, RecordedProvisions, RecordedTimeline
from tests.unit.usecases.plane import Plane, a_workload
from tests.unit.usecases.test_clusters import asked
from tests.unit.usecases.world import CLUSTER, ROOT, queue


def check(name: str, controller: str = "sluice.dev/callback") -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "AdmissionCheck",
        "metadata": {"name": name},
        "spec": {"controllerName": controller},
    }


def a_plane(*checks: dict[str, Any], flavors: tuple[str, ...] = ()) -> Plane:
    plane = Plane()
    named = [
        {"name": c["metadata"]["name"], **({"onFlavors": list(flavors)} if flavors else {})}
        for c in checks
    ]
    strategy = {"admissionChecksStrategy": {"admissionChecks": named}}
    put: list[tuple[str, str, dict[str, Any]]] = [("ClusterQueue", "a", queue("a", 2, **strategy))]
    put += [("AdmissionCheck", c["metadata"]["name"], c) for c in checks]
    assert plane.catalog.edit(CatalogEdit(1, tuple(put), roots=(ROOT,)))
    return plane


def reserved(plane: Plane) -> Workload:
    plane.put(a_workload())
    plane.admit()(ROOT)
    return plane.record()


def say(plane: Plane, name: str, state: CheckState, message: str = "") -> Workload:
    said = answer(plane.record(), name, state, message, plane.clock.now())
    assert plane.workloads.apply([said]) == [True]
    plane.admit()(ROOT)
    return plane.record()


def stopped(plane: Plane) -> Workload:
    """`act` finds nothing to stop, and `admit` takes the quota back."""
    plane.act()(CLUSTER, ["w1"])
    plane.look()
    plane.admit()(ROOT)
    return plane.record()


def test_quota_is_reserved_and_no_job_is_made_while_checks_are_pending() -> None:
    plane = a_plane(check("approval"), check("licence"))

    record = reserved(plane)
    plane.act()(CLUSTER, ["w1"])
    plane.clock.pass_ms(60_000)
    plane.look()

    assert (record.state, record.checks) == (State.ADMITTED, ("approval", "licence"))
    assert plane.ledgers.read(ROOT).usage == {"a": {"spot|cpu": 1000}}
    assert plane.job() is None
    assert not plane.commands.sent, "nobody is reminded of what must not be done"
    assert plane.workloads.apply([claim(record, "uid", 1)]) == [False]


def test_ready_from_all_lets_it_start_and_ready_from_one_does_not() -> None:
    plane = a_plane(check("approval"), check("licence"))
    reserved(plane)

    record = say(plane, "approval", CheckState.READY)
    assert record.gated
    assert states(record) == {"approval": CheckState.READY, "licence": CheckState.PENDING}

    assert not say(plane, "licence", CheckState.READY).gated
    plane.act()(CLUSTER, ["w1"])
    assert plane.record().state is State.DISPATCHED


def test_retry_gives_the_quota_back_for_a_while_and_asks_again() -> None:
    plane = a_plane(check("approval"))
    reserved(plane)
    plane.clock.pass_ms(5_000)

    record = say(plane, "approval", CheckState.RETRY, "not before noon")
    assert record.intent is not None
    assert record.intent.kind is IntentKind.REQUEUE
    record = stopped(plane)

    assert (record.state, record.generation) == (State.PENDING, 1)
    assert record.reason == StatusReason(
        "HELD:AdmissionCheck", "admission check approval asks to try again: not before noon"
    )
    assert plane.ledgers.read(ROOT).usage == {}
    assert record.not_before == plane.clock.now() + 60_000
    assert record.created_at < ordering_time(record) == record.runs[-1].ended_at

    plane.clock.pass_ms(60_000)
    plane.admit()(ROOT)
    record = plane.record()
    assert record.gated
    assert states(record) == {"approval": CheckState.PENDING}, "an old answer is no answer"


def test_each_retry_waits_longer() -> None:
    plane = a_plane(check("approval"))
    waits = []
    reserved(plane)
    for _ in range(3):
        say(plane, "approval", CheckState.RETRY)
        waits.append(stopped(plane).not_before - plane.clock.now())
        plane.clock.pass_ms(waits[-1])
        plane.admit()(ROOT)

    assert waits == [60_000, 120_000, 240_000]


def test_rejected_deactivates_it_until_somebody_releases_it() -> None:
    plane = a_plane(check("approval"))
    reserved(plane)

    say(plane, "approval", CheckState.REJECTED, "no budget code")
    record = stopped(plane)

    assert (record.state, record.held, record.generation) == (State.PENDING, True, 1)
    assert record.reason.message == "admission check approval rejected it: no budget code"
    assert plane.ledgers.read(ROOT).usage == {}
    plane.admit()(ROOT)
    assert plane.record().state is State.PENDING

    assert plane.workloads.apply([hold(plane.record(), on=False)]) == [True]
    plane.admit()(ROOT)
    assert plane.record().gated


def test_rejected_beats_retry_and_ready() -> None:
    plane = a_plane(check("a"), check("b"), check("c"))
    record = reserved(plane)
    for name, state in zip("abc", ("Ready", "Retry", "Rejected"), strict=True):
        assert plane.workloads.apply([answer(record, name, state, "", 1)]) == [True]

    plane.admit()(ROOT)

    intent = plane.record().intent
    assert intent is not None
    assert intent.kind is IntentKind.DEACTIVATE
    assert intent.message == "admission check c rejected it"


def test_the_newest_answer_of_a_check_counts() -> None:
    plane = a_plane(check("a"), check("b"))
    record = reserved(plane)
    for state in ("Retry", "Ready"):
        assert plane.workloads.apply([answer(record, "a", state, "", 1)]) == [True]

    plane.admit()(ROOT)

    assert states(plane.record())["a"] is CheckState.READY
    assert plane.record().state is State.ADMITTED


def test_a_check_of_some_flavors_leaves_others_alone() -> None:
    assert not reserved(a_plane(check("approval"), flavors=("gpu",))).gated
    assert reserved(a_plane(check("approval"), flavors=("spot",))).gated


def test_the_budget_check_is_answered_by_the_reservation_itself() -> None:
    record = reserved(a_plane(check("money", "sluice.dev/budget")))

    assert (record.checks, record.gated) == ((), False)


@pytest.mark.parametrize(
    ("objects", "told"),
    [
        ((), "AdmissionCheck gone does not exist"),
        (
            (check("gone", "example.com/robot"),),
            "nobody answers AdmissionCheck gone: its controllerName example.com/robot is unknown",
        ),
    ],
)
def test_a_check_that_nobody_answers_makes_its_queue_inactive(
    objects: tuple[dict[str, Any], ...], told: str
) -> None:
    plane = a_plane(check("gone"))
    put = tuple(("AdmissionCheck", "gone", each) for each in objects)
    assert plane.catalog.edit(
        CatalogEdit(2, put, () if put else (("AdmissionCheck", "gone"),), roots=(ROOT,))
    )

    assert reserved(plane).state is State.PENDING
    code, message = asked(plane, "w1")
    assert code == "MISCONFIGURATION:QueueInactive"
    assert message.partition("; known: ")[0] == told


def test_the_event_that_asks_carries_a_token_and_the_answer_kicks() -> None:
    plane = a_plane(check("approval"))
    gated = reserved(plane)
    said = replace(gated, answers=(CheckAnswer("approval", "Ready", 7, 0, "go"),))
    open_ = replace(said, gated=False)
    kicks, commands, told = RecordedKicks(), RecordedCommands(), RecordedTimeline()

    Relay(kicks=kicks, commands=commands, provisions=RecordedProvisions(), timeline=told, bus=told)(
        [StreamRecord(a_workload(), gated, 5)]
    )
    assert (kicks.roots, commands.sent) == ([], [])
    Relay(kicks=kicks, commands=commands, provisions=RecordedProvisions(), timeline=told, bus=told)(
        [StreamRecord(gated, said, 7)]
    )
    assert (kicks.roots, commands.sent) == ([ROOT], [])
    Relay(kicks=kicks, commands=commands, provisions=RecordedProvisions(), timeline=told, bus=told)(
        [StreamRecord(said, open_, 8)]
    )
    assert commands.sent == [(CLUSTER, ["w1"])]

    lines = {line.what: line for line in told.lines}
    assert lines["AdmissionCheckRequested:approval"].detail == {
        "check": "approval",
        "token": token(gated, "approval"),
    }
    assert lines["AdmissionCheckAnswered:approval"].message == (
        "admission check approval says Ready: go"
    )
    assert "AdmissionChecksPassed" in lines


def test_a_gated_workload_can_be_cancelled_like_any_other() -> None:
    plane = a_plane(check("approval"))
    reserved(plane)
    said = answer(plane.record(), "approval", "Rejected", "", 1)
    assert plane.workloads.apply([said]) == [True]

    assert phase(plane.record()) == "ADMITTED"
    assert plane.sweep_use_case()().kicked == (ROOT,)


def test_a_check_that_the_queue_no_longer_has_holds_nobody_back() -> None:
    plane = a_plane(check("approval"), check("licence"))
    reserved(plane)
    assert say(plane, "approval", CheckState.READY).gated

    left = {"admissionChecksStrategy": {"admissionChecks": [{"name": "approval"}]}}
    put = (("ClusterQueue", "a", queue("a", 2, **left)),)
    assert plane.catalog.edit(CatalogEdit(2, put, roots=(ROOT,)))
    plane.admit()(ROOT)

    assert not plane.record().gated


def test_a_stopped_queue_takes_back_what_only_waits_for_its_checks() -> None:
    plane = a_plane(check("approval"))
    reserved(plane)

    strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": "approval"}]}}
    put = (("ClusterQueue", "a", queue("a", 2, stopPolicy="Hold", **strategy)),)
    assert plane.catalog.edit(CatalogEdit(2, put, roots=(ROOT,)))
    plane.admit()(ROOT)
    assert plane.record().intent is not None
    record = stopped(plane)

    assert (record.state, record.held, record.reservation) == (State.PENDING, False, None)
    assert record.reason.code == "HELD:QueueCordoned"
    assert plane.ledgers.read(ROOT).usage == {}
