"""Parts die by SIGKILL while jobs run: nothing is lost, nothing runs twice, quota holds."""

from __future__ import annotations

import os
from collections.abc import Callable

import psutil
import pytest
from sluice.core.lifecycle.record import State

from local.stack import restart_part
from tests.e2e.audit import audit
from tests.e2e.stack import Stack, a_workload, until

pytestmark = pytest.mark.stack

JOBS = int(os.environ.get("SLUICE_CHAOS_JOBS", "200"))
WORKERS = ("Submit", "Admit", "Relay", "Act", "Observe")


def kill_workers(stack: Stack, function: str) -> int:
    """SIGKILL the Lambda processes of a function; how many there were."""
    mark, killed = f"ministack-lambda-sluice-control-{function}Function", 0
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or []
        if any(str(stack.state) in word and mark in word for word in words):
            process.kill()
            killed += 1
    return killed


def test_nothing_is_lost_and_nothing_overcommitted_when_parts_are_killed(impatient: Stack) -> None:
    stack = impatient
    queue = stack.queue("8")
    jobs = stack.submit(*(a_workload(queue, "sleep", "1", cpu="250m") for _ in range(JOBS)))

    def ended() -> int:
        states = [record.state for record in stack.workloads.get_many(jobs)]
        return states.count(State.FINISHED)

    def worker(function: str) -> Callable[[], None]:
        def kill() -> None:
            until(f"a {function} to kill", lambda: kill_workers(stack, function))

        return kill

    def part(name: str) -> Callable[[], None]:
        return lambda: restart_part(stack.state, name, kill=True)

    attacks = [
        *(worker(function) for function in WORKERS),
        part("nodes"),
        part("karpenter"),
        part("kube-apiserver"),
        worker("Observe"),
        worker("Act"),
    ]
    for number, attack in enumerate(attacks):
        wanted = JOBS * number // (2 * len(attacks))
        until(f"{wanted} jobs done", lambda wanted=wanted: ended() >= wanted)  # type: ignore[misc]
        attack()
    assert ended() < JOBS, "everything was over before the last attack: too few jobs"

    records = stack.await_phase("SUCCEEDED", *jobs)
    stack.await_released(queue)

    found = audit(stack, queue)
    assert len(records) == JOBS
    assert sorted(found.admitted) == sorted(found.released)
    assert {job for job, _ in found.admitted} == set(jobs)
    assert found.most[queue, "spot|cpu"] <= 8_000
    assert set(found.usage.values()) == {0}
