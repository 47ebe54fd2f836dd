"""Plans the NodePools of clusters: every minute each, and at once where the ledger grew."""

from __future__ import annotations

import json
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
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """A schedule names one cluster; messages may name the same one often, and one look serves."""
    if "Records" not in event:
        look_at(event["cluster"])
        return {}
    asked: dict[str, list[str]] = {}
    for record in event["Records"]:
        asked.setdefault(cluster_of(record), []).append(record["messageId"])
    failed: list[str] = []
    for cluster, messages in asked.items():
        try:
            look_at(cluster)
        except Exception:  # one cluster's trouble must not hold up the others
            logger.exception("cluster not planned", extra={"cluster": cluster})
            failed += messages
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def cluster_of(record: dict[str, Any]) -> str:
    return str(json.loads(record["body"])["cluster"])


def look_at(cluster: str) -> None:
    with bootstrap.noting()("provision", cluster):
        done = bootstrap.provision()(cluster)
    Metric.PODS_WAITING_FOR_NODES.add_to(metrics, done.waiting_pods)
    Metric.NODE_POOLS_CLOSED.add_to(metrics, len(done.closed))
    Metric.SOLD_OUT_REQUEUES.add_to(metrics, len(done.requeued))
    if done.without_karpenter:
        logger.warning("no Karpenter here: no NodePools to plan", extra={"cluster": cluster})
    for ban in done.barred:
        told = {"offering": str(ban.offering), "cause": ban.cause, "until": ban.until}
        logger.warning("barred", extra={"cluster": cluster, **told, "said": ban.message})
    if done.changed or done.requeued:
        logger.info(
            "planned",
            extra={"cluster": cluster, "pools": done.changed, "requeued": done.requeued},
        )
