"""Hears that machines go away and moves the work on them."""

from __future__ import annotations

from concurrent.futures import Future
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from sluice import bootstrap
from sluice.metrics import Metric

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from sluice.usecases.migrations.interrupt import NoticeOutcome

logger = Logger()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    # Most batches move nobody; Powertools warns of functions that then have nothing to tell.
    Metric.INTERRUPTED_WORKLOADS.add_to(metrics, 0)
    _, _, _, region, account, *_ = context.invoked_function_arn.split(":")
    bodies = {record["messageId"]: record["body"] for record in event["Records"]}
    trusted = bootstrap.queues_of_interruptions()
    of_agents = {
        record["messageId"]
        for record in event["Records"]
        if record["eventSourceARN"].rsplit(":", 1)[-1] not in trusted
    }
    outcomes = bootstrap.handle_notices()(
        bodies, account=account, region=region, of_agents=of_agents
    )
    return process_partial_response(
        event=event,
        record_handler=lambda record: tell(outcomes[record.message_id]),
        processor=processor,
        context=context,
    )


def tell(outcome: Future[list[NoticeOutcome]]) -> None:
    try:
        with bootstrap.noting()("interrupt"):
            handled = outcome.result()
    except Exception:
        logger.exception("interruption not handled")
        raise
    for each in handled:
        if each.moved or each.ordered:
            Metric.INTERRUPTED_WORKLOADS.add_to(metrics, len(each.moved))
            moved = {"moved": each.moved, "ordered": each.ordered, "repeated": each.repeated}
            logger.info("machine goes away", extra=moved)
        else:
            logger.debug("nothing to do", extra={"dropped": each.dropped})
