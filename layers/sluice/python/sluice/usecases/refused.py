"""Answers of the api that are no: each with the code that clients switch on.

Refused
├── NotFoundError    there is no such thing, or the caller may not know of it
├── AmbiguousError   several things have this prefix
├── ForbiddenError   the caller may not do this
├── InvalidError     the request makes no sense; `errors` names the fields
├── ConflictError    it made sense, but not in the present state
└── UnreachableError a cluster does not answer; worth a retry
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.errors import SluiceError

if TYPE_CHECKING:
    from collections.abc import Sequence

FieldErrors = list[dict[str, str]]


class RefusedError(SluiceError):
    """A request that is not granted; `status` is the HTTP status."""

    status = 400
    code = "Invalid"

    def __init__(self, message: str, errors: Sequence[dict[str, str]] = (), hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.errors = list(errors)
        self.hint = hint


class NotFoundError(RefusedError):
    """There is no such thing, or the caller may not know of it."""

    status = 404
    code = "NotFound"


class AmbiguousError(RefusedError):
    """Several things have this prefix."""

    status = 409
    code = "Ambiguous"


class ForbiddenError(RefusedError):
    """The caller may not do this."""

    status = 403
    code = "Forbidden"


class InvalidError(RefusedError):
    """The request makes no sense; `errors` names the fields."""

    status = 422
    code = "Invalid"


class ConflictError(RefusedError):
    """It made sense, but not in the present state."""

    status = 409
    code = "Conflict"


class UnreachableError(RefusedError):
    """A cluster does not answer, or refuses us; worth a retry."""

    status = 503
    code = "Unreachable"
