"""What is saved, with which driver, and when the source has to stop."""

from __future__ import annotations

from dataclasses import replace
from math import isclose
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.accounting.recovery import undone
from sluice.core.checkpoints.driver import Capability, CheckpointMode, PodFacts
from sluice.core.checkpoints.drivers import DRIVERS, usable_driver
from sluice.core.checkpoints.fit import LEAD_MS, MARGIN_MS, Bandwidth, CheckpointAction, fits_twice
from sluice.core.intake.replacement import placeholder, ready
from sluice.core.lifecycle.record import PodSet, State, Workload
from sluice.core.lifecycle.run import Run
from sluice.core.migrations import decisions, downtime, migration_timeline
from sluice.core.migrations import migration as moving
from sluice.core.migrations.checkpointing import (
    Checkpoint,
    interval_seconds,
    observed_bandwidth,
    retained,
)
from sluice.core.migrations.decisions import SourceStep, SourceView
from sluice.core.migrations.migration import Migration, PodCheckpoint, Stage

from tests.records import options_of

NOW = 1_800_000_000_000
GP3 = Bandwidth()
KUBELET = DRIVERS[CheckpointMode.KUBELET]
A_WORKLOAD = Workload(
    "w", "w", "team", "team/q", State.DISPATCHED, pod_sets=(PodSet("main", 1, {}),)
)
DUMPED = {"pod-1": PodCheckpoint("s3://b/pod-1.tar", 10**9, 9_000, NOW)}


def a_gang(members: int) -> Workload:
    return replace(A_WORKLOAD, pod_sets=(PodSet("main", members, {}),))


def a_move(**changed: object) -> Migration:
    base = Migration(
        workload="w",
        generation=0,
        cluster="c",
        instance="i-1",
        node="n-1",
        kind="spot",
        noticed_at=NOW,
        received_at=NOW,
        deadline=NOW + 120_000,
        driver=CheckpointMode.KUBELET,
        action=CheckpointAction.DUMP,
        reason="",
        stage=Stage.DUMPING,
        grace_ms=30_000,
        pods=("pod-1",),
    )
    return replace(base, **changed)  # type: ignore[arg-type]


def test_a_dump_that_fits_is_made_and_says_with_which_numbers() -> None:
    decided = KUBELET.fit(size=10**9, left_ms=119_000, grace_ms=30_000, bandwidth=GP3)

    assert decided.action is CheckpointAction.DUMP
    assert decided.sentence == "needs 32 s, has 111 s: dump"


def test_a_dump_that_is_slower_than_the_window_becomes_a_signal() -> None:
    decided = KUBELET.fit(size=48 * 10**8, left_ms=120_000, grace_ms=30_000, bandwidth=GP3)

    assert decided.action is CheckpointAction.SIGNAL
    assert decided.sentence == "needs 151 s, has 112 s: signal"


@pytest.mark.parametrize(
    ("driver", "source"),
    [
        (CheckpointMode.NONE, "it starts from the beginning"),
        (CheckpointMode.APPLICATION, "it goes on from what it saved itself, if any"),
        (CheckpointMode.KUBELET, "it goes on from its last checkpoint, if any"),
        (CheckpointMode.CEDANA, "it goes on from its last checkpoint, if any"),
    ],
)
def test_without_time_nothing_is_ordered(driver: CheckpointMode, source: str) -> None:
    decided = DRIVERS[driver].fit(size=1, left_ms=0, grace_ms=30_000, bandwidth=GP3)

    assert decided.action is CheckpointAction.LET_GO
    assert decided.sentence.endswith(source)


@given(size=st.integers(0, 2**40), left_ms=st.integers(1, 600_000))
def test_a_dump_is_only_promised_within_the_margin(size: int, left_ms: int) -> None:
    decided = KUBELET.fit(size=size, left_ms=left_ms, grace_ms=0, bandwidth=GP3)

    fits = GP3.needs_ms(size) <= max(0, left_ms - MARGIN_MS)
    assert (decided.action is CheckpointAction.DUMP) == fits


def test_observed_dumps_replace_the_assumed_bandwidth() -> None:
    past = [
        Checkpoint("w", 0, f"s3://b/{n}", NOW, CheckpointMode.KUBELET, size=10**9, took_ms=took)
        for n, took in enumerate([1_000, 2_000, 4_000])
    ]

    assert observed_bandwidth(past, GP3).needs_ms(10**9) == 500 + 2_000
    assert observed_bandwidth([], GP3) is GP3


