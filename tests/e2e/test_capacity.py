"""NodePools under real Karpenter: limits without drift, and a market that has nothing to sell."""

from __future__ import annotations

import json
import urllib.request
from collections.abc import Iterator
from typing import Any

import pytest
from sluice.core.clusters.capacity import MANAGER

from tests.e2e.stack import TENANTS, Stack, a_workload, until

pytestmark = [pytest.mark.stack, pytest.mark.soak]

SLEEPS = ("sleep", "300")
EVENTS = "/api/v1/namespaces/default/events"
ON_DEMAND = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "ResourceFlavor",
    "metadata": {"name": "on-demand"},
    "spec": {"nodeLabels": {"sluice.dev/flavor": "on-demand"}},
}


def cluster(*flavors: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Cluster",
        "metadata": {"name": "batch-1"},
        "spec": {"flavors": list(flavors), **spec},
    }


@pytest.fixture
def both(stack: Stack) -> Iterator[Stack]:
    """The cluster offers both flavors for a while."""
    stack.apply(ON_DEMAND, cluster("spot", "on-demand"))
    yield stack
    stack.apply(*TENANTS)


@pytest.fixture
def market(stack: Stack) -> Iterator[Any]:
    """Sells out by `market(...)`; open again afterwards, and all is forgiven."""

    def ask(method: str, **body: Any) -> None:
        request = urllib.request.Request(
            f"{stack.endpoints.ec2}/_market/sold-out",
            method=method,
            data=json.dumps(body).encode(),
            headers={"Content-Type": "application/json"},
        )
        urllib.request.urlopen(request, timeout=10).close()

    yield lambda **body: ask("POST", **body)
    ask("DELETE")
    forgive(stack)


def forgive(stack: Stack) -> None:
    """What is in quarantine would keep the tests after this one from their machines."""
    dynamodb, table = stack.client("dynamodb"), stack.published["tables/nodes"]
    found = dynamodb.query(
        TableName=table,
        KeyConditionExpression="#c = :c",
        ExpressionAttributeNames={"#c": "cluster"},
        ExpressionAttributeValues={":c": {"S": "batch-1#offerings"}},
    )["Items"]
    for row in found:
        key = {name: row[name] for name in ("cluster", "instance")}
        dynamodb.delete_item(TableName=table, Key=key)
    for event in stack.objects(EVENTS, fieldSelector="reason=InsufficientCapacityError"):
        stack.kubernetes.call("DELETE", f"{EVENTS}/{event['metadata']['name']}")
    body = json.dumps({"cluster": "batch-1"})
    stack.client("sqs").send_message(
        QueueUrl=stack.published["queues/provisions"], MessageBody=body
    )
    until("every pool can buy again", lambda: not any(row["closed"] for row in shown(stack)))


def shown(stack: Stack) -> list[dict[str, Any]]:
    rows: list[dict[str, Any]] = json.loads(stack.sluice("capacity", "-o", "json"))["items"]
    return rows


def pool(stack: Stack, name: str = "spot") -> dict[str, Any]:
    found: dict[str, Any] = stack.kubernetes.call("GET", f"/apis/karpenter.sh/v1/nodepools/{name}")
    return found


def claims(stack: Stack, name: str = "spot") -> dict[str, dict[str, Any]]:
    """NodeClaims of a pool by UID."""
    selector = f"karpenter.sh/nodepool={name}"
    found = stack.objects("/apis/karpenter.sh/v1/nodeclaims", labelSelector=selector)
    return {each["metadata"]["uid"]: each for each in found}


def limit(stack: Stack, name: str = "spot") -> str:
    return str((pool(stack, name)["spec"].get("limits") or {}).get("cpu", ""))


def vacate(stack: Stack) -> None:
    """Ends the machines of other tests, on which there may be room."""
    for claim in claims(stack).values():
        name = claim["metadata"]["name"]
        stack.kubernetes.call("DELETE", f"/apis/karpenter.sh/v1/nodeclaims/{name}")
    until("the spot pool is empty", lambda: not claims(stack))


def test_limits_follow_the_quota_and_replace_no_machine(stack: Stack) -> None:
    queue = stack.queue("4")
    (job,) = stack.submit(a_workload(queue, *SLEEPS, cpu="2"))
    stack.await_phase("RUNNING", job)
    until("the pool has a limit", lambda: limit(stack))
    owners = [each["manager"] for each in pool(stack)["metadata"]["managedFields"]]
    assert MANAGER in owners
    before, machines = limit(stack), claims(stack)
    assert machines

    # What is held counts whole, idle quota only up to a bound that other tests may have reached.
    larger = stack.queue("500")
    (large,) = stack.submit(a_workload(larger, *SLEEPS, cpu="40"))
    until("the limit follows", lambda: limit(stack) != before)

    assert int(limit(stack)) > int(before)
    assert set(claims(stack)) >= set(machines), "no machine was replaced"
    for claim in claims(stack).values():
        assert not claim["metadata"].get("deletionTimestamp")
        drifted = [c for c in claim["status"]["conditions"] if c["type"] == "Drifted"]
        assert not drifted
    assert stack.phase(job) == "RUNNING"

    stack.apply(cluster("spot", managePools=False))
    until("the limit is given back", lambda: not limit(stack))
    stack.apply(cluster("spot"))
    stack.sluice("cancel", job, large, "-y")
    stack.await_released(queue)
    stack.await_released(larger)


def test_another_offering_is_bought_when_the_cheapest_is_sold_out(
    stack: Stack, market: Any
) -> None:
    queue = stack.queue("64")
    market(type="c5.12xlarge")
    market(type="c5.9xlarge")
    vacate(stack)

    (job,) = stack.submit(a_workload(queue, *SLEEPS, cpu="34"))
    stack.await_phase("RUNNING", job)

    (pod,) = stack.pods(job)
    labels = stack.kubernetes.call("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")["metadata"]
    assert labels["labels"]["node.kubernetes.io/instance-type"] not in ("c5.12xlarge", "c5.9xlarge")
    stack.sluice("cancel", job, "-y")
    stack.await_released(queue)


def test_work_goes_to_on_demand_machines_while_no_spot_machine_can_be_had(
    both: Stack, market: Any
) -> None:
    queue = both.queue("32", flavors=("spot", "on-demand"))
    market(capacityType="spot")
    vacate(both)

    (job,) = both.submit(a_workload(queue, *SLEEPS, cpu="30"))
    (record,) = both.await_phase("RUNNING", job, seconds=240)

    assert record.reservation is not None
    assert set(record.reservation.pod_sets[0].flavors.values()) == {"on-demand"}
    assert record.runs[0].outcome == "requeue"
    (pod,) = both.pods(job)
    labels = both.kubernetes.call("GET", f"/api/v1/nodes/{pod['spec']['nodeName']}")["metadata"]
    assert labels["labels"]["karpenter.sh/capacity-type"] == "on-demand"
    (spot,) = [row for row in shown(both) if row["nodepool"] == "spot" and row["closed"]]
    assert spot["closed"]["code"] == "CAPACITY:InsufficientInstance"

    # Who asks for spot and nothing else waits, and hears why.
    (patient,) = both.submit(a_workload(queue, *SLEEPS, cpu="30", capacity="spot"))
    until("it is told", lambda: "NodePool spot" in both.sluice("why", patient))
    both.sluice("cancel", job, patient, "-y")
    both.await_released(queue)
