"""Turns the Workloads stream into kicks, commands, timeline lines and lifecycle events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext
    from sluice.ports import StreamRecord

logger = Logger()


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> None:
    changes = list(stream_records(event))
    with bootstrap.noting()("relay"):
        odd = bootstrap.relay()(changes)
    for error in odd:
        logger.error("record not understood", extra={"cause": f"{type(error).__name__}: {error}"})
    logger.info("relayed", extra={"changes": len(changes)})


def stream_records(event: dict[str, Any]) -> Iterator[StreamRecord]:
    """The records of a batch that this code understands: an odd one must not block its shard.

    Leaving a record out costs only time, since `sweep` and `observe` find what is due.
    """
    for record in event["Records"]:
        try:
            if "NewImage" in record["dynamodb"]:
                yield bootstrap.stream_record(record["dynamodb"])
        except Exception:
            logger.exception("record not understood", extra={"event_id": record.get("eventID")})
