"""Renders an admitted workload to the Kubernetes objects that run it; pure, dict in, dict out."""

from __future__ import annotations

import copy
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from sluice.core.checkpoints.driver import Connections, RestoreNeeds
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.intake import pod_security, reserved_names
from sluice.core.intake.vetting import without_nulls
from sluice.core.jobs import gang_start, node_wishes
from sluice.core.jobs.kind import set_at, value_at
from sluice.core.jobs.table import kind_of, list_child_templates, list_pod_sets
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.options import FailureAction
from sluice.core.migrations import gangs
from sluice.core.migrations import pod_annotations as known_marks
from sluice.core.migrations.cpu_compatibility import node_labels
from sluice.core.values.grace import DEFAULT_GRACE_SECONDS, MAX_GRACE_SECONDS
from sluice.core.values.identity import job_name, volume_name
from sluice.core.values.log_keys import generation_folder

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sluice.core.config.model import PodSetAssignment, ResourceFlavor, Toleration
    from sluice.core.jobs.kind import JobKind, PodSetSpec
    from sluice.core.lifecycle.options import FailureRule, Options, S3Volume

WORKLOAD: Final = "sluice.dev/workload"
GENERATION: Final = "sluice.dev/generation"
QUEUE: Final = "sluice.dev/queue"
MANAGED: Final = "sluice.dev/managed"
RESTORE_FROM: Final = known_marks.RESTORE_FROM
_IGNORE_DISRUPTION: Final = {
    "action": "Ignore",
    "onPodConditions": [{"type": "DisruptionTarget", "status": "True"}],
}
# What the standard cannot overcommit: Kubernetes wants the limit to equal the request.
_OVERCOMMITTED: Final = ("cpu", "memory", "ephemeral-storage")


@dataclass(frozen=True, slots=True)
class PodPlacement:
    """Where one pod set runs: its admitted count, and what its flavors say about nodes."""

    count: int
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerations: Sequence[Mapping[str, Any]] = ()


def placement(assigned: PodSetAssignment, flavors: Mapping[str, ResourceFlavor]) -> PodPlacement:
    """What the flavors of an admitted pod set say about its nodes."""
    labels: dict[str, str] = {}
    tolerations: list[Mapping[str, str]] = []
    for name in sorted(set(assigned.flavors.values())):
        flavor = flavors[name]
        labels |= flavor.node_labels
        tolerations += [
            {"key": t.key, "operator": "Equal", "value": t.value, "effect": t.effect.value}
            for t in flavor.node_taints
        ]
        tolerations += [_toleration(t) for t in flavor.tolerations]
    return PodPlacement(assigned.count, labels, tolerations)


def _toleration(given: Toleration) -> Mapping[str, str]:
    written = {"key": given.key, "operator": given.operator, "value": given.value}
    if given.effect is not None:
        written["effect"] = given.effect.value
    return {name: text for name, text in written.items() if text}


@dataclass(frozen=True, slots=True)
class Generation:
    """One generation of a workload as it is to be rendered.

    `queue` is `namespace/localQueue`; `placements` go by pod set name. `node_selector_terms` are
    alternatives for required node affinity, such as those that avoid quarantined offerings.
    `checkpoints` is the address (`s3://BUCKET/PREFIX/`) below which node agents store them; `cpu`
    is what its checkpoint can be restored on (core.migrations.cpu_compatibility).
    """

    id: str
    name: str
    namespace: str
    queue: str
    generation: int
    placements: Mapping[str, PodPlacement]
    options: Options
    restore_from: str | None = None
    node_selector_terms: Sequence[Mapping[str, Any]] = ()
    checkpoints: str = ""
    cpu: str = ""
    in_place: bool = False
    """Whether an object that is there already runs it, of whose containers nothing can change."""


