"""Cedana restores pods: a stand-in for its service, real processes, the real Job controller."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest

from local.settings import Layout
from tests.e2e.stack import TENANTS, Stack, a_workload, counter, until

pytestmark = pytest.mark.stack

COUNTS = 400
FLAVOR, CLUSTER, _ = TENANTS


class Service:
    def __init__(self, stack: Stack) -> None:
        layout = Layout(stack.state)
        self.spec: dict[str, str] = json.loads(layout.cedana.read_text())
        self.token = (layout.certs / "cedana-token").read_text()

    def call(self, method: str, path: str, **body: Any) -> Any:
        request = urllib.request.Request(
            self.spec["url"] + path,
            data=json.dumps(body).encode() if body else None,
            headers={"Authorization": f"Bearer {self.token}"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=10) as answered:
            return json.load(answered)

    def restores(self) -> list[dict[str, Any]]:
        return [each for each in self.call("GET", "/v2/actions") if each["type"] == "restore"]


@pytest.fixture
def service(stack: Stack) -> Iterator[Service]:
    found = Service(stack)
    stack.apply(CLUSTER | {"spec": {**CLUSTER["spec"], "cedana": found.spec}})
    yield found
    found.call("PUT", "/_restores", held=False)
    stack.apply(CLUSTER)


def counting(stack: Stack, queue: str) -> str:
    """A workload that has begun to count; skips where no process can be saved."""
    (job,) = stack.submit(a_workload(queue, *counter(COUNTS), checkpoint={"mode": "cedana"}))
    stack.await_phase("RUNNING", job)
    node, _ = stack.machine_of(job)
    labels = stack.kubernetes.call("GET", f"/api/v1/nodes/{node}")["metadata"]
    if not labels["labels"]["sluice.dev/checkpoint"].startswith("criu"):
        pytest.skip(f"no CRIU here: {labels['annotations']['sluice.dev/checkpoint-reason']}")
    until("it counts", lambda: "count 9" in stack.sluice("logs", job))
    return job


def running(stack: Stack, workload: str) -> list[str]:
    return [
        pod["metadata"]["name"]
        for pod in stack.pods(workload)
        if pod["status"].get("phase") == "Running" and not pod["metadata"].get("deletionTimestamp")
    ]


def test_a_pod_that_cedana_restores_is_adopted_and_goes_on(stack: Stack, service: Service) -> None:
    queue = stack.queue("2")
    job = counting(stack, queue)
    node, instance = stack.machine_of(job)

    stack.market("interrupt", instanceId=instance)
    until("it moved", lambda: stack.get(job).generation == 1)
    stack.await_phase("RUNNING", job)
    (name,) = running(stack, job)
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert "-restored-" in name
    assert (record.generation, node in record.result.nodes) == (1, False)
    assert record.restore_from.startswith("cedana://batch-1/")
    until("its log is kept", lambda: f"1/{name}/main" in stack.logs.list(job))
    log = stack.logs.get(job, 1, name, "main").decode()
    numbers, secrets = zip(*(line.split()[1:] for line in log.splitlines()), strict=True)
    assert [int(n) for n in numbers] == list(range(COUNTS)), "it repeats or lacks counts"
    assert len(set(secrets)) == 1, "it was started again"
    assert "RestoreOrdered" in stack.sluice("events", job)
    stack.await_released(queue)


def test_a_cancel_before_the_restored_pod_is_there_gives_nothing_back_early(
    stack: Stack, service: Service
) -> None:
    queue = stack.queue("2")
    job = counting(stack, queue)
    service.call("PUT", "/_restores", held=True)
    before = len(service.restores())
    stack.sluice("migrate", job)
    until("Cedana is asked", lambda: len(service.restores()) > before)

    stack.sluice("cancel", job)
    until("its Job is on its way out", lambda: deleted(stack, job))
    assert stack.get(job).reservation
    assert stack.ledgers.read(queue).usage
    assert running(stack, job) == []

    service.call("PUT", "/_restores", held=False)
    stack.await_phase("CANCELLED", job)
    stack.await_released(queue)
    assert stack.pods(job) == []
    assert len(service.restores()) == before + 1


def deleted(stack: Stack, job: str) -> bool:
    return any(each["metadata"].get("deletionTimestamp") for each in stack.jobs(job))
