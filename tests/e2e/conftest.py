"""One embedded stack for all tests of this folder: started, deployed, and gone afterwards."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from local import stack as embedded
from local.add_ons import ADD_ONS
from local.endpoints import Endpoints
from local.settings import Layout, Settings, default_cache
from tests.e2e.stack import BUCKET, INSTANCE_SECONDS, KARPENTERS_QUEUE, TENANTS, Stack

SOON_SECONDS = "15"


@pytest.fixture(scope="session")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Stack]:
    """A deployed stack of its own with process nodes, a flavor and a tenant.

    SLUICE_E2E_STATE names the folder of a running one to use instead, while tests are written.
    """
    if running := os.environ.get("SLUICE_E2E_STATE"):
        yield prepared(Stack(Endpoints.read(Layout(Path(running)).endpoints)))
        return
    state = tmp_path_factory.mktemp("stack")
    try:
        settings = Settings(
            state,
            default_cache(),
            instance_delay=INSTANCE_SECONDS,
            cedana=True,
            add_ons=tuple(ADD_ONS),
            interruption_queue=KARPENTERS_QUEUE,
        )
        yield prepared(Stack(embedded.up(settings, print)))
    finally:
        embedded.down(state)
    assert left_behind(state) == []


@pytest.fixture
def impatient(stack: Stack) -> Iterator[Stack]:
    """Messages of failed functions come again in seconds, not after the minutes of production."""
    sqs, name = stack.client("sqs"), "VisibilityTimeout"
    queues = [stack.published[f"queues/{queue}"] for queue in ("submissions", "kicks", "commands")]
    before = [
        sqs.get_queue_attributes(QueueUrl=queue, AttributeNames=[name])["Attributes"][name]
        for queue in queues
    ]
    for queue in queues:
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={name: SOON_SECONDS})
    yield stack
    for queue, seconds in zip(queues, before, strict=True):
        sqs.set_queue_attributes(QueueUrl=queue, Attributes={name: seconds})


def prepared(stack: Stack) -> Stack:
    stack.apply(*TENANTS)
    stack.client("s3").create_bucket(Bucket=BUCKET)
    stack.client("events").disable_rule(Name=KARPENTERS_QUEUE)  # as with no queue at all
    return stack


@pytest.fixture
def karpenter_hears(stack: Stack) -> Iterator[None]:
    """Karpenter's own interruption queue is filled as well."""
    events = stack.client("events")
    events.enable_rule(Name=KARPENTERS_QUEUE)
    yield
    events.disable_rule(Name=KARPENTERS_QUEUE)


def left_behind(state: Path) -> list[list[str]]:
    """Command lines of the processes that still know of the stack's folder."""
    return [
        process.info["cmdline"]
        for process in psutil.process_iter(["cmdline"])
        if any(str(state) in word for word in process.info["cmdline"] or ())
    ]
