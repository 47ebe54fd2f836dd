"""Runs admission cycles for every root cohort that is kicked."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger, Metrics
from sluice import bootstrap
from sluice.errors import KeptConflicting
from sluice.metrics import Metric
from sluice.ports import News

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

NO_NEWS = News(frozenset(), frozenset())
logger = Logger()
metrics = Metrics()


def news_in(body: str) -> News | None:
    """Where a kick says to look; None: everywhere."""
    try:
        said = json.loads(body)
        return News(frozenset(said["queues"]), frozenset(said["namespaces"]))
    except (ValueError, KeyError, TypeError):
        return None


@logger.inject_lambda_context
@metrics.log_metrics
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """One cycle serves all kicks of a root in the batch; a root that fails comes back alone."""
    kicked: dict[str, list[str]] = {}
    newest: dict[str, int] = {}
    news: dict[str, News | None] = {}
    for record in event["Records"]:
        root = record["attributes"]["MessageGroupId"]
        kicked.setdefault(root, []).append(record["messageId"])
        newest[root] = max(newest.get(root, 0), int(record["attributes"]["SentTimestamp"]))
        known, more = news.get(root, NO_NEWS), news_in(record["body"])
        news[root] = None if known is None or more is None else known | more
    failed: list[str] = []
    for root, messages in kicked.items():
        try:
            with bootstrap.noting()("admit", root):
                outcome = bootstrap.admit()(root, sent_at=newest[root], news=news[root])
        except KeptConflicting as error:
            # A fresh kick, because this one would block its root until it is visible again.
            logger.warning("pass given up", extra={"root": root, "error": str(error)})
            bootstrap.kicks().kick([root])
            continue
        except Exception:  # one root's trouble must not hold up the others
            logger.exception("pass failed", extra={"root": root})
            failed += messages
            continue
        if outcome.unrecorded:
            lost = {"root": root, "recordings": outcome.unrecorded}
            logger.warning("recordings of passes could not be written", extra=lost)
        Metric.ADMITTED_WORKLOADS.add_to(metrics, outcome.admitted)
        Metric.LEDGER_CONFLICTS.add_to(metrics, outcome.conflicts)
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}
