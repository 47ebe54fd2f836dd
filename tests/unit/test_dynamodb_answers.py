"""What a client reads is the same, whether botocore has walked through it or not."""

from __future__ import annotations

import json
from base64 import b64encode
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from botocore.awsrequest import AWSResponse
from botocore.exceptions import ClientError
from sluice.adapters.attribute_values import from_item
from sluice.adapters.dynamodb_answers import take_as_they_come

ITEM: dict[str, Any] = {
    "id": {"S": "a"},
    "count": {"N": "12"},
    "packed": {"B": b64encode(b"\x00packed").decode()},
    "gone": {"BOOL": False},
    "nothing": {"NULL": True},
    "runs": {"L": [{"M": {"at": {"N": "1.5"}, "node": {"S": "n"}}}]},
}
PLAIN = {
    "id": "a",
    "count": 12,
    "packed": b"\x00packed",
    "gone": False,
    "nothing": None,
    "runs": [{"at": 1.5, "node": "n"}],
}


class Sent:
    """The body of an answer that no server has sent."""

    def __init__(self, body: bytes) -> None:
        self.body = body

    def stream(self) -> Iterator[bytes]:
        yield self.body


def a_client(answer: dict[str, Any], *, status: int = 200) -> Any:
    client = boto3.client(
        "dynamodb", region_name="us-east-1", aws_access_key_id="a", aws_secret_access_key="b"
    )

    def send(request: Any, **_: object) -> AWSResponse:
        headers: Any = {"x-amzn-RequestId": "r"}
        return AWSResponse(request.url, status, headers, Sent(json.dumps(answer).encode()))

    client.meta.events.register("before-send.dynamodb", send)
    return client


@pytest.fixture(params=["as they come", "by botocore"])
def taken(request: pytest.FixtureRequest) -> Any:
    def make(answer: dict[str, Any], **options: Any) -> Any:
        client = a_client(answer, **options)
        if request.param == "as they come":
            take_as_they_come(client)
        return client

    return make


def test_an_item_is_read(taken: Any) -> None:
    answer = taken({"Item": ITEM}).get_item(TableName="records", Key={"id": {"S": "a"}})

    assert from_item(answer["Item"]) == PLAIN
    assert answer["ResponseMetadata"]["RequestId"] == "r"


def test_an_item_that_is_not_there_is_not_read(taken: Any) -> None:
    answer = taken({}).get_item(TableName="records", Key={"id": {"S": "a"}})

    assert "Item" not in answer


def test_a_batch_brings_its_items_and_what_was_left_over(taken: Any) -> None:
    left = {"records": {"Keys": [{"id": {"S": "b"}}], "ConsistentRead": True}}
    client = taken({"Responses": {"records": [ITEM]}, "UnprocessedKeys": left})

    answer = client.batch_get_item(RequestItems={"records": {"Keys": [{"id": {"S": "a"}}]}})

    assert [from_item(item) for item in answer["Responses"]["records"]] == [PLAIN]
    assert answer["UnprocessedKeys"] == left


def test_a_page_of_a_query_names_where_the_next_one_begins(taken: Any) -> None:
    key = {"id": {"S": "a"}}
    client = taken({"Items": [ITEM], "Count": 1, "LastEvaluatedKey": key})

    answer = client.query(TableName="records", KeyConditionExpression="id = :id")

    assert [from_item(item) for item in answer["Items"]] == [PLAIN]
    assert answer["LastEvaluatedKey"] == key


def test_a_refusal_is_an_error_as_before(taken: Any) -> None:
    kind = "com.amazonaws.dynamodb.v20120810#ResourceNotFoundException"
    client = taken({"__type": kind, "message": "no table"}, status=400)

    with pytest.raises(ClientError, match="no table") as caught:
        client.query(TableName="records", KeyConditionExpression="id = :id")

    assert caught.value.response["Error"]["Code"] == "ResourceNotFoundException"
