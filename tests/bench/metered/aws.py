"""Clients of botocore whose requests are answered in this process, at AWS's price and pace."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import boto3
from botocore.awsrequest import AWSResponse
from sluice.adapters.dynamodb_answers import take_as_they_come
from sluice.adapters.dynamodb_conflicts import retry_conflicts
from sluice.bootstrap import CONFIG

from tests.bench.metered.clock import FULL_VCPU_MB, Lanes, VirtualClock
from tests.bench.metered.dynamodb import MeteredDynamoDB

# Milliseconds that a request takes; DynamoDB says its own.
WAITS_MS = {"sqs": 8.0, "s3": 25.0, "events": 15.0, "lambda": 15.0, "ec2": 100.0}


class Body:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def stream(self) -> Iterator[bytes]:
        yield self.content


@dataclass
class MeteredAWS:
    """One account: `dynamodb` has the tables, `sent` the messages by queue URL, `objects` S3's."""

    memory_mb: int = FULL_VCPU_MB
    clock: VirtualClock = field(init=False)
    dynamodb: MeteredDynamoDB = field(default_factory=MeteredDynamoDB)
    sent: dict[str, list[dict[str, Any]]] = field(default_factory=dict)
    objects: dict[str, bytes] = field(default_factory=dict)
    calls: dict[str, int] = field(default_factory=dict)  # of all services, by operation
    _clients: dict[str, Any] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.clock = VirtualClock(self.memory_mb)

    def pool(self, lanes: int = 8) -> Lanes:
        """For every ThreadPoolExecutor of a use case or adapter."""
        return Lanes(self.clock, lanes)

    def client(self, service: str) -> Any:
        """As bootstrap.client makes it; services without an answer here raise at the call."""
        if service not in self._clients:
            made: Any = boto3.client(  # type: ignore[call-overload]
                service,
                region_name="eu-central-1",
                aws_access_key_id="metered",
                aws_secret_access_key="metered",
                config=CONFIG,
            )
            if service == "dynamodb":
                take_as_they_come(made)
                retry_conflicts(made)
            made.meta.events.register_first(f"before-send.{service}", self._answer)
            self._clients[service] = made
        return self._clients[service]

    def _answer(self, event_name: str, request: Any, **_: object) -> AWSResponse:
        self.clock.settle()
        _, service, operation = event_name.split(".")
        self.calls[operation] = self.calls.get(operation, 0) + 1
        body = request.body or b""
        if isinstance(body, str):
            body = body.encode()
        status, content, waits_ms = 200, b"", WAITS_MS.get(service, 15.0)
        if service == "dynamodb":
            status, document = self.dynamodb.answer(operation, body)
            content, waits_ms = (
                json.dumps(document).encode(),
                self.dynamodb.waits_ms(operation, body),
            )
        elif service == "sqs":
            content = json.dumps(self._sqs(json.loads(body))).encode()
        elif service == "s3" and operation == "PutObject":
            self.objects[request.url] = b""  # how much is stored is not what is asked
        elif service == "events":
            entries = json.loads(body)["Entries"]
            content = json.dumps({"FailedEntryCount": 0, "Entries": [{}] * len(entries)}).encode()
        else:
            raise NotImplementedError(f"{service}.{operation}")
        self.clock.skip_cpu()
        self.clock.wait(waits_ms)
        headers: Any = {"x-amzn-RequestId": "metered"}
        return AWSResponse(request.url, status, headers, Body(content))

    def _sqs(self, asked: dict[str, Any]) -> dict[str, Any]:
        """SendMessageBatch and SendMessage."""
        entries = asked.get("Entries", [asked])
        self.sent.setdefault(asked["QueueUrl"], []).extend(entries)
        return {"Successful": [{"Id": each.get("Id", "0")} for each in entries]}