def render(manifest: Mapping[str, Any], run: Generation) -> list[dict[str, Any]]:
    """The objects to create, volumes first: PersistentVolume and claim per S3 volume, then the Job.

    `manifest` is the vetted job (`submission.kubernetes_object` of the stored document).
    The Job is suspended and named by workload and generation; volumes are named by workload
    alone, since they outlive a generation.
    """
    rendered = without_nulls(copy.deepcopy(dict(manifest)))
    rendered.pop("status", None)
    metadata = rendered.get("metadata") or {}
    rendered["metadata"] = {
        "name": job_name(run.id, run.generation),
        "namespace": run.namespace,
        "labels": _kept(metadata.get("labels")) | _labels(run),
        "annotations": _kept(metadata.get("annotations")) | {"sluice.dev/name": run.name},
    }
    if run.restore_from:
        rendered["metadata"]["annotations"][RESTORE_FROM] = run.restore_from
    kind = kind_of(rendered)
    set_at(rendered, kind.suspend, value=True)
    if kind.time_to_live and value_at(rendered, kind.time_to_live) is None:
        set_at(rendered, kind.time_to_live, value=job_status.TIME_TO_LIVE_SECONDS)
    _limits(rendered, kind, run.options)
    together = sum(run.placements[pod_set.name].count for pod_set in list_pod_sets(rendered))
    in_order = kind.starts_in_order(rendered)
    for pod_set in list_pod_sets(rendered):
        count = run.placements[pod_set.name].count if in_order else together
        stage = pod_set.name if in_order else ""
        name = gang_start.config_map_name(run.id, run.generation, stage)
        _pod_set(pod_set, run, (name, count) if count > 1 and not run.in_place else None)
    for template in list_child_templates(rendered):
        template["spec"].pop("suspend", None)  # their owner suspends these Jobs
        template["metadata"] = _template_metadata(template.get("metadata") or {}, _labels(run))
    return [*_volumes(run), rendered]


def _limits(rendered: dict[str, Any], kind: JobKind, options: Options) -> None:
    """What `_job` writes into JobSpecs, for a kind that has none."""
    for at, value in kind.fixed.items():
        set_at(rendered, at, value=value)
    longest, retries = options.deadlines.max_runtime_seconds, options.recovery.retries
    if kind.deadline and longest and value_at(rendered, kind.deadline) is None:
        set_at(rendered, kind.deadline, value=longest)
    if kind.retries and retries is not None:
        set_at(rendered, kind.retries, value=retries)


def _labels(run: Generation) -> dict[str, str]:
    return {
        WORKLOAD: run.id,
        GENERATION: str(run.generation),
        QUEUE: run.queue.rpartition("/")[2],
        MANAGED: "true",
    }


def _kept(written: Mapping[str, str] | None) -> dict[str, str]:
    """The submitter's labels or annotations that reach the cluster."""
    return {key: text for key, text in (written or {}).items() if reserved_names.passed_on(key)}


def _template_metadata(written: Mapping[str, Any], labels: Mapping[str, str]) -> dict[str, Any]:
    metadata: dict[str, Any] = {"labels": _kept(written.get("labels")) | dict(labels)}
    if annotations := _kept(written.get("annotations")):
        metadata["annotations"] = annotations
    return metadata


def _pod_set(pod_set: PodSetSpec, run: Generation, gang: tuple[str, int] | None) -> None:
    """`gang`: which ConfigMap they wait for, and how many start together; None: each by itself."""
    placement = run.placements[pod_set.name]
    template = pod_set.template
    pod = template["spec"]
    if pod_set.job is not None:
        _job(pod_set.job, pod_set.count, placement, run)
    labels = _labels(run) | {job_status.POD_SET_LABEL: pod_set.name}
    template["metadata"] = _template_metadata(template.get("metadata") or {}, labels)
    annotations = template["metadata"].setdefault("annotations", {})
    annotations["karpenter.sh/do-not-disrupt"] = "true"
    annotations |= _checkpoint_marks(run) | _log_address(run)
    if gang:
        annotations |= {gang_start.GANG: gang[0], gang_start.SIZE: str(gang[1])}
        for _, container in pod_security.containers(pod):
            held = gang_start.variable(gang[0])
            container["env"] = [held, *container.get("env", [])]
    needs = restore_needs(run)
    if needs.gated:
        pod["schedulingGates"] = [{"name": gangs.GATE}]
    if needs.stand_in:
        template["metadata"]["finalizers"] = [job_status.STAND_IN]
    if needs.annotated and run.restore_from:
        annotations[RESTORE_FROM] = run.restore_from
    _pod(pod, placement, run)


