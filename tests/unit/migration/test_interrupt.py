"""Notices on the real use cases with in-memory ports: nothing twice, nothing lost."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sluice.core.checkpoints.fit import MARGIN_MS, CheckpointAction
from sluice.core.clusters.quarantine import Cause
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.options import RecoveryPolicy
from sluice.core.lifecycle.record import IntentKind, State
from sluice.core.lifecycle.record_entries import NO_REASON
from sluice.core.lifecycle.run import Run
from sluice.core.migrations.migration import Stage
from sluice.usecases.migrations.stop_run import LEFT_BEHIND_MS

from tests.unit.migration.town import Town
from tests.unit.usecases.world import CLUSTER


@pytest.mark.parametrize("copies", [1, 4])
def test_copies_of_a_notice_make_one_move(town: Town, copies: int) -> None:
    node = town.runs("w")
    event = town.notice(node)

    handled = [town.hear(event) for _ in range(copies)]
    town.kubernetes.provide()
    town.obey("w")

    assert [each.repeated for each in handled] == [False] + [True] * (copies - 1)
    assert (town.row("w").state, town.row("w").generation) == (State.DISPATCHED, 1)
    assert town.kubernetes.running() == ["w"]
    assert list(town.migrations.rows) == ["w#0"]
    assert town.told("w").count("InterruptionNoticed") == copies, "told again it is the same line"
    town.check()


def test_a_copy_that_comes_after_the_move_touches_nothing(town: Town) -> None:
    event = town.notice(town.runs("w"))
    town.hear(event)
    town.kubernetes.provide()
    town.obey("w")

    assert town.hear(event).moved == ()
    town.obey("w")
    assert town.row("w").generation == 1
    assert town.kubernetes.running() == ["w"]


def test_a_source_runs_on_while_its_replacement_is_bought(town: Town) -> None:
    node = town.runs("w")

    town.hear(town.notice(node))
    town.obey("w")

    assert town.row("w").state is State.RECLAIMING
    assert town.kubernetes.running() == ["w"]
    (placeholder,) = town.kubernetes.list("Pod", selector="sluice.dev/placeholder=w")[0]
    assert placeholder["status"]["phase"] == "Pending"

    town.kubernetes.provide()
    town.obey("w")

    assert town.row("w").generation == 1
    assert town.kubernetes.list("Pod", selector="sluice.dev/placeholder")[0] == []


def test_nothing_new_comes_to_a_node_that_goes_away(town: Town) -> None:
    node = town.runs("w")

    town.hear(town.notice(node))
    town.kubernetes.provide()
    town.obey("w")
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]

    assert pod["spec"]["nodeName"] != node
    (ban,) = town.offerings.banned(CLUSTER)
    assert (ban.offering.instance_type, ban.offering.capacity_type) == ("m5.large", "spot")
    assert (ban.cause, ban.strikes) == (Cause.LOST, 1)


@pytest.mark.parametrize(
    "wrong", [{"account": "2"}, {"region": "x"}, {"detail": {"instance-id": "i-999"}}]
)
def test_machines_of_others_are_left_alone(town: Town, wrong: dict[str, Any]) -> None:
    node = town.runs("w")

    handled = town.hear(town.notice(node) | wrong)

    assert handled.dropped
    assert town.row("w").state is State.DISPATCHED
    assert town.migrations.rows == {}


def test_a_move_on_request_spends_no_recovery(town: Town) -> None:
    node = town.runs("w")
    row = town.row("w")
    moved = Run(outcome="migrate", why="request", ended_at=1)
    town.workloads.write(
        replace(row, options=replace(row.options, max_recoveries=1), runs=(moved,))
    )

    assert town.hear(town.notice(node)).moved == ("w",)


def test_who_was_interrupted_as_often_as_it_allows_ends_instead_of_moving(town: Town) -> None:
    node = town.runs("w")
    row = town.row("w")
    moved = Run(outcome="migrate", ended_at=1)
    town.workloads.write(
        replace(row, options=replace(row.options, max_recoveries=1), runs=(moved,))
    )

    assert town.hear(town.notice(node)).moved == ()

    intent = town.row("w").intent
    assert intent is not None
    assert (intent.kind, intent.reason) == (IntentKind.FAIL, "RECOVERY:BudgetExhausted")
    assert intent.message == "interrupted again after 1 of at most 1 recoveries"
    assert town.migrations.rows == {}

    town.obey("w")
    town.observe()
    town.admit()
    ended = town.row("w")
    assert (ended.state, ended.result.reason) == (State.FINISHED, "RECOVERY:BudgetExhausted")


def test_a_node_that_no_inventory_knows_yet_is_found_in_the_cluster(town: Town) -> None:
    node = town.runs("w")
    town.nodes.rows.clear()

    assert town.hear(town.notice(node)).moved == ("w",)


def test_a_notice_100_seconds_late_stops_the_source_without_waiting(town: Town) -> None:
    node = town.runs("w")
    event = town.notice(node)
    town.clock.pass_ms(100_000)

    town.hear(event)
    town.obey("w")

    assert town.row("w").generation == 1
    assert town.migrations.rows["w#0"].replacement_at == 0


def test_a_machine_that_dies_without_notice_is_replaced_at_once(town: Town) -> None:
    node = town.runs("w")
    town.kubernetes.vanish(node)

    town.hear(town.ended(node, "shutting-down"))
    assert not town.row("w").gone, "shutting-down is no proof"
    town.hear(town.ended(node, "terminated"))
    town.obey("w")

    assert town.row("w").generation == 1
    assert town.kubernetes.running() == ["w"]
    (noticed, *_) = [e for e in town.timeline.lines if e.what == "InterruptionNoticed"]
    assert "ends without a warning that left time: stopping" in noticed.message
    town.check()


def test_a_workload_that_asks_for_a_pause_keeps_its_quota_and_runs_again_after_it(
    town: Town,
) -> None:
    node = town.runs("w")
    options = replace(town.row("w").options, recovery=RecoveryPolicy(backoff_seconds=30))
    town.workloads.write(replace(town.row("w"), options=options))
    town.kubernetes.vanish(node)
    town.hear(town.ended(node, "shutting-down"))
    town.hear(town.ended(node, "terminated"))

    for _ in range(2):
        town.obey("w")
        waits = town.row("w")
        assert (waits.state, waits.generation, waits.gone) == (State.RECLAIMING, 0, True)
        assert waits.reason.code == "RECOVERY:BackoffUntil"
        assert waits.reservation is not None
        town.clock.pass_ms(14_000)
        town.tell()
    assert town.kubernetes.running() == []
    assert [line["what"] for line in town.timeline.of("w")].count("Hindered") == 1

    town.clock.pass_ms(3_000)
    town.obey("w")
    town.clock.pass_ms(1_000)
    town.observe()

    town.tell()
    assert town.row("w").reason == NO_REASON
    town.runs_once_more("w")


def test_who_leaves_spot_waits_for_its_pause_in_its_queue(town: Town) -> None:
    node = town.runs("w")
    options = replace(town.row("w").options, recovery=RecoveryPolicy(backoff_seconds=30))
    town.workloads.write(replace(town.row("w"), options=options))
    town.kubernetes.vanish(node)
    lost_at = town.clock.now()
    town.hear(town.ended(node, "terminated"))

    town.migrate_use_case(town.fragile)(town.kubernetes, [town.row("w")], leaving=["w"])

    intent = town.row("w").intent
    assert intent is not None
    assert (intent.kind, intent.not_before) == (IntentKind.REQUEUE, lost_at + 30_000)


def test_without_any_word_kubernetes_itself_runs_the_same_generation_again(town: Town) -> None:
    node = town.runs("w")
    town.kubernetes.vanish(node)

    town.kubernetes.objects["Node", "", node]["spec"]["unschedulable"] = True
    town.kubernetes.notice_the_dead()
    town.observe()

    assert town.row("w").generation == 0
    assert town.kubernetes.running() == ["w"]


def test_a_dump_moves_with_its_workload(town: Town) -> None:
    node = town.runs("w", "kubelet")

    town.hear(town.notice(node))
    town.obey("w")
    assert town.kubernetes.running() == ["w"], "the dump is not complete"
    town.kubernetes.provide()
    while town.row("w").generation == 0 and not town.migrations.rows["w#0"].error:
        town.agents()
        town.obey("w")

    record = town.migrations.rows["w#0"]
    kept = town.migrations.checkpoints("w")
    if record.error:  # the agent's dice said so: nothing is restored from a dump that failed
        assert kept == []
    else:
        assert [each.uri for each in kept] == [town.row("w").restore_from]
        assert record.checkpoint == kept[0].uri


def test_a_source_that_is_saved_gets_a_second_of_grace_and_still_has_to_be_proven_gone(
    town: Town,
) -> None:
    node = town.runs("w", "kubelet")
    town.hear(town.notice(node))
    town.dice.seed(2)
    town.agents()
    town.kubernetes.provide()
    asked: list[tuple[str, int | None]] = []
    delete = town.kubernetes.delete

    def slow(kind: str, namespace: str, name: str, **options: Any) -> bool:
        asked.append((kind, options.get("grace_seconds")))
        if kind == "Job":  # in the foreground: it goes when its pods are gone
            job = town.kubernetes.objects[kind, namespace, name]
            deleted = {**job["metadata"], "deletionTimestamp": "now"}
            town.kubernetes.objects[kind, namespace, name] = {**job, "metadata": deleted}
        return True

    town.kubernetes.delete = slow  # type: ignore[method-assign]
    town.obey("w")
    assert asked == [("Job", None), ("Pod", 1)]
    assert town.row("w").generation == 0, "its pod is not proven gone"

    town.kubernetes.delete = delete  # type: ignore[method-assign]
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    delete("Pod", "team", pod["metadata"]["name"], grace_seconds=1)
    town.obey("w")
    assert town.row("w").generation == 1


@pytest.mark.parametrize(
    ("phase", "again"), [("Failed", True), ("Succeeded", True), ("Running", False)]
)
def test_an_ended_pod_that_its_machine_left_behind_holds_up_nothing(
    town: Town, phase: str, again: bool
) -> None:
    node = town.runs("w")
    town.hear(town.notice(node))
    town.kubernetes.provide()
    town.kubernetes.dead.add(node)  # its kubelet told the end of the pod, and no more
    town.obey("w")
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    seconds = datetime.fromtimestamp(town.clock.now() // 1000, UTC).isoformat()
    key = "Pod", "team", pod["metadata"]["name"]
    ended = {"name": "main", "state": {"terminated": {"exitCode": 143, "finishedAt": seconds}}}
    town.kubernetes.objects[key] = {
        **pod,
        "metadata": {**pod["metadata"], "deletionTimestamp": seconds},
        "status": {"phase": phase, "containerStatuses": [ended]},
    }
    town.clock.pass_ms(LEFT_BEHIND_MS - 1_000)
    town.obey("w")
    assert town.row("w").generation == 0, "its node may be about to remove it, and its log"

    town.clock.pass_ms(2_000)
    town.obey("w")

    assert (town.row("w").generation == 1) is again
    assert (key in town.kubernetes.objects) is not again


def test_a_dump_that_does_not_come_is_given_up_in_time(town: Town) -> None:
    node = town.runs("w", "kubelet")
    town.hear(town.notice(node))
    deadline = town.migrations.rows["w#0"].deadline

    town.clock.pass_ms(60_000)
    town.obey("w")
    assert town.row("w").state is State.RECLAIMING
    town.clock.pass_ms(deadline - MARGIN_MS - 1 - town.clock.now())
    town.obey("w")
    assert town.row("w").generation == 0, "it may use the time that its grace would take"
    town.clock.pass_ms(1)
    town.obey("w")

    assert town.row("w").generation == 1
    assert town.row("w").restore_from == ""
    assert "CheckpointFailed" in town.told("w")


def test_ten_machines_at_once(town: Town) -> None:
    nodes = []
    for number in range(10):
        nodes.append(town.runs(f"w{number}"))
        town.kubernetes.objects["Node", "", nodes[-1]]["spec"]["unschedulable"] = True
    assert len(set(nodes)) == 10
    for node in nodes:
        town.kubernetes.objects["Node", "", node]["spec"]["unschedulable"] = False

    for event in [town.notice(node) for node in nodes]:
        town.hear(event)
    town.kubernetes.provide()
    town.obey(*(f"w{number}" for number in range(10)))

    assert sorted(town.kubernetes.running()) == sorted(f"w{number}" for number in range(10))
    assert {town.row(f"w{number}").generation for number in range(10)} == {1}
    town.check()


def test_the_dearest_goes_first(town: Town) -> None:
    town.submit("cheap", "a", 1, mode="application")
    town.submit("dear", "a", 1, priority=10, mode="application")
    town.admit()
    town.obey("cheap", "dear")
    town.observe()
    (node,) = {pod["spec"]["nodeName"] for pod in town.kubernetes.list("Pod")[0]}

    assert town.hear(town.notice(node)).moved == ("dear", "cheap")


def test_a_cancelled_workload_does_not_come_back(town: Town) -> None:
    from sluice.core.lifecycle.record import Intent, IntentKind
    from sluice.core.lifecycle.transitions import change_intent

    node = town.runs("w")
    town.hear(town.notice(node))
    cancel = Intent(IntentKind.CANCEL, "CANCELLED:User")
    assert town.workloads.apply([change_intent(town.row("w"), cancel)]) == [True]
    town.kubernetes.provide()

    town.obey("w")
    town.admit()

    assert town.row("w").state is State.CANCELLED
    assert town.kubernetes.running() == []
    town.observe()
    assert town.kubernetes.list("Pod", selector="sluice.dev/placeholder")[0] == []
    town.check()


def test_a_rebalance_recommendation_saves_and_moves_nobody(town: Town) -> None:
    node = town.runs("w", "kubelet")
    event = town.event(
        "EC2 Instance Rebalance Recommendation",
        town.clock.now(),
        {"instance-id": town.instance(node)},
    )

    assert town.hear(event).ordered == ("w",)
    assert town.row("w").state is State.DISPATCHED
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    assert pod["metadata"]["annotations"]["sluice.dev/checkpoint-order"].startswith("rebalance-")


def recommendation(town: Town, node: str, *, later_ms: int = 0) -> dict[str, Any]:
    detail = {"instance-id": town.instance(node)}
    at = town.clock.now() + later_ms
    return town.event("EC2 Instance Rebalance Recommendation", at, detail)


def order_on(town: Town, name: str = "w") -> str:
    (pod,) = town.kubernetes.list("Pod", selector=f"sluice.dev/workload={name}")[0]
    return str(pod["metadata"]["annotations"].get("sluice.dev/checkpoint-order", ""))


def test_a_recommendation_by_two_channels_orders_one_checkpoint(town: Town) -> None:
    node = town.runs("w", "kubelet")
    town.clock.time -= town.clock.now() % 120_000
    town.hear(recommendation(town, node))
    ordered = order_on(town)

    town.hear(recommendation(town, node, later_ms=1_800))

    assert order_on(town) == ordered != ""


@pytest.mark.parametrize("advised_first", [True, False])
def test_a_recommendation_beside_the_warning_does_not_disturb_the_move(
    town: Town, *, advised_first: bool
) -> None:
    node = town.runs("w", "kubelet")
    news = [recommendation(town, node), town.notice(node), recommendation(town, node)]

    for event in news if advised_first else news[1:]:
        town.hear(event)

    assert order_on(town).startswith("rebalance-" if advised_first else "first-0")
    town.save()
    town.kubernetes.provide()
    town.obey("w")
    assert town.migrations.rows["w#0"].first, "it is saved already"
    town.clock.pass_ms(5_000)
    town.save()
    town.obey("w")
    town.obey("w")
    assert town.row("w").restore_from != ""
    town.check()


def test_a_checkpoint_whose_order_a_move_has_overtaken_still_counts(town: Town) -> None:
    node = town.runs("w", "kubelet")
    town.hear(recommendation(town, node))
    extra = order_on(town)
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    pod["metadata"]["annotations"]["sluice.dev/checkpoint-order"] = ""
    town.hear(town.notice(node))  # which saw the pod before its order
    assert order_on(town) == "first-0"
    uri = "s3://state/checkpoints/w/0/extra/pod.tar"
    answered = {"order": extra, "uri": uri, "bytes": 1, "seconds": 1, "at": town.clock.now()}
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    marks = {"metadata": {"annotations": {"sluice.dev/checkpoint-done": json.dumps(answered)}}}
    town.kubernetes.patch("Pod", pod["metadata"]["namespace"], pod["metadata"]["name"], marks)

    town.observe()
    town.kubernetes.provide()
    town.end(node)
    town.obey("w")

    assert [each.uri for each in town.migrations.checkpoints("w")] == [uri]
    assert town.row("w").restore_from == uri


def test_a_machine_whose_agent_came_after_the_inventory_is_asked_itself(town: Town) -> None:
    node = town.runs("w", "kubelet")
    rows = [replace(row, checkpoint="") for row in town.nodes.of(CLUSTER)]
    town.nodes.put_many(CLUSTER, rows)

    town.hear(town.notice(node))

    assert town.migrations.rows["w#0"].action is CheckpointAction.DUMP


def test_the_story_of_a_move_is_told_in_order(town: Town) -> None:
    town.hear(town.notice(town.runs("w")))
    town.clock.pass_ms(7_000)
    town.kubernetes.provide()
    town.obey("w")
    town.clock.pass_ms(2_000)
    town.observe()

    told = [line["what"] for line in town.timeline.of("w")]
    assert told[-5:] == ["ReplacementReady", "SourceStopping", "SourceFenced", "Moved", "Resumed"]
    record = town.migrations.rows["w#0"]
    assert record.stage is Stage.RUNNING
    (resumed,) = [line for line in town.timeline.of("w") if line["what"] == "Resumed"]
    assert resumed["message"] == "runs again after 2.0 s of standstill"
    (run,) = town.row("w").runs
    assert run.lost_ms is None, "only the application knows what it saved"
    assert (run.node, run.why, run.stopped_at) == (record.node, "spot", record.stopping_at)


def test_the_account_of_a_move_says_what_was_lost_and_saved(town: Town) -> None:
    node = town.runs("w", "none")
    row = InventoryRow(town.instance(node), node, allocatable={"cpu": "4"})
    priced = replace(row, capacity_type="spot", price=1.0, on_demand_price=3.0)
    town.nodes.put_many(CLUSTER, [priced])
    town.clock.pass_ms(3_600_000)

    town.hear(town.notice(node))
    town.kubernetes.provide()
    town.obey("w")
    town.clock.pass_ms(2_000)
    town.observe()

    (run,) = town.row("w").runs
    assert run.lost_ms == 3_600_000
    assert (run.usd_per_hour, run.on_demand_usd_per_hour) == (0.25, 0.75)
    (resumed,) = [line for line in town.timeline.of("w") if line["what"] == "Resumed"]
    assert resumed["message"] == (
        "runs again after 2.0 s of standstill; 3600.0 s of work are done again;"
        " $0.5000 saved by spot until then"
    )
    assert resumed["detail"] == {"downtime_ms": 2_000, "lost_ms": 3_600_000, "saved_usd": 0.5}


def test_a_lost_machine_is_counted_once_and_as_it_was_first_heard_of(town: Town) -> None:
    warned = town.runs("w")
    town.hear(town.notice(warned))
    town.hear(town.ended(warned, "terminated"))
    town.kubernetes.provide()
    town.obey("w")
    (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
    second = pod["spec"]["nodeName"]
    town.observe()
    town.hear(town.ended(second, "shutting-down"))

    found = {loss.instance: loss.noticed for loss in town.losses.of(CLUSTER)}
    assert found == {town.instance(warned): True, town.instance(second): False}
