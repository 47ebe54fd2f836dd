"""Tables that several parts read: queues, environment variables and metrics say the same to all."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest
from sluice.environment import Table
from sluice.message_queues import QUEUES
from sluice.metrics import Metric

from infra.functions import FUNCTIONS
from infra.state import TABLES

CLONE = Path(__file__).parents[2]
HANDLERS = sorted((CLONE / "functions").glob("[a-z]*.py"))


def queue_table() -> str:
    """The queues as docs/architecture.md shows them."""
    rows = [
        "| queue | function | visibility | tries | batching window | alarm at an age of |",
        "|---|---|---|---|---|---|",
    ]
    for queue in QUEUES:
        window = f"{queue.window_seconds} s" if queue.window_seconds else "–"
        rows.append(
            f"| `{queue.name}` | {queue.consumer} | {queue.visibility_seconds} s | "
            f"{queue.receives} | {window} | {queue.oldest_seconds} s |"
        )
    return "\n".join(rows)


def test_the_architecture_shows_the_queues_as_they_are() -> None:
    assert queue_table() in (CLONE / "docs" / "architecture.md").read_text(), queue_table()


def test_every_consumer_is_a_function() -> None:
    assert {queue.consumer for queue in QUEUES} <= {shape.name for shape in FUNCTIONS}


def test_the_tables_are_those_that_the_wiring_names() -> None:
    assert [*Table] == [shape.name for shape in TABLES]


def reported(handler: Path) -> set[str]:
    """Members of Metric that a handler names."""
    return {
        node.attr
        for node in ast.walk(ast.parse(handler.read_text()))
        if isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "Metric"
    }


@pytest.mark.parametrize("handler", HANDLERS, ids=lambda path: path.stem)
def test_a_handler_reports_exactly_its_own_metrics(handler: Path) -> None:
    own = {metric.name for metric in Metric if metric.function == handler.stem}

    assert reported(handler) == own
    assert "add_metric" not in handler.read_text(), "a metric is a member of Metric"
