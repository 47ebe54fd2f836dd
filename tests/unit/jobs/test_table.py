"""What holds for every row of the table of kinds."""

from __future__ import annotations

import json
from dataclasses import replace
from importlib.resources import files
from typing import Any, cast

import pytest
from sluice.adapters.kubernetes_cluster import KINDS as PATHS
from sluice.core.intake.pod_fields import FIELDS, HINTS
from sluice.core.intake.vetting import RULES
from sluice.core.jobs.jobset import JOBSET
from sluice.core.jobs.kind import JobKind, nested, set_at, value_at
from sluice.core.jobs.table import KINDS, kind_of, list_pod_sets
from sluice.core.lifecycle import job_status

every_kind = pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)


@every_kind
def test_a_row_is_reached_and_vetted(kind: JobKind) -> None:
    assert PATHS[kind.kind] == (f"/apis/{kind.api_version}", kind.plural, True)
    assert kind.fields.keys() <= FIELDS.keys()
    assert kind.hints.keys() <= HINTS.keys()
    assert kind.rules.keys() <= RULES.keys()


@every_kind
def test_only_sluice_writes_what_suspends_a_kind(kind: JobKind) -> None:
    types = kind.kind
    for part in kind.suspend[:-1]:
        types = FIELDS[types][part].split(" ")[1]

    assert FIELDS[types][kind.suspend[-1]].startswith("sluice ")


@every_kind
def test_a_kind_is_suspended_where_its_row_says(kind: JobKind) -> None:
    job = {"kind": kind.kind, "metadata": {}, "spec": {}}
    assert not job_status.suspended(job)

    set_at(job, kind.suspend, value=True)

    assert job_status.suspended(job)
    assert value_at(nested(kind.suspend, value=False), kind.suspend) is False


@every_kind
@pytest.mark.parametrize("well", [True, False])
def test_an_end_is_told_by_the_conditions_of_the_row(kind: JobKind, well: bool) -> None:
    (types, others) = (kind.succeeded, kind.failed) if well else (kind.failed, kind.succeeded)
    for one in types:
        at = "2026-11-21T08:00:00Z"
        condition = {"type": one, "status": "True", "lastTransitionTime": at}
        job = {"kind": kind.kind, "metadata": {}, "spec": {}, "status": {"conditions": [condition]}}
        ended = job_status.outcome(job)
        assert ended is not None
        assert ended.succeeded is well
        assert one not in others


def test_the_published_schemas_name_every_kind() -> None:
    job = published("workload")["properties"]["spec"]["properties"]["job"]["properties"]
    cluster = published("config")["properties"]["clusters"]["items"]["properties"]

    assert job["kind"]["enum"] == list(KINDS)
    assert set(job["apiVersion"]["enum"]) == {kind.api_version for kind in KINDS.values()}
    add_ons = [name for name, kind in KINDS.items() if kind.add_on]
    assert cluster["kinds"]["items"]["enum"] == add_ons


def published(name: str) -> dict[str, Any]:
    text = files("sluice.schemas").joinpath(f"{name}.schema.json").read_text(encoding="utf-8")
    schema: dict[str, Any] = json.loads(text)
    return schema


def test_a_manifest_without_a_known_kind_is_read_as_a_job() -> None:
    assert kind_of({}).kind == kind_of({"kind": ["x"]}).kind == "Job"


def test_pod_sets_have_the_paths_of_their_templates() -> None:
    pod = {"template": {"spec": {"containers": []}}}
    entry = {"name": "a", "replicas": 2, "template": {"spec": {**pod, "parallelism": 3}}}
    job_set = {"kind": "JobSet", "spec": {"replicatedJobs": [entry]}}

    (found,) = list_pod_sets(job_set, "spec.job")

    assert (found.name, found.count, found.replicas) == ("a", 6, 2)
    assert found.path == "spec.job.spec.replicatedJobs[0].template.spec"
    assert found.template_path == f"{found.path}.template"


@pytest.mark.parametrize(
    ("pods", "ready"),
    [
        ([("head", "ready"), ("workers", "ready"), ("workers", "done")], True),
        ([("head", "ready"), ("workers", "ready"), ("workers", "running")], False),
        ([("head", "ready"), ("workers", "ready")], False),
        ([("workers", "ready"), ("workers", "ready"), ("workers", "ready")], False),
    ],
)
def test_a_kind_whose_status_names_no_ready_pods_is_ready_when_each_pod_set_is(
    pods: list[tuple[str, str]], ready: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    silent = replace(JOBSET, kind="Silent", all_ready=None)
    monkeypatch.setitem(cast("dict[str, Any]", KINDS), "Silent", silent)
    pod = {"template": {"spec": {"containers": []}}}
    entries = [
        {"name": "head", "template": {"spec": pod}},
        {"name": "workers", "replicas": 2, "template": {"spec": pod}},
    ]
    job = {"kind": "Silent", "metadata": {}, "spec": {"replicatedJobs": entries}}

    assert job_status.all_ready(job, [_pod(name, state) for name, state in pods]) is ready


def _pod(pod_set: str, state: str) -> dict[str, Any]:
    status: dict[str, Any] = {"phase": "Succeeded" if state == "done" else "Running"}
    if state == "ready":
        at = "2026-11-21T08:00:00Z"
        status["conditions"] = [{"type": "Ready", "status": "True", "lastTransitionTime": at}]
    return {"metadata": {"labels": {job_status.POD_SET_LABEL: pod_set}}, "status": status}
