"""A migration on request of a workload that cannot be saved is called off; it keeps running."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence

import pytest
from sluice.core.lifecycle.record import Change, State
from sluice.core.migrations import migration
from sluice.core.migrations.interruption import MIGRATION_REQUESTED, request_event
from sluice.core.migrations.pod_annotations import DONE, LEAVING, ORDER, annotations_of
from sluice.errors import SluiceError

from tests.unit.migration.town import Town

WHY = "Connected TCP socket, consider using --tcp-established"


@pytest.fixture
def town() -> Town:
    return Town()


def pod_of(town: Town) -> dict[str, object]:
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    return pod


def ask(town: Town) -> None:
    about = {"workload": "w", "by": "ann"}
    town.hear(request_event(MIGRATION_REQUESTED, town.clock.now(), about))


def fail(town: Town) -> None:
    """The node's agent cannot dump the pod."""
    order = annotations_of(pod_of(town))[ORDER]
    done = json.dumps({"order": order, "error": WHY, "at": town.clock.now()})
    name = pod_of(town)["metadata"]["name"]  # type: ignore[index]
    town.kubernetes.patch("Pod", "team", name, {"metadata": {"annotations": {DONE: done}}})


def messages(town: Town, what: str) -> list[str]:
    return [line["message"] for line in town.timeline.of("w") if line["what"] == what]


def test_a_dump_that_fails_ends_the_migration_and_not_the_run(town: Town) -> None:
    node = town.runs("w", "kubelet")
    ask(town)
    town.clock.pass_ms(1_000)

    fail(town)
    town.obey("w")
    town.pass_quietly(60)

    row = town.row("w")
    assert (row.state, row.generation, row.intent) == (State.DISPATCHED, 0, None)
    assert town.kubernetes.running() == ["w"]
    assert messages(town, "MigrationCalledOff") == [f"{WHY}; it keeps running on {node}"]
    assert not {ORDER, LEAVING} & annotations_of(pod_of(town)).keys()
    town.check()


def test_a_dump_that_never_ends_is_given_up(town: Town) -> None:
    town.runs("w", "kubelet")
    ask(town)

    town.pass_quietly(620)

    assert town.row("w").generation == 0
    assert town.kubernetes.running() == ["w"]
    (message,) = messages(town, "MigrationCalledOff")
    assert "was not complete in time" in message


def test_it_may_be_asked_for_again(town: Town) -> None:
    town.runs("w", "kubelet")
    ask(town)
    town.clock.pass_ms(1_000)
    fail(town)
    town.obey("w")
    town.clock.pass_ms(1_000)

    ask(town)
    town.save()
    town.obey("w")

    row = town.row("w")
    assert (row.state, row.generation) == (State.DISPATCHED, 1)
    # An order of its own: a late answer to the first one would be taken for it.
    assert re.search(r"/move-0-\d+/w-w-g0-pod\.tar$", row.restore_from)


def test_a_notice_afterwards_moves_it(town: Town) -> None:
    node = town.runs("w", "kubelet")
    ask(town)
    town.clock.pass_ms(1_000)
    fail(town)
    town.obey("w")
    town.clock.pass_ms(1_000)

    town.hear(town.notice(node))
    town.save()
    town.pass_quietly(120)

    assert (town.row("w").state, town.row("w").generation) == (State.DISPATCHED, 1)
    assert town.row("w").restore_from
    town.check()


def test_after_a_notice_it_is_not_called_off(town: Town) -> None:
    node = town.runs("w", "kubelet")
    ask(town)
    town.clock.pass_ms(1_000)
    town.hear(town.notice(node))

    fail(town)
    town.obey("w")

    assert not messages(town, "MigrationCalledOff")
    assert town.row("w").state is not State.DISPATCHED or town.row("w").generation == 1
    town.check()


def test_where_no_node_can_dump_it_nothing_is_begun(town: Town) -> None:
    node = town.runs("w", "kubelet")
    kinds = [pod for (kind, _, _), pod in town.kubernetes.objects.items() if kind == "Node"]
    for each in kinds:
        each["metadata"]["labels"].pop("sluice.dev/checkpoint", None)
    town.observe()

    ask(town)

    row = town.row("w")
    assert (row.state, row.generation) == (State.DISPATCHED, 0)
    (message,) = messages(town, "MigrationCalledOff")
    assert message.endswith(f"it keeps running on {node}")
    assert ORDER not in annotations_of(pod_of(town))


def test_one_that_is_being_called_off_does_not_keep_its_neighbour_on_the_machine(
    town: Town,
) -> None:
    node = town.runs("w", "kubelet")
    town.runs("neighbour")
    for (kind, _, _), pod in town.kubernetes.objects.items():
        if kind == "Pod":
            pod["spec"]["nodeName"] = node
    ask(town)
    record = town.migrations.rows["w#0"]
    town.migrations.apply([migration.called_off(record, WHY, town.clock.now())])

    with pytest.raises(SluiceError, match=r"called off just now, to be migrated again: w$"):
        town.hear(town.notice(node))  # delivered again until everybody has left

    assert town.row("neighbour").state is State.RECLAIMING
    town.obey("w")
    assert town.hear(town.notice(node)).moved == ("w", "neighbour")


def test_orders_of_a_notice_that_comes_once_it_runs_again_stay(town: Town) -> None:
    node = town.runs("w", "kubelet")
    ask(town)
    town.clock.pass_ms(1_000)
    fail(town)
    apply = town.workloads.apply

    def apply_and_hear(changes: Sequence[Change]) -> list[bool]:
        done = apply(changes)
        if town.row("w").state is State.DISPATCHED:
            town.workloads.apply = apply
            town.hear(town.notice(node))
        return done

    town.workloads.apply = apply_and_hear
    town.obey("w")

    assert ORDER in annotations_of(pod_of(town))
