"""A gang is saved by all of its members or not at all, and each goes on from its own part.

`World.check_sets` holds after every step: no member runs from another set, or from none, while the
others run from one.
"""

from __future__ import annotations

import json
from typing import Any

import pytest
from sluice.core.checkpoints.fit import CheckpointAction
from sluice.core.lifecycle.record import State
from sluice.core.migrations import gangs
from sluice.core.migrations.pod_annotations import DONE, ORDER, RESTORE_FROM

from tests.fakes import INDEX
from tests.unit.migration.town import Town
from tests.unit.usecases.world import CLUSTER

SET = "s3://bucket/w/0/move-0/"
MEMBERS = ("0", "1", "2")


def pods(town: Town) -> dict[str, dict[str, Any]]:
    """The members by their index."""
    found, _ = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")
    return {pod["metadata"]["labels"][INDEX]: pod for pod in found}


def say(town: Town, index: str, **answer: Any) -> None:
    """What the agent of one member answers to the order that the member bears."""
    pod = pods(town)[index]
    order = pod["metadata"]["annotations"][ORDER]
    said = {"order": order, "at": town.clock.now(), **answer}
    if "error" not in said:
        said |= {"uri": town.archived(pod, order), "bytes": 10**6, "seconds": 2}
    marks = {"metadata": {"annotations": {DONE: json.dumps(said)}}}
    town.kubernetes.patch("Pod", "team", pod["metadata"]["name"], marks)


