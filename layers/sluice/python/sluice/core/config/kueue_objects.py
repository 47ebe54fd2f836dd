"""Kueue's configuration objects: parsed documents to the core's values, with errors that help.

Accepts `kueue.x-k8s.io/v1beta2` and `v1beta1`. Documents are what a YAML or JSON parser returned;
the checks are those of Kueue's API and webhooks, so that what passes here passes there.
Source: apis/kueue/v1beta1 and v1beta2, pkg/webhooks of Kueue 0.20.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from sluice.core.config import pods_ready
from sluice.core.config.document import DocumentError, Fields, Flaw
from sluice.core.config.kueue_queue_fields import (
    read_admission_checks,
    read_count_annotation,
    read_fungibility,
    read_namespace_selector,
    read_preemption,
    read_resource_groups,
    read_usage_based,
    read_weight,
)
from sluice.core.config.kueue_validation import KUEUE_V1BETA1, validate_object
from sluice.core.config.model import (
    AdmissionCheck,
    ClusterQueue,
    Cohort,
    LocalQueue,
    QueueingStrategy,
    ResourceFlavor,
    StopPolicy,
    Taint,
    TaintEffect,
    Toleration,
    WorkloadPriorityClass,
)
from sluice.core.values.quantity import MAX_AMOUNT, parse_decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KUEUE_V1ALPHA1: Final = "kueue.x-k8s.io/v1alpha1"  # of Cohorts only
KUEUE_V1BETA2: Final = "kueue.x-k8s.io/v1beta2"
# Kueue's objects have no place for these limits of ours; annotations keep them valid for Kueue.
MAX_RUNNING: Final = "sluice.dev/max-running"
MAX_RUNNING_PER_USER: Final = "sluice.dev/max-running-per-user"

# Prices that are stated rather than observed: the resource, and how much of it costs so much.
PRICES: Final = {
    "sluice.dev/usd-per-cpu-hour": ("cpu", 1000),
    "sluice.dev/usd-per-gpu-hour": ("nvidia.com/gpu", 1),
}


ConfigObject: TypeAlias = (
    ResourceFlavor | Cohort | ClusterQueue | LocalQueue | WorkloadPriorityClass | AdmissionCheck
)


@dataclass(frozen=True, slots=True)
class ConfigObjects:
    """The configuration objects of a stream of documents, each kind in the order of writing."""

    resource_flavors: tuple[ResourceFlavor, ...] = ()
    cohorts: tuple[Cohort, ...] = ()
    cluster_queues: tuple[ClusterQueue, ...] = ()
    local_queues: tuple[LocalQueue, ...] = ()
    priority_classes: tuple[WorkloadPriorityClass, ...] = ()
    admission_checks: tuple[AdmissionCheck, ...] = ()


def parse_objects(documents: Iterable[Any], *, stored: bool = False) -> ConfigObjects:
    """All objects of a stream; references between them are the catalog's business.

    With `stored` what an earlier version accepted is taken, too (`kueue_validation`).
    Raises DocumentError with every flaw of every document.
    """
    flaws: list[Flaw] = []
    labelled = ((describe(number, doc), doc) for number, doc in enumerate(documents, start=1))
    found = read_objects(labelled, flaws, stored=stored)
    if flaws:
        raise DocumentError(flaws)
    return found


def read_objects(
    labelled: Iterable[tuple[str, Any]],
    flaws: list[Flaw],
    also: Iterable[str] = (),
    *,
    stored: bool = False,
) -> ConfigObjects:
    """As `parse_objects`, for documents with labels; adds to `flaws` and returns what is left.

    `also` names the kinds that the caller reads itself, for the message about unknown ones.
    """
    found: dict[str, dict[str, ConfigObject]] = {kind: {} for kind in _READERS}
    for label, document in labelled:
        before = len(flaws)
        if (one := read_object(label, document, flaws, also)) is None:
            continue
        if not stored and len(flaws) == before:
            validate_object(label, document, flaws)
        kind = type(one).__name__
        key = one.key if isinstance(one, LocalQueue) else one.name
        if key in found[kind]:
            flaws.append(Flaw(label, "metadata.name", f"{kind} {key} is defined twice"))
        found[kind][key] = one
    return ConfigObjects(*(tuple(found[kind].values()) for kind in _READERS))  # type: ignore[arg-type]  # one kind each


def read_object(
    label: str, document: Any, flaws: list[Flaw], also: Iterable[str] = ()
) -> ConfigObject | None:
    """One object; None, with a flaw, if the document is of no known kind; `also` as above."""
    fields = Fields(document, label, flaws)
    if document is not None and not isinstance(document, Mapping):
        return None  # one flaw says it all
    version, kind = fields.text("apiVersion", required=True), fields.text("kind", required=True)
    if kind not in _READERS:
        if kind:
            fields.wrong("kind", f"{kind!r} is unknown; known: {', '.join((*_READERS, *also))}")
        return None
    old_cohort = kind == "Cohort" and version == KUEUE_V1ALPHA1
    if version not in {KUEUE_V1BETA1, KUEUE_V1BETA2} and not old_cohort:
        if version:
            fields.wrong("apiVersion", f"{version!r} must be {KUEUE_V1BETA2} or {KUEUE_V1BETA1}")
        return None
    fields.ignore("status")
    metadata = fields.map("metadata", required=True)
    spec = fields.map("spec")
    metadata.name("name", required=True)
    one = _READERS[kind](fields if kind == "WorkloadPriorityClass" else spec, metadata, version)
    fields.close()
    if kind != "WorkloadPriorityClass":
        spec.close()
    return one


def describe(number: int, document: Any) -> str:
    """How error messages call the document: `document 3 (ClusterQueue team-a)`."""
    kind = document.get("kind") if isinstance(document, dict) else None
    metadata = document.get("metadata") if isinstance(document, dict) else None
    name = metadata.get("name") if isinstance(metadata, dict) else None
    what = " ".join(part for part in (kind, name) if isinstance(part, str))
    return f"document {number} ({what})" if what else f"document {number}"


def _flavor(spec: Fields, metadata: Fields, _version: str) -> ResourceFlavor:
    return ResourceFlavor(
        name=metadata.text("name"),
        node_labels=spec.string_map("nodeLabels"),
        node_taints=tuple(_taint(one) for one in spec.maps("nodeTaints")),
        tolerations=tuple(_toleration(one) for one in spec.maps("tolerations")),
        topology_name=spec.text("topologyName") or None,
        rates=_rates(metadata.map("annotations")),
    )


def _rates(annotations: Fields) -> dict[str, tuple[int, int]]:
    found = {}
    for key, (resource, amount) in PRICES.items():
        if text := annotations.text(key):
            try:
                microusd = parse_decimal(text) * 1_000_000
            except ValueError:
                microusd = Fraction(-1)
            if not 0 < microusd <= MAX_AMOUNT:
                annotations.wrong(key, f'{text!r} is not a price in dollars; write "0.0425"')
            found[resource] = (-(-microusd.numerator // microusd.denominator), amount)
    return found


def _taint(fields: Fields) -> Taint:
    fields.ignore("timeAdded")
    taint = Taint(
        key=fields.text("key", required=True),
        value=fields.text("value"),
        effect=fields.choice("effect", TaintEffect, TaintEffect.NO_SCHEDULE),
    )
    if not fields.has("effect"):
        fields.wrong("effect", "is missing")
    fields.close()
    return taint


def _toleration(fields: Fields) -> Toleration:
    fields.ignore("tolerationSeconds")
    operator = fields.text("operator", "Equal")
    if operator not in {"Equal", "Exists"}:
        fields.wrong("operator", f"{operator!r} is not one of Equal, Exists")
    toleration = Toleration(
        key=fields.text("key"),
        operator=operator,
        value=fields.text("value"),
        effect=fields.choice("effect", TaintEffect, TaintEffect.NO_SCHEDULE)
        if fields.has("effect")
        else None,
    )
    fields.close()
    return toleration


def _cohort(spec: Fields, metadata: Fields, version: str) -> Cohort:
    parent = spec.name("parent" if version == KUEUE_V1ALPHA1 else "parentName") or None
    return Cohort(
        name=metadata.text("name"),
        parent=parent,
        resource_groups=read_resource_groups(spec, limited=parent is not None, lends_nominal=False),
        fair_weight_milli=read_weight(spec),
    )


def _cluster_queue(spec: Fields, metadata: Fields, version: str) -> ClusterQueue:
    cohort = spec.name("cohort" if version == KUEUE_V1BETA1 else "cohortName") or None
    spec.ignore("concurrentAdmissionPolicy")
    annotations = metadata.map("annotations")
    selector, expressions = read_namespace_selector(spec)
    return ClusterQueue(
        name=metadata.text("name"),
        resource_groups=read_resource_groups(spec, limited=cohort is not None, lends_nominal=True),
        cohort=cohort,
        queueing_strategy=spec.choice(
            "queueingStrategy", QueueingStrategy, QueueingStrategy.BEST_EFFORT_FIFO
        ),
        preemption=read_preemption(spec.map("preemption")),
        flavor_fungibility=read_fungibility(spec.map("flavorFungibility"), version),
        fair_weight_milli=read_weight(spec),
        usage_based_admission=read_usage_based(spec),
        namespace_selector=selector,
        namespace_expressions=expressions,
        stop_policy=spec.choice("stopPolicy", StopPolicy, StopPolicy.NONE),
        admission_checks=read_admission_checks(spec, version),
        max_running=read_count_annotation(annotations, MAX_RUNNING),
        max_running_per_user=read_count_annotation(annotations, MAX_RUNNING_PER_USER),
        wait_for_pods_ready=pods_ready.read_annotation(annotations),
    )


def _local_queue(spec: Fields, metadata: Fields, version: str) -> LocalQueue:
    if version == KUEUE_V1BETA1:
        spec.ignore("flavors")
    return LocalQueue(
        key=f"{metadata.name('namespace', 'default')}/{metadata.text('name')}",
        cluster_queue=spec.name("clusterQueue", required=True),
        stop_policy=spec.choice("stopPolicy", StopPolicy, StopPolicy.NONE),
        fair_weight_milli=read_weight(spec),
        max_running=read_count_annotation(metadata.map("annotations"), MAX_RUNNING),
    )


def _priority_class(fields: Fields, metadata: Fields, _version: str) -> WorkloadPriorityClass:
    fields.ignore("description")
    value = fields.priority("value", required=True)
    return WorkloadPriorityClass(name=metadata.text("name"), value=value)


def _admission_check(spec: Fields, metadata: Fields, _version: str) -> AdmissionCheck:
    # Retries back off by themselves; parameters are for controllers of other kinds.
    spec.ignore("retryDelayMinutes", "parameters")
    controller = spec.text("controllerName", required=True)
    return AdmissionCheck(metadata.text("name"), controller)


_READERS: Final[dict[str, Callable[[Fields, Fields, str], ConfigObject]]] = {
    "ResourceFlavor": _flavor,
    "Cohort": _cohort,
    "ClusterQueue": _cluster_queue,
    "LocalQueue": _local_queue,
    "WorkloadPriorityClass": _priority_class,
    "AdmissionCheck": _admission_check,
}
KUEUE_KINDS: Final = tuple(_READERS)
