"""Kinds of add-ons through their real controllers; docs/kinds.md is the table of these tests.

One kind is tried in every gate, all of them by `make soak`.
"""

from __future__ import annotations

import json
from datetime import datetime
from typing import Any

import pytest
from sluice.core.intake.pod_fields import FIELDS
from sluice.core.jobs.table import KINDS

from tests.e2e.members import SAMPLES, a_job_of, a_saving_workload, roles_of
from tests.e2e.stack import NAMESPACE, Document, Stack, a_workload, id_of, until

pytestmark = pytest.mark.stack
IN_THE_GATE = "PyTorchJob"
every_kind = pytest.mark.parametrize(
    "kind",
    [pytest.param(kind, marks=[] if kind == IN_THE_GATE else pytest.mark.soak) for kind in SAMPLES],
)
where_one_ends_it = pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind == IN_THE_GATE else pytest.mark.soak)
        for kind, sample in SAMPLES.items()
        if sample.first_ends_it
    ],
)


def objects_of(stack: Stack, kind: str, workload: str) -> list[Document]:
    row = KINDS[kind]
    path = f"/apis/{row.api_version}/namespaces/{NAMESPACE}/{row.plural}"
    return stack.objects(path, labelSelector=f"sluice.dev/workload={workload}")


def instant(text: str) -> datetime:
    return datetime.fromisoformat(text)


@every_kind
def test_finished_its_members_met_logs_cost_and_quota(stack: Stack, kind: str) -> None:
    members = sum(roles_of(kind).values())
    queue = stack.queue(str(members))
    job = a_job_of(kind, queue, "end")

    stack.submit(job)
    (record,) = stack.await_phase("SUCCEEDED", id_of(job))

    assert record.kind == kind
    assert {s.name: s.count for s in record.pod_sets} == roles_of(kind)
    until("all logs are kept", lambda: len(stack.logs.list(id_of(job))) == members)
    printed = stack.sluice("logs", id_of(job))
    total = sum(range(members))
    for rank in range(members):
        assert f"member {rank} of {members}: sum {total}" in printed
    for role in roles_of(kind):
        assert f"-{role}-0" in printed
    described = json.loads(stack.sluice("describe", id_of(job), "-o", "json"))
    assert float(described["costUsd"]) > 0
    stack.await_released(queue)


@every_kind
def test_failed_says_which_member_and_why(stack: Stack, kind: str) -> None:
    queue = stack.queue("3")
    job = a_job_of(kind, queue, "fail")

    stack.submit(job)
    (record,) = stack.await_phase("FAILED", id_of(job))

    assert "-worker-" in record.result.message
    assert "exited with 7" in record.result.message
    stack.await_released(queue)


@where_one_ends_it
def test_quota_comes_back_once_the_last_pod_is_gone(stack: Stack, kind: str) -> None:
    queue = stack.queue("3")
    job = a_job_of(kind, queue, "last")

    stack.submit(job)
    stack.await_phase("SUCCEEDED", id_of(job))

    alive = [pod for pod in stack.pods(id_of(job)) if pod["status"]["phase"] == "Running"]
    assert alive == [], "the record ended before its pods did"
    stack.await_released(queue)


@pytest.mark.soak
@pytest.mark.parametrize("kind", SAMPLES)
def test_waits_as_a_record_is_made_suspended_and_cancelled(stack: Stack, kind: str) -> None:
    queue = stack.queue("3")
    first, second = (a_job_of(kind, queue, then) for then in ("wait", "end"))
    stack.submit(first)
    stack.await_phase("RUNNING", id_of(first))
    stack.submit(second)
    until(
        "the second has a reason",
        lambda: "It waits for quota" in stack.sluice("why", id_of(second)),
    )
    assert objects_of(stack, kind, id_of(second)) == stack.pods(id_of(second)) == []
    (made,) = objects_of(stack, kind, id_of(first))
    (suspended,) = [c for c in made["status"]["conditions"] if c["type"] == "Suspended"]
    assert suspended["status"] == "False", "it was never suspended"
    resumed = instant(suspended["lastTransitionTime"])
    pods = stack.pods(id_of(first))
    assert all(instant(pod["metadata"]["creationTimestamp"]) >= resumed for pod in pods)

    stack.sluice("cancel", "--yes", id_of(first))

    stack.await_phase("CANCELLED", id_of(first))
    assert stack.pods(id_of(first)) == objects_of(stack, kind, id_of(first)) == []
    stack.await_phase("SUCCEEDED", id_of(second))
    stack.await_released(queue)


