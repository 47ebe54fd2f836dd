"""The kind JobSet: its controller makes a Job of each replica of its templates."""

from __future__ import annotations

import re
from typing import Final

from sluice.core.config.document import Flaw
from sluice.core.jobs.field_rules import COUNT, WEEK_SECONDS, between, list_of, pattern
from sluice.core.jobs.kind import Document, JobKind, PodSetPath

_NAME: Final = re.compile(r"[a-z]([-a-z0-9]{0,30}[a-z0-9])?", re.ASCII)


def _check(manifest: Document, path: str) -> list[Flaw]:
    at = f"{path}.spec" if path else "spec"
    spec = manifest.get("spec")
    if not spec:
        return [Flaw("", at, "is missing; a Job needs a pod template")]
    entries = spec.get("replicatedJobs") or []
    if not entries:
        text = "is missing; a JobSet needs at least one Job"
        return [Flaw("", f"{at}.replicatedJobs", text)]
    names = [entry.get("name") for entry in entries]
    flaws = [
        Flaw("", f"{at}.replicatedJobs[{place}].name", "must be given, each name once")
        for place, name in enumerate(names)
        if name is None or name in names[:place]
    ]
    for place, entry in enumerate(entries):
        if not (entry.get("template") or {}).get("spec"):
            where = f"{at}.replicatedJobs[{place}].template.spec"
            return [*flaws, Flaw("", where, "is missing")]
    return flaws


def _all_ready(job_set: Document) -> bool:
    statuses = (job_set.get("status") or {}).get("replicatedJobsStatus") or ()
    ready = {entry["name"]: entry.get("ready", 0) + entry.get("succeeded", 0) for entry in statuses}
    return all(
        ready.get(entry["name"], 0) >= entry.get("replicas", 1)
        for entry in job_set["spec"]["replicatedJobs"]
    )


def _starts_in_order(job_set: Document) -> bool:
    spec = job_set["spec"]
    order = (spec.get("startupPolicy") or {}).get("startupPolicyOrder")
    return order == "InOrder" or any(entry.get("dependsOn") for entry in spec["replicatedJobs"])


JOBSET: Final = JobKind(
    kind="JobSet",
    group="jobset.x-k8s.io",
    version="v1alpha2",
    plural="jobsets",
    pod_sets=(
        PodSetPath(
            at=("spec", "replicatedJobs", "*"),
            name_field="name",
            job=("template", "spec"),
            replicas="replicas",
        ),
    ),
    children=("spec", "replicatedJobs", "*"),
    controller="system:serviceaccount:jobset-system:jobset-controller-manager",
    check=_check,
    succeeded=("Completed",),
    all_ready=_all_ready,
    starts_in_order=_starts_in_order,
    completion_mode="Indexed",
    fields={
        "JobSet": {
            "apiVersion": "pass str",
            "kind": "pass str",
            "metadata": "pass ObjectMeta",
            "spec": "pass JobSetSpec",
            "status": "sluice any",
        },
        "JobSetSpec": {
            "coordinator": "pass Coordinator",
            "failurePolicy": "pass FailurePolicy",
            "managedBy": "refused any",
            "network": "pass Network",
            "replicatedJobs": "bounded [ReplicatedJob]",
            "startupPolicy": "pass StartupPolicy",
            "successPolicy": "pass JobSetSuccessPolicy",
            "suspend": "sluice bool",
            "ttlSecondsAfterFinished": "bounded int",
            "volumeClaimPolicies": "refused any",
        },
        "ReplicatedJob": {
            "dependsOn": "pass [DependsOn]",
            "groupName": "pass str",
            "name": "bounded str",
            "replicas": "bounded int",
            "template": "pass JobTemplateSpec",
        },
        "JobTemplateSpec": {"metadata": "pass ObjectMeta", "spec": "pass JobSpec"},
        "DependsOn": {"name": "pass str", "status": "pass str"},
        "Network": {
            "enableDNSHostnames": "pass bool",
            "publishNotReadyAddresses": "pass bool",
            "subdomain": "pass str",
        },
        "JobSetSuccessPolicy": {"operator": "pass str", "targetReplicatedJobs": "pass [str]"},
        "FailurePolicy": {
            "maxRestarts": "pass int",
            "restartStrategy": "pass str",
            "rules": "pass [FailurePolicyRule]",
        },
        "FailurePolicyRule": {
            "action": "pass str",
            "name": "pass str",
            "onJobFailureMessagePatterns": "pass [str]",
            "onJobFailureReasons": "pass [str]",
            "targetReplicatedJobs": "pass [str]",
        },
        "StartupPolicy": {"startupPolicyOrder": "pass str"},
        "Coordinator": {
            "jobIndex": "pass int",
            "podIndex": "pass int",
            "replicatedJob": "pass str",
        },
    },
    hints={
        "JobSetSpec.managedBy": "remove it; the JobSet controller of the cluster runs the JobSet",
        "JobSetSpec.volumeClaimPolicies": "remove it; ask for S3 with spec.volumes of a Workload",
    },
    rules={
        "JobSetSpec.replicatedJobs": list_of(1, 50, "entries"),
        "JobSetSpec.ttlSecondsAfterFinished": between(60, WEEK_SECONDS),
        "ReplicatedJob.name": pattern(_NAME, "at most 32 of a-z, 0-9 and '-'"),
        "ReplicatedJob.replicas": COUNT,
    },
)
