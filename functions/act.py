"""Makes clusters match the records that the commands name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from aws_lambda_powertools.utilities.batch import (
    BatchProcessor,
    EventType,
    process_partial_response,
)
from sluice import bootstrap

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)


@logger.inject_lambda_context
def handler(event: dict[str, Any], context: LambdaContext) -> PartialItemFailureResponse:
    return process_partial_response(
        event=event, record_handler=obey, processor=processor, context=context
    )


def obey(record: SQSRecord) -> None:
    command = record.json_body
    try:
        bootstrap.act()(command["cluster"], command["workloads"])
        logger.info("obeyed", extra={"workloads": len(command["workloads"])})
    except Exception:
        logger.exception("command not carried out", extra={"cluster": command.get("cluster")})
        raise
