"""Takes answers of admission checks that come as events, by the queue `answers`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> dict[str, Any]:
    """A refused answer is logged; only our own faults bring a message again."""
    account = context.invoked_function_arn.split(":")[4]
    failed: list[str] = []
    for record in event["Records"]:
        try:
            with bootstrap.noting()("answer"):
                refused = bootstrap.answer().take(record["body"], account=account)
            if refused:
                logger.warning("answer not taken", extra={"cause": refused})
        except Exception:  # its neighbours go on
            logger.exception("answer not recorded")
            failed.append(record["messageId"])
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}
