"""Judges every field of a job's manifest against what its tenant may write."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.document import Flaw
from sluice.core.config.spec_fields import amount
from sluice.core.config.tenants import Tenant, matches
from sluice.core.intake import exec_limits, images, pod_security
from sluice.core.intake.pod_fields import FIELDS, HINTS, VOLUME_HINT
from sluice.core.intake.reserved_names import annotation_refusal, label_refusal, variable_refusal
from sluice.core.jobs.field_rules import FieldRule, between, list_of, one_of, pattern
from sluice.core.jobs.table import KINDS, kind_of, list_pod_sets
from sluice.core.values.grace import MAX_GRACE_SECONDS

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.jobs.kind import PodSetSpec

_INT32: Final = 2**31 - 1
_MAX_RULES: Final = 19  # Kubernetes allows 20, and one is ours
_MAX_LIST: Final = 10_000
_EXPLAINED: Final = 10  # flaws that get a suggestion; finding one costs time
_EXPLAINED_LENGTH: Final = 64  # of a name; no known one is longer
_INT64: Final = 2**63 - 1
_LABEL: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", re.ASCII)
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
# No `|`, which separates flavor and resource in ledgers.
_RESOURCE: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_./]{0,250}[A-Za-z0-9])?", re.ASCII)
CREDENTIAL: Final = re.compile(
    r"\b(?:AKIA|ASIA)[A-Z0-9]{16}\b|-----BEGIN [A-Z ]*PRIVATE KEY-----"
    r"|\bgh[pousr]_[A-Za-z0-9]{36}\b|\bxox[abprs]-[A-Za-z0-9-]{20,}",
    re.ASCII,
)
_SCALARS: Final[dict[str, tuple[type, ...]]] = {
    "str": (str,),
    "int": (int,),
    "bool": (bool,),
    "port": (int, str),
}
_WORDS: Final = {
    "str": "text; put it in quotes",
    "int": "a whole number",
    "bool": "true or false",
    "port": "a port's number or name",
}


@dataclass
class _Vetting:
    """One vetting under way."""

    tenant: Tenant
    flaws: list[Flaw] = field(default_factory=list)
    misshapen: int = 0

    def wrong(self, path: str, message: str) -> None:
        self.flaws.append(Flaw("", path, message))

    def struct(self, value: Any, kind: str, path: str) -> None:
        if not isinstance(value, dict):
            return self.misfit(path, "must be a map")
        table = FIELDS[kind]
        for name, item in value.items():
            at = f"{path}.{name}" if path else name
            entry = table.get(name)
            if entry is None:
                few = len(self.flaws) < _EXPLAINED and len(name) <= _EXPLAINED_LENGTH
                near = get_close_matches(name, table, n=1) if few else []
                hint = f"did you mean {near[0]}?" if near else "remove it"
                self.wrong(at[:500], f"unknown field; {hint}")
                continue
            if item is None:  # as Kubernetes, which takes null for absent
                continue
            self._field(f"{kind}.{name}", entry, item, at)
        return None

    def misfit(self, path: str, message: str) -> None:
        self.misshapen += 1
        self.wrong(path, message)

    def _field(self, name: str, entry: str, value: Any, path: str) -> None:
        treatment, _, shape = entry.partition(" ")
        if treatment in {"refused", "reserved"}:
            hint = HINTS.get(name, VOLUME_HINT if name.startswith("Volume.") else "remove it")
            self.wrong(path, f"may not be set; {hint}")
        elif treatment != "sluice":
            before = self.misshapen
            self._shape(value, shape, path)
            if treatment == "bounded" and self.misshapen == before:
                message = RULES[name](value, path, self)
                if message:
                    self.wrong(path, message)

    def _shape(self, value: Any, shape: str, path: str) -> None:
        if shape in FIELDS:
            self.struct(value, shape, path)
        elif shape.startswith("["):
            self._list(value, shape[1:-1], path)
        elif shape.startswith("{"):
            self._map(value, shape[1:-1], path)
        elif shape == "quantity":
            self._quantity(value, path)
        elif shape != "any":
            wrong_flag = isinstance(value, bool) and shape != "bool"
            too_large = isinstance(value, int) and abs(value) > _INT64
            if wrong_flag or too_large or not isinstance(value, _SCALARS[shape]):
                self.misfit(path, f"must be {_WORDS[shape]}")

    def _list(self, value: Any, shape: str, path: str) -> None:
        if not isinstance(value, list):
            return self.misfit(path, "must be a list")
        if len(value) > _MAX_LIST:
            return self.misfit(path, f"has {len(value)} entries; the most is {_MAX_LIST}")
        for place, item in enumerate(value):
            self._shape(item, shape, f"{path}[{place}]")
        return None

    def _map(self, value: Any, shape: str, path: str) -> None:
        if not isinstance(value, dict):
            return self.misfit(path, "must be a map")
        for key, item in value.items():
            self._shape(item, shape, f"{path}.{key}"[:500])
        return None

    def _quantity(self, value: Any, path: str) -> None:
        try:
            amount(path.rpartition(".")[2], value)
        except ValueError as error:
            self.misfit(path, str(error))


Rule = Callable[[Any, str, _Vetting], str | None]


def vet(manifest: Mapping[str, Any], tenant: Tenant, path: str = "") -> list[Flaw]:
    """Everything that a submitted job may not hold; `path` is where it lies.

    A manifest without flaws has the shapes that Kubernetes expects, and satisfies the tenant's
    Pod Security Standard once `pod_security.harden` has filled in what it leaves unsaid.
    """
    run = _Vetting(tenant)
    kind = kind_of(manifest).kind
    run.struct(manifest, kind, path)
    _credentials(manifest, path, run)
    if run.misshapen == 0:
        _whole(_submittable(manifest, kind), path, run)
    return run.flaws


def _submittable(value: Any, shape: str) -> Any:
    """A well-shaped value without what submitters may not write, which may have any shape."""
    if shape in FIELDS:
        entries = {name: FIELDS[shape].get(name, "refused any").split(" ") for name in value}
        return {
            name: _submittable(item, entries[name][1])
            for name, item in value.items()
            if item is not None and entries[name][0] in {"pass", "bounded", "profile"}
        }
    if shape.startswith("["):
        return [_submittable(item, shape[1:-1]) for item in value]
    if shape.startswith("{"):
        return {name: _submittable(item, shape[1:-1]) for name, item in value.items()}
    return value


def without_nulls(value: Any) -> Any:
    """A copy without null fields, which Kubernetes takes for absent."""
    if isinstance(value, dict):
        return {key: without_nulls(item) for key, item in value.items() if item is not None}
    if isinstance(value, list):
        return [without_nulls(item) for item in value]
    return value


def credentials(value: Any) -> list[Flaw]:
    """Where a document holds what looks like a credential."""
    run = _Vetting(Tenant(""))
    _credentials(value, "", run)
    return run.flaws


def _credentials(value: Any, path: str, run: _Vetting) -> None:
    match value:
        case str():
            if CREDENTIAL.search(value):
                run.wrong(path, "looks like a credential; give the pod an IAM role instead")
        case dict():
            for key, item in value.items():
                if CREDENTIAL.search(str(key)):
                    run.wrong(path, "a name looks like a credential; remove it")
                _credentials(item, f"{path}.{key}" if path else str(key), run)
        case list():
            for place, item in enumerate(value):
                _credentials(item, f"{path}[{place}]", run)


def _whole(manifest: Mapping[str, Any], path: str, run: _Vetting) -> None:
    """Rules about fields that must exist, and about several fields together."""
    run.flaws += kind_of(manifest).check(manifest, path)
    for pod_set in list_pod_sets(manifest, path):
        _pod_set(pod_set, run)


def _pod_set(pod_set: PodSetSpec, run: _Vetting) -> None:
    pod = pod_set.template.get("spec")
    at = f"{pod_set.template_path}.spec"
    if not pod:
        return run.wrong(at, "is missing; a Job needs a pod template")
    if pod_set.job is not None:
        _job(pod_set.job, pod, pod_set.path, run)
    if not pod.get("containers"):
        run.wrong(f"{at}.containers", "is missing; a pod needs at least one container")
    names: set[str] = set()
    for where, container in pod_security.containers(pod):
        _container(container, f"{at}.{where}", names, run)
    hardened = without_nulls(pod)
    pod_security.harden(hardened, run.tenant.pod_security)
    run.flaws += pod_security.violations(hardened, run.tenant.pod_security, at)
    return None


def _job(job: Mapping[str, Any], pod: Mapping[str, Any], path: str, run: _Vetting) -> None:
    if "restartPolicy" not in pod:
        where = f"{path}.template.spec.restartPolicy"
        run.wrong(where, 'is missing; write "Never" or "OnFailure"')
    if "podFailurePolicy" in job and pod.get("restartPolicy") == "OnFailure":
        run.wrong(f"{path}.podFailurePolicy", 'needs restartPolicy "Never" in the pod template')


def _container(container: Mapping[str, Any], path: str, names: set[str], run: _Vetting) -> None:
    name = container.get("name")
    if name is None or name in names:
        run.wrong(f"{path}.name", "must be given, each name once in a pod")
    names.add(str(name))
    if "image" not in container:
        run.wrong(f"{path}.image", "is missing; name the image to run")
    if run.tenant.require_limits:
        limits = (container.get("resources") or {}).get("limits") or {}
        for resource in ("cpu", "memory"):
            if resource not in limits:
                run.wrong(f"{path}.resources.limits.{resource}", "is missing; set a limit")
    mounts = {mount.get("mountPath") for mount in container.get("volumeMounts") or []}
    if len(mounts) != len(container.get("volumeMounts") or []):
        run.wrong(f"{path}.volumeMounts", "two mounts share a mountPath; give each its own")
    for where, message in exec_limits.beyond_limits(container):
        run.wrong(f"{path}.{where}", message)


def _anyone(rule: FieldRule) -> Rule:
    """A rule that is the same for every tenant."""
    return lambda value, _path, _run: rule(value)


def _registered(what: str, grant: str, key: str = "name") -> Rule:
    def rule(value: Mapping[str, Any], _path: str, run: _Vetting) -> str | None:
        name = str(value.get(key) or "")
        granted: tuple[str, ...] = getattr(run.tenant, grant)
        if name and matches(name, granted):
            return None
        return (
            f"the {what} {name[:63]!r} is not registered for tenant {run.tenant.name};"
            " ask the platform owner, or pass the value in another way"
        )

    return rule


def _labels(value: Mapping[str, str], path: str, run: _Vetting) -> None:
    for key, text in value.items():
        if message := label_refusal(key, text):
            run.wrong(f"{path}[{key[:300]}]", message)


def _annotations(value: Mapping[str, str], path: str, run: _Vetting) -> None:
    for key in value:
        if message := annotation_refusal(key, run.tenant.annotations):
            run.wrong(f"{path}[{key[:300]}]", message)


def _deadline(value: int, _path: str, run: _Vetting) -> str | None:
    most = run.tenant.max_runtime_seconds or _INT32
    if 1 <= value <= most:
        return None
    return f"{value} is out of bounds; write a whole number from 1 to {most} seconds"


def _image(value: str, _path: str, run: _Vetting) -> str | None:
    tenant = run.tenant
    return images.refusal(value, tenant.allowed_images, require_digest=tenant.require_digest)


def _token(value: bool, _path: str, _run: _Vetting) -> str | None:
    return "must be false; pods get their identity from the platform" if value else None


def _account(value: str, _path: str, run: _Vetting) -> str | None:
    if value == run.tenant.service_account:
        return None
    return "may not be set; remove it, Sluice sets the tenant's service account"


def _policy(value: Mapping[str, Any], _path: str, _run: _Vetting) -> str | None:
    if len(value.get("rules") or []) > _MAX_RULES:
        return f"has more than {_MAX_RULES} rules; Sluice adds one of its own"
    return None


def _linux(value: Mapping[str, Any], _path: str, _run: _Vetting) -> str | None:
    return None if value.get("name") in {None, "linux"} else "must be linux; remove it"


def _resources(value: Mapping[str, Any], path: str, run: _Vetting) -> None:
    for kind in ("requests", "limits"):
        for resource in value.get(kind) or {}:
            if _RESOURCE.fullmatch(resource) is None:
                run.wrong(f"{path}.{kind}.{resource[:300]}", "is not the name of a resource")


def _pull_secrets(value: list[Mapping[str, Any]], path: str, run: _Vetting) -> None:
    rule = _registered("Secret", "secrets")
    for place, secret in enumerate(value):
        if message := rule(secret, path, run):
            run.wrong(f"{path}[{place}].name", message)


def _variable(value: str, _path: str, run: _Vetting) -> str | None:
    return variable_refusal(value, run.tenant.environment)


_OBJECT_NAME = _anyone(pattern(_NAME, "at most 63 of a-z, 0-9, '-' and '.'"))
_DNS_LABEL = _anyone(pattern(_LABEL, "at most 63 of a-z, 0-9 and '-'"))
_SECRET = _registered("Secret", "secrets")
_CONFIG_MAP = _registered("ConfigMap", "config_maps")

# One rule for each `bounded` field: a message, or None; a rule may also report deeper paths.
_TENANT_RULES: Final[dict[str, Rule]] = {
    "ObjectMeta.annotations": _annotations,
    "ObjectMeta.labels": _labels,
    "ObjectMeta.name": _OBJECT_NAME,
    "JobSpec.activeDeadlineSeconds": _deadline,
    "JobSpec.podFailurePolicy": _policy,
    "PodSpec.activeDeadlineSeconds": _deadline,
    "RunPolicy.activeDeadlineSeconds": _deadline,
    "PodSpec.automountServiceAccountToken": _token,
    "PodSpec.containers": _anyone(list_of(1, 50, "containers")),
    "PodSpec.imagePullSecrets": _pull_secrets,
    "PodSpec.initContainers": _anyone(list_of(0, 50, "containers")),
    "PodSpec.os": _linux,
    "PodSpec.restartPolicy": _anyone(one_of("Never", "OnFailure")),
    "PodSpec.schedulerName": _anyone(one_of("default-scheduler")),
    "PodSpec.serviceAccount": _account,
    "PodSpec.serviceAccountName": _account,
    "PodSpec.terminationGracePeriodSeconds": _anyone(between(0, MAX_GRACE_SECONDS)),
    "Container.image": _image,
    "Container.name": _DNS_LABEL,
    "Container.resources": _resources,
    "EnvVar.name": _variable,
    "EnvVarSource.configMapKeyRef": _CONFIG_MAP,
    "EnvVarSource.secretKeyRef": _SECRET,
    "EnvFromSource.configMapRef": _CONFIG_MAP,
    "EnvFromSource.prefix": _variable,
    "EnvFromSource.secretRef": _SECRET,
    "NodeSelectorRequirement.operator": _anyone(
        one_of("In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt")
    ),
    "Toleration.effect": _anyone(one_of("NoSchedule", "PreferNoSchedule", "NoExecute")),
    "Toleration.operator": _anyone(one_of("Equal", "Exists")),
    "Probe.terminationGracePeriodSeconds": _anyone(between(0, MAX_GRACE_SECONDS)),
    "VolumeMount.mountPropagation": _anyone(one_of("None")),
    "Volume.configMap": _CONFIG_MAP,
    "Volume.name": _DNS_LABEL,
    "Volume.persistentVolumeClaim": _registered("claim", "claims", "claimName"),
    "Volume.secret": _registered("Secret", "secrets", "secretName"),
    "ImageVolumeSource.reference": _image,
    "VolumeProjection.configMap": _CONFIG_MAP,
    "VolumeProjection.secret": _SECRET,
}
RULES: Final[Mapping[str, Rule]] = _TENANT_RULES | {
    name: _anyone(rule) for kind in KINDS.values() for name, rule in kind.rules.items()
}
