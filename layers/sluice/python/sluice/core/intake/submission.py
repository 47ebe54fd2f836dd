"""Decides about one submission: a workload to queue, or everything that is wrong with it."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from sluice.core.checkpoints.driver import JobShape
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.config.document import Flaw
from sluice.core.config.spec_fields import SpecFields, amount
from sluice.core.intake import short_form, vetting, workload_options
from sluice.core.intake.documents import API_VERSION, Document, Malformed, valid_key
from sluice.core.intake.pod_security import containers
from sluice.core.intake.pod_wishes import keys_to_know, priority_of_pods, with_wishes
from sluice.core.intake.reserved_names import (
    PRIORITY_LABELS,
    QUEUE_LABELS,
    annotation_refusal,
    label_refusal,
)
from sluice.core.jobs.job import JOB
from sluice.core.jobs.pod_sets import MIN_PARALLELISM, count_pod_sets
from sluice.core.jobs.table import KINDS, kind_of, list_names, list_pod_sets
from sluice.core.lifecycle.options import SecuritySettings
from sluice.core.lifecycle.record import PodSet
from sluice.core.values.identity import digest, elsewhere_id, workload_id

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sluice.core.config.tenants import Tenant
    from sluice.core.jobs.node_wishes import NodeKey
    from sluice.core.lifecycle.options import Options

DEFAULT_QUEUE: Final = "default"
"""As in Kueue, the LocalQueue of what names none; a Tenant may name another one."""
NO_QUEUE: Final = "-"  # under this name rejected documents are listed that have no queue
MAX_ERRORS: Final = 50
_API_VERSIONS: Final = {
    "Workload": API_VERSION,
    **{kind.kind: kind.api_version for kind in KINDS.values()},
}
_SHOWN: Final = 500
_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
_PREFIX: Final = re.compile(r"[a-z0-9][-a-z0-9.]{0,57}", re.ASCII)
_QUEUE: Final = re.compile(r"[a-z0-9]([-a-z0-9.]{0,61}[a-z0-9])?", re.ASCII)
MAX_RESTARTS: Final = 100
MAX_EPHEMERAL_BYTES: Final = 64 << 40
"""Of the volume claims that a workload's pods make for themselves."""
GPUS: Final = ("nvidia.com/gpu", "amd.com/gpu", "aws.amazon.com/neuron")


@dataclass(frozen=True, slots=True)
class Accepted:
    """A workload to queue; its fields are those of the Workload record.

    `queue` is `namespace/localQueue`, still to be looked up, and so is `priority_class` (None:
    the queue's default). `kind` is what runs it, a row of core.jobs. `manifest` is the
    document as submitted.
    """

    id: str
    name: str
    namespace: str
    queue: str
    kind: str
    tenant: str
    digest: str
    priority_class: str | None
    priority_field: str
    pod_sets: tuple[PodSet, ...]
    options: Options
    manifest: Mapping[str, Any]
    created_at: int
    node_keys: tuple[NodeKey, ...] = ()
    """Labels and taints of nodes that a flavor of its queue has to define."""


@dataclass(frozen=True, slots=True)
class Rejected:
    """A submission that stays visible with all its errors, each with a field path."""

    id: str
    name: str
    namespace: str
    queue: str
    tenant: str
    digest: str
    errors: list[dict[str, str]]
    created_at: int


@dataclass(frozen=True, slots=True)
class _Reading:
    """What one kind of document says, before anybody judged the whole."""

    queue: str
    priority_class: str | None
    options: Options
    job: dict[str, Any]
    path: str  # where the Job lies in the document
    origins: Mapping[str, str]  # fields of the compiled Job and where they come from