def _job(job: dict[str, Any], asked: int, placement: PodPlacement, run: Generation) -> None:
    """Completes a JobSpec, of whose pod set `asked` pods were asked for."""
    if placement.count < asked:  # partial admission
        job["parallelism"] = placement.count
    # Only then is a pod replaced after it is gone, and two never run at once.
    job["podReplacementPolicy"] = "Failed"
    recovery = run.options.recovery
    if recovery.retries is not None:
        job["backoffLimit"] = recovery.retries
    if longest := run.options.deadlines.max_runtime_seconds:
        job.setdefault("activeDeadlineSeconds", longest)
    if job["template"]["spec"]["restartPolicy"] == "Never":  # failure policies need it
        policy = job.setdefault("podFailurePolicy", {})
        own = _by_exit_code(recovery.rules)
        policy["rules"] = [copy.deepcopy(_IGNORE_DISRUPTION), *own, *policy.get("rules", [])]


def _by_exit_code(rules: Iterable[FailureRule]) -> list[dict[str, Any]]:
    """`recovery.onFailure.rules` in Kubernetes' words, of which a Job may have few: one an action.

    The first rule that names an exit code counts for it.
    """
    actions: dict[int, str] = {}
    for rule in rules:
        retried = "Count" if rule.counts_against_budget else "Ignore"
        action = "FailJob" if rule.action is FailureAction.FAIL else retried
        for code in rule.exit_codes:
            if code:  # 0 is no failure
                actions.setdefault(code, action)
    return [
        {
            "action": action,
            "onExitCodes": {
                "operator": "In",
                "values": sorted(code for code, each in actions.items() if each == action),
            },
        }
        for action in dict.fromkeys(actions.values())
    ]


def _checkpoint_marks(run: Generation) -> dict[str, str]:
    """What the node agent has to know to save the pod."""
    checkpoint = run.options.checkpoint
    if checkpoint is None:
        return {}
    marks = {known_marks.DRIVER: checkpoint.mode.value, known_marks.SIGNAL: checkpoint.signal}
    if driver_of(run.options).closes_connections:
        marks[known_marks.CONNECTIONS] = checkpoint.connections or Connections.CLOSE
    if run.checkpoints:
        marks[known_marks.DESTINATION] = f"{run.checkpoints}{run.id}/{run.generation}/"
    return {name: text for name, text in marks.items() if text}


def _log_address(run: Generation) -> dict[str, str]:
    """Where nodes store logs, and `adapters.s3_logs` reads them (core.values.log_keys)."""
    bucket = urlsplit(run.checkpoints).netloc
    folder = generation_folder(run.id, run.generation)
    return {known_marks.LOGS: f"s3://{bucket}/{folder}"} if bucket else {}


def _pod(pod: dict[str, Any], placement: PodPlacement, run: Generation) -> None:
    security = run.options.security
    pod["automountServiceAccountToken"] = False
    grace = pod.get("terminationGracePeriodSeconds", DEFAULT_GRACE_SECONDS)
    asked = run.options.checkpoint_grace_seconds
    pod["terminationGracePeriodSeconds"] = min(max(grace, asked), MAX_GRACE_SECONDS)
    if security.service_account:
        pod["serviceAccountName"] = security.service_account
    pod.pop("priorityClassName", None)  # it has told the priority in the queue
    # A flavor that names its CPUs has decided already.
    labels = {**node_labels(run.cpu), **placement.node_labels}
    node_wishes.place(pod, labels, placement.tolerations, run.node_selector_terms)
    pod_security.harden(pod, security.level, run_as_user=security.run_as_user)
    if driver_of(run.options).filters_calls:
        context = pod.setdefault("securityContext", {})
        context.setdefault("seccompProfile", {"type": "RuntimeDefault"})
    volumes = run.options.volumes
    if runtime_class := driver_of(run.options).runtime_class(pod):
        pod["runtimeClassName"] = runtime_class
    if volumes:
        pod.setdefault("volumes", []).extend(_pod_volume(volume, run) for volume in volumes)
    for _, container in pod_security.containers(pod):
        _container(container, volumes, run)
    if image := restore_needs(run).image:
        pod["containers"][0]["image"] = image


def restore_needs(run: Generation) -> RestoreNeeds:
    """What its pods bear if it starts from a checkpoint."""
    return driver_of(run.options).restore_needs(run.restore_from or "")


