"""`cancel`, `hold`, `release`, `requeue`, `reprioritize`: one, many, and what they refuse."""

from __future__ import annotations

from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, is_migrating
from sluice.core.values.reasons import Reason

from tests.unit.api.control_plane import ADMIN, ControlPlane, native
from tests.unit.cli.terminal import Terminal, items

CLASSES = [
    {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "WorkloadPriorityClass",
        "metadata": {"name": name},
        "value": value,
    }
    for name, value in (("low", -10), ("high", 100))
]


def full_house() -> tuple[Terminal, str, list[str]]:
    """All 96 cores in use; three workloads wait."""
    terminal = Terminal()
    running = terminal.plane.send(native("running", 96))
    terminal.plane.run(running)
    waiting = [terminal.plane.send(native(f"waiting-{n}", 96)) for n in range(3)]
    return terminal, running, waiting


def state(plane: ControlPlane, workload_id: str) -> str:
    return str(plane.workloads.rows[workload_id].state)


def test_cancelling_a_pending_workload_takes_effect_at_once() -> None:
    terminal, _, waiting = full_house()

    result = terminal("cancel", waiting[0], "--reason", "typo")

    assert result.exit_code == 0
    assert state(terminal.plane, waiting[0]) == "CANCELLED"
    assert "typo" in terminal.plane.workloads.rows[waiting[0]].reason.message


def test_a_running_workload_keeps_its_quota_until_its_pods_are_gone() -> None:
    terminal, running, waiting = full_house()

    result = terminal("cancel", running)

    assert "being cancelled" in result.stdout
    assert state(terminal.plane, running) == "RECLAIMING"
    assert state(terminal.plane, waiting[0]) == "PENDING"
    terminal.plane.stopped(running)
    assert state(terminal.plane, running) == "CANCELLED"
    assert state(terminal.plane, waiting[0]) == "ADMITTED"


def test_cancelling_twice_or_after_the_end_has_no_effect() -> None:
    terminal, running, _ = full_house()
    terminal("cancel", running)
    before = terminal.plane.workloads.rows[running]
    again = terminal("cancel", running)

    assert again.exit_code == 0
    assert terminal.plane.workloads.rows[running] is before
    terminal.plane.stopped(running)
    ended = terminal("cancel", running)
    assert ended.exit_code == 0
    assert "had ended: CANCELLED" in ended.stdout


def test_cancel_overtakes_a_requeue_that_is_under_way() -> None:
    terminal, running, _ = full_house()
    terminal("requeue", running)

    terminal("cancel", running)
    terminal.plane.stopped(running)

    assert state(terminal.plane, running) == "CANCELLED"


def test_a_requeued_workload_comes_back_as_the_next_generation() -> None:
    terminal, running, _ = full_house()

    terminal("requeue", running)
    terminal.plane.stopped(running)

    record = terminal.plane.workloads.rows[running]
    assert record.generation == 1
    assert record.runs[0].outcome == "requeue"


def test_a_held_workload_is_passed_over_until_it_is_released() -> None:
    terminal, running, waiting = full_house()

    terminal("hold", waiting[0])
    terminal.plane.finish(running)

    assert state(terminal.plane, waiting[0]) == "PENDING"
    assert state(terminal.plane, waiting[1]) == "ADMITTED"
    assert "HELD:User" in terminal("ls").stdout
    terminal("cancel", waiting[1])
    terminal.plane.settle()
    terminal.plane.stopped(waiting[1])
    terminal("cancel", waiting[2])
    terminal("release", waiting[0])
    terminal.plane.settle()
    terminal.plane.stopped(waiting[2])
    assert state(terminal.plane, waiting[0]) == "ADMITTED"


def test_what_runs_cannot_be_held_and_what_ended_cannot_be_requeued() -> None:
    terminal, running, _ = full_house()

    held = terminal("hold", running)
    terminal.plane.finish(running)
    requeued = terminal("requeue", running)

    assert held.exit_code == 5
    assert "cancel or requeue it" in held.stderr
    assert requeued.exit_code == 5
    assert "new idempotency key" in requeued.stderr


def test_who_is_being_moved_is_not_requeued_and_is_told_so() -> None:
    terminal, running, _ = full_house()
    record = terminal.plane.workloads.rows[running]
    lost = Intent(IntentKind.MIGRATE, Reason.WAITING_FOR_REPLACEMENT, "node-1: spot")
    assert terminal.plane.workloads.apply([lifecycle.reclaim(record, lost)]) == [True]

    requeued = terminal("requeue", running)

    assert requeued.exit_code == 5
    assert "is being moved and keeps its quota" in requeued.stderr
    assert is_migrating(terminal.plane.workloads.rows[running])
    why = terminal("why", running).stdout
    assert f"being moved, with its quota (node-1: spot); `sluice events {running}` tells" in why


def test_a_class_changes_the_order_and_a_higher_number_needs_an_administrator() -> None:
    terminal, running, waiting = full_house()
    assert terminal.plane.call("POST", "/catalog", ADMIN, {"documents": CLASSES})[0] == 200

    refused = terminal("reprioritize", waiting[2], "-p", "5")
    lowered = terminal("reprioritize", waiting[0], "-p", "-5")
    raised = terminal("reprioritize", waiting[2], "-p", "high")

    assert refused.exit_code == 4
    assert (lowered.exit_code, raised.exit_code) == (0, 0)
    terminal.plane.finish(running)
    assert state(terminal.plane, waiting[2]) == "ADMITTED"
    unknown = terminal("reprioritize", waiting[1], "-p", "urgent")
    assert unknown.exit_code == 5
    assert "high, low" in unknown.stderr


def test_a_selection_needs_a_yes_where_nobody_can_be_asked() -> None:
    terminal, _, waiting = full_house()

    asked = terminal("cancel", "-q", "batch", "-s", "PENDING")
    shown = items(terminal("cancel", "-q", "batch", "-s", "PENDING", "--dry-run", "-o", "json"))

    assert asked.exit_code == 2
    assert "-y" in asked.stderr
    assert {row["id"] for row in shown} == set(waiting)
    assert {state(terminal.plane, i) for i in waiting} == {"PENDING"}

    done = terminal("cancel", "-q", "batch", "-s", "PENDING", "-y")

    assert done.exit_code == 0
    assert {state(terminal.plane, i) for i in waiting} == {"CANCELLED"}


def test_one_refusal_among_many_does_not_stop_the_others() -> None:
    terminal, running, waiting = full_house()

    result = terminal("hold", running, *waiting)

    assert result.exit_code == 5
    assert all(terminal.plane.workloads.rows[i].held for i in waiting)
    assert "1 of 4 refused" in result.stderr


def test_ids_and_filters_together_are_a_mistake() -> None:
    terminal, running, _ = full_house()

    assert terminal("cancel", running, "-q", "batch").exit_code == 2
    assert terminal("cancel").exit_code == 2
