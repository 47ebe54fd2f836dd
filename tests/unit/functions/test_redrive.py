"""Dead letters through the handler of their queue: the same sender, the same workload."""

from __future__ import annotations

import io
import json
from typing import Any

import pytest
from botocore.exceptions import ReadTimeoutError
from sluice import bootstrap
from sluice.adapters.lambda_consumers import LambdaConsumers
from sluice.core.values.identity import workload_id
from sluice.ports import DeadLetter

from functions import submit
from tests.unit.api.control_plane import RED, ControlPlane, native
from tests.unit.functions.conftest import Context


class InvokingClient:
    """Lambda, whose only function is `submit`."""

    def invoke(self, *, FunctionName: str, Payload: bytes) -> dict[str, Any]:  # noqa: N803, AWS's
        assert FunctionName == "submit-1"
        said = submit.handler(json.loads(Payload), Context())  # type: ignore[arg-type]
        return {"Payload": io.BytesIO(json.dumps(said).encode())}


class FailingClient:
    def __init__(self, answer: Any, error: str = "Unhandled") -> None:
        self.answer, self.error = answer, error

    def invoke(self, **_: Any) -> dict[str, Any]:
        if isinstance(self.answer, Exception):
            raise self.answer
        return {
            "FunctionError": self.error,
            "Payload": io.BytesIO(json.dumps(self.answer).encode()),
        }


def consumers(client: Any) -> LambdaConsumers:
    return LambdaConsumers(lambda: client, {"submissions": "submit-1"})


def a_letter(name: str, body: str) -> DeadLetter:
    sent = {"SenderId": RED.iam["userId"], "SentTimestamp": "1700000000000"}
    return DeadLetter(name, "receipt", body, sent)


def test_a_document_without_a_key_becomes_the_workload_of_its_first_message(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plane = ControlPlane()
    monkeypatch.setattr(bootstrap, "submit", lambda: plane.submit)
    document = native("job", 1)
    del document["metadata"]["idempotencyKey"]
    plane.dead_letters.queues["submissions"] = [a_letter("message-7", json.dumps(document))]
    plane.consumers.hand = consumers(InvokingClient()).hand  # type: ignore[method-assign]

    _, done = plane.call("POST", "/dead-letters/submissions/redrive")

    assert (done["taken"], done["left"]) == (1, 0)
    record = plane.workloads.rows[workload_id("red", "message-7")]
    assert (record.tenant, record.created_at) == ("red", 1_700_000_000_000)


@pytest.mark.parametrize(
    ("client", "why"),
    [
        (FailingClient({"errorMessage": "no module"}), "no module"),
        (FailingClient(None), "its function failed without a word"),
        (
            FailingClient({"statusCode": 200, "body": "{}"}, error=""),
            "its function does not answer as the consumer of a queue",
        ),
        (
            FailingClient(ReadTimeoutError(endpoint_url="x")),
            "its function was still at work when we stopped waiting",
        ),
    ],
)
def test_a_function_that_fails_as_a_whole_has_taken_nothing(client: Any, why: str) -> None:
    handled = consumers(client).hand("submissions", [a_letter("a", "{}"), a_letter("b", "{}")])

    assert (handled.refused, handled.why) == (frozenset({"a", "b"}), why)
