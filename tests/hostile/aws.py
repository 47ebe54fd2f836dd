"""Faults of AWS, injected by a seed between botocore and moto, as the services document them.

`HostileAWS` stands before moto in the client's own event `before-send`, so the adapters, botocore's
retries and the serializers are those that are deployed.
"""

from __future__ import annotations

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

from botocore.awsrequest import AWSResponse
from moto.core.models import botocore_stubber

SINGLE_WRITES = ("PutItem", "UpdateItem", "DeleteItem")
BATCHES = {
    "BatchGetItem": ("Responses", "UnprocessedKeys"),
    "BatchWriteItem": ("", "UnprocessedItems"),
}
TRANSACTION = "TransactWriteItems"
OK, REFUSED, BROKEN = 200, 400, 500


class Body:
    def __init__(self, content: bytes) -> None:
        self.content = content

    def stream(self) -> Iterator[bytes]:
        yield self.content


@dataclass
class HostileAWS:
    """Each request meets a fault with this probability; `injected` counts them by kind."""

    seed: int
    chance: float = 0.15
    injected: Counter[str] = field(default_factory=Counter)
    dice: random.Random = field(init=False)
    _indexes: dict[bytes, list[bytes]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)

    def stand_before(self, client: Any) -> None:
        client.meta.events.register_first("before-send.dynamodb", self._answer)

    def _answer(self, event_name: str, request: Any, **_: object) -> AWSResponse | None:
        operation = event_name.rpartition(".")[2]
        if self.dice.random() >= self.chance:
            return self._remembered(event_name, request)
        kind, answer = self.dice.choice(list(self._faults(operation, request)))
        self.injected[f"{operation}: {kind}"] += 1
        return answer(event_name, request)

    def _faults(
        self, operation: str, request: Any
    ) -> Iterator[tuple[str, Callable[[str, Any], AWSResponse | None]]]:
        """The faults that this operation may meet."""
        yield "throttled", self._refusal("ProvisionedThroughputExceededException")
        yield "5xx before the effect", self._refusal("InternalServerError", BROKEN)
        yield "5xx after the effect", self._lost_answer
        yield "throttled by the account", self._refusal("ThrottlingException")
        if operation in SINGLE_WRITES:
            yield "transaction conflict", self._refusal("TransactionConflictException")
        if operation == TRANSACTION:
            yield "transaction conflict", self._canceled
            yield "transaction in progress", self._refusal("TransactionInProgressException")
        if operation in BATCHES:
            yield "unprocessed", self._left_over
        if request.body in self._indexes:
            yield "lagging index", self._earlier

    def _remembered(self, event_name: str, request: Any) -> AWSResponse | None:
        """moto's own answer; that of an index is kept, to be given again later."""
        if not event_name.endswith(".Query") or b'"IndexName"' not in request.body:
            return None
        answer = _by_moto(event_name, request)
        self._indexes.setdefault(request.body, []).append(answer.content)
        return answer

    def _refusal(self, code: str, status: int = REFUSED) -> Callable[[str, Any], AWSResponse]:
        return lambda _, request: _response(
            request, status, {"__type": f"com.amazonaws.dynamodb.v20120810#{code}", "message": "m"}
        )

    def _lost_answer(self, event_name: str, request: Any) -> AWSResponse:
        _by_moto(event_name, request)
        return self._refusal("InternalServerError", BROKEN)(event_name, request)

    def _canceled(self, _event_name: str, request: Any) -> AWSResponse:
        items = json.loads(request.body)["TransactItems"]
        reasons = [{"Code": "None"} for _ in items]
        reasons[self.dice.randrange(len(items))] = {"Code": "TransactionConflict"}
        kind = "com.amazonaws.dynamodb.v20120810#TransactionCanceledException"
        body = {"__type": kind, "Message": "canceled", "CancellationReasons": reasons}
        return _response(request, REFUSED, body)

    def _left_over(self, event_name: str, request: Any) -> AWSResponse:
        """Only some of a batch is done; the rest is for the caller to send again."""
        _, left_field = BATCHES[event_name.rpartition(".")[2]]
        asked = json.loads(request.body)
        ((table, content),) = asked["RequestItems"].items()
        parts = content["Keys"] if isinstance(content, dict) else content
        done = self.dice.randrange(len(parts))

        def some(chosen: list[Any]) -> dict[str, Any]:
            return {table: {**content, "Keys": chosen} if isinstance(content, dict) else chosen}

        answer: dict[str, Any] = {"Responses": {}} if isinstance(content, dict) else {}
        if done:
            request.body = json.dumps({**asked, "RequestItems": some(parts[:done])}).encode()
            answer = json.loads(_by_moto(event_name, request).content)
        return _response(request, OK, {**answer, left_field: some(parts[done:])})

    def _earlier(self, _event_name: str, request: Any) -> AWSResponse:
        content = self.dice.choice(self._indexes[request.body])
        return _response(request, OK, json.loads(content))


def _by_moto(event_name: str, request: Any) -> AWSResponse:
    answer: AWSResponse | None = botocore_stubber(event_name, request)
    assert answer is not None
    return answer


def _response(request: Any, status: int, document: Any) -> AWSResponse:
    headers: Any = {"x-amzn-RequestId": "hostile"}
    return AWSResponse(request.url, status, headers, Body(json.dumps(document).encode()))
