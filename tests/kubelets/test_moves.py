"""From the drill to the restored process: deployed stacks, real kubelets, their node agents."""

from __future__ import annotations

from itertools import pairwise

import pytest

from tests.e2e.stack import Stack, a_workload, counter, until

pytestmark = [pytest.mark.stack, pytest.mark.kubelet, pytest.mark.slow]

COUNTS = 600


def test_a_process_survives_two_drills(stack: Stack) -> None:
    """Each with the recommendation that EC2 sends beside its warning, by bus and metadata."""
    queue = stack.queue("2")
    (job,) = stack.submit(a_workload(queue, *counter(COUNTS), checkpoint={"mode": "kubelet"}))
    nodes = []
    for generation in (0, 1):
        stack.await_phase("RUNNING", job)
        until("it counts", lambda: "count" in stack.sluice("logs", job))
        nodes.append(stack.machine_of(job)[0])
        stack.sluice("drill", job)
        until("it moved", lambda before=generation: stack.get(job).generation > before)

    (record,) = stack.await_phase("SUCCEEDED", job)

    assert (record.generation, len(record.runs)) == (2, 3)
    assert set(nodes).isdisjoint(record.result.nodes)
    (pod,) = stack.pods(job)
    until("its log is kept", lambda: f"2/{pod['metadata']['name']}/main" in stack.logs.list(job))
    log = stack.logs.get(job, 2, pod["metadata"]["name"], "main").decode()
    numbers, secrets = zip(*(line.split()[1:] for line in log.splitlines()), strict=True)
    assert len(set(secrets)) == 1, "it was started again"
    counted = [int(n) for n in numbers]
    repeated = [a for a, b in pairwise(counted) if b <= a]
    assert sorted(set(counted)) == list(range(COUNTS)), "it lacks some"
    assert len(counted) - COUNTS <= 20, f"more than a second is done again at {repeated}"
    lines = stack.timeline(job)
    told = [line["what"] for line in lines]
    assert told.count("Resumed") == 2, lines
    assert "CheckpointFailed" not in told, lines
    assert [run.lost_ms is not None and run.lost_ms < 1_000 for run in record.runs[:2]] == [
        True,
        True,
    ], lines
    stack.await_released(queue)
