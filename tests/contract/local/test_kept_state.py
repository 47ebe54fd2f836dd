"""What a stopped stack keeps, on a stack of its own."""

import pytest

from local import stack
from local.settings import Settings, default_cache
from tests.contract.local.conftest import Stack
from tests.contract.local.test_local_stack import a_job

pytestmark = [pytest.mark.stack, pytest.mark.slow]


def test_a_kept_state_is_resumed_and_a_fresh_one_is_empty(tmp_path) -> None:
    settings = Settings(tmp_path, default_cache(), nodes="simulated")
    first = stack.up(settings, print, deploy=False)
    Stack(first, tmp_path).apply(a_job("kept", "spot"))
    Stack(first, tmp_path).client("sqs").create_queue(QueueName="kept")

    stack.down(tmp_path, keep=True)
    second = Stack(stack.up(settings, print, deploy=False), tmp_path)

    assert second.endpoints == first
    assert second.client("sqs").get_queue_url(QueueName="kept")
    assert second.api.call("GET", "/apis/batch/v1/namespaces/default/jobs/kept")

    stack.down(tmp_path, keep=True)
    third = Stack(stack.up(settings, print, fresh=True, deploy=False), tmp_path)

    assert third.client("sqs").list_queues().get("QueueUrls", []) == []
    assert third.api.call("GET", "/apis/batch/v1/namespaces/default/jobs")["items"] == []
    stack.down(tmp_path)