def submission(
    document: Document | Malformed, *, tenant: Tenant, key: str, now_ms: int
) -> Accepted | Rejected:
    """Judges one document of an authenticated tenant; never raises.

    A fault of ours that a document meets refuses that document, with the fault's name: its
    neighbours in the batch are others' work. `key` names the submission if the document has no
    idempotency key of its own: the message's or event's id. A rejected workload lies in a
    namespace of the tenant, whatever the document says, so that nobody can take the ids of others.
    """
    if isinstance(document, Malformed):
        return _rejected({}, document.flaws, tenant, document.key(key), now_ms)
    try:
        return _judge(document, tenant, key, now_ms)
    except Exception as error:  # noqa: BLE001, whatever it is, it concerns this document alone
        text = f"cannot be judged ({type(error).__name__}), which is a fault of Sluice; report it"
        return _rejected({}, [Flaw("", "", text)], tenant, document.key(key), now_ms)


def _judge(document: Document, tenant: Tenant, key: str, now_ms: int) -> Accepted | Rejected:
    body, flaws = document.body, list[Flaw]()
    namespace = _namespace(body, tenant, flaws)
    declared = document.declared_key()
    if declared is not None and not valid_key(declared):
        flaws.append(Flaw("", _key_path(body), "must be 1 to 63 of a-z, 0-9 and '-'"))
    name = _name(body, flaws)
    reading = _read(body, tenant, flaws)
    pod_sets: tuple[PodSet, ...] = ()
    if reading is not None:
        found = vetting.vet(reading.job, tenant, reading.path)
        if not found and not any(flaw.field.startswith("spec.resources.") for flaw in flaws):
            pod_sets = _pod_sets(reading, found)
            found += _too_many_restarts(reading, tenant)
            found += _too_large_volumes(reading)
            found += _too_much(pod_sets, tenant, reading.path)
            found += _collisions(reading)
            found += _refused_by_driver(reading)
            found += _refused_by_kind(reading)
        flaws += [_at_origin(flaw, reading) for flaw in found]
        _queue(reading.queue, namespace, queue_path(body), flaws)
    identifier = workload_id(namespace, document.key(key))
    if reading is not None:
        flaws += _waits_for_itself(reading, identifier, name)
    if flaws or reading is None:
        return _rejected(body, flaws, tenant, document.key(key), now_ms)
    job = vetting.without_nulls(reading.job)
    of_pods = priority_of_pods(job, reading.path)
    return Accepted(
        id=identifier,
        name=name or f"{_generated(body)}{identifier[:5]}",
        namespace=namespace,
        queue=f"{namespace}/{reading.queue.rpartition('/')[2]}",
        kind=reading.job["kind"],
        tenant=tenant.name,
        digest=digest(body),
        priority_class=reading.priority_class or of_pods.key or None,
        priority_field="spec.priority" if reading.priority_class else of_pods.field,
        pod_sets=pod_sets,
        options=_with_security(reading.options, tenant),
        manifest=body,
        created_at=now_ms,
        node_keys=tuple(keys_to_know(job, reading.path, tenant)),
    )


def kubernetes_object(document: Mapping[str, Any]) -> dict[str, Any]:
    """The job of a stored, accepted document, for `rendering.render`."""
    if document.get("kind") != "Workload":
        return dict(document)
    spec = document["spec"]
    return _compiled(SpecFields(spec, "", []), document.get("metadata") or {}).job


def _read(body: dict[str, Any], tenant: Tenant, flaws: list[Flaw]) -> _Reading | None:
    kind, version = body.get("kind"), body.get("apiVersion")
    if not isinstance(kind, str) or kind not in _API_VERSIONS:
        flaws.append(Flaw("", "kind", f"{kind!r:.40} is not one of {', '.join(_API_VERSIONS)}"))
        return None
    if version != _API_VERSIONS[kind]:
        flaws.append(Flaw("", "apiVersion", f"must be {_API_VERSIONS[kind]} for a {kind}"))
        return None
    return (_workload if kind == "Workload" else _plain)(body, tenant, flaws)


