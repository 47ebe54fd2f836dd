"""The api: IAM-signed HTTPS through a Function URL; JSON in, JSON out."""

from __future__ import annotations

import base64
import json
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

from aws_lambda_powertools import Logger
from sluice import bootstrap
from sluice.core.values import strict_json
from sluice.usecases.api import Api, Call
from sluice.usecases.callers import Caller, authority
from sluice.usecases.refused import InvalidError, RefusedError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()


@logger.inject_lambda_context
def handler(
    event: dict[str, Any], context: LambdaContext, api: Api | None = None
) -> dict[str, Any]:
    """Every refusal is an answer; only our own faults end as status 500, with the request's id."""
    account = context.invoked_function_arn.split(":")[4]
    if "Records" in event:
        return hear(event, account)
    try:
        return _answer(200, respond(event, api or bootstrap.api(), account))
    except RefusedError as refused:
        error = {"code": refused.code, "message": refused.message, "errors": refused.errors}
        if refused.hint:
            error["hint"] = refused.hint
        return _answer(refused.status, {"error": error})
    except Exception:
        logger.exception("request failed")
        message = f"internal error; its log carries the id {context.aws_request_id}"
        return _answer(500, {"error": {"code": "Internal", "message": message, "errors": []}})


def hear(event: dict[str, Any], account: str) -> dict[str, Any]:
    """Answers of admission checks, by a queue; only our own faults bring one again."""
    failed: list[str] = []
    for record in event["Records"]:
        try:
            if refused := bootstrap.heard_answers().take(record["body"], account=account):
                logger.warning("answer not taken", extra={"cause": refused})
        except Exception:  # its neighbours go on
            logger.exception("answer not recorded")
            failed.append(record["messageId"])
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def respond(event: dict[str, Any], api: Api, account: str) -> Any:
    """Who calls, what is asked, and the use case's answer. Raises RefusedError."""
    caller = authority(Caller.of(event), api.catalog.snapshot(), account=account)
    path = event.get("rawPath", "/").strip("/")
    call = Call(
        method=event["requestContext"]["http"]["method"],
        path=tuple(unquote(segment) for segment in path.split("/")),
        caller=caller,
        query=event.get("queryStringParameters") or {},
        body=_body(event),
    )
    return api(call)


def _body(event: dict[str, Any]) -> Any:
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


def _answer(status: int, document: Any) -> dict[str, Any]:
    return {
        "statusCode": status,
        "headers": {"content-type": "application/json", "cache-control": "no-store"},
        "body": json.dumps(document, ensure_ascii=False),
    }
