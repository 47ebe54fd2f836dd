"""Answers of DynamoDB taken as they come: on the wire they are what `from_item` reads.

botocore walks through every attribute of every item by its model to arrive at the same values,
bytes apart, which takes longer than all else that it does for a call that brings records.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

READS = ("GetItem", "BatchGetItem", "Query")
OK = 200


def take_as_they_come(client: DynamoDBClient) -> None:
    """From now on what `client` reads has bytes as base64, as `to_plain` understands them too."""
    for operation in READS:
        client.meta.events.register(f"before-parse.dynamodb.{operation}", _take)


def _take(
    response_dict: dict[str, Any], customized_response_dict: dict[str, Any], **_: object
) -> None:
    if response_dict["status_code"] == OK:  # what is refused is parsed by botocore
        customized_response_dict |= json.loads(response_dict["body"])
        response_dict["body"] = b"{}"