def _workload(body: dict[str, Any], tenant: Tenant, flaws: list[Flaw]) -> _Reading | None:
    top = SpecFields(body, "", flaws)
    top.ignore("apiVersion", "kind", "status")
    metadata, spec = top.map("metadata"), top.map("spec", required=True)
    metadata.ignore("name", "generateName", "namespace", "idempotencyKey")
    for written in ("labels", "annotations"):
        _map_of_text(metadata, written, tenant.annotations)
    spec.knows("queue", "priority", "job", *short_form.FIELDS)
    queue = spec.text("queue", required=True)
    priority = spec.name("priority") or None
    options = workload_options.read(spec, tenant)
    flaws += vetting.credentials({**body, "spec": {**spec_of(body), "job": None}})
    compiled = _compiled(spec, {})
    for fields in (spec, metadata, top):
        fields.close()
    return _Reading(
        queue=queue,
        priority_class=priority,
        options=options,
        job=compiled.job,
        path="spec.job" if spec.has("job") else "",
        origins=compiled.origins,
    )


def _compiled(spec: SpecFields, metadata: Mapping[str, Any]) -> short_form.Compiled:
    """The Job of a Workload, verbatim or from short fields, with the Workload's labels."""
    if spec.has("job"):
        for key in short_form.FIELDS:
            if spec.has(key):
                spec.wrong(key, "stands in spec.job already; keep one of the two")
        job = spec.raw("job")
        if not isinstance(job, dict):
            spec.wrong("job", f"must be {list_names()}")
            job = {}
        job = {"apiVersion": JOB.api_version, "kind": JOB.kind} | job
        kind = KINDS.get(job["kind"]) if isinstance(job["kind"], str) else None
        if kind is None or job["apiVersion"] != kind.api_version:
            spec.wrong("job", f"must be {list_names()}")
        compiled = short_form.Compiled(job)
    else:
        compiled = short_form.compile_job(spec)
        if spec.has("minParallelism"):
            least = spec.integer("minParallelism", 1, minimum=1)
            annotations = {MIN_PARALLELISM[0]: str(least)}
            compiled.job["metadata"] = {"annotations": annotations}
            place = {f"metadata.annotations[{MIN_PARALLELISM[0]}]": "spec.minParallelism"}
            compiled = replace(compiled, origins={**compiled.origins, **place})
    if labels := metadata.get("labels"):
        own = dict(compiled.job.get("metadata") or {})
        own["labels"] = labels | (own.get("labels") or {})
        compiled.job["metadata"] = own
    return compiled


def _plain(body: dict[str, Any], tenant: Tenant, flaws: list[Flaw]) -> _Reading | None:
    """A job whose labels and annotations say where it belongs."""
    metadata = body.get("metadata")
    if not isinstance(metadata, dict):
        flaws.append(
            Flaw("", "metadata", f"is missing; label the {body['kind']} {QUEUE_LABELS[0]}")
        )
        return None
    labels, annotations = metadata.get("labels") or {}, metadata.get("annotations") or {}
    if not isinstance(labels, dict) or not isinstance(annotations, dict):
        flaws.append(Flaw("", "metadata", "labels and annotations must be maps of text"))
        return None
    queue = _first(QUEUE_LABELS, labels)
    if queue in (None, DEFAULT_QUEUE):
        queue = tenant.default_queue or queue
    if queue is None:
        message = f"is missing; name the queue, for example {QUEUE_LABELS[0]}: research"
        flaws.append(Flaw("", f"metadata.labels[{QUEUE_LABELS[0]}]", message))
    return _Reading(
        queue=str(queue or ""),
        priority_class=_first(PRIORITY_LABELS, {**labels, **annotations}),
        options=workload_options.from_annotations(annotations, flaws, "metadata.annotations"),
        job=body,
        path="",
        origins={},
    )


def _first(names: Iterable[str], values: Mapping[str, Any]) -> str | None:
    return next((str(values[name]) for name in names if values.get(name) is not None), None)


def spec_of(body: Mapping[str, Any]) -> Mapping[str, Any]:
    spec = body.get("spec")
    return spec if isinstance(spec, dict) else {}


def _map_of_text(metadata: SpecFields, key: str, domains: Sequence[str]) -> None:
    """Labels and annotations of a Workload obey the rules of those of a Job."""
    for name, text in metadata.string_map(key).items():
        refusal = (
            label_refusal(name, text) if key == "labels" else annotation_refusal(name, domains)
        )
        if refusal:
            metadata.wrong(f"{key}[{name[:300]}]", refusal)


