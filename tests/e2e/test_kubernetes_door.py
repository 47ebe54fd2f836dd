"""Jobs that users create in the cluster themselves: queued, run, preempted and ended in place."""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterator
from typing import Any
from urllib.error import HTTPError

import pytest
from sluice.core.values.identity import workload_id

from tests.e2e.stack import NAMESPACE, TENANTS, Document, Stack, a_workload, until

pytestmark = pytest.mark.stack

JOBS = f"/apis/batch/v1/namespaces/{NAMESPACE}/jobs"
EVENTS = f"/api/v1/namespaces/{NAMESPACE}/events"


def a_plain_job(queue: str, *command: str, cpu: str = "1") -> Document:
    """As a tool writes it: nothing of it knows Sluice but the label of Kueue."""
    container = {
        "name": "main",
        "image": "python:3.11",
        "command": list(command),
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    labels = {"kueue.x-k8s.io/queue-name": queue}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": f"door-{uuid.uuid4().hex[:8]}", "labels": labels},
        "spec": {"template": {"spec": pod}},
    }


def create(stack: Stack, job: Document) -> tuple[str, str]:
    """The name of the object, and the id of its workload."""
    body = json.dumps(job).encode()
    made = stack.kubernetes.call("POST", JOBS, body, "application/json")
    return made["metadata"]["name"], workload_id(NAMESPACE, made["metadata"]["uid"])


def now(stack: Stack, name: str) -> Any:
    return stack.kubernetes.call("GET", f"{JOBS}/{name}")


def delete(stack: Stack, name: str) -> None:
    body = json.dumps({"propagationPolicy": "Background"}).encode()
    stack.kubernetes.call("DELETE", f"{JOBS}/{name}", body, "application/json")


def told(stack: Stack, name: str) -> list[str]:
    events = stack.objects(EVENTS, fieldSelector=f"involvedObject.name={name}")
    return [event["reason"] for event in events if event["source"].get("component") == "sluice"]


@pytest.fixture(autouse=True)
def watched(stack: Stack) -> Iterator[None]:
    """The observer looks all the time, so no test waits for its next run."""
    (cluster,) = [each for each in TENANTS if each["kind"] == "Cluster"]
    stack.apply({**cluster, "spec": {**cluster["spec"], "alwaysWatch": True}})
    yield
    stack.apply(cluster)


def test_three_jobs_of_half_the_quota_through_the_kubernetes_api_alone(stack: Stack) -> None:
    queue = stack.queue("2")
    made = dict(create(stack, a_plain_job(queue, "sleep", "300")) for _ in range(3))

    until(
        "two of three run",
        lambda: sorted(map(stack.phase, made.values())) == ["PENDING", "RUNNING", "RUNNING"],
    )

    (waiting,) = (name for name, of in made.items() if stack.phase(of) == "PENDING")
    first, second = (name for name in made if name != waiting)
    assert now(stack, waiting)["spec"]["suspend"] is True
    assert stack.pods(made[waiting]) == []
    assert stack.ledgers.read(queue).usage[queue]["spot|cpu"] == 2000
    assert "Queued" in told(stack, waiting)
    assert "Started" in told(stack, first)
    with pytest.raises(HTTPError, match="403"):
        patch(stack, waiting, {"spec": {"suspend": False}})

    delete(stack, first)  # cancels its workload, so the third runs
    stack.await_phase("RUNNING", made[waiting])
    stack.await_phase("CANCELLED", made[first])
    stack.sluice("cancel", "--yes", made[second])  # and so does Sluice's word, which leaves the Job
    stack.await_phase("CANCELLED", made[second])
    assert now(stack, second)["spec"]["suspend"] is True
    assert "Cancelled" in told(stack, second)
    delete(stack, waiting)
    delete(stack, second)
    stack.await_phase("CANCELLED", made[waiting])
    stack.await_released(queue)


def patch(stack: Stack, name: str, change: Document) -> None:
    content = "application/merge-patch+json"
    stack.kubernetes.call("PATCH", f"{JOBS}/{name}", json.dumps(change).encode(), content)


def test_requeued_and_run_again_it_is_the_same_object_and_ends_well(stack: Stack) -> None:
    queue = stack.queue("1")
    name, workload = create(stack, a_plain_job(queue, "sleep", "6"))
    stack.await_phase("RUNNING", workload)
    uid = now(stack, name)["metadata"]["uid"]

    stack.sluice("requeue", "--yes", workload)
    until("it is in its next generation", lambda: stack.get(workload).generation == 1)

    (record,) = stack.await_phase("SUCCEEDED", workload)
    assert (record.uid, record.generation) == (uid, 1)
    assert now(stack, name)["metadata"]["uid"] == uid
    assert len(stack.jobs(workload)) == 1
    assert stack.sluice("logs", workload) is not None
    stack.await_released(queue)
    delete(stack, name)


def test_by_two_doors_the_same_job_gets_the_same_record_and_the_same_reasons(stack: Stack) -> None:
    queue = stack.queue("1")
    (holder,) = stack.submit(a_workload(queue, "sleep", "300"))
    stack.await_phase("RUNNING", holder)
    job = a_plain_job(queue, "sleep", "1")
    name, by_kubernetes = create(stack, job)
    until("it is recorded", lambda: stack.phase(by_kubernetes) == "PENDING")
    metadata = {**job["metadata"], "namespace": NAMESPACE}
    stack.send(json.dumps({**job, "metadata": metadata | {"annotations": a_key(name)}}))
    by_message = workload_id(NAMESPACE, name)
    until("so is the other", lambda: stack.phase(by_message) == "PENDING")

    one, other = stack.get(by_kubernetes), stack.get(by_message)
    for field in ("name", "queue", "cq", "root", "tenant", "priority", "pod_sets", "options"):
        assert getattr(one, field) == getattr(other, field), field
    for each in (by_kubernetes, by_message):
        until("it has its reason", lambda each=each: "QUOTA:" in stack.sluice("why", each))

    stack.sluice("cancel", "--yes", holder)
    stack.await_phase("SUCCEEDED", by_kubernetes, by_message)
    stack.await_released(queue)
    delete(stack, name)


def a_key(key: str) -> dict[str, str]:
    return {"sluice.dev/idempotency-key": key}
