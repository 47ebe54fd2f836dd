"""A source that was saved works on, and is held only from its last dump on: the whole way."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle.happenings import in_order
from sluice.core.lifecycle.record import State
from sluice.core.migrations.interruption import MIGRATION_REQUESTED, request_event
from sluice.core.migrations.migration import Stage
from sluice.core.migrations.pod_annotations import DONE, ORDER, annotations_of

from tests.records import options_of
from tests.unit.migration.town import Town

FIRST = "s3://bucket/first-0/w-w-g0-pod.tar"
LAST = "s3://bucket/move-0/w-w-g0-pod.tar"


def pod_of(town: Town) -> dict[str, Any]:
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    return pod


def annotate(town: Town, **marks: Any) -> None:
    name = pod_of(town)["metadata"]["name"]
    said = {"order": ORDER, "done": DONE}
    change = {said[key]: value for key, value in marks.items()}
    town.kubernetes.patch("Pod", "team", name, {"metadata": {"annotations": change}})


def fail(town: Town, why: str) -> None:
    order = annotations_of(pod_of(town))[ORDER]
    annotate(town, done=json.dumps({"order": order, "error": why, "at": town.clock.now()}))


def saved_at_first(town: Town) -> str:
    """A run that was warned, dumped, and works on; its node."""
    node = town.runs("w", "kubelet")
    town.hear(town.notice(node))
    town.clock.pass_ms(3_000)
    town.save()
    town.saving = False
    town.obey("w")
    assert town.migrations.rows["w#0"].first
    return node


def end_of(town: Town, node: str) -> None:
    """The rest of the two minutes, and some time in which the successor starts."""
    town.pass_quietly(120)
    town.end(node)
    town.pass_quietly(60)


def lines(town: Town, what: str) -> list[str]:
    return [line["message"] for line in town.timeline.of("w") if line["what"] == what]


def test_a_source_works_on_after_its_first_dump_and_goes_on_from_its_last(town: Town) -> None:
    node = saved_at_first(town)
    assert [each.uri for each in town.migrations.checkpoints("w")] == [FIRST]
    assert town.row("w").checkpoint_at, "it counts at once, whatever becomes of the move"
    for _ in range(20):
        town.clock.pass_ms(1_000)
        town.obey("w")
    assert town.kubernetes.running() == ["w"]
    assert annotations_of(pod_of(town))[ORDER] == "first-0"

    town.kubernetes.provide()
    town.obey("w")
    assert annotations_of(pod_of(town))[ORDER] == "move-0"
    assert town.kubernetes.running() == ["w"]
    town.clock.pass_ms(1_000)
    town.save()
    town.obey("w")
    town.clock.pass_ms(2_000)
    town.observe()

    town.end(node)
    town.pass_quietly(60)
    town.runs_once_more("w", saved=LAST)
    assert [each.uri for each in town.migrations.checkpoints("w")] == [LAST, FIRST]
    assert {each.parent for each in town.migrations.checkpoints("w")} == {""}
    (first, last) = lines(town, "CheckpointCompleted")
    assert first.endswith("it works on")
    assert not last.endswith("it works on")
    assert lines(town, "LastCheckpointDecided") == [
        "its replacement is ready; needs 2 s, has 89 s: dump"
    ]


def test_who_keeps_one_checkpoint_keeps_the_first_until_the_last_is_there(town: Town) -> None:
    node = town.runs("w", "kubelet")
    options = {"checkpoint": {"mode": "kubelet", "retain": 1}}
    town.workloads.write(replace(town.row("w"), options=options_of(options)))
    town.hear(town.notice(node))
    town.save()
    town.pass_quietly(20, nodes=False)
    town.kubernetes.provide()
    town.obey("w")
    assert [each.uri for each in town.migrations.checkpoints("w")] == [FIRST]
    assert town.archives.removed == []

    town.save()
    town.obey("w")

    assert [each.uri for each in town.migrations.checkpoints("w")] == [LAST]
    assert town.archives.removed == [FIRST]


@pytest.mark.parametrize("fails", [True, False])
def test_a_last_dump_that_fails_or_never_comes_costs_the_work_since_the_first(
    town: Town, fails: bool
) -> None:
    node = saved_at_first(town)
    town.kubernetes.provide()
    town.clock.pass_ms(30_000)
    town.obey("w")
    if fails:
        fail(town, "criu failed")

    end_of(town, node)

    town.runs_once_more("w", saved=FIRST)
    move = town.migrations.rows["w#0"]
    (run,) = town.row("w").runs
    (saved,) = move.first.values()
    assert run.lost_ms == move.stopping_at - saved.at > 30_000
    (failed,) = lines(town, "CheckpointFailed")
    assert failed.endswith("; it goes on from the first one")
    assert "of work are done again" in lines(town, "Resumed")[0]


def test_a_first_dump_that_fails_is_made_good_by_the_last(town: Town) -> None:
    node = town.runs("w", "kubelet")
    town.hear(town.notice(node))
    fail(town, "criu failed")
    town.obey("w")
    assert lines(town, "CheckpointFailed") == ["criu failed; it works on"]
    assert town.kubernetes.running() == ["w"]

    town.save()
    end_of(town, node)

    town.runs_once_more("w", saved=LAST)


def test_a_machine_that_ends_too_early_leaves_the_first_dump(town: Town) -> None:
    node = saved_at_first(town)
    town.clock.pass_ms(5_000)

    town.end(node)
    town.pass_quietly(60)

    town.runs_once_more("w", saved=FIRST)


def test_a_copy_of_the_notice_does_not_take_the_last_order_back(town: Town) -> None:
    node = town.runs("w", "kubelet")
    event = town.notice(node)
    town.hear(event)
    town.save()
    town.obey("w")
    town.clock.pass_ms(5_000)
    town.kubernetes.provide()
    town.obey("w")

    town.hear(event)

    assert annotations_of(pod_of(town))[ORDER] == "move-0"


@pytest.mark.parametrize("other", ["first-0", "rebalance-1", None])
def test_an_order_that_somebody_overwrote_is_given_again(town: Town, other: str | None) -> None:
    saved_at_first(town)
    town.kubernetes.provide()
    town.clock.pass_ms(5_000)
    town.obey("w")
    annotate(town, order=other)

    town.obey("w")

    assert annotations_of(pod_of(town))[ORDER] == "move-0"
    town.save()
    town.obey("w")
    assert town.migrations.rows["w#0"].stage is not Stage.DUMPING


def test_a_notice_that_leaves_time_for_one_dump_holds_the_source_from_it_on(town: Town) -> None:
    node = town.runs("w", "kubelet")
    row = town.row("w")
    (main,) = row.pod_sets
    large = replace(main, requests={**main.requests, "memory": 2 * 10**9})  # 63 s on gp3
    town.workloads.write(replace(row, pod_sets=(large,)))

    town.hear(town.notice(node))

    assert annotations_of(pod_of(town))[ORDER] == "move-0"
    town.save()
    town.obey("w")
    assert town.migrations.rows["w#0"].saved
    assert not lines(town, "LastCheckpointDecided")


def test_who_moves_by_a_wish_waits_for_no_machine_and_is_dumped_once(town: Town) -> None:
    town.runs("w", "kubelet")
    town.hear(request_event(MIGRATION_REQUESTED, town.clock.now(), {"workload": "w", "by": "ann"}))
    assert annotations_of(pod_of(town))[ORDER] == "move-0-1800000000000"

    town.save()
    town.obey("w")

    row, saved = town.row("w"), LAST.replace("move-0", "move-0-1800000000000")
    assert (row.state, row.generation, row.restore_from) == (State.DISPATCHED, 1, saved)
    assert [each.uri for each in town.migrations.checkpoints("w")] == [saved]


def test_of_the_same_instant_the_decision_comes_after_what_it_rests_on() -> None:
    stored = ["LastCheckpointDecided", "ReplacementReady"]  # by name, as the table returns them

    told = in_order({"at": 1, "generation": 0, "what": what} for what in stored)

    assert [line["what"] for line in told] == ["ReplacementReady", "LastCheckpointDecided"]


def test_observers_leave_the_dumps_of_a_move_to_it(town: Town) -> None:
    node = town.runs("w", "kubelet")
    town.hear(town.notice(node))
    town.save()

    town.observe()

    assert town.migrations.checkpoints("w") == []
    assert lines(town, "CheckpointCompleted") == []
