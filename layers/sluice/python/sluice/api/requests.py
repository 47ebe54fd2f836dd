"""A request of the Function URL: who calls, which route, and the fields of query and body."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from sluice.core.values import strict_json
from sluice.usecases.callers import Caller
from sluice.usecases.request_errors import ForbiddenError, InvalidError

if TYPE_CHECKING:
    from sluice.usecases.callers import Authority


@dataclass(frozen=True, slots=True)
class FunctionUrlRequest:
    """One request; `path` has the decoded segments, `parameters` those that the route names."""

    method: str
    path: tuple[str, ...]
    caller: Authority
    query: Mapping[str, str] = field(default_factory=dict)
    body: Any = None
    parameters: Mapping[str, str] = field(default_factory=dict)

    def text(self, name: str) -> str:
        return self.query.get(name, "")

    def number(self, name: str, default: int | None = None, *, most: int = 2**53) -> int:
        """A whole number, at least 0. Raises InvalidError."""
        value = self.query.get(name, "" if default is None else str(default))
        # By its length first: Python refuses to read thousands of digits at all.
        digits = value.isascii() and value.isdigit() and len(value) <= len(str(most))
        if not digits or int(value) > most:
            raise InvalidError(f"{name} must be a whole number from 0 to {most}, not {value!r:.40}")
        return int(value)

    def field(self, name: str, kind: type | tuple[type, ...], default: Any) -> Any:
        """A field of the body, of this JSON type. Raises InvalidError."""
        body = {} if self.body is None else self.body
        if not isinstance(body, dict):
            raise InvalidError("the body must be a JSON object")
        value = body.get(name, default)
        if not isinstance(value, kind) or (isinstance(value, bool) and kind is not bool):
            raise InvalidError(
                f"{name} has the wrong type", [{"field": name, "message": "wrong type"}]
            )
        return value


def caller_of(event: Mapping[str, Any]) -> Caller:
    """The IAM identity that signed a request, as the Function URL vouches for it.

    Raises ForbiddenError for a request without an identity, or not of a Function URL. Whoever may
    invoke the function directly can write all of the event: only IAM refuses that
    (infra/policies.py). What is recognizably no request of a Function URL is refused here too.
    """
    context = event.get("requestContext") or {}
    if "Records" in event or ".lambda-url." not in str(context.get("domainName", "")):
        raise ForbiddenError("the api answers requests of its Function URL only")
    iam = (context.get("authorizer") or {}).get("iam") or {}
    if not iam.get("accountId") or not iam.get("userArn"):
        raise ForbiddenError("the request carries no IAM identity; sign it (service `lambda`)")
    return Caller(iam["accountId"], iam["userArn"], iam.get("userId") or iam.get("callerId") or "")


def path_of(event: Mapping[str, Any]) -> tuple[str, ...]:
    """The segments of the path, each decoded, so that one may hold an encoded slash."""
    return tuple(unquote(part) for part in event.get("rawPath", "/").strip("/").split("/"))


def body_of(event: Mapping[str, Any]) -> Any:
    """The decoded JSON body; None without one. Raises InvalidError."""
    body = event.get("body")
    if not body:
        return None
    try:
        if event.get("isBase64Encoded"):
            body = base64.b64decode(body, validate=True)
        return strict_json.parse(body)
    except ValueError as error:
        raise InvalidError(f"the body is no JSON: {error}") from error