def _metadata(body: Mapping[str, Any]) -> Mapping[str, Any]:
    metadata = body.get("metadata")
    return metadata if isinstance(metadata, dict) else {}


def _namespace(body: Mapping[str, Any], tenant: Tenant, flaws: list[Flaw]) -> str:
    namespace = _metadata(body).get("namespace") or tenant.home
    if not tenant.namespaces:
        message = (
            f"tenant {tenant.name} has no namespace yet; an administrator adds one to its spec"
        )
        flaws.append(Flaw("", "metadata.namespace", message))
    elif namespace not in tenant.namespaces:
        message = (
            f"tenant {tenant.name} may use only {', '.join(tenant.namespaces)}; take one of them, "
            f"or ask an administrator to add {str(namespace)[:63]} to its `namespaces`"
        )
        flaws.append(Flaw("", "metadata.namespace", message))
    return str(namespace)


def _name(body: Mapping[str, Any], flaws: list[Flaw]) -> str:
    """The valid name of a document; empty if it is to be made up."""
    for key, pattern in (("name", _NAME), ("generateName", _PREFIX)):
        written = _metadata(body).get(key)
        if written is None or (isinstance(written, str) and pattern.fullmatch(written)):
            continue
        message = "must be at most 58 of a-z, 0-9, '-' and '.', starting with a letter or digit"
        # The vetting of plain manifests has the same rule for their name.
        if key == "generateName" or body.get("kind") == "Workload":
            flaws.append(Flaw("", f"metadata.{key}", message))
    name = _metadata(body).get("name")
    return name if isinstance(name, str) and _NAME.fullmatch(name) else ""


def _generated(body: Mapping[str, Any]) -> str:
    return str(_metadata(body).get("generateName") or f"{str(body['kind']).lower()}-")


def _queue(queue: str, namespace: str, path: str, flaws: list[Flaw]) -> None:
    """A queue is named alone, or after the submission's own namespace."""
    prefix, _, name = queue.rpartition("/")
    if prefix and prefix != namespace:
        flaws.append(Flaw("", path, f"must be a queue of the namespace {namespace}"))
    elif queue and _QUEUE.fullmatch(name) is None:
        flaws.append(Flaw("", path, "is not the name of a LocalQueue"))


def queue_path(body: Mapping[str, Any]) -> str:
    if body.get("kind") == "Workload":
        return "spec.queue"
    labels = _metadata(body).get("labels") or {}
    name = next((name for name in QUEUE_LABELS if name in labels), QUEUE_LABELS[0])
    return f"metadata.labels[{name}]"


def _key_path(body: Mapping[str, Any]) -> str:
    if "idempotencyKey" in _metadata(body):
        return "metadata.idempotencyKey"
    return "metadata.annotations[sluice.dev/idempotency-key]"


def _pod_sets(reading: _Reading, flaws: list[Flaw]) -> tuple[PodSet, ...]:
    job = vetting.without_nulls(reading.job)
    counted = count_pod_sets(job, flaws, reading.path)
    pods = {each.name: each.template["spec"] for each in list_pod_sets(job)}
    return tuple(with_wishes(s, pods[s.name]) for s in counted)


def _too_much(pod_sets: Sequence[PodSet], tenant: Tenant, path: str) -> list[Flaw]:
    """The tenant's caps on one workload."""
    pods = sum(pod_set.count for pod_set in pod_sets)
    gpus = sum(s.count * s.requests.get(gpu, 0) for s in pod_sets for gpu in GPUS)
    asked = ((pods, tenant.max_pods, "pods"), (gpus, tenant.max_gpus, "GPUs"))
    where = f"{path}.spec" if path else "spec"
    return [
        Flaw("", where, f"asks for {have} {what}; tenant {tenant.name} may ask for {most} at once")
        for have, most, what in asked
        if have > most
    ]


