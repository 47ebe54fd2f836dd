"""Names of the environment variables of the functions: infra sets them, the wiring reads them."""

from __future__ import annotations

from enum import StrEnum
from typing import Final

BUCKET: Final = "SLUICE_BUCKET"
BUS_NAME: Final = "SLUICE_BUS_NAME"
EVENTS_OMITTED: Final = "SLUICE_EVENTS_OMITTED"
"""Kinds of lifecycle events that are not published, separated by commas."""
EVENTS_QUEUE: Final = "SLUICE_EVENTS_QUEUE"
"""Name of the queue whose sender is the bus."""
DEAD_LETTERS: Final = "SLUICE_DEAD_LETTERS"
"""`queue=name,…`: names of the dead-letter queues, whose URLs would not fit into 4 KB."""
INTERRUPTIONS_QUEUE: Final = "SLUICE_INTERRUPTIONS_QUEUE"
"""Name of the queue to which EventBridge, `api` and `observe` send, and no node agent."""
METRICS_NAMESPACE: Final = "POWERTOOLS_METRICS_NAMESPACE"
SERVICE_NAME: Final = "POWERTOOLS_SERVICE_NAME"
LOG_LEVEL: Final = "LOG_LEVEL"


class Table(StrEnum):
    """The DynamoDB tables; infra/state.py has their keys and indexes."""

    WORKLOADS = "Workloads"
    LEDGERS = "Ledgers"
    CATALOG = "Catalog"
    MANIFESTS = "Manifests"
    TIMELINE = "Timeline"
    NODES = "Nodes"
    MIGRATIONS = "Migrations"


def table_name(table: str) -> str:
    return f"SLUICE_{table.upper()}_TABLE"


def queue_url(queue: str) -> str:
    return f"SLUICE_{queue.upper()}_QUEUE_URL"


def function_name(function: str) -> str:
    return f"SLUICE_{function.upper()}_FUNCTION"
