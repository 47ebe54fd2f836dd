"""The ports TaskTokens, Completions and Tasks."""

from __future__ import annotations

import json
import uuid
from typing import Any

import boto3
import pytest
from botocore.exceptions import ClientError
from botocore.stub import Stubber
from sluice.adapters.s3_task_tokens import S3TaskTokens
from sluice.adapters.sqs_queues import SQSCompletions
from sluice.adapters.step_functions import StepFunctions
from sluice.core.lifecycle.completion import Failure, Success
from sluice.ports import TaskTokens

from tests.contract.aws.test_messages import Client, a_queue, client, received
from tests.fakes import MemoryTaskTokens

__all__ = ["client"]
TOKEN = "AQCE+of/the=task"


@pytest.fixture(params=["memory", pytest.param("aws", marks=pytest.mark.stack)])
def tokens(request: pytest.FixtureRequest) -> TaskTokens:
    if request.param == "memory":
        return MemoryTaskTokens()
    s3 = request.getfixturevalue("client")("s3")
    bucket = f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)
    return S3TaskTokens(s3, bucket)


def test_tokens_lie_below_their_key_until_they_are_forgotten(tokens: TaskTokens) -> None:
    for key, token in (("aa.1", TOKEN), ("aa.1", "two"), ("aa.1", TOKEN), ("aa.12", "three")):
        tokens.put(key, token)

    assert sorted(token for token, _ in tokens.of("aa.1")) == sorted([TOKEN, "two"])
    assert sorted(key for key, _ in tokens.keys("a")) == ["aa.1", "aa.12"]
    assert tokens.keys("b") == []
    oldest = min(since for _, since in tokens.of("aa.1"))
    assert dict(tokens.keys("aa"))["aa.1"] == oldest > 1_700_000_000_000

    tokens.forget("aa.1", TOKEN)
    tokens.forget("aa.1", TOKEN)
    assert [token for token, _ in tokens.of("aa.1")] == ["two"]


@pytest.mark.stack
def test_names_of_tokens_tell_no_token(client: Client) -> None:
    s3, bucket = client("s3"), f"bucket-{uuid.uuid4().hex[:8]}"
    s3.create_bucket(Bucket=bucket)

    S3TaskTokens(s3, bucket).put("aa.1", TOKEN)

    (entry,) = s3.list_objects_v2(Bucket=bucket)["Contents"]
    assert entry["Key"].startswith("tokens/aa.1/")
    assert TOKEN not in entry["Key"]


@pytest.mark.stack
def test_each_key_is_one_message_however_often_it_is_named(client: Client) -> None:
    sqs = client("sqs")
    queue = a_queue(sqs)

    SQSCompletions(sqs, queue).look(["a.1", "b.1", "a.1"])
    SQSCompletions(sqs, queue).look([])

    bodies = [json.loads(message["Body"]) for message in received(sqs, queue)]
    assert sorted(body["completion"] for body in bodies) == ["a.1", "b.1"]


@pytest.fixture
def states() -> Any:
    return boto3.client(
        "stepfunctions", region_name="us-east-1", aws_access_key_id="x", aws_secret_access_key="x"
    )


def test_answers_are_sent_as_step_functions_takes_them(states: Any) -> None:
    with Stubber(states) as stub:
        stub.add_response("send_task_success", {}, {"taskToken": TOKEN, "output": "{}"})
        failed = {"taskToken": TOKEN, "error": "FAILED", "cause": "{}"}
        stub.add_response("send_task_failure", {}, failed)

        assert StepFunctions(states).answer(TOKEN, Success("{}")) == ""
        assert StepFunctions(states).answer(TOKEN, Failure("FAILED", "{}")) == ""
        stub.assert_no_pending_responses()


@pytest.mark.parametrize("code", ["TaskTimedOut", "TaskDoesNotExist", "InvalidToken"])
def test_a_task_that_does_not_wait_is_an_answer(states: Any, code: str) -> None:
    with Stubber(states) as stub:
        stub.add_client_error("send_task_success", code, "Task Timed Out")

        assert StepFunctions(states).answer(TOKEN, Success("{}")) == code


def test_a_missing_right_is_an_error(states: Any) -> None:
    with Stubber(states) as stub:
        stub.add_client_error("send_task_failure", "AccessDeniedException", "no")

        with pytest.raises(ClientError, match="AccessDenied"):
            StepFunctions(states).answer(TOKEN, Failure("FAILED", "{}"))