def _too_many_restarts(reading: _Reading, tenant: Tenant) -> list[Flaw]:
    """Each restart of a JobSet begins its Jobs' deadlines anew, so they count together."""
    policy = (reading.job.get("spec") or {}).get("failurePolicy") or {}
    runs, most = (policy.get("maxRestarts") or 0) + 1, tenant.max_runtime_seconds
    where = "spec.failurePolicy.maxRestarts"
    where = f"{reading.path}.{where}" if reading.path else where
    own = reading.options.deadlines.max_runtime_seconds
    if runs > MAX_RESTARTS + 1:
        return [Flaw("", where, f"must be at most {MAX_RESTARTS}")]
    if runs == 1 or not (own or most):
        return []
    jobs = (pod_set.job for pod_set in list_pod_sets(reading.job) if pod_set.job is not None)
    longest = max((job.get("activeDeadlineSeconds") or own or most for job in jobs), default=0)
    allowed = min(filter(None, (own, most)))
    if runs * longest <= allowed:
        return []
    text = f"{runs} runs of {longest} s may take longer than {allowed} s; set activeDeadlineSeconds"
    return [Flaw("", where, f"{text} of each Job, or fewer restarts")]


def _too_large_volumes(reading: _Reading) -> list[Flaw]:
    """What ephemeral volumes may ask of storage, since no quota counts it; and none in memory.

    A memory-backed emptyDir grows into its pod's memory, so that must be bounded.
    """
    found: list[Flaw] = []
    asked = 0
    for pod_set in list_pod_sets(vetting.without_nulls(reading.job), reading.path):
        pod, at = pod_set.template["spec"], f"{pod_set.template_path}.spec"
        bounded = all(
            "memory" in ((container.get("resources") or {}).get("limits") or {})
            for _, container in containers(pod)
        )
        for place, volume in enumerate(pod.get("volumes") or []):
            field = f"{at}.volumes[{place}]"
            if (volume.get("emptyDir") or {}).get("medium") == "Memory" and not bounded:
                text = "needs a limit of memory for every container of the pod"
                found.append(Flaw("", f"{field}.emptyDir.medium", text))
            template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate") or {}
            claim = template.get("spec") or {}
            if claim.get("storageClassName") == "":
                text = "may not be empty, which would bind any volume that is there"
                where = f"{field}.ephemeral.volumeClaimTemplate.spec.storageClassName"
                found.append(Flaw("", where, text))
            requests = (claim.get("resources") or {}).get("requests") or {}
            asked += pod_set.count * amount("storage", requests.get("storage", 0))
    if asked > MAX_EPHEMERAL_BYTES:
        where = f"{reading.path}.spec" if reading.path else "spec"
        text = f"asks for {asked >> 30} GiB of ephemeral volumes; the most is"
        found.append(Flaw("", where, f"{text} {MAX_EPHEMERAL_BYTES >> 30} GiB of all its pods"))
    return found


def _collisions(reading: _Reading) -> list[Flaw]:
    """The Workload's volumes that clash with what its own verbatim Job has."""
    found: list[Flaw] = []
    for pod_set in list_pod_sets(vetting.without_nulls(reading.job)):
        pod = pod_set.template["spec"]
        names = {volume.get("name") for volume in pod.get("volumes") or []}
        mounts = {
            mount.get("mountPath")
            for _, container in containers(pod)
            for mount in container.get("volumeMounts") or []
        }
        for place, volume in enumerate(reading.options.volumes):
            at = f"spec.volumes[{place}]"
            if volume.name in names:
                found.append(Flaw("", f"{at}.name", "is a volume of the Job already; rename one"))
            if volume.mount_path in mounts:
                found.append(Flaw("", f"{at}.mountPath", "the Job mounts another volume there"))
    return found


def _waits_for_itself(reading: _Reading, identifier: str, name: str) -> list[Flaw]:
    """A workload that names itself would wait until it is refused as unknown."""
    return [
        Flaw(
            "",
            f"spec.dependsOn[{place}].{'id' if each.id else 'name'}",
            "is this workload itself; name another one, an earlier one of the same name by its id",
        )
        for place, each in enumerate(reading.options.depends_on)
        if each.id == identifier or (each.name and each.name == name)
    ]


