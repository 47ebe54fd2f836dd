"""A workload that depends on others waits for them, starts after them, or ends because of them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle import dependencies
from sluice.core.lifecycle.dependencies import SETTLED_MS, UNKNOWN_MS
from sluice.core.lifecycle.indexes import blocked_key, index_keys
from sluice.core.lifecycle.record import State, Workload
from sluice.core.lifecycle.record_entries import JobResult, StatusReason
from sluice.core.lifecycle.transitions import hold, unblock

from tests.unit.usecases.plane import NAMESPACE, Plane, a_document, a_message, a_workload
from tests.unit.usecases.world import ROOT


def on(*others: str, by: str = "id", condition: str = "Succeeded") -> dict[str, Any]:
    return {"depends_on": [{by: other, "condition": condition} for other in others]}


def waiting(workload_id: str = "w2", **options: Any) -> Workload:
    return dependencies.blocked(a_workload(workload_id, options=options))


def ended(workload_id: str = "w1", *, well: bool = True, **fields: Any) -> Workload:
    result = JobResult(succeeded=well)
    return a_workload(workload_id, **{"state": State.FINISHED, "result": result, **fields})


def decided(plane: Plane, *records: Workload) -> Plane:
    for record in records:
        plane.put(record)
    plane.admit()(ROOT)
    return plane


def test_it_waits_outside_its_queue_and_says_for_whom() -> None:
    plane = decided(Plane(), a_workload("w1", name="prepare"), waiting(**on("w1")))

    record = plane.record("w2")
    assert plane.record("w1").state is State.ADMITTED
    assert record.state is State.PENDING
    assert index_keys(record)["inbox"] == blocked_key(NAMESPACE)
    assert record.reason == StatusReason("DEPENDENCY:WaitingFor", "needs w1 to succeed")


def test_it_starts_in_the_very_pass_that_hears_of_the_end() -> None:
    plane = decided(Plane(), ended(), waiting(**on("w1")))

    assert plane.record("w2").state is State.ADMITTED
    assert not plane.record("w2").blocked


@pytest.mark.parametrize(
    ("condition", "target", "becomes"),
    [
        ("Succeeded", ended(), State.ADMITTED),
        ("Succeeded", ended(well=False), State.CANCELLED),
        ("Succeeded", ended(state=State.CANCELLED), State.CANCELLED),
        ("Succeeded", ended(state=State.REJECTED), State.CANCELLED),
        ("Finished", ended(well=False), State.ADMITTED),
        ("Finished", ended(state=State.CANCELLED), State.ADMITTED),
        ("Finished", ended(state=State.REJECTED), State.CANCELLED),
        ("Failed", ended(well=False), State.ADMITTED),
        ("Failed", ended(), State.CANCELLED),
        ("Failed", ended(state=State.CANCELLED), State.CANCELLED),
    ],
)
def test_the_condition_decides_what_an_end_means(
    condition: str, target: Workload, becomes: State
) -> None:
    plane = decided(Plane(), target, waiting(**on("w1", condition=condition)))

    assert plane.record("w2").state is becomes


def test_all_of_them_have_to_end() -> None:
    plane = decided(Plane(), ended("x"), a_workload("y"), waiting(**on("x", "y")))
    assert plane.record("w2").blocked

    plane.workloads.write(
        replace(plane.record("y"), state=State.FINISHED, result=JobResult(succeeded=True))
    )
    plane.admit()(ROOT)

    assert plane.record("w2").state is State.ADMITTED


def test_an_end_that_rules_it_out_goes_down_the_whole_chain_with_its_reason() -> None:
    chain = [waiting("b", **on("a")), waiting("c", **on("b"))]
    plane = decided(Plane(), ended("a", well=False, name="prepare"), *chain)

    assert plane.record("b").reason == StatusReason(
        "DEPENDENCY:NeverSatisfied",
        "waited for a to succeed, which ended as FAILED; "
        "submit it again under a new key once that is mended",
    )
    assert plane.record("c").state is State.CANCELLED
    assert "ended as CANCELLED" in plane.record("c").reason.message


def test_whom_nobody_submitted_is_awaited_for_a_while_and_then_named_as_the_mistake() -> None:
    plane = decided(Plane(), waiting(**on("nobody")))
    assert plane.record("w2").state is State.PENDING

    plane.clock.pass_ms(UNKNOWN_MS + 1)
    plane.admit()(ROOT)

    record = plane.record("w2")
    assert (record.state, record.reason.code) == (
        State.REJECTED,
        "MISCONFIGURATION:UnknownDependency",
    )
    (error,) = record.errors
    assert error.field == "spec.dependsOn[0].id"
    assert "no workload nobody was submitted to namespace team before" in error.message


def test_workloads_of_other_namespaces_are_nobodys_dependencies() -> None:
    plane = decided(Plane(), replace(ended(), namespace="elsewhere"), waiting(**on("w1")))

    assert plane.record("w2").blocked


@pytest.mark.parametrize("length", [1, 2, 3])
def test_who_waits_for_himself_is_rejected_with_the_way_round(length: int) -> None:
    names = "abc"[:length]
    circle = [waiting(name, **on(names[(n + 1) % length])) for n, name in enumerate(names)]
    plane = decided(Plane(), *circle, waiting("z", **on("a")))

    for n, name in enumerate(names):
        record = plane.record(name)
        way = " → ".join([*names[n:], *names[: n + 1]])
        assert record.state is State.REJECTED
        assert record.reason.code == "MISCONFIGURATION:DependencyCycle"
        assert f"waits for itself: {way};" in record.reason.message
    assert plane.record("z").state is State.CANCELLED, "it stood outside of the circle"


def test_a_name_means_the_newest_before_it_once_messages_have_settled() -> None:
    plane = Plane()
    now = plane.clock.now()
    before = [
        ended("old", well=False, name="prepare", created_at=now - 9_000),
        ended("new", name="prepare", created_at=now - 1_000),
        ended("later", well=False, name="prepare", created_at=now + 3_000),
    ]
    decided(plane, *before, waiting(**on("prepare", by="name")))
    assert plane.record("w2").blocked, "its dependency may still be on the way"

    plane.clock.pass_ms(SETTLED_MS)
    plane.admit()(ROOT)

    assert plane.record("w2").state is State.ADMITTED


def test_whom_a_name_means_is_remembered() -> None:
    plane = decided(Plane(), a_workload("w1", name="prepare"), waiting(**on("prepare", by="name")))
    plane.clock.pass_ms(SETTLED_MS)
    plane.admit()(ROOT)
    plane.put(ended("w9", name="prepare"))
    writes = len(plane.workloads.changed)

    plane.admit()(ROOT)

    assert plane.record("w2").options.depends_on[0].id == "w1"
    assert plane.record("w2").reason.message == "needs prepare (w1) to succeed"
    assert len(plane.workloads.changed) == writes, "nothing new, nothing written"


def test_names_within_one_message_mean_each_other() -> None:
    plane = Plane()
    plane.put(ended("old", name="prepare"))
    items = [
        a_document("k1", dependsOn=[{"name": "prepare"}]),
        a_document("k2") | {"metadata": a_document("k2")["metadata"] | {"name": "prepare"}},
    ]
    outcome = plane.submit()([a_message({"apiVersion": "v1", "kind": "List", "items": items})])
    assert outcome.accepted == 2

    first, second = _submitted(plane, "train"), _submitted(plane, "prepare")
    assert first.blocked
    assert not second.blocked
    assert first.options.depends_on[0].id == second.id


def _submitted(plane: Plane, name: str) -> Workload:
    (found,) = [w for w in plane.workloads.rows.values() if w.name == name and w.id != "old"]
    return found


def test_one_that_is_held_stays_so_until_it_is_released() -> None:
    plane = decided(Plane(), ended(), replace(waiting(**on("w1")), held=True))
    assert plane.record("w2").blocked
    assert "inbox" not in index_keys(plane.record("w2"))

    plane.workloads.apply([hold(plane.record("w2"), on=False)])
    plane.admit()(ROOT)

    assert plane.record("w2").state is State.ADMITTED


def test_the_sweep_lets_in_whom_every_event_forgot() -> None:
    plane = Plane()
    for record in (ended(), waiting(**on("w1"))):
        plane.put(record)

    assert plane.sweep_use_case()().kicked == (ROOT,)
    assert not plane.record("w2").blocked


def test_a_lost_race_lets_nobody_in_twice() -> None:
    record = waiting(**on("w1"))
    plane = decided(Plane(), ended(), record)

    assert plane.workloads.apply([unblock(record)]) == [False]
