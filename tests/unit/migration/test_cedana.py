"""Pods that Cedana saves and restores: one request for a generation, and every pod is counted."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.cedana.pods import RESTORING, VOID, restoring
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.lifecycle.job_status import STAND_IN
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.core.lifecycle.transitions import reclaim
from sluice.core.migrations.checkpointing import Checkpoint
from sluice.core.migrations.gangs import GATE
from sluice.errors import CheckpointServiceRefused

from tests.unit.migration.town import Town
from tests.unit.usecases.world import CLUSTER


@pytest.fixture
def town() -> Town:
    return Town(with_cedana=True)


def pods(town: Town) -> dict[str, dict[str, Any]]:
    return {
        name: each
        for (kind, namespace, name), each in town.kubernetes.objects.items()
        if kind == "Pod" and namespace == "team"
    }


def address(action: str) -> str:
    return f"cedana://{CLUSTER}/{action}"


def moved(town: Town) -> None:
    """Save a workload and end its source: its next generation has a stand-in."""
    node = town.runs("w", "cedana")
    town.hear(town.notice(node))
    for _ in range(8):
        town.cedana.work_on()
        town.pass_quietly(10)
        if "w-w-g1-pod" in pods(town):
            break
    town.end(node)


def unasked(town: Town) -> dict[str, Any]:
    """As `moved`, but nobody has spoken to Cedana yet."""
    moved(town)
    for action in town.cedana.begun("restore"):
        del town.cedana.actions[action]
    change = {"metadata": {"annotations": {RESTORING: None}}}
    made = town.kubernetes.patch("Pod", "team", "w-w-g1-pod", change)
    assert made
    return made


def asked(town: Town) -> str:
    """The restore that Cedana was asked for, and has not carried out."""
    unasked(town)
    town.obey("w")
    (action,) = town.cedana.begun("restore")
    return action


def test_a_move_is_saved_by_one_and_restored_under_the_quota_of_the_next(town: Town) -> None:
    asked(town)
    assert town.kubernetes.running() == []

    town.cedana.work_on()
    town.pass_quietly(30)

    source = town.row("w").restore_from
    town.runs_once_more("w", saved=source)
    assert source in map(address, town.cedana.saved())
    (pod,) = pods(town).values()
    assert "restored" in pod["metadata"]["name"]
    assert pod["metadata"]["labels"]["sluice.dev/generation"] == "1"
    assert pod["metadata"]["ownerReferences"][0]["name"] == "w-w-g1"
    assert "RestoreOrdered" in town.told("w")


def test_what_is_asked_is_written_down_before_and_asked_once(town: Town) -> None:
    stand_in = unasked(town)
    assert [gate["name"] for gate in stand_in["spec"]["schedulingGates"]] == [GATE]
    assert stand_in["metadata"]["finalizers"] == [STAND_IN]

    for _ in range(5):
        town.obey("w")
        town.pass_quietly(10)

    assert len(town.cedana.begun("restore")) == 1
    mark = restoring(pods(town)["w-w-g1-pod"])
    assert (mark.source, mark.action) == (
        town.row("w").restore_from,
        town.cedana.begun("restore")[0],
    )


def test_an_answer_that_is_lost_is_not_asked_for_again(town: Town) -> None:
    unasked(town)
    town.cedana.silent = True
    town.obey("w")
    assert town.row("w").reason.message == "no answer"

    town.cedana.silent = False
    town.pass_quietly(60)
    assert len(town.cedana.begun("restore")) == 1, "asked again"
    town.cedana.work_on()
    town.pass_quietly(30)

    town.runs_once_more("w", saved=town.row("w").restore_from)


def test_a_cancel_between_request_and_pod_gives_no_quota_back(town: Town) -> None:
    asked(town)
    town.workloads.apply([reclaim(town.row("w"), Intent(IntentKind.CANCEL, "TEST:Cancelled"))])

    town.pass_quietly(120)
    assert town.row("w").state is State.RECLAIMING
    assert town.row("w").reservation
    assert not town.row("w").gone

    town.cedana.work_on()
    town.pass_quietly(60)
    assert town.row("w").state is State.CANCELLED
    assert not town.row("w").reservation
    assert pods(town) == {}


def test_a_cancel_before_the_request_asks_for_nothing(town: Town) -> None:
    unasked(town)
    town.workloads.apply([reclaim(town.row("w"), Intent(IntentKind.CANCEL, "TEST:Cancelled"))])

    town.pass_quietly(60)

    assert town.row("w").state is State.CANCELLED
    assert town.cedana.begun("restore") == []
    assert pods(town) == {}


def test_a_restore_that_fails_is_tried_once_more_then_an_older_one_then_the_beginning(
    town: Town,
) -> None:
    asked(town)
    source = town.row("w").restore_from
    at = town.clock.now() - 60_000
    town.migrations.keep(Checkpoint("w", 0, address("older"), at, CheckpointMode.CEDANA), retain=3)
    town.cedana.actions["older"] = town.cedana.actions[town.cedana.saved()[0]]
    town.cedana.failing = 1.0

    begun = [source]
    for _ in range(20):
        town.cedana.work_on()
        town.pass_quietly(10)
        if town.row("w").restore_from != begun[-1]:
            begun.append(town.row("w").restore_from)

    row = town.row("w")
    assert begun == [source, address("older"), ""]
    assert (row.state, row.generation) == (State.DISPATCHED, 5)
    assert town.kubernetes.running() == ["w"]
    assert list(pods(town)) == ["w-w-g5-pod"]
    assert town.told("w").count("RestoreFailed") == 4
    assert len(town.cedana.begun("restore")) == 4
    assert row.reservation


def test_who_is_restored_twice_runs_once(town: Town) -> None:
    action = asked(town)
    town.cedana.twice = True
    town.cedana.work(action)

    town.obey("w")
    town.pass_quietly(30)

    town.runs_once_more("w", saved=town.row("w").restore_from)
    assert len(pods(town)) == 1


def test_a_pod_that_comes_after_all_is_ended(town: Town) -> None:
    """Cedana said that it failed, so another one was restored; then there is one more."""
    action = asked(town)
    town.cedana.failing = 1.0
    town.cedana.work(action)
    town.pass_quietly(30)
    town.cedana.failing = 0.0
    town.cedana.work_on()
    town.pass_quietly(30)
    (name,) = pods(town)
    assert (town.row("w").generation, town.kubernetes.running()) == (2, ["w"])

    late = town.cedana._restored(town.cedana.actions[action].pod)
    town.kubernetes.create(late)
    town.observe()
    town.drain()

    assert list(pods(town)) == [name]


def test_an_administrators_word_ends_the_waiting(town: Town) -> None:
    asked(town)
    town.pass_quietly(300)
    told = town.row("w").reason.message
    assert VOID in told
    assert "w-w-g1-pod" in told

    mark = {"metadata": {"annotations": {VOID: "true"}}}
    town.kubernetes.patch("Pod", "team", "w-w-g1-pod", mark)
    town.obey("w")

    town.pass_quietly(30)

    assert "RestoreFailed" in town.told("w")
    assert town.row("w").generation == 2


def test_a_token_that_is_refused_is_told_and_nothing_counts_as_asked(town: Town) -> None:
    unasked(town)
    town.cedana.refusing = CheckpointServiceRefused("HTTP 401")
    town.obey("w")
    assert town.row("w").reason.message == "HTTP 401"
    assert restoring(pods(town)["w-w-g1-pod"]).source == ""

    town.cedana.refusing = None
    town.obey("w")

    assert len(town.cedana.begun("restore")) == 1


def test_a_job_that_ends_while_a_restore_is_awaited_does_not_end_the_run(town: Town) -> None:
    asked(town)
    town.failed_by_itself.add(("w", 1))
    job = town.kubernetes.objects["Job", "team", "w-w-g1"]
    failed = {"type": "Failed", "status": "True", "reason": "DeadlineExceeded"}
    town.kubernetes.objects["Job", "team", "w-w-g1"] = {**job, "status": {"conditions": [failed]}}

    town.pass_quietly(60)
    assert town.row("w").state is State.DISPATCHED
    assert town.row("w").reservation

    town.cedana.work_on()
    town.pass_quietly(60)
    assert town.row("w").state is State.FINISHED
    assert town.kubernetes.running() == []


def test_a_retry_of_the_job_is_restored_anew(town: Town) -> None:
    asked(town)
    town.cedana.work_on()
    town.pass_quietly(30)
    (name,) = pods(town)

    town.kubernetes.delete("Pod", "team", name, grace_seconds=0)
    town.pass_quietly(20)
    town.cedana.work_on()
    town.pass_quietly(30)

    assert len(town.cedana.begun("restore")) == 2
    assert town.kubernetes.running() == ["w"]


def test_the_action_is_noted_though_somebody_else_has_touched_the_pod(town: Town) -> None:
    unasked(town)
    ask = town.cedana.restore

    def touched(checkpoint: str) -> str:
        begun = ask(checkpoint)
        town.kubernetes.patch("Pod", "team", "w-w-g1-pod", {"metadata": {"labels": {"a": "b"}}})
        return begun

    town.cedana.restore = touched  # type: ignore[method-assign]
    town.obey("w")

    assert restoring(pods(town)["w-w-g1-pod"]).action in town.cedana.begun("restore")
