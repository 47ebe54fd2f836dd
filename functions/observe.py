"""Watches one cluster for most of a minute; the Scheduler starts the next run."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

WATCH_MS = 58_500  # the next run takes over after a minute
logger = Logger()


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> None:
    cluster, until = event["cluster"], bootstrap.clock().now() + WATCH_MS
    observe, noting = bootstrap.observe(), bootstrap.noting()
    try:
        with noting("observe", cluster):
            observe(cluster, owner=context.aws_request_id, until=until)
    finally:
        for problem in observe.problems.take():
            logger.warning("not done", extra={"cluster": cluster, "cause": str(problem)})
            noting.note("observe", cluster, problem)
