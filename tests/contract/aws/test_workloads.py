"""The port Workloads: records, guarded changes, and the sparse indexes that propose work."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.indexes import Place, pending_key, release_key
from sluice.core.lifecycle.record import (
    Change,
    Guard,
    Intent,
    IntentKind,
    PodSet,
    State,
    Workload,
    after,
)
from sluice.core.lifecycle.record_entries import JobResult, StatusReason
from sluice.core.lifecycle.run import Run
from sluice.ports import Created

from tests.contract.aws.builders import (
    CLUSTER,
    CQ,
    NOW,
    QUEUE,
    ROOT,
    a_reservation,
    a_workload,
    admitted,
    dispatched,
)
from tests.contract.aws.ports import Ports

RICH = dispatched(
    "rich",
    generation=3,
    tenant="team",
    submitted_by="AROA",
    priority=-5,
    priority_class="low",
    pod_sets=(
        PodSet("a", 1, {"cpu": 1}, 1, ("spot",)),
        PodSet("b", 2**31, {"nvidia.com/gpu": 2**40}),
    ),
    options={
        "deadlines": {"max_runtime_seconds": 60},
        "volumes": [{"name": "x", "bucket": "b", "mount_path": "/x"}],
    },
    labels={"team": "blue"},
    kind="JobSet",
    intent=Intent(IntentKind.CANCEL, "CANCELLED:User", "by me", "me", NOW),
    state=State.RECLAIMING,
    reservation=a_reservation(3),
    gone=True,
    requeues=2,
    admitted_at=NOW,
    dispatched_at=NOW + 1,
    started_at=NOW + 2,
    result=JobResult(succeeded=False, exit_codes={"pod": {"main": 137}}),
    reason=StatusReason("X", "ünïcode ✓"),
    restore_from="s3://bucket/checkpoint",
    runs=(Run(generation=2, outcome="migrate", ended_at=NOW),),
)
UNKNOWN_SENDER = replace(
    a_workload("nobody", state=State.REJECTED), name="", namespace="", queue="", cq="", root=""
)


@pytest.mark.parametrize("workload", [a_workload(), RICH, UNKNOWN_SENDER], ids=lambda w: w.id)
def test_a_record_is_read_as_it_was_written(ports: Ports, workload: Workload) -> None:
    assert ports.workloads.create(workload) is Created.NEW

    assert ports.workloads.get(workload.id) == workload


def test_an_unknown_record_is_none(ports: Ports) -> None:
    assert ports.workloads.get("nothing") is None


def test_many_records_come_in_the_order_asked_for_each_once(ports: Ports) -> None:
    for number in range(130):
        ports.workloads.create(a_workload(f"w{number}"))

    wanted = [f"w{number}" for number in reversed(range(130))]
    found = ports.workloads.get_many(["missing", *wanted, "w3"])

    assert [each.id for each in found] == wanted


def test_the_same_submission_again_is_the_same(ports: Ports) -> None:
    ports.workloads.create(a_workload(priority=1))

    assert ports.workloads.create(a_workload(priority=9)) is Created.SAME
    assert ports.workloads.get("w1") == a_workload(priority=1)


def test_another_body_under_the_same_key_changes_nothing(ports: Ports) -> None:
    ports.workloads.create(a_workload())

    assert ports.workloads.create(a_workload(digest="other")) is Created.DIFFERENT
    assert ports.workloads.get("w1") == a_workload()


def test_a_rejected_record_gives_way_to_a_corrected_submission(ports: Ports) -> None:
    ports.workloads.create(a_workload(state=State.REJECTED, digest="bad"))

    assert ports.workloads.create(a_workload(digest="good")) is Created.NEW
    assert ports.workloads.get("w1") == a_workload(digest="good")


def test_a_finished_record_does_not_give_way(ports: Ports) -> None:
    done = a_workload(state=State.FINISHED)
    ports.workloads.create(done)

    assert ports.workloads.create(a_workload(digest="again")) is Created.DIFFERENT
    assert ports.workloads.get("w1") == done


def changes_of(workload: Workload, **guard: object) -> Change:
    base = Guard((workload.state,), workload.generation)
    return Change(workload, replace(base, **guard), {"priority": 77})  # type: ignore[arg-type]


GUARDS = [
    ("state and generation hold", {}, True),
    ("one of several states", {"states": (State.ADMITTED, State.RECLAIMING)}, True),
    ("another state", {"states": (State.ADMITTED, State.DISPATCHED)}, False),
    ("another generation", {"generation": 4}, False),
    ("uid holds", {"uid": "uid-1"}, True),
    ("another uid", {"uid": "uid-2"}, False),
    ("no uid wanted", {"uid": ""}, False),
    ("present holds", {"present": ("gone", "reservation")}, True),
    ("present fails", {"present": ("gone", "held")}, False),
    ("absent holds", {"absent": ("held",)}, True),
    ("absent fails", {"absent": ("held", "started_at")}, False),
    ("intent holds", {"intent": IntentKind.CANCEL}, True),
    ("another intent", {"intent": IntentKind.REQUEUE}, False),
]


@pytest.mark.parametrize(("what", "guard", "holds"), GUARDS, ids=[g[0] for g in GUARDS])
def test_a_change_happens_exactly_if_its_guard_holds(
    ports: Ports, what: str, guard: dict[str, object], holds: bool
) -> None:
    ports.workloads.create(RICH)

    assert ports.workloads.apply([changes_of(RICH, **guard)]) == [holds], what

    found = ports.workloads.get("rich")
    assert found == (replace(RICH, priority=77) if holds else RICH)


def test_a_record_without_uid_satisfies_the_wish_for_none(ports: Ports) -> None:
    ports.workloads.create(a_workload())

    assert ports.workloads.apply([changes_of(a_workload(), uid="")]) == [True]


def test_a_flag_that_was_taken_back_counts_as_absent(ports: Ports) -> None:
    ports.workloads.create(a_workload())
    ports.workloads.apply([lifecycle.hold(a_workload(), on=True)])
    assert ports.workloads.apply([changes_of(a_workload(), absent=("held",))]) == [False]

    ports.workloads.apply([lifecycle.hold(a_workload(held=True), on=False)])

    assert ports.workloads.apply([changes_of(a_workload(), absent=("held",))]) == [True]


def test_a_missing_record_loses_every_race_and_is_not_made(ports: Ports) -> None:
    assert ports.workloads.apply([changes_of(a_workload())]) == [False]
    assert ports.workloads.get("w1") is None


def test_changes_of_a_batch_win_and_lose_one_by_one(ports: Ports) -> None:
    for name in ("a", "b", "c"):
        ports.workloads.create(a_workload(name))
    changes = [
        changes_of(a_workload("a")),
        changes_of(a_workload("b"), generation=9),
        changes_of(a_workload("c")),
    ]

    assert ports.workloads.apply(changes) == [True, False, True]
    assert [w.priority for w in ports.workloads.get_many("abc")] == [77, 0, 77]


def test_nothing_to_apply_is_no_race(ports: Ports) -> None:
    assert ports.workloads.apply([]) == []


def test_runs_are_appended_to_what_is_stored_not_to_what_was_read(ports: Ports) -> None:
    stale = dispatched()
    first = Run(outcome="migrate")
    ports.workloads.create(replace(stale, runs=(first,)))

    assert ports.workloads.apply([lifecycle.finish(stale, JobResult(succeeded=True), NOW)]) == [
        True
    ]

    found = ports.workloads.get("w1")
    assert found is not None
    assert [run.outcome for run in found.runs] == ["migrate", "succeeded"]


def test_removed_attributes_return_to_their_defaults(ports: Ports) -> None:
    ports.workloads.create(RICH)
    stays = replace(RICH, intent=Intent(IntentKind.REQUEUE, "X", "y", not_before=5))
    ports.workloads.apply([lifecycle.change_intent(RICH, stays.intent)])  # type: ignore[arg-type]

    assert ports.workloads.apply([lifecycle.release(stays, NOW)]) == [True]

    found = ports.workloads.get("rich")
    assert found == after(lifecycle.release(stays, NOW))
    assert (found.state, found.generation, found.not_before) == (State.PENDING, 4, 5)
    assert (found.reservation, found.intent, found.uid, found.gone) == (None, None, "", False)


def test_the_inbox_orders_by_priority_then_age_then_id(ports: Ports) -> None:
    for workload in (
        a_workload("late", created_at=NOW + 5),
        a_workload("low", priority=-1, created_at=NOW - 99),
        a_workload("b"),
        a_workload("a"),
        a_workload("urgent", priority=10, created_at=NOW + 9),
        a_workload("elsewhere", cq="other"),
        a_workload("held", held=True),
        admitted("running"),
    ):
        ports.workloads.create(workload)

    order = ["urgent", "a", "b", "late", "low"]
    assert ports.workloads.inbox(pending_key(CQ), limit=100) == order
    assert ports.workloads.inbox(pending_key(CQ), limit=2) == order[:2]
    assert ports.workloads.inbox(pending_key("nobody"), limit=2) == []


def test_places_tell_priority_and_queue_in_the_order_of_the_inbox(ports: Ports) -> None:
    for workload in (
        a_workload("low", priority=-7, queue="team/x", shape_hash="25f0c7a9d1be"),
        a_workload("urgent", priority=2**31 - 1, queue="team/y"),
        a_workload("elsewhere", cq="other"),
    ):
        ports.workloads.create(workload)

    urgent, low = ports.workloads.places(CQ, limit=9)
    assert urgent == Place("urgent", 2**31 - 1, "team/y", NOW)
    assert low == Place("low", -7, "team/x", NOW, "25f0c7a9d1be")
    assert ports.workloads.places(CQ, limit=9, after=low.order) == [low]
    assert ports.workloads.places(CQ, limit=1) == [urgent]


def test_a_new_priority_moves_a_workload_in_the_inbox(ports: Ports) -> None:
    for name in ("a", "b"):
        ports.workloads.create(a_workload(name))

    ports.workloads.apply([lifecycle.reprioritise(a_workload("b"), 5)])

    assert ports.workloads.inbox(pending_key(CQ), limit=9) == ["b", "a"]


def test_a_workload_is_in_the_indexes_of_its_state_and_in_no_other(ports: Ports) -> None:
    workload = a_workload()
    ports.workloads.create(workload)

    def where() -> tuple[bool, bool, bool]:
        return (
            ports.workloads.inbox(pending_key(CQ), limit=9) == ["w1"],
            ports.workloads.active(CLUSTER) == ["w1"],
            ports.workloads.inbox(release_key(ROOT), limit=9) == ["w1"],
        )

    def then(change: Change) -> Workload:
        assert ports.workloads.apply([change]) == [True]
        found = ports.workloads.get("w1")
        assert found is not None
        return found

    assert where() == (True, False, False)
    workload = then(lifecycle.admit(workload, a_reservation(), ROOT, NOW))
    assert where() == (False, True, False)
    workload = then(lifecycle.claim(workload, "uid-1", NOW))
    assert where() == (False, True, False)
    workload = then(lifecycle.reclaim(workload, Intent(IntentKind.REQUEUE, "X")))
    assert where() == (False, True, False)
    workload = then(lifecycle.gone(workload))
    assert where() == (False, True, True)
    workload = then(lifecycle.release(workload, NOW))
    assert where() == (True, False, False)
    workload = then(lifecycle.hold(workload, on=True))
    assert where() == (False, False, False)
    workload = then(lifecycle.hold(workload, on=False))
    workload = then(lifecycle.admit(workload, a_reservation(1), ROOT, NOW))
    workload = then(lifecycle.claim(workload, "uid-2", NOW))
    workload = then(lifecycle.finish(workload, JobResult(succeeded=True), NOW))
    assert where() == (False, False, True)
    then(lifecycle.release(workload, NOW))
    assert where() == (False, False, False)


def test_active_workloads_can_be_asked_for_by_root(ports: Ports) -> None:
    for workload in (
        dispatched("a"),
        dispatched("b", root="root2"),
        dispatched("c", cluster="batch-2"),
    ):
        ports.workloads.create(workload)

    assert sorted(ports.workloads.active(CLUSTER)) == ["a", "b"]
    assert ports.workloads.active(CLUSTER, ROOT) == ["a"]
    assert ports.workloads.active(CLUSTER, "roo") == []


def test_who_has_run_and_is_on_no_cluster_is_found_by_the_end_of_its_last_run(ports: Ports) -> None:
    for number, state in enumerate((State.FINISHED, State.CANCELLED, State.PENDING)):
        run = Run(outcome="requeue", ended_at=NOW + number)
        ports.workloads.create(a_workload(f"w{number}", state=state, runs=(run,)))
    ports.workloads.create(a_workload("never", state=State.CANCELLED))
    running = a_workload("runs", state=State.DISPATCHED, cluster=CLUSTER, uid="u", runs=(run,))
    ports.workloads.create(running)

    def ran(since: str, limit: int = 10) -> list[str]:
        return ports.workloads.ran(QUEUE, since=since, limit=limit)

    keys = [f"{NOW + number:013d}#w{number}" for number in range(3)]
    assert ran("0") == keys
    assert ran("0", 2) == keys[:2]
    assert ran(f"{NOW + 1:013d}") == keys[1:]
    assert ran(keys[1] + "~") == keys[2:], "a page goes on above the last key of the one before"

    assert ports.workloads.apply([lifecycle.finish(running, JobResult(succeeded=True), NOW + 9)])
    assert ran(keys[2] + "~") == [f"{NOW + 9:013d}#runs"]


def test_the_newest_workloads_of_a_queue_come_first(ports: Ports) -> None:
    for number in range(5):
        ports.workloads.create(a_workload(f"w{number}", created_at=NOW + number))
    ports.workloads.create(a_workload("else", queue="team/other"))

    def listed(since: int, limit: int) -> list[str]:
        return [w.id for w in ports.workloads.listed(QUEUE, since=since, limit=limit)]

    assert listed(0, 10) == ["w4", "w3", "w2", "w1", "w0"]
    assert listed(0, 2) == ["w4", "w3"]
    assert listed(NOW + 3, 10) == ["w4", "w3"]
