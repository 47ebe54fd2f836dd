"""The kind Job of Kubernetes."""

from __future__ import annotations

from typing import Any, Final

from sluice.core.config.document import Flaw
from sluice.core.jobs.field_rules import COUNT, WEEK_SECONDS, between, one_of
from sluice.core.jobs.kind import JOB_CONTROLLER, Document, JobKind, PodSetPath

POD_SET: Final = "main"


def parallel_pods(job: Document) -> int:
    """The most pods of one JobSpec that run together."""
    together: int = job.get("parallelism", 1)
    completions: int | None = job.get("completions")
    return together if completions is None else min(together, completions)


def _check(manifest: Document, path: str) -> list[Flaw]:
    if manifest.get("spec"):
        return []
    return [Flaw("", f"{path}.spec" if path else "spec", "is missing; a Job needs a pod template")]


def _all_ready(job: Document) -> bool:
    status: dict[str, Any] = job.get("status") or {}
    ready: int = status.get("ready", 0) + status.get("succeeded", 0)
    return ready >= parallel_pods(job["spec"])


JOB: Final = JobKind(
    kind="Job",
    group="batch",
    version="v1",
    plural="jobs",
    pod_sets=(PodSetPath(at=("spec",), name=POD_SET, job=()),),
    controller=JOB_CONTROLLER,
    check=_check,
    succeeded=("Complete",),
    all_ready=_all_ready,
    built_in=True,
    starts_in_place=True,
    partial_admission=True,
    makes_no_pods_once_deleted=True,
    adopts_pods=True,
    fields={
        "Job": {
            "apiVersion": "pass str",
            "kind": "pass str",
            "metadata": "pass ObjectMeta",
            "spec": "pass JobSpec",
            "status": "sluice any",
        },
        "JobSpec": {
            "activeDeadlineSeconds": "bounded int",
            "backoffLimit": "bounded int",
            "backoffLimitPerIndex": "bounded int",
            "completionMode": "bounded str",
            "completions": "bounded int",
            "managedBy": "refused any",
            "manualSelector": "refused any",
            "maxFailedIndexes": "bounded int",
            "parallelism": "bounded int",
            "podFailurePolicy": "bounded PodFailurePolicy",
            "podReplacementPolicy": "sluice str",
            "selector": "refused any",
            "successPolicy": "pass SuccessPolicy",
            "suspend": "sluice bool",
            "template": "pass PodTemplateSpec",
            "ttlSecondsAfterFinished": "bounded int",
        },
        "PodFailurePolicy": {"rules": "pass [PodFailurePolicyRule]"},
        "PodFailurePolicyRule": {
            "action": "pass str",
            "onExitCodes": "pass PodFailurePolicyOnExitCodesRequirement",
            "onPodConditions": "pass [PodFailurePolicyOnPodConditionsPattern]",
        },
        "PodFailurePolicyOnExitCodesRequirement": {
            "containerName": "pass str",
            "operator": "pass str",
            "values": "pass [int]",
        },
        "PodFailurePolicyOnPodConditionsPattern": {"status": "pass str", "type": "pass str"},
        "SuccessPolicy": {"rules": "pass [SuccessPolicyRule]"},
        "SuccessPolicyRule": {"succeededCount": "pass int", "succeededIndexes": "pass str"},
    },
    hints={
        "JobSpec.managedBy": "remove it; the Job controller of the cluster runs the Job",
        "JobSpec.manualSelector": "remove it; the Job controller makes the selector",
        "JobSpec.selector": "remove it; the Job controller makes the selector",
    },
    rules={
        "JobSpec.backoffLimit": between(0, 10_000),
        "JobSpec.backoffLimitPerIndex": between(0, 10_000),
        "JobSpec.completionMode": one_of("Indexed", "NonIndexed"),
        "JobSpec.completions": COUNT,
        "JobSpec.maxFailedIndexes": between(0, 100_000),
        "JobSpec.parallelism": COUNT,
        "JobSpec.ttlSecondsAfterFinished": between(60, WEEK_SECONDS),
    },
)
