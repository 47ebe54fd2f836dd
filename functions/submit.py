"""Takes submissions from SQS: every message becomes a record, PENDING or REJECTED."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from sluice import bootstrap
from sluice.metrics import Metric
from sluice.usecases.admitting.submit import Message

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """The whole batch at once, so that records are written together; only our own faults retry."""
    messages = [message_of(record) for record in event["Records"]]
    with bootstrap.noting()("submit"):
        outcome = bootstrap.submit()(messages)
    Metric.SUBMISSIONS_ACCEPTED.add_to(metrics, outcome.accepted)
    Metric.SUBMISSIONS_REJECTED.add_to(metrics, outcome.rejected)
    for failure in outcome.failed:
        logger.error("submission not recorded; it will be tried again", extra=failure.fields())
        bootstrap.noting().note("submit", "", failure.error)
    return {"batchItemFailures": [{"itemIdentifier": f.message_id} for f in outcome.failed]}


def message_of(record: dict[str, Any]) -> Message:
    return Message(
        id=record["messageId"],
        sender=record["attributes"].get("SenderId", ""),
        sent_at=int(record["attributes"].get("SentTimestamp", "0")),
        body=record["body"],
        from_bus=record["eventSourceARN"].rsplit(":", 1)[-1] in bootstrap.queues_of_events(),
    )
