"""Findings D1 to D4 and Q1 to Q6: what one document may cost, hide or repeat."""

from __future__ import annotations

import json
import time
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.config.tenants import Tenant
from sluice.core.intake import documents
from sluice.core.intake import submission as module
from sluice.core.intake.documents import Document, Malformed
from sluice.core.intake.submission import Accepted, Rejected, submission
from sluice.core.values.quantity import parse_duration

from tests.unit.submission.builders import a_container, a_job, a_pod

RED = Tenant("red", namespaces=("red",), images=("*",), require_digest=False)
GPU = "nvidia.com/gpu"
SECRET = "AKIA" + "A1B2C3D4E5F6G7H8"


def judged(body: dict[str, Any], tenant: Tenant = RED) -> Accepted | Rejected:
    return submission(Document(body), tenant=tenant, key="k", now_ms=0)


def errors(found: Accepted | Rejected) -> list[dict[str, str]]:
    assert isinstance(found, Rejected)
    return found.errors


def a_workload(**spec: Any) -> dict[str, Any]:
    usual = {"queue": "q", "image": "x:1", "command": ["x"], "resources": {"cpu": "1"}}
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": "w"},
        "spec": usual | spec,
    }


@pytest.mark.parametrize("text", ["123456789x", "9" * 5_000, "١", "1e3", "-1", ""])
def test_d1_an_odd_min_parallelism_is_refused(text: str) -> None:
    job = a_job()
    job["metadata"]["annotations"] = {"sluice.dev/min-parallelism": text}

    found = [error["field"] for error in errors(judged(job))]
    assert "metadata.annotations[sluice.dev/min-parallelism]" in found


def test_d1_a_fault_of_ours_refuses_the_document_that_met_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def fails(*_: Any) -> None:
        raise ZeroDivisionError(SECRET)

    monkeypatch.setattr(module, "_pod_sets", fails)

    (error,) = errors(judged(a_workload()))
    assert "ZeroDivisionError" in error["message"]
    assert SECRET not in json.dumps(error)


def test_d2_the_length_of_a_duration_is_bounded() -> None:
    began = time.process_time()

    with pytest.raises(ValueError, match="longer than any duration"):
        parse_duration("1" * 20_000)

    assert time.process_time() - began < 0.1


def test_d2_a_list_of_odd_documents_is_judged_within_its_budget() -> None:
    strange = {f"comand{number}": {} for number in range(90)}
    items = [a_workload(**strange) for _ in range(500)]
    began = time.process_time()

    for document in documents.from_value({"kind": "List", "items": items}):
        assert isinstance(document, Document)
        assert isinstance(judged(document.body), Rejected)

    assert time.process_time() - began < 10


def test_d2_a_list_names_a_hundred_references_at_most() -> None:
    reference = {"manifestRef": "s3://bucket/key", "sha256": "0" * 64}

    (refused,) = documents.from_value({"kind": "List", "items": [reference] * 101})

    assert isinstance(refused, Malformed)
    assert len(documents.from_value({"kind": "List", "items": [reference] * 100})) == 100


@pytest.mark.parametrize(
    "changed",
    [
        {"env": [{"name": "A", "value": "x" * 131_072}]},
        {"args": ["x" * 131_072]},
        {"command": ["x", "ü" * 65_536]},
        {"args": ["x" * 100_000] * 21},
        {"env": [{"name": "A", "value": "x" * 100_000}, {"name": "B", "value": "$(A)$(A)"}]},
        {
            "env": [
                {"name": "V0", "value": "x" * 1_000},
                *({"name": f"V{n + 1}", "value": f"$(V{n})" * 10} for n in range(20)),
            ]
        },
    ],
)
def test_d4_what_execve_refuses_is_refused(changed: dict[str, Any]) -> None:
    """Finding D4: it was accepted, and failed on the node as `Argument list too long`."""
    found = errors(judged(a_job(a_pod(containers=[a_container(**changed)]))))

    assert any("file or a volume" in error["message"] for error in found)


def test_d4_what_linux_can_start_is_accepted() -> None:
    env = [{"name": "A", "value": "x" * 131_000}, {"name": "B", "value": "$$(A) $(NONE)"}]

    assert isinstance(judged(a_job(a_pod(containers=[a_container(env=env)]))), Accepted)


