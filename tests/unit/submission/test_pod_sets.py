"""How much a manifest needs: Kubernetes' arithmetic of pods, Kueue's of Jobs."""

import pytest
from sluice.core.jobs.pod_sets import pod_requests
from sluice.core.lifecycle.record import PodSet

from tests.unit.submission.builders import (
    a_container,
    a_job,
    a_job_set,
    a_pod,
    a_replicated_job,
    a_workload,
    accepted,
    errors,
)


def needs(cpu: str, **fields: object) -> dict:
    return {"resources": {"requests": {"cpu": cpu}}, **fields}


SIDECAR = {"restartPolicy": "Always"}


@pytest.mark.parametrize(
    ("pod", "cpu"),
    [
        ({"containers": [needs("1"), needs("500m")]}, 1500),
        ({"containers": [needs("1")], "initContainers": [needs("3"), needs("2")]}, 3000),
        ({"containers": [needs("4")], "initContainers": [needs("3")]}, 4000),
        ({"containers": [needs("1")], "initContainers": [needs("2", **SIDECAR)]}, 3000),
        # The init container runs beside the sidecar that was started before it.
        ({"containers": [needs("1")], "initContainers": [needs("2", **SIDECAR), needs("5")]}, 7000),
        ({"containers": [needs("1")], "initContainers": [needs("5"), needs("2", **SIDECAR)]}, 5000),
        ({"containers": [{"resources": {"limits": {"cpu": "2"}}}]}, 2000),
        ({"containers": [needs("1")], "resources": {"requests": {"cpu": "9"}}}, 9000),
        ({"containers": [needs("0.0001")]}, 1),
    ],
)
def test_what_the_scheduler_counts_for_a_pod(pod, cpu):
    assert pod_requests(pod, [], "pod") == {"cpu": cpu}


def test_units_are_millicores_bytes_and_counts():
    requests = {"cpu": "1.5", "memory": "1Gi", "ephemeral-storage": "1M", "nvidia.com/gpu": 2}
    pod = {"containers": [{"resources": {"requests": requests}}]}

    assert pod_requests(pod, [], "pod") == {
        "cpu": 1500,
        "memory": 2**30,
        "ephemeral-storage": 10**6,
        "nvidia.com/gpu": 2,
    }


@pytest.mark.parametrize(
    ("parallelism", "completions", "count"),
    [(None, None, 1), (4, None, 4), (4, 2, 2), (2, 4, 2), (None, 4, 1)],
)
def test_as_many_pods_as_run_together_are_counted(parallelism, completions, count):
    asked = {"parallelism": parallelism, "completions": completions}
    job = a_job(**{key: value for key, value in asked.items() if value})

    assert [pod_set.count for pod_set in accepted(job).pod_sets] == [count]


def test_a_jobset_has_a_pod_set_per_replicated_job():
    job_set = a_job_set(
        a_replicated_job("driver"),
        a_replicated_job("workers", 3, parallelism=4, completions=4),
    )

    found = accepted(job_set)

    assert found.kind == "JobSet"
    assert [(pod_set.name, pod_set.count) for pod_set in found.pod_sets] == [
        ("driver", 1),
        ("workers", 12),
    ]


@pytest.mark.parametrize(
    "annotation", ["sluice.dev/min-parallelism", "kueue.x-k8s.io/job-min-parallelism"]
)
def test_partial_admission_has_a_minimum(annotation):
    job = a_job(parallelism=10, completions=10)
    job["metadata"]["annotations"] = {annotation: "4"}

    assert accepted(job).pod_sets[0].min_count == 4
    job["metadata"]["annotations"] = {annotation: "11"}
    assert f"metadata.annotations[{annotation}]" in errors(job)


def test_a_jobset_starts_whole():
    job_set = a_job_set(a_replicated_job("workers", 2, parallelism=4))
    job_set["metadata"]["annotations"] = {"sluice.dev/min-parallelism": "2"}

    assert "a JobSet starts whole" in str(errors(job_set))


def test_a_minimum_above_the_size_is_reported_where_it_was_written():
    assert set(errors(a_workload(parallelism=2, minParallelism=3))) == {"spec.minParallelism"}


def test_the_short_form_has_arrays_minimums_and_devices():
    array = accepted(a_workload(array="0-99%10", minParallelism=2, resources={"gpu": 1}))

    (pods,) = array.pod_sets
    assert pods == PodSet("main", 10, {"nvidia.com/gpu": 1}, min_count=2)


@pytest.mark.parametrize("amount", ["1.5", "500m"])
def test_devices_are_whole(amount):
    assert "spec.resources.nvidia.com/gpu" in errors(
        a_workload(resources={"nvidia.com/gpu": amount})
    )


def test_a_request_above_its_limit_is_refused():
    resources = {"requests": {"cpu": "2"}, "limits": {"cpu": "1"}}

    found = errors(a_job(a_pod(containers=[a_container(resources=resources)])))

    assert "more than the limit" in found["spec.template.spec.containers[0].resources.requests.cpu"]
