"""Who makes room and comes back is saved first: bounded, exactly once, and truly told."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.accounting.usage_intervals import IntervalKind, usage_intervals
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.core.lifecycle.transitions import change_intent, reclaim
from sluice.core.migrations.interruption import MIGRATION_REQUESTED, request_event
from sluice.core.migrations.pod_annotations import DONE, LEAVING, ORDER, annotations_of
from sluice.ports import CatalogEdit

from tests.unit.migration.town import CrashingTown, Town
from tests.unit.usecases.world import ROOT

SAVED = "s3://bucket/yield-0/w-w-g0-pod.tar"
COMES_BACK = (IntentKind.PREEMPT, IntentKind.REQUEUE, IntentKind.DEACTIVATE)


def gives_way(town: Town, kind: IntentKind = IntentKind.PREEMPT, mode: str = "kubelet") -> None:
    """A run that has worked for a minute and is to make room."""
    town.runs("w", mode)
    town.clock.pass_ms(60_000)
    is_told_to_go(town, kind)


def is_told_to_go(town: Town, kind: IntentKind = IntentKind.PREEMPT) -> None:
    intent = Intent(kind, "TEST:Yields", "w yields", by="urgent")
    assert town.workloads.apply([reclaim(town.row("w"), intent)]) == [True]
    town.obey("w")


def pod_of(town: Town) -> dict[str, Any]:
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    return pod


def answer(town: Town, **said: Any) -> None:
    done = {"order": "yield-0", "at": town.clock.now(), **said}
    at = pod_of(town)["metadata"]
    change = {"metadata": {"annotations": {DONE: json.dumps(done)}}}
    town.kubernetes.patch("Pod", at["namespace"], at["name"], change)


def is_saved(town: Town, **said: Any) -> None:
    town.saved_seen.add(SAVED)
    answer(town, uri=SAVED, bytes=10**6, seconds=2, **said)


def lines(town: Town, what: str) -> list[str]:
    return [line["message"] for line in town.timeline.of("w") if line["what"] == what]


def policy(town: Town, **spec: Any) -> None:
    document = {
        "apiVersion": "sluice.dev/v1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "p"},
        "spec": spec,
    }
    version = town.catalog.snapshot().version
    put = (("SchedulingPolicy", "p", document),)
    assert town.catalog.edit(CatalogEdit(version, put, roots=(ROOT,)))


@pytest.mark.parametrize("kind", COMES_BACK)
def test_who_comes_back_is_dumped_before_it_goes_and_goes_on_from_there(
    town: Town, kind: IntentKind
) -> None:
    gives_way(town, kind)

    assert town.kubernetes.running() == ["w"], "it was told to go before it was saved"
    assert annotations_of(pod_of(town))[ORDER] == "yield-0"
    assert lines(town, "CheckpointDecided") == ["needs 0 s, has 60 s: dump"]
    is_saved(town)
    town.obey("w")
    town.tell()
    town.admit()

    row = town.row("w")
    assert (row.state, row.generation, row.restore_from) == (State.PENDING, 1, SAVED)
    assert row.held is (kind is IntentKind.DEACTIVATE)
    assert [each.uri for each in town.migrations.checkpoints("w")] == [SAVED]
    assert lines(town, "CheckpointCompleted") == ["1.0 MB saved in 2.0 s"]
    assert not lines(town, "InterruptionNoticed"), "no machine goes away"
    town.check()


@pytest.mark.parametrize("kind", [IntentKind.CANCEL, IntentKind.FAIL])
def test_who_does_not_come_back_is_stopped_at_once(town: Town, kind: IntentKind) -> None:
    gives_way(town, kind)

    assert town.kubernetes.running() == []
    assert not lines(town, "CheckpointDecided")


@pytest.mark.parametrize("mode", ["none", "application"])
def test_who_cannot_be_saved_by_others_is_stopped_at_once(town: Town, mode: str) -> None:
    gives_way(town, mode=mode)

    assert town.kubernetes.running() == []
    assert not lines(town, "CheckpointDecided")


def test_who_has_not_begun_to_work_is_stopped_at_once(town: Town) -> None:
    town.runs("w", "kubelet")
    town.workloads.write(replace(town.row("w"), started_at=0))

    is_told_to_go(town)

    assert town.kubernetes.running() == []


def test_its_place_is_not_given_away_before_it_is_gone(town: Town) -> None:
    gives_way(town)
    town.submit("urgent", "a", 40, priority=1)

    for _ in range(3):
        town.clock.pass_ms(1_000)
        town.admit()
        assert town.row("urgent").state is State.PENDING
    is_saved(town)
    town.obey("w")
    town.admit()

    assert town.row("urgent").state is State.ADMITTED
    assert town.row("w").state is State.PENDING
    town.check()


@pytest.mark.parametrize(("within", "waits_ms"), [(None, 60_000), ("5s", 5_000), ("90s", 90_000)])
def test_nobody_waits_longer_for_a_dump_than_the_policy_says(
    town: Town, within: str | None, waits_ms: int
) -> None:
    if within is not None:
        policy(town, saveVictimsWithin=within)
    gives_way(town)
    assert lines(town, "CheckpointDecided")[0].endswith(f"has {waits_ms // 1000} s: dump")

    town.clock.pass_ms(waits_ms - 1)
    town.obey("w")
    assert town.kubernetes.running() == ["w"]
    town.clock.pass_ms(1)
    town.obey("w")

    assert town.kubernetes.running() == []
    assert lines(town, "CheckpointFailed") == ["the dump was not complete in time"]
    town.tell()
    town.admit()
    assert town.row("w").restore_from == ""


def test_a_policy_may_switch_it_off(town: Town) -> None:
    policy(town, saveVictimsWithin="0s")

    gives_way(town)

    assert town.kubernetes.running() == []
    assert not lines(town, "CheckpointDecided")


def test_a_dump_that_takes_longer_than_others_are_to_wait_is_not_begun(town: Town) -> None:
    town.runs("w", "kubelet")
    row = town.row("w")
    (main,) = row.pod_sets
    large = replace(main, requests={**main.requests, "memory": 4 * 10**9})
    town.workloads.write(replace(row, pod_sets=(large,)))

    is_told_to_go(town)

    assert town.kubernetes.running() == []
    assert lines(town, "CheckpointDecided") == ["needs 126 s, has 60 s: signal"]


def takes_its_time(town: Town) -> list[tuple[str, int | None]]:
    """Pods go on after they are told to go; the kinds that are deleted from now on, with grace."""
    asked: list[tuple[str, int | None]] = []

    def slow(kind: str, namespace: str, name: str, **options: Any) -> bool:
        asked.append((kind, options.get("grace_seconds")))
        if kind == "Job":  # in the foreground: it goes when its pods are gone
            job = town.kubernetes.objects[kind, namespace, name]
            marked = {**job["metadata"], "deletionTimestamp": "now"}
            town.kubernetes.objects[kind, namespace, name] = {**job, "metadata": marked}
        return True

    town.kubernetes.delete = slow  # type: ignore[method-assign]
    return asked


@pytest.mark.parametrize(
    ("saved", "deleted"), [(True, [("Job", None), ("Pod", 1)]), (False, [("Job", None)])]
)
def test_who_is_saved_has_a_second_of_grace_and_who_is_not_has_all_of_it(
    town: Town, saved: bool, deleted: list[tuple[str, int | None]]
) -> None:
    gives_way(town)
    asked = takes_its_time(town)
    if saved:
        is_saved(town)
    else:
        answer(town, error="criu failed")
    town.obey("w")

    assert asked == deleted
    assert lines(town, "CheckpointFailed") == ([] if saved else ["criu failed"])
    assert not town.row("w").gone, "its pod is not proven gone"


def test_the_seconds_of_the_dump_are_the_victims_and_the_work_until_it_is_kept(
    town: Town,
) -> None:
    gives_way(town)
    began = town.row("w").started_at
    town.clock.pass_ms(1_000)
    at = town.clock.now()
    town.clock.pass_ms(3_000)
    is_saved(town, at=at, held=at + 40)
    town.obey("w")
    town.tell()
    town.admit()

    row = town.row("w")
    (run,) = row.runs
    assert (run.stopped_at, run.lost_ms) == (at + 40, 40)
    assert run.ended_at >= at + 3_000
    spent = {each.kind: each.ms for each in usage_intervals(row, town.clock.now()) if each.run}
    assert spent[IntervalKind.USEFUL] == at - began
    assert spent[IntervalKind.REDONE] == 40
    assert spent[IntervalKind.MIGRATING] == run.ended_at - at - 40


def test_what_it_does_after_a_dump_that_does_not_hold_it_counts_as_lost(town: Town) -> None:
    gives_way(town)
    at = town.clock.now()
    town.clock.pass_ms(3_000)
    is_saved(town, at=at)
    town.obey("w")
    town.tell()
    town.admit()

    (run,) = town.row("w").runs
    assert run.lost_ms == run.ended_at - at >= 3_000


def test_a_cancel_in_the_middle_ends_it_at_once(town: Town) -> None:
    gives_way(town)
    cancel = Intent(IntentKind.CANCEL, "CANCELLED:User", "by a user")
    assert town.workloads.apply([change_intent(town.row("w"), cancel)]) == [True]

    town.obey("w")
    town.tell()
    town.admit()

    assert town.row("w").state is State.CANCELLED
    assert not town.row("w").reservation
    assert town.migrations.checkpoints("w") == []


def test_a_dump_that_arrives_after_a_cancel_changes_nothing_of_it(town: Town) -> None:
    gives_way(town)
    before = town.row("w")
    cancel = Intent(IntentKind.CANCEL, "CANCELLED:User", "by a user")
    is_saved(town, held=town.clock.now())
    use = town.migrate_use_case()
    record = town.migrations.get("w#0#yield")
    assert record is not None
    assert town.workloads.apply([change_intent(town.row("w"), cancel)]) == [True]

    use.look_after(town.kubernetes, before, record)  # by a Lambda that has read it before

    assert town.row("w").intent == cancel
    town.obey("w")
    town.tell()
    town.admit()
    assert town.row("w").state is State.CANCELLED


def test_who_ends_by_itself_in_the_middle_has_finished(town: Town) -> None:
    gives_way(town)
    town.kubernetes.finish("team", "w-w-g0", exit_code=0)

    town.turn()
    town.turn()

    assert town.row("w").state is State.FINISHED
    assert town.row("w").result.succeeded
    assert not town.row("w").reservation


@pytest.mark.parametrize("saved", [True, False])
def test_a_notice_in_the_middle_shortens_the_time_and_moves_nobody(town: Town, saved: bool) -> None:
    policy(town, saveVictimsWithin="10m")
    gives_way(town)
    node = pod_of(town)["spec"]["nodeName"]
    town.hear(town.notice(node))
    assert "w#0" not in town.migrations.rows, "it has no quota to move with"
    town.obey("w")
    assert town.kubernetes.running() == ["w"]
    if saved:
        is_saved(town)
    town.clock.pass_ms(0 if saved else 112_000)
    town.obey("w")

    assert town.kubernetes.running() == []
    town.tell()
    town.admit()
    row = town.row("w")
    assert (row.generation, row.restore_from) == (1, SAVED if saved else "")


def test_the_end_of_its_machine_in_the_middle_is_the_proof_that_it_is_gone(town: Town) -> None:
    gives_way(town)

    town.end(pod_of(town)["spec"]["nodeName"])
    town.tell()
    town.admit()

    assert (town.row("w").state, town.row("w").generation) == (State.PENDING, 1)
    town.check()


def test_a_notice_that_lost_its_race_leaves_the_dump_alone(town: Town) -> None:
    """It has begun the account of a move before the workload was taken off for another reason."""
    node = town.runs("w", "kubelet")
    event = town.notice(node)
    preempted = reclaim(town.row("w"), Intent(IntentKind.PREEMPT, "TEST:Yields"))
    create = town.migrations.create

    def overtaken(move: Any) -> Any:
        made = create(move)
        town.workloads.apply([preempted])
        return made

    town.migrations.create = overtaken  # type: ignore[method-assign]
    assert town.hear(event).moved == ()
    town.migrations.create = create  # type: ignore[method-assign]
    town.obey("w")

    assert annotations_of(pod_of(town))[ORDER] == "yield-0"
    assert LEAVING in annotations_of(pod_of(town)), "observers look at it every second by that"
    assert town.kubernetes.running() == ["w"]


def test_who_moves_is_not_told_to_make_room_and_is_dumped_once(town: Town) -> None:
    town.runs("w", "kubelet")
    before = town.row("w")
    town.hear(request_event(MIGRATION_REQUESTED, town.clock.now(), {"workload": "w", "by": "ann"}))

    late = Intent(IntentKind.PREEMPT, "TEST:Yields")
    assert town.workloads.apply([reclaim(before, late)]) == [False]

    assert annotations_of(pod_of(town))[ORDER] == "move-0-1800000000000"
    assert "w#0#yield" not in town.migrations.rows


def test_a_gang_on_a_machine_that_nobody_has_counted_is_not_saved(town: Town) -> None:
    """`act` may not list nodes: what the inventory lacks is taken for unable."""
    town.runs("w", "kubelet", members=3)
    for node in list(town.nodes.rows):
        del town.nodes.rows[node]

    is_told_to_go(town)

    assert town.kubernetes.running() == []
    assert "the node cannot dump processes" in lines(town, "CheckpointDecided")[0]


@pytest.mark.parametrize("marked", [{"deletionTimestamp": "now"}, {}])
def test_a_pod_that_is_told_to_go_or_does_not_run_has_nothing_to_save(
    town: Town, marked: dict[str, str]
) -> None:
    town.runs("w", "kubelet")
    pod = pod_of(town)
    pod["metadata"] |= marked
    pod["status"]["phase"] = "Running" if marked else "Pending"

    is_told_to_go(town)

    assert town.kubernetes.running() == []
    assert not lines(town, "CheckpointDecided")


@pytest.mark.parametrize("silent", [True, False])
def test_a_gang_makes_room_as_one_set_or_unsaved(town: Town, silent: bool) -> None:
    gives_way_as_gang(town)
    if not silent:
        town.save()
    town.clock.pass_ms(60_000 if silent else 1_000)
    town.obey("w")

    assert town.kubernetes.running() == []
    town.tell()
    town.admit()
    row = town.row("w")
    assert row.restore_from == ("" if silent else "s3://bucket/w/0/yield-0/")
    town.check()


def test_members_that_stand_still_already_hear_their_sigterm_when_another_one_fails(
    town: Town,
) -> None:
    gives_way_as_gang(town)
    town.save()
    broken, *others = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    done = {"order": "yield-0", "error": "no space left", "at": town.clock.now()}
    change = {"metadata": {"annotations": {DONE: json.dumps(done)}}}
    town.kubernetes.patch("Pod", "team", broken["metadata"]["name"], change)
    takes_its_time(town)
    town.obey("w")

    left = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    assert len(left) == len(others) + 1
    assert not any(ORDER in annotations_of(pod) for pod in left), (
        "their node would go on holding them"
    )


def test_observers_leave_the_dump_to_who_looks_after_it(town: Town) -> None:
    gives_way(town)
    is_saved(town)

    town.observe()

    assert town.migrations.checkpoints("w") == []
    assert not lines(town, "CheckpointCompleted")


def gives_way_as_gang(town: Town) -> None:
    town.runs("w", "kubelet", members=3)
    is_told_to_go(town)
    assert lines(town, "CheckpointDecided")[0].startswith("needs 0 s, has 60 s: dump of 3 parts")


def makes_room(town: CrashingTown, *, again: bool) -> None:
    """Dump, stop and another start; then some quiet minutes."""
    for _ in range(3):
        for step in (town.tell, lambda: town.obey("w"), town.observe):
            town.attempt(step, again=again)
        town.save()
    for _ in range(6):
        town.clock.pass_ms(10_000)
        town.kubernetes.provide()
        for step in (town.tell, town.sweep, town.admit, town.observe, town.drain):
            town.attempt(step, again=again)


@pytest.mark.parametrize("again", [True, False])
@pytest.mark.parametrize("members", [1, 3])
def test_a_lambda_that_dies_anywhere_loses_nothing_that_was_saved(
    members: int, again: bool
) -> None:
    for moment in range(1, 1_000, 2):
        town = CrashingTown()
        town.runs("w", "kubelet", members)
        town.clock.pass_ms(10_000)
        intent = Intent(IntentKind.REQUEUE, "TEST:Yields")
        assert town.workloads.apply([reclaim(town.row("w"), intent)]) == [True]
        town.countdown.left = moment
        makes_room(town, again=again)

        row = town.row("w")
        assert town.kubernetes.running() == ["w"]
        assert (row.state, row.generation) == (State.DISPATCHED, 1)
        assert row.restore_from, "what was saved is lost"
        assert row.restore_from in town.saved_seen
        told = [line["what"] for line in town.timeline.of("w")]
        assert told.count("CheckpointDecided") == told.count("CheckpointCompleted") == 1
        if not town.countdown.came:
            break
    assert 30 < moment < 999, "the moments were not all tried, or there were none"
