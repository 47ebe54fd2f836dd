"""The ports that send: kicks and commands through SQS, events through EventBridge, wake-ups."""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from sluice.adapters.eventbridge_bus import EventBridgeBus
from sluice.adapters.lambda_observers import LambdaObservers
from sluice.adapters.sqs_dead_letters import SQSDeadLetters
from sluice.adapters.sqs_queues import SQSCommands, SQSKicks
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import State
from sluice.core.lifecycle.record_entries import StatusReason
from sluice.errors import SluiceError
from sluice.ports import DeadLetter

from tests.contract.aws.builders import CLUSTER, NOW, a_workload
from tests.fakes import FakeClock

Client = Callable[[str], Any]


@pytest.fixture
def client(emulator: tuple[Any, str]) -> Client:
    session, address = emulator
    return lambda service: session.client(service, endpoint_url=address)


def a_queue(sqs: Any, *, fifo: bool = False) -> str:
    name = f"q-{uuid.uuid4().hex[:8]}"
    if fifo:
        url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})
    else:
        url = sqs.create_queue(QueueName=name)
    return str(url["QueueUrl"])


def received(sqs: Any, queue: str) -> list[dict[str, Any]]:
    """All messages of a queue, taken off it."""
    taken: list[dict[str, Any]] = []
    while True:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, AttributeNames=["All"], WaitTimeSeconds=1
        )
        messages = answer.get("Messages", [])
        if not messages:
            return taken
        for message in messages:
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
        taken += messages


@pytest.mark.stack
def test_a_kick_goes_to_the_group_of_its_root_and_is_never_swallowed(client: Client) -> None:
    sqs = client("sqs")
    queue = a_queue(sqs, fifo=True)
    kicks = SQSKicks(sqs, queue)

    kicks.kick(["a", "b", "a"])
    kicks.kick(["a"])
    kicks.kick([])

    messages = received(sqs, queue)
    assert sorted(message["Attributes"]["MessageGroupId"] for message in messages) == [
        "a",
        "a",
        "b",
    ]
    assert all(
        json.loads(message["Body"]) == {"root": message["Attributes"]["MessageGroupId"]}
        for message in messages
    )


@pytest.mark.stack
def test_more_roots_than_one_request_takes_are_all_kicked(client: Client) -> None:
    sqs = client("sqs")
    queue = a_queue(sqs, fifo=True)
    roots = [f"root-{number}" for number in range(23)]

    SQSKicks(sqs, queue).kick(roots)

    assert sorted(json.loads(m["Body"])["root"] for m in received(sqs, queue)) == sorted(roots)


@pytest.mark.stack
def test_commands_name_every_workload_once_in_messages_of_bounded_size(client: Client) -> None:
    sqs = client("sqs")
    queue = a_queue(sqs)
    ids = [f"w{number}" for number in range(280)]

    SQSCommands(sqs, queue).send(CLUSTER, [*ids, *ids[:30]])

    bodies = [json.loads(message["Body"]) for message in received(sqs, queue)]
    assert {body["cluster"] for body in bodies} == {CLUSTER}
    assert max(len(body["workloads"]) for body in bodies) <= 25
    assert sorted(each for body in bodies for each in body["workloads"]) == sorted(ids)


@pytest.mark.stack
def test_dead_letters_are_seen_by_everybody_until_they_are_taken(client: Client) -> None:
    sqs = client("sqs")
    queue = a_queue(sqs)
    office = SQSDeadLetters(sqs, {"submissions": queue})
    told = {"ERROR_CODE": {"DataType": "String", "StringValue": "NO_PERMISSIONS"}}
    for number in range(12):
        sqs.send_message(QueueUrl=queue, MessageBody=f"m{number}", MessageAttributes=told)

    first = office.take("submissions", hidden_seconds=30)
    second = office.take("submissions", hidden_seconds=30)
    assert sorted(each.body for each in first + second) == sorted(f"m{n}" for n in range(12))
    assert all(each.said == {"ERROR_CODE": "NO_PERMISSIONS"} for each in first)
    assert all(int(each.attributes["SentTimestamp"]) for each in first)
    assert office.count("submissions") == 12
    office.remove("submissions", first)
    office.give_back("submissions", second)

    assert {e.id for e in office.take("submissions", hidden_seconds=1)} == {e.id for e in second}
    office.purge("submissions")
    assert office.count("submissions") == 0


