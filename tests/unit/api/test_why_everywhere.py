"""What `why` advises in every state and for every reason is accepted there, and what it says fits.

Each combination of a state of a record and a reason is put into the table as it is; every command
of `sluice` that the answer names, wherever, is then sent.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.options import Dependency, DependencyCondition
from sluice.core.lifecycle.record import Intent, IntentKind, Reservation, State, Workload
from sluice.core.lifecycle.record_entries import NO_REASON, FieldError, JobResult, StatusReason
from sluice.core.lifecycle.run import Run
from sluice.core.values.reasons import Reason

from cli.main import VERBS
from tests.unit.api.control_plane import ADMIN, RED, ControlPlane, native

HELD = PodSetAssignment("main", 1, {"cpu": "spot"})
CHANGES = {"cancel", "hold", "release", "requeue"}
LOOKS = {"why": "/workloads/{}/why", "events": "/workloads/{}/events", "logs": "/workloads/{}/logs",
         "describe": "/workloads/{}", "get": "/workloads/{}", "queues": "/queues",
         "capacity": "/capacity"}  # fmt: skip
TURN = "its turn comes"


def states(row: Workload, other: str, now: int) -> Iterator[tuple[str, Workload]]:
    """A record in each of the states that a reader tells apart."""
    yield "pending", row
    yield "held", replace(row, held=True)
    waits = Dependency(DependencyCondition.SUCCEEDED, name="first", id=other)
    options = replace(row.options, depends_on=(waits,))
    yield "blocked", replace(row, blocked=True, options=options)
    yield "backoff", replace(row, not_before=now + 60_000)
    reservation = Reservation(0, row.cq, "batch-1", now, (HELD,))
    admitted = replace(
        row, state=State.ADMITTED, reservation=reservation, cluster="batch-1", admitted_at=now
    )
    yield "admitted", admitted
    yield "gated", replace(admitted, gated=True, checks=("approval", "budget"))
    moved = Run(outcome="migrate", ended_at=now)
    yield "moved", replace(admitted, generation=1, restore_from="s3://kept", runs=(moved,))
    starting = replace(admitted, state=State.DISPATCHED, uid="u", dispatched_at=now)
    yield "starting", starting
    running = replace(starting, started_at=now)
    yield "running", running
    for kind in IntentKind:
        for gone in (False, True):
            intent = Intent(kind, "", "because")
            stopping = replace(running, state=State.RECLAIMING, intent=intent, gone=gone)
            yield f"{kind.value}-{'gone' if gone else 'stopping'}", stopping
    ended = replace(row, state=State.FINISHED, started_at=now, finished_at=now)
    yield "succeeded", replace(ended, result=JobResult(succeeded=True))
    failed = JobResult(
        succeeded=False, reason="BackoffLimitExceeded", message="x", indexes={"failed": "0"}
    )
    yield "failed", replace(ended, result=failed)
    yield "cancelled", replace(row, state=State.CANCELLED, finished_at=now)
    mistakes = (FieldError("spec", "wrong"),)
    yield "rejected", replace(row, state=State.REJECTED, errors=mistakes)


def a_plane() -> tuple[ControlPlane, str, str]:
    plane = ControlPlane()
    other = plane.send(native("first", 64))
    return plane, plane.send(native("job", 64)), other


NAMES = [name for name, _ in states(Workload("w", "w", "n", "n/q", State.PENDING), "o", 1)]


def named(answer: dict[str, Any]) -> set[str]:
    """Every command of `sluice` in the texts of an answer, with its arguments if it has any."""
    commands = {each["command"] for each in answer["commands"]}
    return commands | set(re.findall(r"`(sluice [^`]+)`", json.dumps(answer)))


def refusal(plane: ControlPlane, workload: str, command: str) -> str:
    """Why a command is not accepted, or finds nothing to do; "" if it is and does."""
    _, verb, *arguments = command.split()
    if verb not in {each.name for each in VERBS}:
        return "there is no such command"
    target = arguments[0] if arguments else workload
    if verb == "check":
        path = f"/workloads/{target}/checks/{arguments[1]}"
        body = {"state": arguments[2].title(), "message": "", "token": ""}
        status, answer = plane.call("POST", path, ADMIN, body)
    elif verb in CHANGES:
        before = plane.workloads.rows[target]
        status, answer = plane.call("POST", f"/workloads/{target}/{verb}", RED)
        if status == 200 and plane.workloads.rows[target] == before:
            return "it changes nothing"
    elif verb in LOOKS:
        status, answer = plane.call("GET", LOOKS[verb].format(target), RED)
    else:
        return "the test does not know it"
    return "" if status == 200 else f"{status}: {answer}"


@pytest.mark.parametrize("state", NAMES)
def test_what_why_advises_is_accepted(state: str) -> None:
    plane, job, other = a_plane()
    row = plane.workloads.rows[job]
    record = dict(states(row, other, plane.clock.now()))[state]
    wrong = []
    for code in ("", *Reason):
        why = StatusReason(str(code), "a message") if code else NO_REASON
        intent = replace(record.intent, reason=str(code)) if record.intent else None
        put = replace(record, reason=why, intent=intent)
        plane.workloads.rows[job] = put
        answer = plane.call("GET", f"/workloads/{job}/why", RED)[1]
        assert answer["headline"]
        for command in sorted(named(answer)):
            plane.workloads.rows[job] = put
            if refused := refusal(plane, job, command):
                wrong.append((code, command, refused))
        in_queue = put.state is State.PENDING and not (put.held or put.blocked)
        if TURN in answer["toDo"] and not in_queue:
            wrong.append((code, TURN, answer["toDo"]))
    assert wrong == []


def test_a_gated_workload_names_the_command_that_answers_each_check() -> None:
    plane, job, other = a_plane()
    gated = dict(states(plane.workloads.rows[job], other, plane.clock.now()))["gated"]
    plane.workloads.rows[job] = gated

    answer = plane.call("GET", f"/workloads/{job}/why", ADMIN)[1]

    assert answer["reason"]["code"] == "HELD:AdmissionCheck"
    assert answer["toDo"].startswith("somebody has to answer")
    asked = [each["command"] for each in answer["commands"] if " check " in each["command"]]
    assert asked == [f"sluice check {job} {name} ready" for name in ("approval", "budget")]


def test_a_starting_gang_names_each_pod_without_a_node_and_since_when() -> None:
    plane, job, other = a_plane()
    now = plane.clock.now()
    starting = dict(states(plane.workloads.rows[job], other, now))["starting"]
    plane.workloads.rows[job] = starting
    labels = {"sluice.dev/workload": job, "sluice.dev/generation": "0"}
    for name, node in (("small", "node-1"), ("large", "")):
        refused = {
            "type": "PodScheduled",
            "status": "False",
            "message": "0/1 nodes are available: 1 Insufficient cpu.",
        }
        pod: dict[str, Any] = {
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": "red", "labels": labels},
            "spec": {"containers": [{"name": "main"}]},
            "status": {"phase": "Pending", "conditions": [] if node else [refused]},
        }
        if node:
            pod["spec"]["nodeName"] = node
        plane.kubernetes.create(pod)

    answer = plane.call("GET", f"/workloads/{job}/why", RED)[1]
    assert "Insufficient cpu" in answer["headline"]

    for at, component, message in (
        ("09", "karpenter", 'incompatible with nodepool "spot"; no instance type has 150 cpu'),
        ("08", "karpenter", "Pod should schedule on: nodeclaim/spot-1"),
        ("10", "default-scheduler", "0/1 nodes are available"),
    ):
        event = {
            "kind": "Event",
            "metadata": {"name": f"large.{at}", "namespace": "red"},
            "involvedObject": {"name": "large"},
            "source": {"component": component},
            "lastTimestamp": f"2026-11-21T{at}:00:00Z",
            "message": message,
        }
        plane.kubernetes.create(event)
    answer = plane.call("GET", f"/workloads/{job}/why", RED)[1]

    assert answer["headline"].startswith("It has its quota, but 1 of its 2 pods have no node")
    assert "no instance type has 150 cpu" in answer["headline"]
    assert "goes back to its queue" in answer["headline"]
    (pod,) = answer["unplacedPods"]
    assert pod["karpenter"].startswith("incompatible with nodepool")
    assert answer["podsReady"]["timeoutMs"] == 900_000
    assert 0 < answer["podsReady"]["leftMs"] <= 900_000
    assert answer["reason"]["code"] == "CAPACITY:WaitingForNode"
    assert [each["pod"] for each in answer["unplacedPods"]] == ["large"]


def test_an_array_that_ended_at_one_index_hears_of_backoff_limit_per_index() -> None:
    plane, job, other = a_plane()
    failed = dict(states(plane.workloads.rows[job], other, plane.clock.now()))["failed"]
    plane.workloads.rows[job] = failed

    (told,) = plane.call("GET", f"/workloads/{job}/why", RED)[1]["wouldHelp"]

    assert "backoffLimitPerIndex" in told
