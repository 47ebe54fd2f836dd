"""Batch writes that insist until DynamoDB has taken every item."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Sequence

    from mypy_boto3_dynamodb import DynamoDBClient

BATCH_WRITE = 25


def put_all(client: DynamoDBClient, table: str, items: Sequence[dict[str, Any]]) -> None:
    """Put items unconditionally; the SDK does not retry what a throttled batch leaves over."""
    for first in range(0, len(items), BATCH_WRITE):
        left: Any = [{"PutRequest": {"Item": item}} for item in items[first : first + BATCH_WRITE]]
        attempt = 0
        while left:
            answer = client.batch_write_item(RequestItems={table: left})
            left = answer.get("UnprocessedItems", {}).get(table, [])
            if left:
                time.sleep(min(0.05 * 2**attempt, 1.0))
                attempt += 1
