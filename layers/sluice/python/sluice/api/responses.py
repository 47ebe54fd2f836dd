"""Responses of the api: JSON, and an HTTP status for each kind of refusal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, Final

from sluice.usecases.request_errors import (
    AmbiguousError,
    ConflictError,
    ForbiddenError,
    InvalidError,
    NoRouteError,
    NotFoundError,
    RequestError,
    UnreachableError,
)

STATUS: Final[Mapping[type[RequestError], int]] = {
    RequestError: 400,
    ForbiddenError: 403,
    NotFoundError: 404,
    NoRouteError: 405,
    AmbiguousError: 409,
    ConflictError: 409,
    InvalidError: 422,
    UnreachableError: 503,
}


def response(status: int, document: Any) -> dict[str, Any]:
    """What a Function URL expects of its function."""
    return {
        "statusCode": status,
        "headers": {"content-type": "application/json", "cache-control": "no-store"},
        "body": json.dumps(document, ensure_ascii=False),
    }


def refusal_response(error: RequestError) -> dict[str, Any]:
    refusal = {"code": error.code, "message": error.message, "errors": error.errors}
    if error.hint:
        refusal["hint"] = error.hint
    return response(STATUS[type(error)], {"error": refusal})


def fault_response(request_id: str) -> dict[str, Any]:
    """For a fault of ours; its cause is for the log only."""
    message = f"internal error; its log carries the id {request_id}"
    return response(500, {"error": {"code": "Internal", "message": message, "errors": []}})