@pytest.mark.parametrize(
    ("capability", "shape", "chosen"),
    [
        (Capability(kubelet=True), {"containers": 1, "gpus": 0}, CheckpointMode.KUBELET),
        (Capability(kubelet=True), {"containers": 2, "gpus": 0}, CheckpointMode.APPLICATION),
        (Capability(kubelet=True), {"containers": 1, "gpus": 1}, CheckpointMode.APPLICATION),
        (
            Capability(kubelet=True),
            {"containers": 1, "gpus": 0, "gang": "its pods have no index"},
            CheckpointMode.APPLICATION,
        ),
        (Capability(), {"containers": 1, "gpus": 0}, CheckpointMode.APPLICATION),
    ],
)
def test_a_driver_that_cannot_serve_gives_way_with_a_reason(
    capability: Capability, shape: dict[str, Any], chosen: CheckpointMode
) -> None:
    driver, why_not = usable_driver(KUBELET, PodFacts(**shape), capability)

    assert driver.mode is chosen
    assert bool(why_not) is (driver is not KUBELET)


def test_young_and_daly() -> None:
    assert isclose(interval_seconds(50, 10_000), 1_000)
    assert isclose(interval_seconds(50, 10_000, nodes=4), 500)


def test_only_the_newest_checkpoints_stay_and_a_repeated_report_adds_none() -> None:
    made = [Checkpoint("w", n, f"s3://b/{n}", NOW + n, CheckpointMode.KUBELET) for n in range(5)]

    kept = retained([*made, made[4]], 3)

    assert [each.generation for each in kept] == [4, 3, 2]


def test_a_source_works_on_until_its_replacement_is_ready() -> None:
    move = a_move(action=CheckpointAction.SIGNAL)

    assert decisions.next_step(move, SourceView(), NOW + 60_000) is SourceStep.WAIT
    assert (
        decisions.next_step(move, SourceView(replacement_ready=True), NOW + 60_000)
        is SourceStep.STOP
    )


def test_a_replacement_that_is_slower_than_the_window_is_not_awaited() -> None:
    move = a_move(action=CheckpointAction.SIGNAL)

    assert decisions.next_step(move, SourceView(), move.give_up_at - 1) is SourceStep.WAIT
    assert decisions.next_step(move, SourceView(), move.give_up_at) is SourceStep.STOP
    assert move.give_up_at + move.grace_ms + MARGIN_MS == move.deadline


def test_a_notice_that_comes_100_seconds_late_stops_the_source_at_once() -> None:
    assert (
        decisions.next_step(a_move(action=CheckpointAction.SIGNAL), SourceView(), NOW + 100_000)
        is SourceStep.STOP
    )


def test_a_dumped_source_stops_at_once_and_an_undumped_one_does_not() -> None:
    move = a_move(last_at=NOW)
    (step,) = decisions.progress(move, SourceView(saved=DUMPED), NOW)
    after = step.after(move)

    assert decisions.next_step(move, SourceView(replacement_ready=True), NOW) is SourceStep.WAIT
    assert after.stage is Stage.DUMPED
    assert decisions.next_step(after, SourceView(saved=DUMPED), NOW) is SourceStep.STOP
    made = moving.whole_checkpoint(A_WORKLOAD, after.saved.values(), after.driver, {})
    assert decisions.restore_source(after, made, "older") == "s3://b/pod-1.tar"


def test_a_torn_set_is_never_restored() -> None:
    move = a_move(pods=("pod-1", "pod-2"))

    view = SourceView(saved=DUMPED, pods=frozenset(move.pods))
    assert decisions.progress(move, view, NOW) == []
    assert moving.whole_checkpoint(a_gang(2), DUMPED.values(), move.driver, {}) is None
    assert decisions.restore_source(move, None, "older") == "older"


@pytest.mark.parametrize("view", [SourceView(failed={"pod-1": "criu failed"}), SourceView()])
def test_a_dump_that_fails_or_takes_too_long_becomes_a_signal(view: SourceView) -> None:
    move = a_move()
    (step,) = decisions.progress(move, view, move.give_up_at)
    after = step.after(move)

    assert (after.action, after.stage) == (CheckpointAction.SIGNAL, Stage.DUMPING)
    assert after.error
    assert after.failed_at == move.give_up_at
    assert decisions.next_step(after, view, move.give_up_at) is SourceStep.STOP
    assert decisions.restore_source(after, None, "older") == "older"


def test_a_dump_that_arrives_after_the_fence_is_not_taken() -> None:
    fenced = a_move(stage=Stage.FENCED)

    assert not moving.dumped(fenced, DUMPED, NOW).holds(fenced)


