"""The api as methods. HTTP answers become values or exceptions."""

from collections.abc import Iterator, Mapping
from typing import Any

from sluice.client.errors import (
    AmbiguousNameError,
    ControlPlaneUnavailableError,
    IdempotencyKeyReusedError,
    ObjectNotFoundError,
    PermissionDeniedError,
    RequestRefusedError,
    SluiceClientError,
)
from sluice.client.transport import ApiRequest, Transport

Json = dict[str, Any]

ERROR_STATUS = 400
ERRORS: Mapping[int, type[SluiceClientError]] = {
    400: RequestRefusedError,
    401: PermissionDeniedError,
    403: PermissionDeniedError,
    404: ObjectNotFoundError,
    409: RequestRefusedError,
    413: RequestRefusedError,
    422: RequestRefusedError,
    429: ControlPlaneUnavailableError,
    500: ControlPlaneUnavailableError,
    502: ControlPlaneUnavailableError,
    503: ControlPlaneUnavailableError,
    504: ControlPlaneUnavailableError,
}
CODES: Mapping[str, type[SluiceClientError]] = {
    "Ambiguous": AmbiguousNameError,
    "KeyReused": IdempotencyKeyReusedError,
}
HINTS: Mapping[type[SluiceClientError], str] = {
    PermissionDeniedError: "ask for a Tenant that names your role, or try --profile",
    ControlPlaneUnavailableError: "try again; `sluice doctor` shows details",
}
PAGE = 200


class ApiClient:
    """Requests to the api of the control plane."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def workloads(self, *, limit: int, **filters: str) -> Iterator[Json]:
        """Workloads, newest first, at most `limit`; filters are those of `GET /workloads`."""
        query = {name: value for name, value in filters.items() if value}
        cursor = ""
        while limit > 0:
            page = self.get(
                "workloads",
                **query,
                limit=str(min(limit, PAGE)),
                **({"cursor": cursor} if cursor else {}),
            )
            yield from page["items"]
            limit -= len(page["items"])
            cursor = page.get("cursor", "")
            if not cursor:
                return

    def workload(self, reference: str) -> Json:
        """One workload by id or unique prefix. Raises ObjectNotFoundError."""
        found: Json = self.get("workloads", reference)
        return found

    def get(self, *path: str, **query: str) -> Any:
        return self._answer(ApiRequest("GET", path, query))

    def post(self, *path: str, body: Any = None) -> Any:
        return self._answer(ApiRequest("POST", path, body={} if body is None else body))

    def delete(self, *path: str, **query: str) -> Any:
        return self._answer(ApiRequest("DELETE", path, query))

    def _answer(self, request: ApiRequest) -> Any:
        response = self.transport(request)
        if response.status < ERROR_STATUS:
            return response.document
        raise failure(response.status, response.document)


def failure(status: int, document: Any) -> SluiceClientError:
    """The exception for an error answer. The body is not always one of the api's own."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        text = (
            document.get("Message", document.get("message")) if isinstance(document, dict) else None
        )
        error = {"message": str(text or f"the api answered with status {status}")}
    kind = CODES.get(str(error.get("code")), ERRORS.get(status, SluiceClientError))
    hint = str(error.get("hint") or HINTS.get(kind, ""))
    return kind(str(error.get("message", status)), hint=hint, errors=error.get("errors") or ())
