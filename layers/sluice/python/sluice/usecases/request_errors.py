"""Requests that are refused: each kind with the code that clients switch on.

RequestError
├── NotFoundError    there is no such thing, or the caller may not know of it
├── AmbiguousError   several things have this prefix
├── ForbiddenError   the caller may not do this
├── InvalidError     the request makes no sense; `errors` names the fields
├── ConflictError    it made sense, but not in the present state
├── UnreachableError a cluster does not answer; worth a retry
└── NoRouteError     the api has no such address, or not this method on it
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

FieldErrors = list[dict[str, str]]


class RequestError(SluiceError):
    """A request that is not granted; the api gives each kind an HTTP status."""

    code = "Invalid"

    def __init__(self, message: str, errors: Sequence[dict[str, str]] = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.errors = list(errors)
        self.hint = hint


class NotFoundError(RequestError):
    """There is no such thing, or the caller may not know of it."""

    code = "NotFound"


class AmbiguousError(RequestError):
    """Several things have this prefix."""

    code = "Ambiguous"


class ForbiddenError(RequestError):
    """The caller may not do this."""

    code = "Forbidden"


class InvalidError(RequestError):
    """The request makes no sense; `errors` names the fields."""

    code = "Invalid"


class ConflictError(RequestError):
    """It made sense, but not in the present state."""

    code = "Conflict"


class UnreachableError(RequestError):
    """A cluster does not answer, or refuses us; worth a retry."""

    code = "Unreachable"


class NoRouteError(RequestError):
    """The api has no such address, or not this method on it."""

    code = "NoSuchRoute"
