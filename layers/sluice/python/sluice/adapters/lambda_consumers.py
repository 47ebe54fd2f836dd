"""Hands messages to the function of their queue, in the shape in which SQS would bring them."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ReadTimeoutError

from sluice.ports import DeadLetter, Handled

if TYPE_CHECKING:
    from mypy_boto3_lambda import LambdaClient


@dataclass(frozen=True)
class LambdaConsumers:
    """`functions`: queue → function.

    The client, made when it is first needed, must not repeat a call that took too long: the
    function may still be at work.
    """

    client: Callable[[], LambdaClient]
    functions: Mapping[str, str]

    def hand(self, queue: str, letters: Sequence[DeadLetter]) -> Handled:
        """A function that fails as a whole has refused all of them."""
        everything = frozenset(each.id for each in letters)
        payload = json.dumps({"Records": [_record(queue, each) for each in letters]}).encode()
        try:
            answer = self.client().invoke(FunctionName=self.functions[queue], Payload=payload)
        except ReadTimeoutError:
            return Handled(everything, "its function was still at work when we stopped waiting")
        said = json.loads(answer["Payload"].read() or b"null")
        if answer.get("FunctionError") or not isinstance(said, dict):
            message = said.get("errorMessage") if isinstance(said, dict) else None
            return Handled(everything, str(message or "its function failed without a word"))
        failures = said.get("batchItemFailures")
        if failures is None:
            return Handled(everything, "its function does not answer as the consumer of a queue")
        return Handled(frozenset(str(each["itemIdentifier"]) for each in failures))


def _record(queue: str, letter: DeadLetter) -> dict[str, Any]:
    """Source: the example event of AWS Lambda's documentation on SQS.

    Sender and message id are the first ones: who sent it, and which workload it is, stay the same.
    """
    return {
        "messageId": letter.id,
        "receiptHandle": letter.receipt,
        "body": letter.body,
        "attributes": {**letter.attributes},
        "messageAttributes": {},
        "eventSource": "aws:sqs",
        "eventSourceARN": f"arn:aws:sqs:::{queue}",
    }