def test_a_dump_is_given_up_when_its_fit_said_and_another_attempt_leaves_the_grace() -> None:
    move = a_move()
    decided = KUBELET.fit(size=0, left_ms=120_000, grace_ms=30_000, bandwidth=GP3)

    assert move.give_up_at == NOW + decided.has_ms
    failed = a_move(first_error="criu failed", first_at=NOW + 2_000)
    assert failed.give_up_at == NOW + decided.has_ms - 30_000


def test_the_earliest_deadline_counts() -> None:
    move = a_move()

    assert moving.sooner(move, NOW + 60_000).after(move).deadline == NOW + 60_000
    assert moving.sooner(move, NOW + 180_000).after(move).deadline == move.deadline


def test_a_user_who_wishes_a_move_does_not_wait_for_a_machine() -> None:
    move = a_move(kind="request", action=CheckpointAction.SIGNAL)

    assert decisions.next_step(move, SourceView(), NOW) is SourceStep.STOP


def test_who_loses_no_machine_does_not_pause() -> None:
    patient = Workload(
        "w",
        "w",
        "team",
        "q",
        State.RECLAIMING,
        options=options_of({"recovery": {"backoff_seconds": 30}}),
    )
    moved = a_move(stopping_at=NOW + 5_000)

    assert downtime.paused_until(moved, patient) == NOW + 35_000
    assert downtime.paused_until(moved, replace(patient, options=options_of({}))) == 0
    assert downtime.paused_until(replace(moved, kind="request"), patient) == 0


def test_a_placeholder_is_as_large_as_its_pod_and_wants_the_same_nodes() -> None:
    pod = {
        "metadata": {"name": "w-g0-abc", "namespace": "team"},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "resources": {
                        "requests": {"cpu": "1500m", "memory": "1Gi", "nvidia.com/gpu": "1"}
                    },
                },
                {"name": "side", "resources": {"requests": {"cpu": "500m"}}},
            ],
            "nodeSelector": {"sluice.dev/flavor": "spot"},
            "tolerations": [
                {"key": "gpu", "operator": "Exists"},
                {"key": "node.kubernetes.io/not-ready", "operator": "Exists"},
            ],
        },
    }

    made = placeholder(pod, "w", 1, [])

    resources = made["spec"]["containers"][0]["resources"]
    assert resources["requests"] == {"cpu": "2000m", "memory": str(2**30), "nvidia.com/gpu": "1"}
    assert resources["limits"] == {"nvidia.com/gpu": "1"}
    assert made["spec"]["nodeSelector"] == {"sluice.dev/flavor": "spot"}
    assert made["spec"]["tolerations"] == [{"key": "gpu", "operator": "Exists"}]
    assert "sluice.dev/workload" not in made["metadata"]["labels"], "it must not count as a run"


@pytest.mark.parametrize(
    ("phase", "waiting", "there"),
    [
        ("Running", "", True),
        ("Pending", "", False),
        ("Pending", "ContainerCreating", False),
        ("Pending", "ImagePullBackOff", True),
    ],
)
def test_a_placeholder_without_its_image_still_shows_that_its_node_is_there(
    phase: str, waiting: str, there: bool
) -> None:
    containers: list[dict[str, Any]] = [{"name": "main", "state": {"waiting": {"reason": waiting}}}]

    status = {"phase": phase, "containerStatuses": containers}
    assert ready([{"metadata": {"uid": "u"}, "spec": {}, "status": status}]) is there


def steps(move: Migration, view: SourceView, now: int) -> Migration:
    """The record after one look."""
    for step in decisions.progress(move, view, now):
        assert step.holds(move)
        move = step.after(move)
    return move


FIRST = {"pod-1": PodCheckpoint("s3://b/first.tar", 10**9, 9_000, NOW + 1_000)}
NEEDS_MS = 500 + 9_000
WORKS_ON = a_move(first=FIRST, first_at=NOW + 11_000)


def test_a_source_that_was_saved_works_on_until_its_replacement_is_ready() -> None:
    move = steps(a_move(), SourceView(saved=FIRST), NOW + 11_000)
    assert (move.stage, move.first, move.saved) == (Stage.DUMPING, FIRST, {})
    assert steps(move, SourceView(), NOW + 40_000) == move
    assert decisions.next_step(move, SourceView(), NOW + 40_000) is SourceStep.WAIT

    ordered = steps(move, SourceView(replacement_ready=True), NOW + 45_000)
    assert ordered.last_at == NOW + 45_000
    assert ordered.last_reason == "its replacement is ready; needs 10 s, has 67 s: dump"
    assert (
        decisions.next_step(ordered, SourceView(replacement_ready=True), NOW + 45_000)
        is SourceStep.WAIT
    )

    held = {
        "pod-1": PodCheckpoint("s3://b/last.tar", 10**9, 9_000, NOW + 46_000, held_at=NOW + 47_000)
    }
    saved = steps(ordered, SourceView(saved=held), NOW + 56_000)
    assert (saved.stage, saved.saved, saved.first) == (Stage.DUMPED, held, FIRST)
    assert decisions.next_step(saved, SourceView(saved=held), NOW + 56_000) is SourceStep.STOP
    assert downtime.stopped_at(saved) == NOW + 47_000


