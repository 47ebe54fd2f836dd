"""A single write that meets a transaction is repeated; everything else is as botocore has it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from sluice.adapters import dynamodb_conflicts
from sluice.adapters.dynamodb_conflicts import ATTEMPTS, retry_conflicts


class Body:
    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self) -> Iterator[bytes]:
        yield self.body


class Table:
    """Refuses the first `refusals` requests with an error of this code."""

    def __init__(self, refusals: int, code: str) -> None:
        self.refusals, self.code, self.requests = refusals, code, 0
        self.client: Any = boto3.client(
            "dynamodb", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
        )
        self.client.meta.events.register("before-send.dynamodb", self.answer)
        retry_conflicts(self.client)

    def answer(self, request: Any, **_: object) -> AWSResponse:
        self.requests += 1
        refused = self.requests <= self.refusals
        body = {"__type": f"com.amazonaws.dynamodb#{self.code}", "message": "m"} if refused else {}
        headers: Any = {"x-amzn-RequestId": "r"}
        return AWSResponse(
            request.url, 400 if refused else 200, headers, Body(json.dumps(body).encode())
        )

    def put(self) -> None:
        self.client.put_item(TableName="t", Item={"id": {"S": "a"}})


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(dynamodb_conflicts, "FIRST_WAIT_SECONDS", 0.0001)


def test_a_write_that_meets_transactions_is_repeated_until_they_are_over() -> None:
    table = Table(3, "TransactionConflictException")

    table.put()

    assert table.requests == 4


def test_it_is_given_up_after_some_attempts() -> None:
    table = Table(100, "TransactionConflictException")

    with pytest.raises(ClientError, match="TransactionConflict"):
        table.put()

    assert table.requests == ATTEMPTS


def test_a_failed_condition_is_no_conflict() -> None:
    table = Table(1, "ConditionalCheckFailedException")

    with pytest.raises(ClientError, match="ConditionalCheckFailed"):
        table.put()

    assert table.requests == 1
