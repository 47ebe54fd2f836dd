"""Turns the Workloads stream into kicks, commands, timeline lines and lifecycle events."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap
from sluice.adapters.workload_items import workload_of
from sluice.usecases.relay import Changed

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> None:
    changes = [change_of(r["dynamodb"]) for r in event["Records"] if wanted(r)]
    bootstrap.relay()(changes)
    logger.info("relayed", extra={"changes": len(changes)})


def wanted(record: dict[str, Any]) -> bool:
    return "NewImage" in record["dynamodb"]


def change_of(record: dict[str, Any]) -> Changed:
    before = workload_of(record["OldImage"]) if record.get("OldImage") else None
    at = int(float(record.get("ApproximateCreationDateTime", 0)) * 1000)
    return Changed(before, workload_of(record["NewImage"]), at)
