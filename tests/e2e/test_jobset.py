"""JobSets through the real JobSet controller: one workload, all of its Jobs or none."""

from __future__ import annotations

from typing import Any

import pytest

from tests.e2e.stack import NAMESPACE, Document, Stack, a_key, id_of, until

pytestmark = pytest.mark.stack
CONFIG_MAPS = f"/api/v1/namespaces/{NAMESPACE}/configmaps"


def a_replicated_job(name: str, *command: str, parallelism: int = 1, cpu: str = "1") -> Document:
    container = {
        "name": "main",
        "image": "python:3.11",
        "command": list(command),
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    pod = {"restartPolicy": "Never", "containers": [container]}
    return {
        "name": name,
        "template": {
            "spec": {
                "parallelism": parallelism,
                "completions": parallelism,
                "backoffLimit": 0,
                "template": {"spec": pod},
            }
        },
    }


def a_jobset(queue: str, *replicated: Document, **spec: Any) -> Document:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {
            "name": "set",
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": queue},
            "annotations": a_key(),
        },
        "spec": {"replicatedJobs": list(replicated), **spec},
    }


def test_a_jobset_is_admitted_as_one_runs_all_its_jobs_and_gives_its_quota_back(
    stack: Stack,
) -> None:
    queue = stack.queue("3")
    workers = a_replicated_job("worker", "sh", "-c", "echo $JOB_COMPLETION_INDEX", parallelism=2)

    (job,) = stack.submit(a_jobset(queue, a_replicated_job("leader", "echo", "led"), workers))
    (record,) = stack.await_phase("SUCCEEDED", job)

    assert record.kind == "JobSet"
    assert {s.name: s.count for s in record.pod_sets} == {"leader": 1, "worker": 2}
    assert [sorted(codes) for codes in record.result.exit_codes.values()] == [["main"]] * 3
    until("three logs are kept", lambda: len(stack.logs.list(job)) == 3)
    printed = stack.logs.list(job)
    assert all(f"/w-{job}-g0-" in log for log in printed)
    stack.await_released(queue)


def test_a_jobset_that_does_not_fit_has_no_job_and_runs_when_it_does(stack: Stack) -> None:
    queue = stack.queue("2")
    first, second = (
        a_jobset(queue, a_replicated_job("all", "sleep", "300", parallelism=2)),
        a_jobset(queue, a_replicated_job("all", "true", parallelism=2)),
    )
    stack.submit(first)
    stack.await_phase("RUNNING", id_of(first))
    stack.submit(second)
    until(
        "the second has a reason",
        lambda: "It waits for quota" in stack.sluice("why", id_of(second)),
    )
    assert stack.jobs(id_of(second)) == []

    stack.sluice("cancel", id_of(first))

    stack.await_phase("CANCELLED", id_of(first))
    assert stack.pods(id_of(first)) == []
    stack.await_phase("SUCCEEDED", id_of(second))
    stack.await_released(queue)


def test_a_jobset_with_a_failing_job_has_failed_and_says_which(stack: Stack) -> None:
    queue = stack.queue("2")
    set_of = a_jobset(
        queue, a_replicated_job("good", "true"), a_replicated_job("bad", "sh", "-c", "exit 7")
    )

    stack.submit(set_of)
    (record,) = stack.await_phase("FAILED", id_of(set_of))

    assert "-bad-0-" in record.result.message
    assert "exited with 7" in record.result.message
    stack.await_released(queue)


def test_no_member_of_a_gang_starts_before_all_of_them_have_machines(stack: Stack) -> None:
    queue = stack.queue("40")
    (warm,) = stack.submit(a_jobset(queue, a_replicated_job("one", "sleep", "300")))
    stack.await_phase("RUNNING", warm)  # so that the small members find a machine at once
    gang = a_jobset(
        queue,
        a_replicated_job("small", "sleep", "300", parallelism=2),
        a_replicated_job("large", "sleep", "300", cpu="34"),
    )

    (job,) = stack.submit(gang)
    stack.await_phase("RUNNING", job)

    pods = stack.pods(job)
    bound = [
        condition["lastTransitionTime"]
        for pod in pods
        for condition in pod["status"]["conditions"]
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    ]
    started = [
        container["state"]["running"]["startedAt"]
        for pod in pods
        for container in pod["status"]["containerStatuses"]
    ]
    assert len(bound) == len(started) == 3
    assert min(started) >= max(bound), f"bound {bound}, started {started}"
    stack.sluice("cancel", warm, job, "-y")
    stack.await_released(queue)
    until(
        "nothing is left",
        lambda: not [c for c in stack.objects(CONFIG_MAPS) if job in c["metadata"]["name"]],
    )