def _refused_by_driver(reading: _Reading) -> list[Flaw]:
    """What of the Job its checkpoint driver cannot serve."""
    job = reading.job
    adopts_pods = kind_of(job).adopts_pods
    spec = job["spec"] if adopts_pods else {}
    shape = JobShape(
        adopts_pods,
        max(spec.get("parallelism") or 1, spec.get("completions") or 1),
        spec.get("completionMode") == "Indexed",
    )
    refusal = driver_of(reading.options).refuse(shape)
    if refusal is None:
        return []
    inside = reading.path and refusal.field.startswith("spec")
    at = f"{reading.path}.{refusal.field}" if inside else refusal.field
    return [Flaw("", at, refusal.message)]


def _refused_by_kind(reading: _Reading) -> list[Flaw]:
    """Options that only a JobSpec can carry out."""
    kind = kind_of(reading.job)
    if not reading.options.recovery.rules or any(s.job is not None for s in kind.pod_sets):
        return []
    text = f"are for Jobs; the controller of a {kind.kind} knows no rules by exit code"
    return [Flaw("", "spec.recovery.onFailure.rules", text)]


def _at_origin(flaw: Flaw, reading: _Reading) -> Flaw:
    """The flaw at the field that the submitter wrote."""
    for made, written in reading.origins.items():
        if flaw.field == made or flaw.field.startswith((f"{made}.", f"{made}[")):
            return Flaw("", written + flaw.field[len(made) :], flaw.message)
    return flaw


def _with_security(options: Options, tenant: Tenant) -> Options:
    """The options with what rendering adds to pods on the tenant's behalf."""
    security = SecuritySettings(tenant.pod_security, tenant.run_as_user, tenant.service_account)
    deadlines = options.deadlines
    if most := tenant.max_runtime_seconds:
        asked = deadlines.max_runtime_seconds
        longest = most if asked is None else min(asked, most)
        deadlines = replace(deadlines, max_runtime_seconds=longest)
    return replace(options, deadlines=deadlines, security=security)


def _rejected(
    body: Mapping[str, Any], flaws: Iterable[Flaw], tenant: Tenant, key: str, now_ms: int
) -> Rejected:
    errors = list(dict.fromkeys((_shown(flaw.field), _shown(flaw.message)) for flaw in flaws))
    shown = [{"field": field, "message": message} for field, message in errors[:MAX_ERRORS]]
    if len(errors) > MAX_ERRORS:
        shown.append({"field": "", "message": f"and {len(errors) - MAX_ERRORS} more errors"})
    home = tenant.home or "default"
    namespace = _metadata(body).get("namespace") or home
    identifier = workload_id(str(namespace), key)
    if namespace != home and namespace not in tenant.namespaces:
        namespace, identifier = home, elsewhere_id(home, identifier)
    return Rejected(
        id=identifier,
        name=_name(body, []) or f"rejected-{identifier[:5]}",
        namespace=namespace,
        queue=f"{namespace}/{_plausible_queue(body)}",
        tenant=tenant.name,
        digest=digest(body),
        errors=shown,
        created_at=now_ms,
    )


def _shown(text: str) -> str:
    """What a record may repeat of a document: never what looks like a credential."""
    return vetting.CREDENTIAL.sub("[credential]", text)[:_SHOWN]


def _plausible_queue(body: Mapping[str, Any]) -> str:
    """The queue that a rejected document names, for listing it there; NO_QUEUE if it names none."""
    spec, labels = body.get("spec"), _metadata(body).get("labels")
    named = spec.get("queue") if body.get("kind") == "Workload" and isinstance(spec, dict) else None
    if named is None and isinstance(labels, dict):
        named = _first(QUEUE_LABELS, labels)
    name = str(named or "").rpartition("/")[2]
    return name if _QUEUE.fullmatch(name) else NO_QUEUE