@pytest.mark.soak
@pytest.mark.parametrize("kind", SAMPLES)
def test_gang_starts_as_one(stack: Stack, kind: str) -> None:
    queue = stack.queue("200")
    (warm,) = stack.submit(a_workload(queue, "sleep", "300"))
    stack.await_phase("RUNNING", warm)  # so that small members find a machine at once
    large = next(iter(SAMPLES[kind].roles))
    gang = a_job_of(kind, queue, "wait", **{large: "34"})

    stack.submit(gang)
    stack.await_phase("RUNNING", id_of(gang))

    pods = stack.pods(id_of(gang))
    bound = [
        instant(condition["lastTransitionTime"])
        for pod in pods
        for condition in pod["status"]["conditions"]
        if condition["type"] == "PodScheduled" and condition["status"] == "True"
    ]
    started = [
        instant(container["state"]["running"]["startedAt"])
        for pod in pods
        for container in pod["status"]["containerStatuses"]
    ]
    assert len(bound) == len(started) == 3
    assert min(started) >= max(bound), f"bound {bound}, started {started}"
    stack.sluice("cancel", warm, id_of(gang), "-y")
    stack.await_released(queue)


def count(stack: Stack, workload: str) -> None:
    stack.await_phase("RUNNING", workload)
    members = sum(s.count for s in stack.get(workload).pod_sets)
    until("all count", lambda: stack.sluice("logs", workload).count("began at 0") == members)


def went_on(stack: Stack, workload: str, members: int) -> None:
    """The logs of generation 1 say that each member began where it was saved."""
    kept = lambda: [e for e in stack.logs.list(workload) if e.startswith("1/")]  # noqa: E731
    until("its logs are kept", lambda: len(kept()) == members)
    for entry in kept():
        generation, pod, container = entry.split("/")
        log = stack.logs.get(workload, int(generation), pod, container).decode()
        (began,) = [line for line in log.splitlines() if line.startswith("began at")]
        assert int(began.split()[-1]) > 0, log
        assert "counted 100" in log


@pytest.mark.soak
@pytest.mark.parametrize("kind", SAMPLES)
def test_moved_after_a_spot_warning_it_goes_on_from_its_own_checkpoint(
    stack: Stack, kind: str
) -> None:
    queue = stack.queue("3")
    job = a_saving_workload(kind, queue)
    (workload,) = stack.submit(job)
    count(stack, workload)
    node = stack.pods(workload)[0]["spec"]["nodeName"]
    found = stack.kubernetes.call("GET", f"/api/v1/nodes/{node}")

    instance = found["spec"]["providerID"].rpartition("/")[2]
    stack.market("interrupt", instanceId=instance)
    (record,) = stack.await_phase("SUCCEEDED", workload)

    assert record.generation == 1
    assert node not in record.result.nodes
    went_on(stack, workload, 3)
    stack.await_released(queue)


@pytest.mark.soak
@pytest.mark.parametrize("kind", SAMPLES)
def test_preempted_it_waits_and_goes_on_later(stack: Stack, kind: str) -> None:
    queue = stack.queue("3", preemption={"withinClusterQueue": "LowerPriority"})
    high: dict[str, Any] = {"name": f"{queue}-high"}
    kueue = "kueue.x-k8s.io/v1beta2"
    stack.apply(
        {"apiVersion": kueue, "kind": "WorkloadPriorityClass", "metadata": high, "value": 1}
    )
    (victim,) = stack.submit(a_saving_workload(kind, queue))
    count(stack, victim)

    urgent = a_workload(queue, "sleep", "2", cpu="2", priority=high["name"])
    stack.submit(urgent)
    (record,) = stack.await_phase("SUCCEEDED", victim)

    run = record.runs[0]
    assert (run.outcome, run.by) == ("preempt", id_of(urgent))
    went_on(stack, victim, 3)
    stack.await_released(queue)


@every_kind
def test_every_field_of_its_definition_has_an_entry(stack: Stack, kind: str) -> None:
    """The API server's definition and the row know the same fields outside of pod templates."""
    row = KINDS[kind]
    name = f"{row.plural}.{row.group}"
    path = f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{name}"
    versions = stack.kubernetes.call("GET", path)["spec"]["versions"]
    (version,) = [each for each in versions if each["name"] == row.version]
    differing = []

    def compare(schema: Document, shape: str, at: str) -> None:
        if shape not in row.fields:
            return  # a pod template, or nothing to look into
        known = schema.get("properties") or {}
        differing.extend(f"{at}.{each}" for each in known.keys() ^ FIELDS[shape].keys())
        for field, entry in FIELDS[shape].items():
            inner = known.get(field, {})
            inside = entry.split(" ")[1]
            if inside.startswith("{"):
                inner = inner.get("additionalProperties", {})
            elif inside.startswith("["):
                inner = inner.get("items", {})
            compare(inner, inside.strip("[]{}"), f"{at}.{field}")

    compare(version["schema"]["openAPIV3Schema"], kind, kind)
    assert differing == []
