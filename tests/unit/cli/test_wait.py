"""`wait`: follows to the end, reports the outcome by exit code, lets the work go on."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import yaml
from sluice.client.exit_codes import ExitCode
from sluice.client.sender import SubmissionMessage
from sluice.client.watching import outcome, reached

from tests.unit.api.control_plane import ControlPlane, native
from tests.unit.cli.terminal import Terminal


def script(*steps: Callable[[], object]) -> Callable[[], None]:
    """One step of the world each time that the command sleeps."""
    left = list(steps)

    def step() -> None:
        if left:
            left.pop(0)()

    return step


def one_running() -> tuple[ControlPlane, str]:
    plane = ControlPlane()
    workload_id = plane.send(native("job", 4))
    plane.run(workload_id)
    return plane, workload_id


@pytest.mark.parametrize(("succeeded", "code"), [(True, 0), (False, 100)])
def test_the_exit_code_is_the_outcome(succeeded: bool, code: int) -> None:
    plane, workload_id = one_running()
    terminal = Terminal(
        plane, sleeping=script(lambda: plane.finish(workload_id, succeeded=succeeded))
    )

    result = terminal("wait", workload_id)

    assert result.exit_code == code
    assert ("SUCCEEDED" if succeeded else "FAILED") in result.stdout


def test_waiting_ends_with_the_final_state_not_with_the_first_obstacle() -> None:
    plane = ControlPlane()
    first = plane.send(native("first", 96))
    second = plane.send(native("second", 96))
    plane.run(first)
    terminal = Terminal(
        plane,
        sleeping=script(
            lambda: plane.finish(first), lambda: plane.run(second), lambda: plane.finish(second)
        ),
    )

    result = terminal("wait", second)

    assert result.exit_code == 0
    phases = [line.split()[2] for line in result.stderr.splitlines()]
    assert phases == ["PENDING", "ADMITTED", "RUNNING", "SUCCEEDED"]


def test_a_cancelled_workload_is_neither_success_nor_failure() -> None:
    plane, workload_id = one_running()
    terminal = Terminal(plane)
    terminal("cancel", workload_id)
    plane.stopped(workload_id)

    assert terminal("wait", workload_id).exit_code == 103


def test_a_selection_that_matches_nothing_is_no_success() -> None:
    result = Terminal()("wait", "-n", "mistyped")

    assert result.exit_code == 102
    assert "no workload matches" in result.stderr


def test_time_out_says_what_is_the_matter() -> None:
    plane, workload_id = one_running()

    result = Terminal(plane)("wait", workload_id, "--timeout", "5s")

    assert result.exit_code == 101
    assert f"sluice why {workload_id}" in result.stderr


@pytest.mark.parametrize("goal", ["admitted", "running"])
def test_waiting_for_less_than_the_end(goal: str) -> None:
    plane, workload_id = one_running()

    assert Terminal(plane)("wait", workload_id, "--for", goal).exit_code == 0


def test_an_unknown_workload_has_its_own_code_and_an_ambiguous_one_another() -> None:
    assert Terminal()("wait", "aaaaaaaaaaaaa").exit_code == 102
    assert Terminal()("wait").exit_code == 2


def test_interruption_says_that_the_workload_continues() -> None:
    plane, workload_id = one_running()

    def interrupt() -> None:
        raise KeyboardInterrupt

    result = Terminal(plane, sleeping=interrupt)("wait", workload_id)

    assert result.exit_code == 130
    assert "continues" in result.stderr
    assert plane.workloads.rows[workload_id].state == "DISPATCHED"


def test_a_message_that_is_still_under_way_is_waited_for() -> None:
    plane = ControlPlane()
    terminal = Terminal(plane)
    messages: list[SubmissionMessage] = []
    terminal.__dict__["deliver"] = messages.extend
    steps = [
        lambda: None,
        lambda: plane.deliver(messages[0].body, terminal.signer),
        lambda: plane.run(messages[0].id),
        lambda: plane.finish(messages[0].id),
    ]
    terminal.sleeping = script(*steps)

    result = terminal("submit", "-f", "-", "--wait", input=yaml.safe_dump(native("job", 1)))

    assert result.exit_code == 0
    assert "SUBMITTED" in result.stderr


def test_a_timeout_before_the_message_arrives_shows_what_was_sent() -> None:
    terminal = Terminal()
    terminal.__dict__["deliver"] = lambda _: None
    document = yaml.safe_dump(native("job", 1))

    result = terminal("submit", "-f", "-", "--wait", "--timeout", "5s", input=document)

    assert result.exit_code == 101
    assert "SUBMITTED" in result.stdout


def test_a_message_that_never_arrives_ends_the_wait_with_advice() -> None:
    terminal = Terminal()
    terminal.__dict__["deliver"] = lambda _: None

    result = terminal("submit", "-f", "-", "--wait", input=yaml.safe_dump(native("job", 1)))

    assert result.exit_code == 102
    assert "sluice doctor" in result.stderr


def test_following_prints_logs_then_reports_the_outcome() -> None:
    plane = ControlPlane()
    terminal = Terminal(plane)

    def work() -> None:
        (record,) = plane.workloads.rows.values()
        if record.state == "ADMITTED":
            plane.run(record.id)
            plane.logs.put(record.id, 0, "pod", "main", b"step 1\n")
        elif record.state == "DISPATCHED":
            plane.logs.put(record.id, 0, "pod", "main", b"step 1\nstep 2\n")
            plane.finish(record.id)

    terminal.sleeping = work

    result = terminal("submit", "-f", "-", "--follow", input=yaml.safe_dump(native("job", 1)))

    assert result.exit_code == 0
    assert result.stdout.startswith("step 1\nstep 2\n")


def test_many_are_waited_for_and_the_first_failure_decides() -> None:
    plane = ControlPlane()
    ids = [plane.send(native(f"job-{n}", 1)) for n in range(3)]
    for workload_id in ids:
        plane.run(workload_id)
    plane.finish(ids[0])
    terminal = Terminal(
        plane,
        sleeping=script(
            lambda: plane.finish(ids[1], succeeded=False), lambda: plane.finish(ids[2])
        ),
    )

    assert terminal("wait", *ids).exit_code == 100


@pytest.mark.parametrize(
    ("phase", "admitted", "running", "finished"),
    [
        ("SUBMITTED", False, False, False),
        ("PENDING", False, False, False),
        ("ADMITTED", True, False, False),
        ("STARTING", True, False, False),
        ("RUNNING", True, True, False),
        ("RECOVERING", True, True, False),
        ("SUCCEEDED", True, True, True),
        ("REJECTED", True, True, True),
    ],
)
def test_phases_reach_goals(phase: str, admitted: bool, running: bool, finished: bool) -> None:
    workload = {"phase": phase}

    assert reached(workload, "admitted") is admitted
    assert reached(workload, "running") is running
    assert reached(workload, "finished") is finished


def test_an_exhausted_recovery_budget_is_told_apart_from_failure() -> None:
    failed = {"phase": "FAILED", "reason": {"code": "RECOVERY:BudgetExhausted"}}

    assert outcome(failed) is ExitCode.RECOVERY_EXHAUSTED
    assert outcome({"phase": "FAILED"}) is ExitCode.WORKLOAD_FAILED


def test_following_obeys_the_timeout_and_interruption_stops_nothing() -> None:
    plane = ControlPlane()
    terminal = Terminal(plane)
    document = yaml.safe_dump(native("job", 1))

    late = terminal("submit", "-f", "-", "--follow", "--timeout", "5s", input=document)

    assert late.exit_code == 101
    (record,) = plane.workloads.rows.values()
    plane.run(record.id)

    def interrupt() -> None:
        raise KeyboardInterrupt

    terminal.sleeping = interrupt
    interrupted = terminal("logs", "-f", record.id)

    assert interrupted.exit_code == 130
    assert "continues" in interrupted.stderr
    assert plane.workloads.rows[record.id].state == "DISPATCHED"