def test_q1_the_amounts_of_containers_count_where_those_of_the_pod_are_smaller() -> None:
    """Finding Q1: 8 GPUs for a tenant with none, since older Kubernetes drops the pod's field."""
    container = a_container(resources={"limits": {"cpu": "4", GPU: 8}})
    pod = a_pod(containers=[container], resources={"requests": {"cpu": "1"}})

    found = judged(a_job(pod))
    assert isinstance(found, Accepted)
    assert found.pod_sets[0].requests == {"cpu": 4_000, GPU: 8}
    assert isinstance(judged(a_job(pod), replace(RED, max_gpus=0)), Rejected)


def a_jobset(restarts: int, **job: Any) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "s", "labels": {"sluice.dev/queue-name": "q"}},
        "spec": {
            "failurePolicy": {"maxRestarts": restarts},
            "replicatedJobs": [
                {"name": "a", "template": {"spec": {"template": {"spec": a_pod()}, **job}}}
            ],
        },
    }


@pytest.mark.parametrize(
    ("restarts", "deadline", "accepted"),
    [(2**31 - 1, 1, False), (3, 20, False), (2, 20, True), (1, None, False), (0, None, True)],
)
def test_q3_the_restarts_of_a_jobset_count_together(
    restarts: int, deadline: int | None, *, accepted: bool
) -> None:
    """Finding Q3: every restart began a new deadline."""
    job = {} if deadline is None else {"activeDeadlineSeconds": deadline}

    found = judged(a_jobset(restarts, **job), replace(RED, max_runtime_seconds=60))

    assert isinstance(found, Accepted) == accepted


def test_q3_nobody_restarts_without_end() -> None:
    (error,) = errors(judged(a_jobset(2**31 - 1)))

    assert error["field"] == "spec.failurePolicy.maxRestarts"


def ephemeral(storage: str, name: str = "v", **claim: Any) -> dict[str, Any]:
    spec = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": storage}}}
    return {"name": name, "ephemeral": {"volumeClaimTemplate": {"spec": spec | claim}}}


@pytest.mark.parametrize(
    "volume",
    [
        ephemeral("65Ti"),
        ephemeral("1Gi", storageClassName=""),
        {"name": "v", "emptyDir": {"medium": "Memory"}},
    ],
)
def test_q4_storage_that_no_quota_counts_is_bounded(volume: dict[str, Any]) -> None:
    assert isinstance(judged(a_job(a_pod(volumes=[volume]))), Rejected)


def test_q4_memory_of_a_pod_with_a_limit_may_hold_files() -> None:
    limited = a_container(resources={"limits": {"cpu": "1", "memory": "1Gi"}})
    shared = {"name": "m", "emptyDir": {"medium": "Memory"}}

    pod = a_pod(containers=[limited], volumes=[shared, ephemeral("1Ti")])
    assert isinstance(judged(a_job(pod)), Accepted)


@pytest.mark.parametrize(
    "key",
    [
        "k8s.v1.cni.cncf.io/networks",
        "devices.nri.io/container.main",
        "vault.security.banzaicloud.io/vault-addr",
        "injector.example.org/inject",
    ],
)
def test_q5_annotations_are_those_of_a_list(key: str) -> None:
    """Finding Q5: a list of refused domains has holes; new ones come with every controller."""
    job = a_job()
    job["metadata"]["annotations"] = {key: "x"}

    assert isinstance(judged(job), Rejected)
    granted = replace(RED, annotations=("injector.example.org",))
    assert isinstance(judged(job, granted), Accepted) == (key == "injector.example.org/inject")


@pytest.mark.parametrize(
    "spec",
    [
        {"checkpoint": {"mode": "application", "uri": f"s3://bucket/{SECRET}"}},
        {"deadlines": {"maxRuntime": SECRET}},
        {"priority": SECRET},
        {SECRET: 1},
        {"resources": {"cpu": SECRET}},
    ],
)
def test_q6_credentials_are_refused_everywhere_and_never_repeated(spec: dict[str, Any]) -> None:
    found = errors(judged(a_workload(**spec)))

    assert SECRET not in json.dumps(found)
    assert any("credential" in error["message"] for error in found)
