"""Every minute: kick what waits, audit every ledger, remove a part of what is left over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from sluice import bootstrap
from sluice.metrics import Metric

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()
metrics = Metrics()


@logger.inject_lambda_context
@metrics.log_metrics
def handler(_event: dict[str, Any], _context: LambdaContext) -> None:
    with bootstrap.noting()("sweep"):
        swept = bootstrap.sweep()()
    Metric.LEDGER_DRIFT.add_to(metrics, len(swept.drift))
    if swept.drift:
        logger.error("a ledger differs from its reservations", extra={"drift": swept.drift})
    with bootstrap.noting()("sweep"):
        removed = bootstrap.remove_leftovers()()
    if removed:
        logger.info("archives without a checkpoint are removed", extra={"archives": removed})