def test_without_a_replacement_the_last_dump_is_ordered_while_it_still_fits() -> None:
    latest = WORKS_ON.deadline - MARGIN_MS - NEEDS_MS

    assert steps(WORKS_ON, SourceView(), latest - LEAD_MS - 1).last_at == 0
    ordered = steps(WORKS_ON, SourceView(), latest - LEAD_MS)
    assert ordered.last_at
    assert ordered.last_reason == "no replacement is ready; needs 10 s, has 14 s: dump"
    assert steps(WORKS_ON, SourceView(), latest).last_at


def test_a_last_dump_that_does_not_fit_leaves_the_first_one() -> None:
    late = WORKS_ON.deadline - MARGIN_MS - NEEDS_MS + 1

    move = steps(WORKS_ON, SourceView(replacement_ready=True), late)

    assert (move.stage, move.saved, move.last_at) == (Stage.DUMPED, FIRST, 0)
    assert move.last_reason.endswith("needs 10 s, has 9 s: it goes on from its first dump")
    assert decisions.next_step(move, SourceView(), late) is SourceStep.STOP
    told = [(line.what, line.at) for line in migration_timeline.timeline_events(move, A_WORKLOAD)]
    assert ("LastCheckpointDecided", late) in told
    assert [at for what, at in told if what == "CheckpointCompleted"] == [WORKS_ON.first_at]


@pytest.mark.parametrize("view", [SourceView(failed={"pod-1": "criu failed"}), SourceView()])
def test_after_a_last_dump_that_fails_or_is_late_the_first_counts_and_the_rest_is_redone(
    view: SourceView,
) -> None:
    ordered = replace(WORKS_ON, last_at=NOW + 45_000, replacement_at=NOW + 45_000)
    end = ordered.deadline - MARGIN_MS
    if not view.failed:
        assert steps(ordered, view, end - 1) == ordered

    move = steps(ordered, view, end)

    assert (move.stage, move.saved) == (Stage.DUMPED, FIRST)
    assert move.error.endswith("it goes on from the first one")
    assert decisions.next_step(move, view, end) is SourceStep.STOP
    stopped = moving.stopping(move, end).after(move)
    began = replace(A_WORKLOAD, started_at=NOW - 60_000)
    told = downtime.run_entry(stopped, began, good_at=FIRST["pod-1"].at)
    assert told.lost_ms == end - FIRST["pod-1"].at


def test_who_is_told_to_go_works_until_it_is_gone() -> None:
    move = a_move(action=CheckpointAction.SIGNAL, stopping_at=NOW + 5_000, fenced_at=NOW + 30_000)
    began = replace(A_WORKLOAD, started_at=NOW - 60_000)

    told = downtime.run_entry(move, began, good_at=NOW - 10_000)

    assert (told.stopped_at, told.lost_ms) == (NOW + 30_000, 40_000)


def test_what_a_user_goes_back_over_is_told_of_all_runs_since() -> None:
    move = a_move(kind="request", action=CheckpointAction.LET_GO, checkpoint="s3://b/old.tar")
    move = replace(move, stopping_at=NOW, fenced_at=NOW)
    began = replace(A_WORKLOAD, started_at=NOW - 60_000)

    told = downtime.run_entry(move, began, good_at=NOW - 90_000)

    assert (told.lost_ms, told.back_to) == (60_000, NOW - 90_000)
    before = Run(outcome="migrate", started_at=NOW - 120_000, stopped_at=NOW - 70_000, lost_ms=0)
    ended = Run(outcome="migrate", started_at=NOW - 60_000, ended_at=NOW).with_known(told)
    assert [run.lost_ms for run in undone([before, ended])] == [20_000, 60_000]


def test_a_run_that_nobody_saw_start_has_nothing_to_do_again() -> None:
    move = a_move(action=CheckpointAction.SIGNAL, stopping_at=NOW, fenced_at=NOW)

    assert downtime.run_entry(move, A_WORKLOAD, good_at=NOW - 5_000).lost_ms == 0


