"""The kinds of Kubeflow's training-operator: one shape, in which roles map to pod templates.

MPIJob of kubeflow.org/v1 is none of them: its launcher starts the workers with `kubectl exec`, for
which its pod would need an account with that right.
Source: pkg/apis/kubeflow.org/v1 and pkg/webhooks of the training-operator 1.9.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from sluice.core.config.document import Flaw
from sluice.core.jobs.field_rules import COUNT, WEEK_SECONDS, between, list_of, one_of
from sluice.core.jobs.kind import Document, JobKind, PodSetPath

CONTROLLER: Final = "system:serviceaccount:kubeflow:training-operator"
_GROUP: Final = "kubeflow.org"
_RUN_POLICY: Final = ("spec", "runPolicy")
_TYPES: Final = {
    "RunPolicy": {
        "activeDeadlineSeconds": "bounded int",
        "backoffLimit": "bounded int",
        "cleanPodPolicy": "sluice str",
        "managedBy": "refused any",
        "schedulingPolicy": "refused any",
        "suspend": "sluice bool",
        "ttlSecondsAfterFinished": "bounded int",
    },
    "ReplicaSpec": {
        "replicas": "bounded int",
        "restartPolicy": "bounded str",
        "template": "pass PodTemplateSpec",
    },
}
_HINTS: Final = {
    "RunPolicy.managedBy": "remove it; the training-operator of the cluster runs the job",
    "RunPolicy.schedulingPolicy": "remove it; all pods of the job start together anyway",
}
_ELASTIC: Final = "remove it; the quota is for a fixed number of pods"
_RULES: Final = {
    "RunPolicy.backoffLimit": between(0, 10_000),
    "RunPolicy.ttlSecondsAfterFinished": between(60, WEEK_SECONDS),
    "ReplicaSpec.replicas": COUNT,
    "ReplicaSpec.restartPolicy": one_of("Always", "OnFailure", "Never", "ExitCode"),
}


def _row(
    kind: str,
    replica_specs: str,
    container: str,
    roles: Sequence[str],
    *,
    one_of_each: Sequence[str] = (),
    required: Sequence[str] = (),
    more_fields: dict[str, str] | None = None,
    more_hints: dict[str, str] | None = None,
) -> JobKind:
    """A row; in each pod the operator looks for a container of the given name."""
    return JobKind(
        kind=kind,
        group=_GROUP,
        version="v1",
        plural=f"{kind.lower()}s",
        pod_sets=(PodSetPath(at=("spec", replica_specs, "*"), replicas="replicas"),),
        controller=CONTROLLER,
        add_on="kubeflow",
        check=_check(replica_specs, container, roles, one_of_each, required),
        suspend=(*_RUN_POLICY, "suspend"),
        time_to_live=(*_RUN_POLICY, "ttlSecondsAfterFinished"),
        deadline=(*_RUN_POLICY, "activeDeadlineSeconds"),
        retries=(*_RUN_POLICY, "backoffLimit"),
        # Otherwise pods of other roles would run on past the end of the job.
        fixed={(*_RUN_POLICY, "cleanPodPolicy"): "Running"},
        ends_before_its_pods=True,
        fields={
            kind: {
                "apiVersion": "pass str",
                "kind": "pass str",
                "metadata": "pass ObjectMeta",
                "spec": f"pass {kind}Spec",
                "status": "sluice any",
            },
            f"{kind}Spec": {
                replica_specs: "bounded {ReplicaSpec}",
                "runPolicy": "pass RunPolicy",
                **(more_fields or {}),
            },
            **_TYPES,
        },
        hints={**_HINTS, **(more_hints or {})},
        rules={f"{kind}Spec.{replica_specs}": list_of(1, len(roles), "roles"), **_RULES},
    )


def _check(
    replica_specs: str,
    container: str,
    roles: Sequence[str],
    one_of_each: Sequence[str],
    required: Sequence[str],
) -> Callable[[Document, str], list[Flaw]]:
    """What the operator's own webhook refuses, told at the submission."""

    def check(manifest: Document, path: str) -> list[Flaw]:
        at = f"{path}.spec" if path else "spec"
        replicas = (manifest.get("spec") or {}).get(replica_specs)
        if not replicas:
            text = f"is missing; give the pods of {', '.join(roles)}"
            return [Flaw("", f"{at}.{replica_specs}", text)]
        flaws = [
            Flaw("", f"{at}.{replica_specs}.{role}", "is missing")
            for role in required
            if role not in replicas
        ]
        for role, replica in replicas.items():
            where = f"{at}.{replica_specs}.{role}"
            if role not in roles:
                flaws.append(Flaw("", where, f"is no role; those are {', '.join(roles)}"))
                continue
            pod = ((replica or {}).get("template") or {}).get("spec")
            if not pod:
                flaws.append(Flaw("", f"{where}.template.spec", "is missing"))
            elif container not in [one.get("name") for one in pod.get("containers") or ()]:
                text = f"need one named {container}, which the training-operator sets up"
                flaws.append(Flaw("", f"{where}.template.spec.containers", text))
            if role in one_of_each and (replica or {}).get("replicas", 1) != 1:
                flaws.append(Flaw("", f"{where}.replicas", "must be 1"))
        return flaws

    return check


PYTORCHJOB: Final = _row(
    "PyTorchJob",
    "pytorchReplicaSpecs",
    "pytorch",
    ("Master", "Worker"),
    one_of_each=("Master",),
    more_fields={"elasticPolicy": "refused any", "nprocPerNode": "pass str"},
    more_hints={"PyTorchJobSpec.elasticPolicy": _ELASTIC},
)
TFJOB: Final = _row(
    "TFJob",
    "tfReplicaSpecs",
    "tensorflow",
    ("PS", "Worker", "Chief", "Master", "Evaluator"),
    one_of_each=("Chief", "Master"),
    more_fields={"enableDynamicWorker": "refused any", "successPolicy": "pass str"},
    more_hints={"TFJobSpec.enableDynamicWorker": _ELASTIC},
)
XGBOOSTJOB: Final = _row(
    "XGBoostJob",
    "xgbReplicaSpecs",
    "xgboost",
    ("Master", "Worker"),
    one_of_each=("Master",),
    required=("Master",),
)
PADDLEJOB: Final = _row(
    "PaddleJob",
    "paddleReplicaSpecs",
    "paddle",
    ("Master", "Worker"),
    more_fields={"elasticPolicy": "refused any"},
    more_hints={"PaddleJobSpec.elasticPolicy": _ELASTIC},
)
JAXJOB: Final = _row("JAXJob", "jaxReplicaSpecs", "jax", ("Worker",), required=("Worker",))
