"""Sluice and Karpenter hear of the same machine, with and without Karpenter's queue: no fight."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.e2e.audit import audit
from tests.e2e.stack import BUCKET, Stack, a_workload, until
from tests.ticking import trace

pytestmark = [pytest.mark.stack, pytest.mark.soak]

LAST = 400  # steps, ten a second
STORY = (
    "InterruptionNoticed", "CheckpointDecided", "SourceStopping", "SourceFenced", "Moved",
    "Resumed",
)  # fmt: skip


def a_count(queue: str, path: Path, mode: str) -> dict[str, Any]:
    """A count that saves itself into S3 where the mode is `application`."""
    saves = mode == "application"
    command = ["python", "-c", trace.PROGRAM, trace.address(path), str(LAST)]
    saved = {"bucket": BUCKET, "prefix": f"{queue}/saved/"}
    volumes = [{"name": "saved", "mountPath": "/saved", "s3": saved}] if saves else []
    where = {"uri": f"s3://{BUCKET}/{queue}/saved"} if saves else {}
    return a_workload(
        queue,
        *command,
        *(["--save", "/saved"] if saves else []),
        volumes=volumes,
        checkpoint={"mode": mode, **where},
    )


def events(stack: Stack, reason: str, kind: str) -> list[str]:
    """Names of the objects of a kind about which somebody said this to Kubernetes."""
    selector = f"reason={reason},involvedObject.kind={kind}"
    found = stack.objects("/api/v1/events", fieldSelector=selector)
    return [each["involvedObject"]["name"] for each in found]


def moves_in_peace(stack: Stack, mode: str, path: Path) -> tuple[str, str]:
    """A job moves off a warned machine; its id and the node that it left."""
    queue = stack.queue("1")
    (job,) = stack.submit(a_count(queue, path, mode))
    until("it counts", lambda: len(trace.read(path)) > LAST // 10)
    node, instance = stack.machine_of(job)
    if mode == "kubelet":
        found = stack.kubernetes.call("GET", f"/api/v1/nodes/{node}")["metadata"]
        if not found["labels"]["sluice.dev/checkpoint"].startswith("criu"):
            pytest.skip(f"no CRIU here: {found['annotations']['sluice.dev/checkpoint-reason']}")
    owned = {each["instanceId"] for each in stack.market("instances")}

    stack.market("interrupt", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)
    stack.await_released(queue)

    ticks = trace.read(path)
    assert ticks[-1].step == LAST
    assert trace.attempts(ticks) <= 2, "two copies counted"
    again = trace.longest_break(ticks)
    assert again.after.step > LAST // 10, "it began from the start"
    assert (record.generation, node in record.result.nodes) == (1, False)
    assert bool(record.restore_from) == (mode == "kubelet")
    used = audit(stack, queue)
    assert (used.most[queue, "spot|cpu"], set(used.usage.values())) == (1000, {0})
    assert [line["what"] for line in stack.timeline(job) if line["what"] in STORY] == list(STORY)
    bought = {each["instanceId"] for each in stack.market("instances")} - owned
    assert len(bought) <= 1, "a machine was bought for nothing"
    pods = [name for name in events(stack, "Evicted", "Pod") if job in name]
    assert pods == [], "Karpenter evicted what Sluice was saving"
    return job, node


@pytest.mark.parametrize("mode", ["application", "kubelet"])
@pytest.mark.usefixtures("karpenter_hears")
def test_both_hear_of_the_warning(stack: Stack, mode: str, tmp_path: Path) -> None:
    _, node = moves_in_peace(stack, mode, tmp_path / "trace")

    assert node in events(stack, "SpotInterrupted", "Node"), "Karpenter heard nothing"


def test_sluice_alone_hears_of_the_warning(stack: Stack, tmp_path: Path) -> None:
    _, node = moves_in_peace(stack, "application", tmp_path / "trace")

    assert node not in events(stack, "SpotInterrupted", "Node")


@pytest.mark.usefixtures("karpenter_hears")
def test_both_hear_of_a_death_without_warning(stack: Stack, tmp_path: Path) -> None:
    path, queue = tmp_path / "trace", stack.queue("1")
    (job,) = stack.submit(a_count(queue, path, "none"))
    until("it counts", lambda: len(trace.read(path)) > LAST // 10)
    node, instance = stack.machine_of(job)

    stack.market("terminate", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", job)
    stack.await_released(queue)

    assert trace.attempts(trace.read(path)) == 2
    assert (record.generation, node in record.result.nodes) == (1, False)
    used = audit(stack, queue)
    assert (used.most[queue, "spot|cpu"], set(used.usage.values())) == (1000, {0})
