"""Documents and tenants that show only what a test is about."""

import json
from typing import Any

from sluice.core.config.tenants import Tenant
from sluice.core.intake import documents
from sluice.core.intake.rendering import Generation, PodPlacement, render
from sluice.core.intake.submission import Accepted, Rejected, kubernetes_object, submission

DIGEST = "sha256:" + "0" * 64
NOW = 1_763_700_000_000


def a_tenant(**changes: Any) -> Tenant:
    usual: dict[str, Any] = {
        "name": "blue",
        "namespaces": ("team-blue",),
        "images": ("*",),
        "require_digest": False,
    }
    return Tenant(**(usual | changes))


def a_workload(**spec: Any) -> dict[str, Any]:
    usual = {"queue": "research", "image": "embed:1", "resources": {"cpu": 4, "memory": "16Gi"}}
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": "embed", "idempotencyKey": "nightly-1"},
        "spec": usual | spec,
    }


def a_verbatim(job: dict[str, Any], **spec: Any) -> dict[str, Any]:
    """A native Workload around a Job or JobSet."""
    document = a_workload(**spec)
    del document["spec"]["image"], document["spec"]["resources"]
    document["spec"]["job"] = job
    return document


def a_container(**fields: Any) -> dict[str, Any]:
    usual = {
        "name": "main",
        "image": "train:1",
        "resources": {"requests": {"cpu": "4", "memory": "16Gi"}},
    }
    return usual | fields


def a_pod(**fields: Any) -> dict[str, Any]:
    return {"restartPolicy": "Never", "containers": [a_container()]} | fields


def a_job(pod: dict[str, Any] | None = None, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {"name": "train", "labels": {"sluice.dev/queue-name": "research"}},
        "spec": {"template": {"spec": pod or a_pod()}} | spec,
    }


def a_job_set(*jobs: dict[str, Any]) -> dict[str, Any]:
    return {
        "apiVersion": "jobset.x-k8s.io/v1alpha2",
        "kind": "JobSet",
        "metadata": {"name": "gang", "labels": {"sluice.dev/queue-name": "research"}},
        "spec": {"replicatedJobs": list(jobs)},
    }


def a_replicated_job(name: str, replicas: int = 1, **job: Any) -> dict[str, Any]:
    template = {"spec": {"template": {"spec": a_pod()}} | job}
    return {"name": name, "replicas": replicas, "template": template}


def judged(document: Any, tenant: Tenant | None = None, key: str = "m-1") -> Accepted | Rejected:
    """The decision about one document, after a journey through its JSON text."""
    (item,) = documents.read(document if isinstance(document, str) else json.dumps(document))
    assert not isinstance(item, documents.ManifestReference)
    return submission(item, tenant=tenant or a_tenant(), key=key, now_ms=NOW)


def accepted(document: Any, tenant: Tenant | None = None, key: str = "m-1") -> Accepted:
    decision = judged(document, tenant, key)
    assert isinstance(decision, Accepted), decision.errors
    return decision


def errors(document: Any, tenant: Tenant | None = None) -> dict[str, str]:
    """Field path to message of a rejected document."""
    decision = judged(document, tenant)
    assert isinstance(decision, Rejected), "accepted"
    return {error["field"]: error["message"] for error in decision.errors}


def rendered(
    workload: Accepted,
    *,
    placement: PodPlacement | None = None,
    counts: dict[str, int] | None = None,
    **run: Any,
) -> list[dict[str, Any]]:
    """The objects of a workload that was admitted as asked, or with these counts."""
    given = placement or PodPlacement(0)
    placements = {
        pod_set.name: PodPlacement(
            (counts or {}).get(pod_set.name, pod_set.count), given.node_labels, given.tolerations
        )
        for pod_set in workload.pod_sets
    }
    asked: dict[str, Any] = {
        "id": workload.id,
        "name": workload.name,
        "namespace": workload.namespace,
        "queue": workload.queue,
        "generation": 1,
        "placements": placements,
        "options": workload.options,
    }
    return render(kubernetes_object(workload.manifest), Generation(**(asked | run)))


def rendered_pod(workload: Accepted, **run: Any) -> dict[str, Any]:
    """The pod spec of a workload with one Job."""
    pod: dict[str, Any] = rendered(workload, **run)[-1]["spec"]["template"]["spec"]
    return pod
