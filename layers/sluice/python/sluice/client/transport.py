"""Carries requests to the api: HTTPS to its Function URL, signed with the caller's credentials."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol
from urllib.parse import quote, urlencode

from sluice.client.errors import ControlPlaneUnavailableError

TIMEOUT_SECONDS = 35  # a little more than the function's own limit


@dataclass(frozen=True)
class ApiRequest:
    """One call. `path` segments are separate, so an id cannot change the path."""

    method: str
    path: tuple[str, ...]
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None


@dataclass(frozen=True)
class ApiResponse:
    """Status and decoded JSON; `document` is None for an answer that is no JSON."""

    status: int
    document: Any


class Transport(Protocol):
    """Sends one request to the api and returns its answer. Raises ControlPlaneUnavailableError."""

    def __call__(self, request: ApiRequest) -> ApiResponse: ...


class FunctionUrl:
    """Signs for service `lambda` (SigV4) and keeps the connection between calls."""

    def __init__(self, url: str, region: str, credentials: Any) -> None:
        import urllib3  # noqa: PLC0415 - a verb pays only for what it uses

        self.url, self.region, self.credentials = url.rstrip("/"), region, credentials
        self.pool = urllib3.PoolManager(
            timeout=urllib3.Timeout(connect=5, read=TIMEOUT_SECONDS), retries=False
        )

    def __call__(self, request: ApiRequest) -> ApiResponse:
        import urllib3  # noqa: PLC0415 - a verb pays only for what it uses
        from botocore.auth import SigV4Auth  # noqa: PLC0415 - a verb pays only for what it uses
        from botocore.awsrequest import AWSRequest  # noqa: PLC0415 - a verb pays only for what it uses

        path = "/".join(quote(segment, safe="") for segment in request.path)
        query = f"?{urlencode(request.query, quote_via=quote)}" if request.query else ""
        body = b"" if request.body is None else json.dumps(request.body).encode()
        signed = AWSRequest(
            method=request.method,
            url=f"{self.url}/{path}{query}",
            data=body,
            headers={"content-type": "application/json"} if body else {},
        )
        SigV4Auth(self.credentials, "lambda", self.region).add_auth(signed)
        try:
            answer = self.pool.request(
                request.method,
                str(signed.url),
                body=body or None,
                headers=dict(signed.headers.items()),
            )
        except urllib3.exceptions.HTTPError as error:
            raise ControlPlaneUnavailableError(
                f"the api at {self.url} does not answer: {error}",
                hint="is the stack up? `sluice config show` names the source of this address",
            ) from error
        return ApiResponse(answer.status, _decoded(answer.data))


def _decoded(body: bytes) -> Any:
    try:
        return json.loads(body)
    except ValueError:
        return None
