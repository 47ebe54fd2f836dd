"""Makes clusters match the records that the commands name."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from aws_lambda_powertools import Logger
from sluice import bootstrap
from sluice.errors import ClusterError

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.typing import LambdaContext

logger = Logger()


@logger.inject_lambda_context
def handler(event: dict[str, Any], _context: LambdaContext) -> dict[str, Any]:
    """All commands of a cluster at once: they share their reads.

    If that fails, each by itself, so that a poisoned one holds up no other.
    """
    commands: dict[str, dict[str, list[str]]] = {}
    steering: dict[str, list[str]] = {}
    failed = []
    for record in event["Records"]:
        try:
            command = json.loads(record["body"])
            if command.get("pools"):
                steering.setdefault(command["cluster"], []).append(record["messageId"])
                continue
            of_cluster = commands.setdefault(command["cluster"], {})
            of_cluster[record["messageId"]] = [*command["workloads"]]
        except (ValueError, TypeError, KeyError, AttributeError):
            logger.exception("command not understood")
            failed.append(record["messageId"])
    for cluster, messages in commands.items():
        failed += failures(cluster, messages)
    for cluster, asked in steering.items():
        failed += [] if steered(cluster) else asked
    return {"batchItemFailures": [{"itemIdentifier": message} for message in failed]}


def failures(cluster: str, messages: dict[str, list[str]]) -> list[str]:
    """The messages that were not carried out."""
    trouble = attempt(cluster, [workload for ids in messages.values() for workload in ids])
    if trouble is None:
        return []
    silent = isinstance(trouble, ClusterError) and not trouble.status
    if silent or len(messages) == 1:  # a cluster that does not answer is waited for once
        return [*messages]
    return [message for message, ids in messages.items() if attempt(cluster, ids)]


def attempt(cluster: str, workloads: list[str]) -> Exception | None:
    """Why it failed, if it did."""
    try:
        with bootstrap.noting()("act", cluster):
            bootstrap.act()(cluster, workloads)
    except Exception as error:  # its messages come again; those of other clusters go on
        logger.exception("commands not carried out", extra={"cluster": cluster})
        return error
    logger.info("obeyed", extra={"cluster": cluster, "workloads": len(workloads)})
    return None


def steered(cluster: str) -> bool:
    try:
        with bootstrap.noting()("act", cluster):
            written = bootstrap.steer_pools()(cluster)
    except Exception:  # the message comes again
        logger.exception("pools not steered", extra={"cluster": cluster})
        return False
    logger.info("pools steered", extra={"cluster": cluster, "pools": written})
    return True
