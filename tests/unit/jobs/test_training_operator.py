"""Kinds of the training-operator: what is accepted, what is refused, what is rendered."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import job_status

from tests.unit.submission.builders import (
    a_container,
    a_tenant,
    a_verbatim,
    accepted,
    errors,
    rendered,
)

# Kind → replica map, container, and roles with their pods, in the shape of the operator's samples.
SAMPLES: dict[str, tuple[str, str, dict[str, int]]] = {
    "PyTorchJob": ("pytorchReplicaSpecs", "pytorch", {"Master": 1, "Worker": 2}),
    "TFJob": ("tfReplicaSpecs", "tensorflow", {"PS": 2, "Chief": 1, "Worker": 3}),
    "XGBoostJob": ("xgbReplicaSpecs", "xgboost", {"Master": 1, "Worker": 2}),
    "PaddleJob": ("paddleReplicaSpecs", "paddle", {"Worker": 2}),
    "JAXJob": ("jaxReplicaSpecs", "jax", {"Worker": 2}),
}
every_kind = pytest.mark.parametrize("kind", SAMPLES)


def a_sample(kind: str, **run_policy: Any) -> dict[str, Any]:
    replica_specs, container, roles = SAMPLES[kind]
    replicas = {
        role: {
            "replicas": count,
            "restartPolicy": "OnFailure",
            "template": {"spec": {"containers": [a_container(name=container)]}},
        }
        for role, count in roles.items()
    }
    return {
        "apiVersion": "kubeflow.org/v1",
        "kind": kind,
        "metadata": {"name": "train", "labels": {"kueue.x-k8s.io/queue-name": "research"}},
        "spec": {replica_specs: replicas, **({"runPolicy": run_policy} if run_policy else {})},
    }


def replicas_of(job: dict[str, Any]) -> dict[str, Any]:
    replicas: dict[str, Any] = job["spec"][SAMPLES[job["kind"]][0]]
    return replicas


@every_kind
def test_each_role_is_a_pod_set(kind: str) -> None:
    found = accepted(a_sample(kind))

    _, _, roles = SAMPLES[kind]
    assert {s.name: s.count for s in found.pod_sets} == {r.lower(): n for r, n in roles.items()}
    assert all(s.requests["cpu"] == 4000 for s in found.pod_sets)


@every_kind
def test_it_is_made_suspended_and_every_template_is_ours(kind: str) -> None:
    (job,) = rendered(accepted(a_sample(kind, cleanPodPolicy="None", suspend=False)))

    policy = job["spec"]["runPolicy"]
    assert policy["suspend"] is True
    assert policy["cleanPodPolicy"] == "Running"  # no pod outlives the job
    for role, replica in replicas_of(job).items():
        labels = replica["template"]["metadata"]["labels"]
        assert labels["sluice.dev/pod-set"] == role.lower()
        assert labels["sluice.dev/workload"] == job["metadata"]["labels"]["sluice.dev/workload"]
        pod = replica["template"]["spec"]
        assert pod["automountServiceAccountToken"] is False
        assert pod["containers"][0]["env"][0]["name"] == "SLUICE_WORKLOAD_ID"
        assert any(e["name"] == "SLUICE_GANG_SIZE" for e in pod["containers"][0]["env"])


@every_kind
@pytest.mark.parametrize("field", ["hostPath", "nodeName", "serviceAccountName"])
def test_every_template_is_vetted_by_the_one_table(kind: str, field: str) -> None:
    for role in SAMPLES[kind][2]:
        job = a_sample(kind)
        pod = replicas_of(job)[role]["template"]["spec"]
        pod |= (
            {"volumes": [{"name": "host", "hostPath": {"path": "/"}}]}
            if field == "hostPath"
            else {field: "x"}
        )

        (path,) = errors(job)
        assert path.startswith(f"spec.{SAMPLES[kind][0]}.{role}.template.spec.")
        assert field in path


@every_kind
def test_what_the_operator_would_refuse_is_told_at_once(kind: str) -> None:
    replica_specs, container, roles = SAMPLES[kind]
    job = a_sample(kind)
    role = next(iter(roles))
    replicas = replicas_of(job)
    replicas[role]["template"]["spec"]["containers"][0]["name"] = "main"
    replicas["Boss"] = replicas[role]

    found = errors(job)

    assert f"named {container}" in found[f"spec.{replica_specs}.{role}.template.spec.containers"]
    assert "is no role" in found[f"spec.{replica_specs}.Boss"]
    assert f"spec.{replica_specs}" in errors({**job, "spec": {}})


@pytest.mark.parametrize(
    ("kind", "role"), [("PyTorchJob", "Master"), ("TFJob", "Chief"), ("XGBoostJob", "Master")]
)
def test_a_role_of_one_has_one_pod(kind: str, role: str) -> None:
    job = a_sample(kind)
    replicas_of(job)[role]["replicas"] = 2

    assert errors(job) == {f"spec.{SAMPLES[kind][0]}.{role}.replicas": "must be 1"}


@pytest.mark.parametrize(
    ("kind", "field", "value"),
    [
        ("PyTorchJob", "elasticPolicy", {"minReplicas": 1}),
        ("PaddleJob", "elasticPolicy", {"minReplicas": 1}),
        ("TFJob", "enableDynamicWorker", True),
    ],
)
def test_an_elastic_job_is_refused(kind: str, field: str, value: Any) -> None:
    job = a_sample(kind)
    job["spec"][field] = value

    assert "fixed number of pods" in errors(job)[f"spec.{field}"]


def test_limits_of_the_workload_reach_the_run_policy() -> None:
    document = a_verbatim(
        a_sample("PyTorchJob"),
        deadlines={"maxRuntime": "2h"},
        recovery={"onFailure": {"retries": 3}},
    )

    (job,) = rendered(accepted(document))

    policy = job["spec"]["runPolicy"]
    assert (policy["activeDeadlineSeconds"], policy["backoffLimit"]) == (7200, 3)


def test_the_tenants_longest_run_time_counts() -> None:
    brief = a_tenant(max_runtime_seconds=3600)

    assert (
        "1 to 3600"
        in errors(a_sample("TFJob", activeDeadlineSeconds=7200), brief)[
            "spec.runPolicy.activeDeadlineSeconds"
        ]
    )
    (job,) = rendered(accepted(a_sample("TFJob"), brief))
    assert job["spec"]["runPolicy"]["activeDeadlineSeconds"] == 3600


def test_rules_by_exit_code_are_refused_since_nobody_could_follow_them() -> None:
    rules = [{"exitCodes": [42], "action": "Fail"}]
    document = a_verbatim(a_sample("JAXJob"), recovery={"onFailure": {"rules": rules}})

    assert "by exit code" in errors(document)["spec.recovery.onFailure.rules"]


def test_a_job_has_not_ended_while_pods_that_it_cleans_up_still_run() -> None:
    job = {"kind": "PyTorchJob", "metadata": {}, "spec": {}}
    owner = {"kind": "PyTorchJob", "controller": True}
    pod = {"metadata": {"ownerReferences": [owner]}, "status": {"phase": "Running"}}

    assert job_status.outlive_their_job(job, [pod])
    assert not job_status.outlive_their_job(job, [{**pod, "status": {"phase": "Succeeded"}}])
    assert not job_status.outlive_their_job({**job, "kind": "Job"}, [pod])


def test_rows_share_one_add_on() -> None:
    assert {kind.kind for kind in KINDS.values() if kind.add_on == "kubeflow"} == SAMPLES.keys()


@pytest.mark.parametrize("kind", ["pytorchjob", "tfjob", "xgboostjob", "paddlejob", "jaxjob"])
def test_a_manifest_in_the_shape_of_kueues_samples_goes_unedited(kind: str) -> None:
    path = Path(__file__).parents[3] / "examples" / "manifests" / f"{kind}.yaml"
    sample = yaml.safe_load(path.read_text(encoding="utf-8"))

    assert accepted(sample).kind.lower() == kind
