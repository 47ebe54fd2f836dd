"""A machine goes away under running work: EC2's events, real Karpenter, real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.demo.mertens import mertens
from tests.e2e.stack import (
    BUCKET,
    INSTANCE_SECONDS,
    Stack,
    a_workload,
    counter,
    id_of,
    until,
)

pytestmark = pytest.mark.stack

LAST = 30_000_001
SUM = mertens(LAST - 1)
UNNOTICED_SECONDS = 60  # 20 is the aim (tests/bench); plain Kubernetes and Karpenter take 115
COUNTS = 300
EXAMPLE = Path(__file__).parents[2] / "examples" / "mertens.py"


@pytest.fixture
def code(stack: Stack) -> str:
    stack.client("s3").upload_file(str(EXAMPLE), BUCKET, "code/mertens.py")
    return "code/"


def a_sum(queue: str, code: str, checkpoint: dict[str, Any]) -> dict[str, Any]:
    """A computation of some tens of seconds that shares its machine with nobody."""
    command = ["python", "/code/mertens.py", "1", str(LAST), "/out/sum.json", "--segment", "5000"]
    volumes: list[dict[str, Any]] = [
        {"name": name, "mountPath": f"/{name}", "s3": {"bucket": BUCKET, "prefix": prefix}}
        for name, prefix in (("code", code), ("out", f"{queue}/out/"), ("saved", f"{queue}/saved/"))
    ]
    volumes[0]["readOnly"] = True
    return a_workload(queue, *command, volumes=volumes, checkpoint=checkpoint)


def answer(stack: Stack, queue: str) -> dict[str, Any]:
    body = stack.client("s3").get_object(Bucket=BUCKET, Key=f"{queue}/out/sum.json")["Body"]
    result: dict[str, Any] = json.loads(body.read())
    return result


def needs_criu(node: dict[str, Any]) -> None:
    metadata = node["metadata"]
    if not metadata["labels"]["sluice.dev/checkpoint"].startswith("criu"):
        pytest.skip(f"no CRIU here: {metadata['annotations']['sluice.dev/checkpoint-reason']}")


def read_entry(entry: str) -> tuple[int, str, str]:
    generation, pod, container = entry.split("/")
    return int(generation), pod, container


def computes(stack: Stack, workload: str) -> None:
    """Wait until the application has told of its progress: then it hears signals."""
    stack.await_phase("RUNNING", workload)
    until("it computes", lambda: "%" in stack.sluice("logs", workload))


def test_an_application_goes_on_from_its_own_checkpoint_on_another_machine(
    stack: Stack, code: str
) -> None:
    queue = stack.queue("2")
    uri = f"s3://{BUCKET}/{queue}/saved"
    (job,) = stack.submit(a_sum(queue, code, {"mode": "application", "uri": uri}))
    computes(stack, job)
    node, instance = stack.machine_of(job)

    stack.market("interrupt", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)

    found = answer(stack, queue)
    assert found["sum"] == SUM
    assert found["resumed_at"] > 1, "it started from the beginning"
    assert (record.generation, len(record.runs)) == (1, 2)
    assert node not in record.result.nodes
    told = stack.sluice("events", job)
    for what in ("InterruptionNoticed", "ReplacementReady", "SourceFenced", "Moved", "Resumed"):
        assert what in told
    stack.await_released(queue)


def test_a_dumped_process_goes_on_on_another_machine(stack: Stack, code: str) -> None:
    queue = stack.queue("2")
    (job,) = stack.submit(a_sum(queue, code, {"mode": "kubelet"}))
    computes(stack, job)
    node, instance = stack.machine_of(job)
    needs_criu(stack.kubernetes.call("GET", f"/api/v1/nodes/{node}"))

    stack.market("interrupt", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert answer(stack, queue)["sum"] == SUM
    assert record.restore_from.startswith("s3://")
    assert (record.generation, node in record.result.nodes) == (1, False)
    assert record.restore_from in stack.sluice("checkpoints", job, "-o", "json")
    stack.await_released(queue)


def test_a_gang_goes_on_as_one_from_where_each_of_its_members_was(stack: Stack) -> None:
    queue = stack.queue("192")  # no machine on the market takes two members
    counting = a_workload(
        queue, *counter(COUNTS), cpu="64", array="0-2", checkpoint={"mode": "kubelet"}
    )
    (gang,) = stack.submit(counting)
    stack.await_phase("RUNNING", gang)
    nodes = {pod["spec"]["nodeName"] for pod in stack.pods(gang)}
    found = [stack.kubernetes.call("GET", f"/api/v1/nodes/{node}") for node in sorted(nodes)]
    needs_criu(found[0])
    until("all count", lambda: "count 9" in stack.sluice("logs", gang))

    stack.market("interrupt", instanceId=found[0]["spec"]["providerID"].rpartition("/")[2])
    (record,) = stack.await_phase("SUCCEEDED", gang)

    assert len(nodes) == 3
    assert record.generation == 1
    assert record.restore_from.split("/")[-2] in ("first-0", "move-0")
    until("three logs are kept", lambda: len(logs_of(stack, gang, 1)) == 3)
    secrets = set()
    for log in logs_of(stack, gang, 1):
        numbers, members = zip(*(line.split()[1:] for line in log.splitlines()), strict=True)
        assert [int(n) for n in numbers] == list(range(COUNTS)), "a member repeats or lacks counts"
        secrets |= set(members)
    assert len(secrets) == 3, "a member was started again, or runs twice"
    kept, *_ = json.loads(stack.sluice("checkpoints", gang, "-o", "json"))["items"]
    assert kept["uri"] == record.restore_from
    assert [part["name"] for part in kept["parts"]] == ["0", "1", "2"]
    assert "3 parts" in stack.sluice("events", gang)
    stack.await_released(queue)


def logs_of(stack: Stack, workload: str, generation: int) -> list[str]:
    kept = [name.split("/") for name in stack.logs.list(workload)]
    return [
        stack.logs.get(workload, generation, pod, container).decode()
        for of, pod, container in kept
        if of == str(generation)
    ]


def test_who_is_preempted_goes_on_later_from_where_it_was(stack: Stack) -> None:
    queue = stack.queue("2", preemption={"withinClusterQueue": "LowerPriority"})
    kueue, high = "kueue.x-k8s.io/v1beta2", {"name": f"{queue}-high"}
    stack.apply(
        {"apiVersion": kueue, "kind": "WorkloadPriorityClass", "metadata": high, "value": 1}
    )
    counting = a_workload(queue, *counter(COUNTS), cpu="2", checkpoint={"mode": "kubelet"})
    (victim,) = stack.submit(counting)
    stack.await_phase("RUNNING", victim)
    node, _ = stack.machine_of(victim)
    needs_criu(stack.kubernetes.call("GET", f"/api/v1/nodes/{node}"))
    until("it counts", lambda: "count 9" in stack.sluice("logs", victim))

    urgent = a_workload(queue, "sleep", "2", cpu="2", priority=high["name"])
    stack.submit(urgent)
    (record,) = stack.await_phase("SUCCEEDED", victim)

    assert record.restore_from.split("/")[-2] == "yield-0"
    until("its log is kept", lambda: logs_of(stack, victim, 1))
    (log,) = logs_of(stack, victim, 1)
    numbers, members = zip(*(line.split()[1:] for line in log.splitlines()), strict=True)
    assert [int(n) for n in numbers] == list(range(COUNTS)), "it repeats or lacks counts"
    assert len(set(members)) == 1, "it began again"
    run, _ = record.runs
    assert (run.outcome, run.by) == ("preempt", id_of(urgent))
    assert run.lost_ms < run.ended_at - run.started_at
    (decided,) = [line for line in stack.timeline(victim) if line["what"] == "CheckpointDecided"]
    assert decided["message"].endswith("has 60 s: dump")
    stack.await_released(queue)


def test_work_on_a_machine_that_dies_without_notice_runs_again(stack: Stack, code: str) -> None:
    queue = stack.queue("2")
    kept = {"Bucket": BUCKET, "Key": f"{queue}/saved/kept.txt"}
    stack.client("s3").put_object(**kept, Body=b"of an earlier run")
    (job,) = stack.submit(a_sum(queue, code, {"mode": "none"}))
    computes(stack, job)
    node, instance = stack.machine_of(job)
    (pod,) = stack.pods(job)
    name = pod["metadata"]["name"]
    entry = f"0/{name}/{pod['spec']['containers'][0]['name']}"
    until("the node stores its log", lambda: entry in stack.logs.list(job))
    until("and its progress", lambda: b"%" in stack.logs.get(job, *read_entry(entry)))

    stack.market("terminate", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert answer(stack, queue)["sum"] == SUM
    assert (record.generation, node in record.result.nodes) == (1, False)
    assert "%" in stack.sluice("logs", "--generation", "0", job), "its log went with the machine"
    stack.client("s3").head_object(**kept)  # a dead machine deletes nothing
    at = {line["what"]: line["at"] for line in stack.timeline(job)}
    standstill = (at["Resumed"] - at["InterruptionNoticed"]) / 1000 - INSTANCE_SECONDS
    assert standstill < UNNOTICED_SECONDS, "no faster than Kubernetes and Karpenter by themselves"
    stack.await_released(queue)


def test_a_user_moves_a_running_workload(stack: Stack, code: str) -> None:
    queue = stack.queue("2")
    uri = f"s3://{BUCKET}/{queue}/saved"
    (job,) = stack.submit(a_sum(queue, code, {"mode": "application", "uri": uri}))
    computes(stack, job)

    assert "is being moved" in stack.sluice("migrate", job)
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert answer(stack, queue)["sum"] == SUM
    assert record.generation == 1
    stack.await_released(queue)
