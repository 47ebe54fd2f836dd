"""Signed requests to the Function URL, and what becomes of its answers."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest
from botocore.credentials import Credentials
from sluice.client import errors
from sluice.client.api import ApiClient, failure
from sluice.client.transport import ApiRequest, ApiResponse, FunctionUrl

pytestmark = pytest.mark.enable_socket


class Recorder(BaseHTTPRequestHandler):
    """Answers with what it was asked."""

    def answer(self) -> None:
        length = int(self.headers.get("content-length", 0))
        asked = {
            "method": self.command,
            "path": self.path,
            "body": self.rfile.read(length).decode(),
            "authorization": self.headers.get("authorization", ""),
        }
        body = json.dumps(asked).encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    do_GET = do_POST = do_DELETE = answer

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - as its base
        pass


@pytest.fixture
def url() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Recorder)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def test_requests_are_signed_for_lambda_and_segments_cannot_climb(url: str) -> None:
    transport = FunctionUrl(f"{url}/below/", "eu-west-1", Credentials("AK", "secret"))

    asked = transport(
        ApiRequest("POST", ("workloads", "../../x", "hold"), {"a": "b c"}, {"reason": "ü"})
    ).document

    assert asked["path"] == "/below/workloads/..%2F..%2Fx/hold?a=b%20c"
    assert json.loads(asked["body"]) == {"reason": "ü"}
    assert "Credential=AK/" in asked["authorization"]
    assert "/eu-west-1/lambda/aws4_request" in asked["authorization"]
    assert "secret" not in asked["authorization"]


def test_silence_is_an_error_worth_a_retry() -> None:
    transport = FunctionUrl("http://127.0.0.1:9", "eu-west-1", Credentials("AK", "secret"))

    with pytest.raises(errors.ControlPlaneUnavailableError) as caught:
        transport(ApiRequest("GET", ("queues",)))

    assert caught.value.exit_code == 7
    assert "sluice config show" in caught.value.hint


@pytest.mark.parametrize(
    ("status", "code", "exit_code"),
    [
        (404, "NotFound", 3),
        (409, "Ambiguous", 3),
        (403, "Forbidden", 4),
        (422, "Invalid", 5),
        (409, "Conflict", 5),
        (500, "Internal", 7),
        (429, "", 7),
        (418, "", 1),
    ],
)
def test_answers_become_exit_codes(status: int, code: str, exit_code: int) -> None:
    problem = {"code": code, "message": "no", "errors": [{"field": "spec.x", "message": "wrong"}]}

    error = failure(status, {"error": problem})

    assert error.exit_code == exit_code
    assert error.errors == ({"field": "spec.x", "message": "wrong"},)


@pytest.mark.parametrize("document", [None, "x", {"Message": "Forbidden"}, {"error": "x"}])
def test_answers_that_are_not_ours_are_errors_too(document: Any) -> None:
    client = ApiClient(lambda _: ApiResponse(403, document))

    with pytest.raises(errors.PermissionDeniedError):
        client.get("queues")
