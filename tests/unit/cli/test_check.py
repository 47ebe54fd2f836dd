"""`sluice check` and who may answer."""

from __future__ import annotations

from typing import Any

from sluice.core.lifecycle.record import State

from tests.unit.api.control_plane import (
    ADMIN,
    BLUE,
    COMPANY,
    KUEUE,
    RED,
    ControlPlane,
    cluster_queue,
    native,
    tenant,
)
from tests.unit.cli.terminal import Terminal

CHECK = {
    "apiVersion": KUEUE,
    "kind": "AdmissionCheck",
    "metadata": {"name": "approval"},
    "spec": {"controllerName": "sluice.dev/callback"},
}


def a_terminal() -> tuple[Terminal, str]:
    """A queue whose workloads somebody approves: the tenant blue."""
    plane = ControlPlane()
    strategy = {"admissionChecksStrategy": {"admissionChecks": [{"name": "approval"}]}}
    approver: dict[str, Any] = tenant("blue", "AROABLUE", "blue")
    approver["spec"]["checks"] = ["approval"]
    documents = [CHECK, cluster_queue("red-cq", 64, **strategy), approver]
    status, answer = plane.call("POST", "/catalog", ADMIN, {"documents": documents})
    assert status == 200, answer
    assert len(COMPANY) + 1 == sum(map(len, plane.catalog.snapshot().documents.values()))
    terminal = Terminal(plane=plane)
    return terminal, plane.send(native("train", 1))


def test_a_workload_waits_for_its_check_and_says_so_everywhere() -> None:
    terminal, workload = a_terminal()

    assert "HELD:AdmissionCheck" in terminal("ls").stdout
    assert "It has its quota; waits for admission check approval." in (
        terminal("why", workload).stdout
    )
    assert "\n\nPlaced:  batch-1" in terminal("why", workload).stdout
    assert "AdmissionCheckRequested:approval" in terminal("events", workload).stdout


def test_ready_starts_it() -> None:
    terminal, workload = a_terminal()

    blue = Terminal(plane=terminal.plane, signer=BLUE)
    result = blue("check", workload, "approval", "ready", "--reason", "fine")
    terminal.plane.settle()

    assert result.exit_code == 0
    record = terminal.plane.workloads.rows[workload]
    assert (record.state, record.gated) == (State.ADMITTED, False)
    assert "admission check approval says Ready: fine" in terminal("events", workload).stdout

    again = blue("check", workload, "approval", "rejected")
    assert again.exit_code != 0
    assert "does not wait for its checks: it is ADMITTED" in again.stderr


def test_only_who_answers_a_check_may_answer_it() -> None:
    terminal, workload = a_terminal()
    plane, path = terminal.plane, f"/workloads/{workload}/checks/approval"

    status, answer = plane.call("POST", path, RED, {"state": "Ready"})
    assert (status, answer["error"]["code"]) == (403, "Forbidden")
    assert plane.workloads.rows[workload].gated

    assert plane.call("POST", path, BLUE, {"state": "Ready"})[0] == 200


def test_an_answer_to_another_question_is_refused() -> None:
    terminal, workload = a_terminal()
    plane, path = terminal.plane, f"/workloads/{workload}/checks"

    stale = {"state": "Ready", "token": f"{workload}.7.approval"}
    assert plane.call("POST", f"{path}/approval", BLUE, stale)[0] == 409
    assert plane.call("POST", f"{path}/approval", BLUE, {"state": "Maybe"})[0] == 422
    assert plane.call("POST", f"{path}/other", ADMIN, {"state": "Ready"})[0] == 404
    right = {"state": "Ready", "token": f"{workload}.0.approval"}
    assert plane.call("POST", f"{path}/approval", BLUE, right)[0] == 200