class Refusing:
    """An AWS that answers 200 and hides a failure inside."""

    def send_message_batch(self, **_: Any) -> dict[str, Any]:
        return {"Successful": [], "Failed": [{"Id": "0", "Message": "too busy"}]}

    def delete_message_batch(self, **_: Any) -> dict[str, Any]:
        return {"Successful": [], "Failed": [{"Id": "0", "Message": "too busy"}]}

    def put_events(self, **_: Any) -> dict[str, Any]:
        return {"FailedEntryCount": 1, "Entries": [{"ErrorCode": "ThrottlingException"}]}


def test_a_failure_inside_a_good_answer_is_an_error() -> None:
    refusing: Any = Refusing()

    with pytest.raises(SluiceError, match="too busy"):
        SQSKicks(refusing, "queue").kick(["a"])
    with pytest.raises(SluiceError, match="too busy"):
        SQSCommands(refusing, "queue").send(CLUSTER, ["w1"])
    with pytest.raises(SluiceError, match="too busy"):
        SQSDeadLetters(refusing, {"q": "queue"}).remove("q", [DeadLetter("a", "r", "")])
    with pytest.raises(SluiceError, match="ThrottlingException"):
        EventBridgeBus(refusing, "bus").publish([Happening(a_workload(), NOW, "Submitted", "")])


class Listening:
    """Keeps the details of what is put on the bus."""

    def __init__(self) -> None:
        self.heard: list[dict[str, Any]] = []
        self.calls = 0

    def put_events(self, Entries: list[dict[str, Any]]) -> dict[str, Any]:  # noqa: N803, AWS's name
        self.heard += [json.loads(entry["Detail"]) for entry in Entries]
        self.calls += 1
        return {"FailedEntryCount": 0}


def test_what_nobody_listens_to_is_not_put_on_the_bus() -> None:
    listening: Any = Listening()
    bus = EventBridgeBus(listening, "bus", frozenset({"Dispatched", "QuotaReleased"}))
    dispatched = Happening(a_workload(), NOW, "Dispatched", "")

    bus.publish([dispatched])
    assert listening.calls == 0

    bus.publish([dispatched, Happening(a_workload(), NOW + 1, "Failed", "exit code 3")])
    assert [each["data"]["message"] for each in listening.heard] == ["exit code 3"]


@pytest.mark.stack
def test_happenings_reach_subscribers_as_cloud_events(client: Client) -> None:
    sqs, events = client("sqs"), client("events")
    bus, queue = f"bus-{uuid.uuid4().hex[:8]}", a_queue(sqs)
    arn = sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=["QueueArn"])["Attributes"]
    events.create_event_bus(Name=bus)
    events.put_rule(Name="all", EventBusName=bus, EventPattern=json.dumps({"source": ["sluice"]}))
    events.put_targets(
        Rule="all", EventBusName=bus, Targets=[{"Id": "queue", "Arn": arn["QueueArn"]}]
    )
    rejected = a_workload("bad", state=State.REJECTED, reason=StatusReason("X", "y"))
    lines = [Happening(a_workload(f"w{n}"), NOW, "Submitted", "hello") for n in range(11)]

    EventBridgeBus(events, bus).publish([*lines, Happening(rejected, NOW, "Rejected", "y")])

    heard = [json.loads(message["Body"]) for message in received(sqs, queue)]
    by_id = {each["detail"]["subject"]: each for each in heard}
    assert set(by_id) == {*(f"w{n}" for n in range(11)), "bad"}
    assert by_id["w3"]["detail-type"] == "Workload State Change"
    assert by_id["w3"]["detail"]["type"] == "dev.sluice.workload.submitted.v1"
    assert by_id["w3"]["detail"]["data"]["phase"] == "PENDING"
    assert by_id["bad"]["detail-type"] == "Workload Rejected"
    assert by_id["bad"]["detail"]["data"]["reason"]["code"] == "X"


def test_an_observer_is_woken_only_while_none_is_at_work() -> None:
    calls: list[dict[str, Any]] = []

    class Lambda:
        def invoke(self, **arguments: Any) -> None:
            calls.append(arguments)

    class Lease:
        until = 0

        def expires(self, _: str) -> int:
            return self.until

    lease, clock, functions = Lease(), FakeClock(), Lambda()
    observers = LambdaObservers(functions, "observe", lease, clock)  # type: ignore[arg-type]

    observers.wake(CLUSTER)
    assert [json.loads(call["Payload"]) for call in calls] == [{"cluster": CLUSTER}]
    assert calls[0]["InvocationType"] == "Event"

    lease.until = clock.now() + 1
    observers.wake(CLUSTER)
    assert len(calls) == 1
