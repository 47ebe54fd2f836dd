"""Single writes of DynamoDB that met a transaction on the same item are tried again.

DynamoDB refuses such a write with TransactionConflictException, and botocore does not repeat it.
The write had no effect, so repeating it is safe. Conflicts of transactions with one another are
answered by those who wrote them (TransactionCanceledException).
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient

CODE = "TransactionConflictException"
ATTEMPTS = 8
FIRST_WAIT_SECONDS = 0.02


def retry_conflicts(client: DynamoDBClient) -> None:
    wait: Any = _seconds_to_wait  # botocore types no handler that answers
    client.meta.events.register("needs-retry.dynamodb", wait)


def _seconds_to_wait(
    attempts: int, response: tuple[Any, Mapping[str, Any]] | None, **_: object
) -> float | None:
    """Seconds until the next attempt; None leaves the answer to botocore's own rules."""
    if response is None or attempts >= ATTEMPTS:
        return None
    code = response[1].get("Error", {}).get("Code", "")
    if code != CODE:
        return None
    longest: float = FIRST_WAIT_SECONDS * 2 ** (attempts - 1)
    return longest * random.uniform(0.5, 1.0)  # noqa: S311 - it spreads writers, and guards nothing
