"""A machine goes away under running work: EC2's events, real Karpenter, real processes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from local.demo.mertens import mertens
from tests.e2e.stack import BUCKET, INSTANCE_SECONDS, Stack, a_workload, until

pytestmark = pytest.mark.stack

LAST = 30_000_001
SUM = mertens(LAST - 1)
UNNOTICED_SECONDS = 60  # 20 is the aim (tests/bench); plain Kubernetes and Karpenter take 115
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
    assert node not in record.result["nodes"]
    told = stack.sluice("events", job)
    for what in ("InterruptionNoticed", "ReplacementReady", "SourceFenced", "Moved", "Resumed"):
        assert what in told
    stack.await_released(queue)


def test_a_dumped_process_goes_on_on_another_machine(stack: Stack, code: str) -> None:
    queue = stack.queue("2")
    (job,) = stack.submit(a_sum(queue, code, {"mode": "kubelet"}))
    computes(stack, job)
    node, instance = stack.machine_of(job)
    labels = stack.kubernetes.call("GET", f"/api/v1/nodes/{node}")["metadata"]
    if not labels["labels"]["sluice.dev/checkpoint"].startswith("criu"):
        pytest.skip(f"no CRIU here: {labels['annotations']['sluice.dev/checkpoint-reason']}")

    stack.market("interrupt", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert answer(stack, queue)["sum"] == SUM
    assert record.restore_from.startswith("s3://")
    assert (record.generation, node in record.result["nodes"]) == (1, False)
    assert record.restore_from in stack.sluice("checkpoints", job, "-o", "json")
    stack.await_released(queue)


def test_work_on_a_machine_that_dies_without_notice_runs_again(stack: Stack, code: str) -> None:
    queue = stack.queue("2")
    kept = {"Bucket": BUCKET, "Key": f"{queue}/saved/kept.txt"}
    stack.client("s3").put_object(**kept, Body=b"of an earlier run")
    (job,) = stack.submit(a_sum(queue, code, {"mode": "none"}))
    computes(stack, job)
    node, instance = stack.machine_of(job)

    stack.market("terminate", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert answer(stack, queue)["sum"] == SUM
    assert (record.generation, node in record.result["nodes"]) == (1, False)
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
