"""How interruptions go in practice: each ends with one copy at work, its quota and its savings.

After every turn of a Lambda the invariants of the ledger hold (`World.check`); at the end
`Town.runs_once_more` asks for the record, the pod, the quota, what was saved, and the timeline.
"""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from sluice.core.accounting.recovery import recovery
from sluice.core.accounting.usage_intervals import loss_is_unknown
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.lifecycle.record import State
from sluice.core.migrations.checkpointing import Checkpoint
from sluice.core.migrations.pod_annotations import DONE, ORDER, annotations_of

from tests.unit.migration.town import Town

MODES = ("none", "application", "kubelet")
DUMP = "s3://bucket/first-0/w-w-g0-pod.tar"
NOTICE_SECONDS = 120


def saved_by(mode: str, order: str = "first-0") -> str:
    return DUMP.replace("first-0", order) if mode == "kubelet" else ""


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("copies", [1, 4])
def test_a_notice_however_often_it_comes(town: Town, mode: str, copies: int) -> None:
    node = town.runs("w", mode)
    event = town.notice(node)

    for _ in range(copies):
        town.hear(event)
        town.save()
        town.pass_quietly(20)
    town.pass_quietly(20)
    town.end(node)
    town.pass_quietly(60)

    town.runs_once_more("w", saved=saved_by(mode, "move-0"))


@pytest.mark.parametrize("mode", MODES)
def test_a_death_without_notice(town: Town, mode: str) -> None:
    node = town.runs("w", mode)
    town.clock.pass_ms(60_000)

    town.end(node)
    town.pass_quietly(20)

    town.runs_once_more("w")


@pytest.mark.parametrize("mode", MODES)
def test_a_death_of_which_no_word_ever_comes(town: Town, mode: str) -> None:
    node = town.runs("w", mode)
    town.clock.pass_ms(60_000)

    town.kubernetes.vanish(node)
    town.pass_quietly(40)

    town.runs_once_more("w")


def test_a_death_without_notice_after_an_earlier_checkpoint(town: Town) -> None:
    node = town.runs("w", "kubelet")
    kept = Checkpoint("w", 0, DUMP, town.clock.now(), CheckpointMode.KUBELET)
    town.migrations.keep(kept, retain=3)
    town.saved_seen.add(DUMP)

    town.end(node)
    town.pass_quietly(20)

    town.runs_once_more("w", saved=DUMP)


@pytest.mark.parametrize("mode", MODES)
def test_a_notice_that_comes_100_seconds_late(town: Town, mode: str) -> None:
    node = town.runs("w", mode)
    event = town.notice(node)
    town.clock.pass_ms(100_000)

    town.hear(event)
    town.pass_quietly(20)
    town.end(node)
    town.pass_quietly(60)

    town.runs_once_more("w")


def test_a_notice_that_comes_after_the_machine_is_gone(town: Town) -> None:
    node = town.runs("w")
    event = town.notice(node)
    town.clock.pass_ms(NOTICE_SECONDS * 1000)
    town.end(node)
    town.pass_quietly(20)
    town.kubernetes.notice_the_dead()

    assert town.hear(event).moved == ()
    town.pass_quietly(60)

    town.runs_once_more("w")


@pytest.mark.parametrize("mode", MODES)
def test_a_notice_for_a_machine_that_nobody_knows(town: Town, mode: str) -> None:
    town.runs("w", mode)
    before = town.row("w")

    assert town.hear(town.notice("node-4711")).dropped
    town.pass_quietly(20)

    assert town.row("w") == before
    assert town.kubernetes.running() == ["w"]
    assert (town.row("w").state, town.migrations.rows) == (State.DISPATCHED, {})


def test_a_dump_that_is_slower_than_the_window(town: Town) -> None:
    node = town.runs("w", "kubelet")

    town.hear(town.notice(node))
    town.pass_quietly(NOTICE_SECONDS)
    town.end(node)
    town.save()
    town.pass_quietly(60)

    town.runs_once_more("w")
    assert town.migrations.rows["w#0"].error == "the dump was not complete in time"


@pytest.mark.parametrize("mode", MODES)
def test_a_replacement_that_is_slower_than_the_window(town: Town, mode: str) -> None:
    node = town.runs("w", mode)

    town.hear(town.notice(node))
    town.save()
    town.pass_quietly(NOTICE_SECONDS, nodes=False)
    town.end(node)
    town.pass_quietly(60)

    town.runs_once_more("w", saved=saved_by(mode, "move-0"))


@pytest.mark.parametrize("mode", MODES)
def test_ten_machines_at_once(town: Town, mode: str) -> None:
    nodes = {}
    for number in range(10):
        nodes[f"w{number}"] = node = town.runs(f"w{number}", mode)
        town.kubernetes.objects["Node", "", node]["spec"]["unschedulable"] = True  # one for each
    for node in nodes.values():
        town.kubernetes.objects["Node", "", node]["spec"]["unschedulable"] = False

    for event in [town.notice(node) for node in nodes.values()]:
        town.hear(event)
    town.save()
    town.pass_quietly(NOTICE_SECONDS)
    for node in nodes.values():
        town.end(node)
    town.pass_quietly(60)

    assert len(set(nodes.values())) == 10
    for name in nodes:
        town.runs_once_more(name, saved=saved_by(mode, "move-0").replace("w-w-", f"w-{name}-"))


def test_what_one_saved_that_could_not_be_dumped_is_its_own_knowledge(town: Town) -> None:
    """It heard SIGTERM: what it has made of it, nobody else can say."""
    node = town.runs("w", "kubelet")
    town.hear(town.notice(node))
    for key, pod in list(town.kubernetes.objects.items()):
        if order := annotations_of(pod).get(ORDER):
            refused = {"order": order, "error": "Connected TCP socket", "at": town.clock.now()}
            marks = {"metadata": {"annotations": {DONE: json.dumps(refused)}}}
            town.kubernetes.patch(*key, marks)

    town.pass_quietly(NOTICE_SECONDS)

    town.runs_once_more("w")
    row = town.row("w")
    assert row.runs[0].lost_ms is None
    assert (recovery(row).untold, recovery(row).lost_ms) == (1, 0)
    assert loss_is_unknown(row, replace(row.runs[0], started_at=1))


def test_a_successor_that_ends_before_anybody_saw_it_run_has_resumed(town: Town) -> None:
    town.hear(town.notice(town.runs("w", "application")))
    town.kubernetes.provide()
    town.obey("w")
    assert (town.row("w").generation, town.row("w").started_at) == (1, 0)

    town.kubernetes.finish("team", "w-w-g1")
    town.observe()

    assert town.row("w").state is State.FINISHED
    assert "Resumed" in town.told("w")
    assert town.migrations.rows["w#0"].running_at
