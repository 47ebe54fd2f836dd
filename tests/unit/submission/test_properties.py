"""Whatever arrives, an answer comes back; and what is accepted renders to what is allowed."""

import copy
import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sluice.core.config.tenants import PodSecurity
from sluice.core.intake import documents, pod_security, vetting
from sluice.core.intake.documents import ManifestReference
from sluice.core.intake.pod_fields import FIELDS
from sluice.core.intake.submission import Accepted, Rejected, submission
from sluice.core.jobs.table import list_pod_sets
from sluice.core.values import strict_json

from tests.unit.submission.builders import (
    NOW,
    a_job,
    a_job_set,
    a_replicated_job,
    a_tenant,
    a_verbatim,
    a_workload,
    rendered,
)
from tests.unit.submission.test_options import FULL

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(max_size=20)
    | st.sampled_from(["1", "500m", "16Gi", "SIGUSR1", "30s", "s3://b00/x", "Never", "/data"])
)
KEYS = st.text(max_size=8) | st.sampled_from(
    sorted({name for fields in FIELDS.values() for name in fields} | FULL.keys() | {"job", "queue"})
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=4),
    max_leaves=12,
)
SEEDS = [
    a_workload(**FULL),
    a_verbatim(a_job()),
    a_verbatim(a_job_set(a_replicated_job("a"))),
    a_job(parallelism=2),
    a_job_set(a_replicated_job("a", 2), a_replicated_job("b")),
]


def places(value: Any, path: tuple = ()) -> list[tuple]:
    """The path of everything inside a document."""
    inner: list[tuple[Any, Any]] = []
    if isinstance(value, dict):
        inner = list(value.items())
    elif isinstance(value, list):
        inner = list(enumerate(value))
    return [path, *(place for key, item in inner for place in places(item, (*path, key)))]


@st.composite
def changed_documents(draw: st.DrawFn) -> Any:
    """A good document with a few places replaced, added to or emptied."""
    document = copy.deepcopy(draw(st.sampled_from(SEEDS)))
    for _ in range(draw(st.integers(0, 3))):
        path = draw(st.sampled_from(places(document)))
        if not path:
            continue
        holder = document
        for step in path[:-1]:
            holder = holder[step]
        if isinstance(holder, dict) and draw(st.booleans()):
            holder[draw(KEYS)] = draw(VALUES)
        else:
            holder[path[-1]] = draw(VALUES)
    return document


def decisions(text: str | bytes) -> list[Accepted | Rejected]:
    return [
        submission(item, tenant=a_tenant(), key="m-1", now_ms=NOW)
        for item in documents.read(text)
        if not isinstance(item, ManifestReference)
    ]


@given(st.binary(max_size=200) | st.text(max_size=200))
def test_any_text_gets_an_answer(text):
    assert documents.read(text)
    decisions(text)


@given(VALUES)
def test_any_json_gets_an_answer(value):
    decisions(json.dumps(value))


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(changed_documents())
def test_any_changed_document_gets_an_answer_with_reasons(document):
    for decision in decisions(json.dumps(document)):
        if isinstance(decision, Rejected):
            assert decision.errors
            assert all(error["message"] for error in decision.errors)
            json.dumps(decision.errors).encode()


@settings(max_examples=400, suppress_health_check=[HealthCheck.too_slow])
@given(changed_documents())
def test_what_is_accepted_renders_to_what_is_allowed(document):
    for decision in decisions(json.dumps(document)):
        if isinstance(decision, Rejected):
            continue
        *_, made = rendered(decision)
        for pods in list_pod_sets(made):
            pod = pods.template["spec"]
            assert pod_security.violations(pod, PodSecurity.RESTRICTED, pods.path) == [], pods.name
        assert vetting.vet(without_our_own(made), a_tenant()) == []
        assert rendered(decision) == rendered(decision)
        assert all(
            pod_set.count >= 1 and all(amount > 0 for amount in pod_set.requests.values())
            for pod_set in decision.pod_sets
        )


def without_our_own(manifest: dict) -> dict:
    """A rendered object less the labels, variables and volumes that are Sluice's to write."""
    found = copy.deepcopy(manifest)
    for metadata in metadatas(found):
        for kind in ("labels", "annotations"):
            kept = metadata.get(kind, {}).items()
            metadata[kind] = {k: v for k, v in kept if not k.startswith("sluice.dev/")}
    for pods in list_pod_sets(found):
        pod = pods.template["spec"]
        assert pods.job is not None
        pods.job.get("podFailurePolicy", {}).get("rules", [None]).pop(0)
        pod["volumes"] = [
            volume
            for volume in pod.get("volumes", [])
            if not volume.get("persistentVolumeClaim", {}).get("claimName", "").startswith("w-")
        ]
        for _, container in pod_security.containers(pod):
            variables = container.get("env", [])
            container["env"] = [v for v in variables if not v["name"].startswith("SLUICE_")]
    return found


def metadatas(manifest: dict) -> list[dict]:
    jobs = [entry["template"] for entry in manifest["spec"].get("replicatedJobs", [])] or [manifest]
    return [manifest["metadata"]] + [
        holder.setdefault("metadata", {})
        for job in jobs
        for holder in (job, job["spec"]["template"])
    ]


@given(VALUES)
def test_strict_json_reads_what_json_writes(value):
    text = json.dumps(value)
    try:
        read = strict_json.parse(text)
    except strict_json.JsonError:  # NUL, half a surrogate pair, or a number too long
        return
    assert read == value


def test_the_seeds_are_good_documents():
    for seed in SEEDS:
        (decision,) = decisions(json.dumps(seed))
        assert isinstance(decision, Accepted), decision.errors