def test_another_dump_is_worth_it_where_more_was_done_since_the_first_than_it_takes() -> None:
    """Whenever the control plane has seen either of them: the node says when it saved."""
    waits = steps(a_move(), SourceView(replacement_ready=True), NOW + 3_000)
    assert waits.replacement_at
    assert waits.dumps
    both = SourceView(saved=FIRST, replacement_ready=True)
    frozen = FIRST["pod-1"].at

    at_once = steps(waits, both, frozen + NEEDS_MS)
    later = steps(waits, both, frozen + NEEDS_MS + 1)

    assert (at_once.stage, at_once.saved, at_once.last_at) == (Stage.DUMPED, FIRST, 0)
    assert "9.5 s of work since its dump, less than another would take" in at_once.last_reason
    assert (later.stage, later.last_at) == (Stage.DUMPING, frozen + NEEDS_MS + 1)


def test_after_a_first_dump_that_failed_the_last_one_is_tried() -> None:
    move = steps(a_move(), SourceView(failed={"pod-1": "criu failed"}), NOW + 2_000)
    assert (move.action, move.first_error, move.error) == (CheckpointAction.DUMP, "criu failed", "")
    assert decisions.next_step(move, SourceView(), NOW + 2_000) is SourceStep.WAIT

    ordered = steps(move, SourceView(replacement_ready=True), NOW + 45_000)
    assert ordered.last_at
    assert steps(ordered, SourceView(saved=DUMPED), NOW + 50_000).saved == DUMPED
    again = steps(ordered, SourceView(failed={"pod-1": "criu failed"}), NOW + 50_000)
    assert (again.action, again.error) == (CheckpointAction.SIGNAL, "criu failed")


@pytest.mark.parametrize(
    "log",
    [
        "Error (criu/proc_parse.c:479): Unknown shit 600 (anon_inode:[io_uring])",
        "Error (criu/sk-inet.c:191): inet: Connected TCP socket, consider using --tcp-established",
        "Task attached to shell terminal. Consider using --shell-job option.",
    ],
)
def test_who_can_never_be_saved_is_not_dumped_twice(log: str) -> None:
    move = steps(
        a_move(), SourceView(failed={"pod-1": f"criu dump ended with 1: {log}"}), NOW + 2_000
    )

    assert move.action is CheckpointAction.SIGNAL
    assert "it is not dumped again: it " in move.error
    assert decisions.next_step(move, SourceView(), NOW + 2_000) is SourceStep.WAIT, (
        "it works on until it moves"
    )
    assert steps(move, SourceView(replacement_ready=True), NOW + 45_000).last_at == 0


def test_who_could_not_be_saved_at_first_keeps_its_grace_after_the_last_attempt() -> None:
    failed = a_move(first_error="criu failed", first_at=NOW + 2_000, numbers={"needs_ms": 9_000})
    latest = failed.deadline - failed.grace_ms - MARGIN_MS - 9_000

    assert steps(failed, SourceView(), latest).last_at
    assert steps(failed, SourceView(), latest + 1).action is CheckpointAction.SIGNAL


@given(
    took=st.integers(0, 200_000),
    ready=st.integers(0, 200_000),
    looks=st.lists(st.integers(1, 20_000), max_size=60),
)
def test_a_move_always_comes_to_an_end_and_never_promises_more_than_fits(
    took: int, ready: int, looks: list[int]
) -> None:
    """However long dumps take, whenever the replacement comes, and however seldom anybody looks."""
    move, now = a_move(numbers={"needs_ms": took}), NOW
    for pause in (*looks, 200_000):
        now += pause
        since = move.last_at or NOW
        answers = (
            {"pod-1": PodCheckpoint("s3://b/x.tar", 1, took, since)} if now >= since + took else {}
        )
        view = SourceView(saved=answers, replacement_ready=now >= NOW + ready)
        before, move = move, steps(move, view, now)
        if move.last_at and not before.last_at:
            assert now + took <= move.give_up_at
        assert not (move.last_at and before.last_at and move.last_at != before.last_at)
    assert decisions.next_step(move, SourceView(), now) is SourceStep.STOP
    assert (move.stage is Stage.DUMPED) == bool(move.saved)
    assert move.saved or not move.first, "what was saved is given away"


@pytest.mark.parametrize(
    ("left_ms", "twice"), [(120_000, True), (40_000, True), (30_000, False), (19_000, False)]
)
def test_two_dumps_are_planned_only_where_both_fit(left_ms: int, twice: bool) -> None:
    slow = Bandwidth(disk=10**8, network=float("inf"), amplification=1.0, uploaded=0.0)
    decided = KUBELET.fit(size=10**9, left_ms=left_ms, grace_ms=0, bandwidth=slow)

    assert decided.action is CheckpointAction.DUMP
    assert fits_twice(decided) is twice
