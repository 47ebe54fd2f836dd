"""The api as methods; HTTP answers become values or errors of this command."""

from collections.abc import Iterator, Mapping
from typing import Any

from cli.errors import (
    AmbiguousError,
    CommandError,
    DeniedError,
    KeyReusedError,
    NotFoundError,
    RefusedError,
    UnavailableError,
)
from cli.transport import Request, Transport

Json = dict[str, Any]

ERROR_STATUS = 400
ERRORS: Mapping[int, type[CommandError]] = {
    400: RefusedError,
    401: DeniedError,
    403: DeniedError,
    404: NotFoundError,
    409: RefusedError,
    413: RefusedError,
    422: RefusedError,
    429: UnavailableError,
    500: UnavailableError,
    502: UnavailableError,
    503: UnavailableError,
    504: UnavailableError,
}
CODES: Mapping[str, type[CommandError]] = {
    "Ambiguous": AmbiguousError,
    "KeyReused": KeyReusedError,
}
HINTS: Mapping[type[CommandError], str] = {
    DeniedError: "ask an administrator for a Tenant that names your role, or try --profile",
    UnavailableError: "try again; `sluice doctor` tells more",
}
PAGE = 200


class Client:
    """What commands ask of the control plane."""

    def __init__(self, transport: Transport) -> None:
        self.transport = transport

    def workloads(self, *, limit: int, **filters: str) -> Iterator[Json]:
        """Workloads, newest first, at most `limit`; filters are those of `GET /workloads`."""
        query = {name: value for name, value in filters.items() if value}
        cursor = ""
        while limit > 0:
            page = self.ask(
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
        """One workload by id or unique prefix. Raises NotFoundError."""
        found: Json = self.ask("workloads", reference)
        return found

    def ask(self, *path: str, **query: str) -> Any:
        return self._answer(Request("GET", path, query))

    def tell(self, *path: str, body: Any = None) -> Any:
        return self._answer(Request("POST", path, body={} if body is None else body))

    def delete(self, *path: str, **query: str) -> Any:
        return self._answer(Request("DELETE", path, query))

    def _answer(self, request: Request) -> Any:
        response = self.transport(request)
        if response.status < ERROR_STATUS:
            return response.document
        raise failure(response.status, response.document)


def failure(status: int, document: Any) -> CommandError:
    """An error answer as an error of the command; the body is not always ours."""
    error = document.get("error") if isinstance(document, dict) else None
    if not isinstance(error, dict):
        text = (
            document.get("Message", document.get("message")) if isinstance(document, dict) else None
        )
        error = {"message": str(text or f"the api answered with status {status}")}
    kind = CODES.get(str(error.get("code")), ERRORS.get(status, CommandError))
    hint = str(error.get("hint") or HINTS.get(kind, ""))
    return kind(str(error.get("message", status)), hint=hint, errors=error.get("errors") or ())
