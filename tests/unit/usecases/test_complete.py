"""Tasks of Step Functions that wait for a workload: told once, told at once, told in secret."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sluice.adapters.eventbridge_bus import EventBridgeBus
from sluice.core.lifecycle.completion import LOST_MS, MAX_CAUSE, MAX_OUTPUT, Failure, Success
from sluice.core.lifecycle.record import State
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.lifecycle.transitions import finish
from sluice.core.values.identity import workload_id
from sluice.core.values.plain import to_plain
from sluice.usecases.upkeep.complete import Complete
from sluice.usecases.upkeep.unanswered import MINUTE_MS, Unanswered

from tests.fakes import FakeTasks, RecordedTimeline
from tests.unit.api.control_plane import BLUE, RED, STRANGER, ControlPlane, Signer, native

TOKEN = "AQCEAAAAKgAAAAMAAAAAAAAAAXtoken+of/the=task"
WAITS = f'{{"completion": {{"taskToken": "{TOKEN}"}}}}'


class Client:
    """EventBridge: what is put on the bus."""

    def __init__(self) -> None:
        self.entries: list[dict[str, Any]] = []

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803 - as boto3
        self.entries += Entries
        return {"FailedEntryCount": 0, "Entries": []}


class Workflow:
    """A control plane beside Step Functions; the rule on its bus is that of infra/rules.py."""

    def __init__(self) -> None:
        self.plane = ControlPlane()
        self.tasks = FakeTasks({TOKEN})
        self.complete = Complete(
            workloads=self.plane.workloads,
            tokens=self.plane.tokens,
            tasks=self.tasks,
            timeline=self.plane.timeline,
            clock=self.plane.clock,
        )

    def task(self, document: dict[str, Any], token: str = TOKEN, signer: Signer = RED) -> str:
        """A task begins: its state machine sends the document with the token."""
        self.tasks.waiting.add(token)
        document = document | {"spec": document["spec"] | {"completion": {"taskToken": token}}}
        return self.plane.send(document, signer)

    def events(self) -> list[dict[str, Any]]:
        """All that was ever put on the bus."""
        client = Client()
        EventBridgeBus(client, "sluice").publish(self.plane.bus.lines)  # type: ignore[arg-type]
        return client.entries

    def deliver(self) -> None:
        for entry in self.events():
            data = json.loads(entry["Detail"])["data"]
            if "completion" in data:
                self.complete(data["completion"])

    def told(self, token: str = TOKEN) -> dict[str, Any]:
        """The answer that a task got, decoded; with `error` if it failed."""
        answer = self.tasks.told[token]
        if isinstance(answer, Success):
            return json.loads(answer.output)
        return json.loads(answer.cause) | {"error": answer.error}

    def sweep_for(self, minutes: int) -> None:
        plane = self.plane
        sweep = Unanswered(
            workloads=plane.workloads,
            tokens=plane.tokens,
            completions=plane.completions,
            clock=plane.clock,
        )
        for _ in range(minutes):
            for key in sweep():
                self.complete(key)
            plane.clock.pass_ms(MINUTE_MS)


def test_success_carries_name_results_and_exit_codes() -> None:
    flow = Workflow()
    document = native("train", 1)
    document["spec"]["volumes"] = [
        {"name": "out", "mountPath": "/out", "s3": {"bucket": "results", "prefix": "run-7/"}},
        {"name": "in", "mountPath": "/in", "readOnly": True, "s3": {"bucket": "data"}},
    ]
    job = flow.task(document)
    flow.plane.run(job)
    flow.deliver()
    assert TOKEN in flow.tasks.waiting, "nobody is told before the end"

    record = flow.plane.workloads.rows[job]
    result = JobResult(succeeded=True, exit_codes={"train-0": {"main": 0}})
    flow.plane.workloads.apply([finish(record, result, flow.plane.clock.now())])
    flow.plane.settle()
    flow.deliver()

    told = flow.told()
    assert (told["id"], told["name"], told["phase"]) == (job, "train", "SUCCEEDED")
    assert told["results"] == ["s3://results/run-7/"]
    assert told["exitCodes"] == {"train-0": {"main": 0}}
    assert told["finishedAt"] == flow.plane.clock.now()


def test_failure_carries_phase_or_reason_and_the_message() -> None:
    flow = Workflow()
    failed, cancelled = flow.task(native("one", 1)), flow.task(native("two", 1), "second")

    flow.plane.run(failed)
    flow.plane.finish(failed, succeeded=False)
    flow.plane.call("POST", f"/workloads/{cancelled}/cancel", RED, {"reason": "enough"})
    flow.plane.stopped(cancelled)
    flow.deliver()

    assert (flow.told()["error"], flow.told()["message"]) == ("FAILED", "exit code 3")
    assert flow.told("second")["error"] == "CANCELLED:User"
    assert "enough" in flow.told("second")["message"]


def test_every_delivery_may_come_twice() -> None:
    flow = Workflow()
    job = flow.task(native("one", 1))
    flow.plane.run(job)
    flow.plane.finish(job)

    flow.deliver()
    first = flow.told()
    flow.deliver()
    flow.plane.clock.pass_ms(1)
    flow.plane.tokens.put(flow.plane.workloads.rows[job].task_key, TOKEN)  # a crash in between
    flow.deliver()

    assert flow.told() == first
    assert flow.plane.tokens.rows == {}
    assert [line["message"] for line in flow.plane.timeline.of(job)][-2:] == [
        "1 waiting task(s) of Step Functions were told",
        "1 did not wait any more: TaskTimedOut",
    ]


def test_a_task_that_was_given_up_and_a_token_that_is_none_are_answers() -> None:
    flow = Workflow()
    job = flow.task(native("one", 1), "nonsense")
    flow.tasks.waiting.remove("nonsense")
    flow.plane.run(job)
    flow.plane.finish(job)

    flow.deliver()

    assert flow.plane.tokens.rows == {}
    assert any("InvalidToken" in line["message"] for line in flow.plane.timeline.of(job))


def wrong_everywhere() -> dict[str, Any]:
    document = native("bad", 1)
    document["spec"] |= {"imagee": "x", "queue": "Not/A queue", "priority": 7}
    return document


@pytest.mark.parametrize(
    ("document", "signer", "error"),
    [
        (wrong_everywhere(), RED, "MISCONFIGURATION:SchemaInvalid"),
        (native("one", 1, queue="nobody"), RED, "MISCONFIGURATION:UnknownQueue"),
        (native("one", 10_000), RED, "QUOTA:ExceedsMaximum"),
        (native("one", 1, namespace="blue"), RED, "MISCONFIGURATION:PolicyDenied"),
        (native("one", 1), STRANGER, "MISCONFIGURATION:PolicyDenied"),
        ({k: v for k, v in native("x", 1).items() if k != "kind"}, RED, None),
        (native("x", 1) | {"kind": "Pod"}, RED, None),
    ],
)
def test_a_rejected_submission_fails_its_task_at_once(
    document: dict[str, Any], signer: Signer, error: str | None
) -> None:
    flow = Workflow()

    flow.task(document, signer=signer)
    flow.deliver()

    (record,) = flow.plane.workloads.rows.values()
    assert record.state is State.REJECTED
    assert flow.told()["error"] == error or error is None
    assert flow.told()["errors"] == to_plain(record.errors)
    assert flow.plane.tokens.rows == {}


@pytest.mark.parametrize(
    "body",
    [
        f'{{"spec": {WAITS}, "kind": "Workload"',
        f'{{"kind": "Workload", "kind": "Job", "spec": {WAITS}}}',
        f'{{"kind": "List", "items": [{{"spec": {WAITS}}}]}}',
        f'{{"manifestRef": "s3://b/k", "sha256": "0", "spec": {WAITS}}}',
    ],
    ids=["cut off", "a key twice", "no kind, in a List", "a reference"],
)
def test_a_token_is_found_in_what_is_no_document(body: str) -> None:
    flow = Workflow()

    flow.plane.deliver(body)
    flow.deliver()

    assert flow.told()["phase"] == "REJECTED"
    assert flow.told()["errors"]


def test_a_second_task_joins_the_workload_of_its_key_even_after_its_end() -> None:
    flow = Workflow()
    job = flow.task(native("one", 1))
    assert flow.task(native("one", 1), "retry") == job
    flow.plane.run(job)
    flow.plane.finish(job)
    flow.deliver()
    assert flow.told() == flow.told("retry")
    flow.plane.completions.keys.clear()

    assert flow.task(native("one", 1), "late") == job
    for key in flow.plane.completions.keys:
        flow.complete(key)

    assert flow.told("late") == flow.told()
    assert len(flow.plane.workloads.rows) == 1


def test_another_body_under_a_used_key_fails_its_own_task_and_no_other() -> None:
    flow = Workflow()
    flow.task(native("one", 1, key="k"))

    flow.task(native("other", 2, key="k"), "second")
    flow.deliver()

    assert flow.told("second")["error"] == "MISCONFIGURATION:KeyReused"
    assert TOKEN in flow.tasks.waiting


def test_a_token_is_no_part_of_anything_that_others_see() -> None:
    flow = Workflow()
    good, bad = flow.task(native("one", 1)), flow.task(wrong_everywhere(), "zweites-geheimnis")
    flow.plane.run(good)
    flow.plane.finish(good)
    flow.deliver()

    seen = [str(flow.events()), str(flow.plane.workloads.rows), str(flow.plane.timeline.lines)]
    seen += [str(flow.plane.manifests.rows)]
    for path in ("", "/manifest", "/events", "/why"):
        seen += [str(flow.plane.call("GET", f"/workloads/{i}{path}")) for i in (good, bad)]

    assert flow.told()["phase"] == "SUCCEEDED"
    assert "(kept apart)" in seen[3]
    for text in seen:
        assert TOKEN not in text
        assert "zweites-geheimnis" not in text


def test_a_lost_event_is_found_by_the_sweep() -> None:
    flow = Workflow()
    job, other = flow.task(native("one", 1)), flow.task(native("two", 1), "second")
    flow.plane.run(job)
    flow.plane.finish(job)

    flow.sweep_for(32)

    assert flow.told()["phase"] == "SUCCEEDED"
    assert "second" in flow.tasks.waiting, f"{other} has not ended"


def test_a_submission_that_never_became_a_record_fails_its_task_in_the_end() -> None:
    flow = Workflow()
    flow.tasks.waiting.add("orphan")
    key = f"{workload_id('red', 'lost')}.{'0' * 16}"
    flow.plane.tokens.put(key, "orphan")

    flow.sweep_for(LOST_MS // MINUTE_MS)
    assert "orphan" in flow.tasks.waiting, "its record may still be under way"
    flow.sweep_for(33)

    assert flow.told("orphan")["error"] == "PLATFORM:DLQ"


def test_answers_keep_to_the_limits_of_step_functions() -> None:
    flow = Workflow()
    job = flow.task(native("one", 1))
    bad = wrong_everywhere()
    bad["spec"] |= {"field" * 80 + str(n): 1 for n in range(60)}
    flow.task(bad, "second")
    record = flow.plane.run(job)
    codes = {f"pod-{n:06d}": {"main": 0} for n in range(20_000)}
    flow.plane.workloads.apply(
        [finish(record, JobResult(succeeded=True, exit_codes=codes), flow.plane.clock.now())]
    )
    flow.plane.settle()
    flow.deliver()

    success, failure = flow.tasks.told[TOKEN], flow.tasks.told["second"]
    assert isinstance(success, Success)
    assert isinstance(failure, Failure)
    assert len(success.output.encode()) <= MAX_OUTPUT
    assert flow.told()["exitCodeCounts"] == {"0": 20_000}
    assert 0 < MAX_CAUSE - len(failure.cause) < 2_000
    assert flow.told("second")["moreErrors"] > 0
    assert flow.told("second")["errors"]


def test_a_tenant_of_another_cannot_answer_with_a_record_of_its_own() -> None:
    flow = Workflow()
    flow.task(native("one", 1, key="k"))

    theirs = flow.task(native("one", 1, key="k", namespace="blue"), "second", BLUE)
    flow.plane.run(theirs)
    flow.plane.finish(theirs)
    flow.deliver()

    assert flow.told("second")["id"] == theirs
    assert TOKEN in flow.tasks.waiting


def test_the_timeline_of_a_bus_without_tasks_carries_no_completion() -> None:
    plane = ControlPlane()
    job = plane.send(native("one", 1))
    plane.run(job)
    plane.finish(job)
    client = Client()

    EventBridgeBus(client, "sluice").publish(plane.bus.lines)  # type: ignore[arg-type]

    assert isinstance(plane.bus, RecordedTimeline)
    assert client.entries
    assert not [e for e in client.entries if "completion" in json.loads(e["Detail"])["data"]]
