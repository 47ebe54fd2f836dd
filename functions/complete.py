"""Answers the Step Functions tasks that wait for a workload."""

from __future__ import annotations

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
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = Metrics()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    Metric.TASKS_ANSWERED.add_to(metrics, 0)
    return process_partial_response(
        event=event, record_handler=complete, processor=processor, context=context
    )


def complete(record: SQSRecord) -> None:
    key = record.json_body["completion"]
    try:
        with bootstrap.noting()("complete"):
            told = bootstrap.complete()(key)
    except Exception:
        logger.exception("tasks not answered", extra={"completion": key})
        raise
    Metric.TASKS_ANSWERED.add_to(metrics, told.answered)
    if told.refused:
        logger.warning("tasks had ended", extra={"completion": key, "said": told.refused})
