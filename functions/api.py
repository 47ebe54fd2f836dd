"""The api: IAM-signed HTTPS through a Function URL; JSON in, JSON out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap
from sluice.api.responses import fault_response, refusal_response, response
from sluice.usecases.request_errors import RequestError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from sluice.api.routes import Api

logger = Logger()


@logger.inject_lambda_context
def handler(
    event: dict[str, Any], context: LambdaContext, api: Api | None = None
) -> dict[str, Any]:
    """Every refusal is an answer; only our own faults end as status 500, with the request's id."""
    if "Records" in event:  # of a queue that was this function's before: there they stay
        raise ValueError("the api takes requests; messages belong to the function of their queue")
    account = context.invoked_function_arn.split(":")[4]
    try:
        return response(200, (api or bootstrap.api())(event, account=account))
    except RequestError as error:
        return refusal_response(error)
    except Exception:
        logger.exception("request failed")
        return fault_response(context.aws_request_id)
