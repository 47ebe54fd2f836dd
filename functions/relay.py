"""Turns the Workloads stream into kicks, commands, timeline lines and lifecycle events."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap
from sluice.adapters.workload_items import workload_of
from sluice.usecases.upkeep.relay import Changed

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> None:
    changes = list(changes_in(event))
    with bootstrap.noting()("relay"):
        bootstrap.relay()(changes)
    logger.info("relayed", extra={"changes": len(changes)})


def changes_in(event: dict[str, Any]) -> Iterator[Changed]:
    """What this code understands of a batch: one odd record must not hold up its whole shard.

    Leaving a record out costs only time, since `sweep` and `observe` find what is due.
    """
    for record in event["Records"]:
        try:
            if "NewImage" in record["dynamodb"]:
                yield change_of(record["dynamodb"])
        except (KeyError, TypeError, ValueError):
            logger.exception("record not understood", extra={"event_id": record.get("eventID")})


def change_of(record: dict[str, Any]) -> Changed:
    before = workload_of(record["OldImage"]) if record.get("OldImage") else None
    now = workload_of(record["NewImage"])
    # The stream tells whole seconds, cut off; the record itself often knows better.
    at = int(float(record.get("ApproximateCreationDateTime", 0)) * 1000)
    known = (now.admitted_at, now.dispatched_at, now.started_at, now.finished_at)
    ended = int(now.runs[-1]["ended_at"]) if now.runs else 0
    return Changed(before, now, max(at, ended, *known))