def test_every_member_is_dumped_and_goes_on_from_its_own_part(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    town.hear(town.notice(node))
    move = town.migrations.rows["w#0"]
    assert (move.action, len(move.pods)) == (CheckpointAction.DUMP, 3)
    assert move.reason.endswith("dump of 3 parts on 3 nodes")

    town.save()
    town.pass_quietly(20, nodes=False)
    town.pass_quietly(40)
    town.end(node)
    town.pass_quietly(60)

    town.runs_once_more("w", saved=SET)
    (kept, first) = town.migrations.checkpoints("w")
    assert first.source == "s3://bucket/w/0/first-0/"
    assert [part.name for part in kept.parts] == [*MEMBERS]
    restored = {
        index: pod["metadata"]["annotations"][RESTORE_FROM] for index, pod in pods(town).items()
    }
    assert restored == {part.name: part.uri for part in kept.parts}
    told = [line for line in town.timeline.of("w") if line["what"] == "CheckpointCompleted"]
    assert ["3 parts" in line["message"] for line in told] == [True, True]


def test_no_member_is_scheduled_before_it_has_its_part(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    town.hear(town.notice(node))
    town.save()
    town.kubernetes.provide()
    while town.row("w").state is not State.DISPATCHED:
        town.obey("w")

    waiting = pods(town)
    assert town.row("w").state is State.DISPATCHED
    assert {pod["metadata"]["labels"]["sluice.dev/generation"] for pod in waiting.values()} == {"1"}
    assert all(pod["status"]["phase"] == "Pending" for pod in waiting.values())

    for _ in ("its part", "the others' machines"):
        town.observe()
        town.drain()

    assert all(pod["status"]["phase"] == "Running" for pod in pods(town).values())
    town.check()


@pytest.mark.parametrize("broken", MEMBERS)
def test_one_member_that_cannot_be_dumped_leaves_the_whole_gang_with_a_signal(
    town: Town, broken: str
) -> None:
    node = town.runs("w", "kubelet", members=3)
    town.hear(town.notice(node))
    for _ in ("first", "last"):
        for index in MEMBERS:
            if index == broken:
                say(town, index, error="no space left")
            else:
                say(town, index)
        town.pass_quietly(20)

    town.pass_quietly(80)
    town.end(node)
    town.pass_quietly(60)

    town.runs_once_more("w")
    assert town.migrations.checkpoints("w") == []
    move, error = town.migrations.rows["w#0"], f"w-w-g0-{broken}-pod: no space left"
    assert (move.first_error, move.error) == (error, error)


def test_members_that_were_saved_work_on_when_another_one_cannot_be(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    town.hear(town.notice(node))
    say(town, "2", error="no space left")
    town.kubernetes.provide()
    town.obey("w")
    say(town, "0")
    town.obey("w")
    assert all(ORDER in pod["metadata"]["annotations"] for pod in pods(town).values())

    say(town, "1", error="no space left")
    town.obey("w")

    assert not any(ORDER in pod["metadata"]["annotations"] for pod in pods(town).values())


def test_a_gang_whose_dump_fails_goes_on_from_its_last_whole_set(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    ask(town, "request-1")
    for index in MEMBERS:
        say(town, index)
    town.observe()
    town.hear(town.notice(node))
    say(town, "0")
    say(town, "1", error="no space left")

    town.pass_quietly(120)
    town.end(node)
    town.pass_quietly(60)

    row = town.row("w")
    assert (row.state, row.restore_from) == (State.DISPATCHED, "s3://bucket/w/0/request-1/")
    assert town.kubernetes.running() == ["w"]
    assert all(pod["status"]["phase"] == "Running" for pod in pods(town).values())


def test_an_answer_to_an_earlier_order_is_no_part_of_a_set(town: Town) -> None:
    """The Lambda that orders dies between two pods: one still bears the order of before."""
    node = town.runs("w", "kubelet", members=3)
    ask(town, "request-1")
    for index in MEMBERS:
        say(town, index)
    town.hear(town.notice(node))
    for index in ("0", "1"):
        say(town, index)
    late = pods(town)["2"]
    marks = {ORDER: "request-1", DONE: json.dumps({"order": "request-1", "uri": "s3://b/old"})}
    town.kubernetes.patch(
        "Pod", "team", late["metadata"]["name"], {"metadata": {"annotations": marks}}
    )

    town.obey("w")

    assert not town.migrations.rows["w#0"].saved


def ask(town: Town, order: str) -> None:
    """An order to all members without a move, such as a periodic one."""
    for pod in pods(town).values():
        marks = {"metadata": {"annotations": {ORDER: order}}}
        town.kubernetes.patch("Pod", "team", pod["metadata"]["name"], marks)


def test_a_set_is_listed_when_its_last_part_is_there_and_not_before(town: Town) -> None:
    town.runs("w", "kubelet", members=3)
    ask(town, "request-1")

    for index in ("2", "0"):
        say(town, index)
        town.observe()
        assert town.migrations.checkpoints("w") == []
    say(town, "1")
    town.observe()

    (kept,) = town.migrations.checkpoints("w")
    assert kept.source == "s3://bucket/w/0/request-1/"
    assert town.row("w").checkpoint_at == kept.at


def test_a_machine_that_vanishes_costs_the_work_since_the_last_whole_set(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    ask(town, "request-1")
    for index in MEMBERS:
        say(town, index)
    town.observe()
    ask(town, "request-2")
    say(town, "0")
    town.observe()

    town.end(node)
    town.pass_quietly(60)

    row = town.row("w")
    assert (row.state, row.restore_from) == (State.DISPATCHED, "s3://bucket/w/0/request-1/")
    assert town.kubernetes.running() == ["w"]
    assert all(pod["status"]["phase"] == "Running" for pod in pods(town).values())


def test_a_member_that_ends_before_it_is_dumped_gives_the_set_up_at_once(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    town.hear(town.notice(node))
    say(town, "0")
    ended = pods(town)["1"]["metadata"]["name"]
    pod = town.kubernetes.objects["Pod", "team", ended]
    town.kubernetes.objects["Pod", "team", ended] = pod | {"status": {"phase": "Succeeded"}}

    town.obey("w")

    assert "ended before it was saved" in town.migrations.rows["w#0"].first_error


def test_a_set_that_is_gone_from_the_catalogue_starts_no_member(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    town.hear(town.notice(node))
    town.save()
    town.kubernetes.provide()
    while town.row("w").state is not State.DISPATCHED:
        town.obey("w")
    town.migrations.catalogue.clear()

    town.observe()
    town.drain()

    row = town.row("w")
    assert row.intent is not None
    assert "is not in its catalogue any more" in row.intent.message
    assert all(pod["status"]["phase"] == "Pending" for pod in pods(town).values())


def a_job(**spec: Any) -> dict[str, Any]:
    return {"kind": "Job", "spec": {"parallelism": 3, "completions": 3, **spec}}


@pytest.mark.parametrize(
    ("job", "members", "why"),
    [
        (a_job(completionMode="Indexed"), 3, ""),
        (a_job(), 3, "without a completion index"),
        (a_job(completionMode="Indexed", completions=5), 3, "only 3 of 5 indexes"),
        (a_job(completionMode="Indexed"), 2, "2 of 3 members run"),
        (None, 3, "its Job is gone"),
    ],
)
def test_who_cannot_be_a_set_is_told_why(
    town: Town, job: dict[str, Any] | None, members: int, why: str
) -> None:
    town.runs("w", "kubelet", members=3)
    running = list(pods(town).values())[:members]

    found = gangs.why_no_set(town.row("w"), job, running)

    assert why in found
    assert bool(found) == bool(why)


def test_a_gang_without_indexes_is_signalled_with_the_reason(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    job = town.kubernetes.objects["Job", "team", "w-w-g0"]
    spec = {**job["spec"], "completionMode": "NonIndexed"}
    town.kubernetes.objects["Job", "team", "w-w-g0"] = {**job, "spec": spec}

    town.hear(town.notice(node))

    move = town.migrations.rows["w#0"]
    assert move.action is CheckpointAction.SIGNAL
    assert "without a completion index" in move.reason
    assert len(move.pods) == 1


def test_a_machine_that_cannot_dump_decides_for_all(town: Town) -> None:
    node = town.runs("w", "kubelet", members=3)
    other = next(
        pod["spec"]["nodeName"] for pod in pods(town).values() if pod["spec"]["nodeName"] != node
    )
    says = town.kubernetes.objects["Node", "", other]["metadata"]
    says["labels"] = says["labels"] | {"sluice.dev/checkpoint": "unavailable"}
    says["annotations"] = {"sluice.dev/checkpoint-reason": "CRIU needs root"}
    town.observe()

    town.hear(town.notice(node))

    move = town.migrations.rows["w#0"]
    assert move.action is CheckpointAction.SIGNAL
    assert f"{other}: CRIU needs root" in move.reason


def test_machines_that_the_inventory_does_not_know_yet_are_asked_of_the_cluster(
    town: Town,
) -> None:
    node = town.runs("w", "kubelet", members=3)
    rows = town.nodes.rows[CLUSTER]
    town.nodes.rows[CLUSTER] = {key: row for key, row in rows.items() if row.node == node}

    town.hear(town.notice(node))

    assert town.migrations.rows["w#0"].action is CheckpointAction.DUMP


def test_members_of_jobsets_are_told_apart_by_job_and_index() -> None:
    labels = {
        gangs.REPLICATED_JOB: "workers",
        gangs.JOB_INDEX: "1",
        gangs.INDEX: "2",
    }

    assert gangs.part_of({"metadata": {"labels": labels}}) == "workers-1-2"
    assert gangs.part_of({"metadata": {"annotations": {gangs.INDEX: "2"}}}) == "2"
    assert gangs.part_of({"metadata": {}}) == ""