def _container(container: dict[str, Any], volumes: Iterable[S3Volume], run: Generation) -> None:
    # In front, so that the submitter's own variables may refer to them.
    container["env"] = [*environment(run), *container.get("env", [])]
    mounts = [
        {"name": volume.name, "mountPath": volume.mount_path}
        | ({"readOnly": True} if volume.read_only else {})
        for volume in volumes
    ]
    if mounts:
        container.setdefault("volumeMounts", []).extend(mounts)
    resources = container.get("resources") or {}
    for resource, each in (resources.get("requests") or {}).items():
        if resource not in _OVERCOMMITTED:
            resources.setdefault("limits", {}).setdefault(resource, each)


def environment(run: Generation) -> list[dict[str, str]]:
    """The variables that tell a container who it is and where its checkpoints go."""
    checkpoint = run.options.checkpoint
    asked: dict[str, object] = {}
    if checkpoint is not None:
        asked = {
            "SLUICE_CHECKPOINT_MODE": checkpoint.mode.value,
            "SLUICE_CHECKPOINT_URI": checkpoint.uri or None,
            "SLUICE_CHECKPOINT_DIR": checkpoint_folder(run.options),
            "SLUICE_CHECKPOINT_SIGNAL": checkpoint.signal or None,
            "SLUICE_CHECKPOINT_GRACE_SECONDS": checkpoint.grace_seconds,
            "SLUICE_CHECKPOINT_INTERVAL_SECONDS": checkpoint.interval_seconds,
        }
    values: dict[str, object] = {
        "SLUICE_WORKLOAD_ID": run.id,
        "SLUICE_WORKLOAD_NAME": run.name,
        "SLUICE_GENERATION": run.generation,
        "SLUICE_QUEUE": run.queue,
        **asked,
        "SLUICE_RESTORE_FROM": run.restore_from,
    }
    return [
        {"name": name, "value": str(value)} for name, value in values.items() if value is not None
    ]


def checkpoint_folder(options: Options) -> str | None:
    """Where the checkpoints' address lies in the container, if a writable volume covers it."""
    uri = options.checkpoint.uri if options.checkpoint else ""
    for volume in options.volumes:
        source = f"s3://{volume.bucket}/{volume.prefix}"
        if f"{uri}/".startswith(source) and not volume.read_only:
            below = uri[len(source) :].strip("/")
            return f"{volume.mount_path}/{below}" if below else volume.mount_path
    return None


def _pod_volume(volume: S3Volume, run: Generation) -> dict[str, Any]:
    claim: dict[str, Any] = {"claimName": volume_name(run.id, volume.name)}
    if volume.read_only:
        claim["readOnly"] = True
    return {"name": volume.name, "persistentVolumeClaim": claim}


def _volumes(run: Generation) -> list[dict[str, Any]]:
    """Static provisioning for the Mountpoint for Amazon S3 CSI driver, one pair per volume."""
    objects: list[dict[str, Any]] = []
    for volume in run.options.volumes:
        name = volume_name(run.id, volume.name)
        metadata = {"name": name, "labels": {WORKLOAD: run.id, MANAGED: "true"}}
        access = ["ReadOnlyMany" if volume.read_only else "ReadWriteMany"]
        attributes = {"bucketName": volume.bucket, "authenticationSource": "pod"}
        if volume.region:
            attributes["stsRegion"] = volume.region
        storage = {"storage": "1Ti"}  # mandatory, and ignored by the driver
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolume",
                "metadata": metadata,
                "spec": {
                    "capacity": storage,
                    "accessModes": access,
                    "persistentVolumeReclaimPolicy": "Retain",
                    "storageClassName": "",
                    "claimRef": {"namespace": run.namespace, "name": name},
                    "mountOptions": _mount_options(volume, run),
                    "csi": {
                        "driver": "s3.csi.aws.com",
                        "volumeHandle": name,
                        "volumeAttributes": attributes,
                    },
                },
            }
        )
        objects.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata | {"namespace": run.namespace},
                "spec": {
                    "accessModes": access,
                    "storageClassName": "",
                    "volumeName": name,
                    "resources": {"requests": storage},
                },
            }
        )
    return objects


def _mount_options(volume: S3Volume, run: Generation) -> list[str]:
    writable = ["allow-delete", "allow-overwrite"]
    options = ["read-only"] if volume.read_only else writable
    if volume.region:
        options = [*options, f"region {volume.region}"]
    if volume.prefix:
        options = [*options, f"prefix {volume.prefix}"]
    if user := run.options.security.run_as_user:
        # Else only root could read the mount, and pods under `restricted` are not root.
        options = [*options, "allow-other", f"uid={user}", f"gid={user}"]
    return options
