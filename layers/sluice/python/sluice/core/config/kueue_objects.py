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

from sluice.core.config.document import DocumentError, Fields, Flaw
from sluice.core.config.model import (
    DEFAULT_WEIGHT_MILLI,
    AdmissionCheck,
    BorrowWithinCohort,
    ClusterQueue,
    Cohort,
    FlavorFungibility,
    FlavorQuotas,
    FungibilityChoice,
    FungibilityPreference,
    LocalQueue,
    Preemption,
    QueueingStrategy,
    ReclaimWithinCohort,
    ResourceFlavor,
    ResourceGroup,
    ResourceQuota,
    StopPolicy,
    Taint,
    TaintEffect,
    Toleration,
    WithinClusterQueue,
    WorkloadPriorityClass,
)
from sluice.core.values.quantity import MAX_AMOUNT, parse_decimal

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KUEUE_V1BETA1: Final = "kueue.x-k8s.io/v1beta1"
KUEUE_V1BETA2: Final = "kueue.x-k8s.io/v1beta2"
# Kueue's objects have no place for these limits of ours; annotations keep them valid for Kueue.
MAX_RUNNING: Final = "sluice.dev/max-running"
MAX_RUNNING_PER_USER: Final = "sluice.dev/max-running-per-user"

# Prices that are stated rather than observed: the resource, and how much of it costs so much.
PRICES: Final = {
    "sluice.dev/usd-per-cpu-hour": ("cpu", 1000),
    "sluice.dev/usd-per-gpu-hour": ("nvidia.com/gpu", 1),
}

_MAX_GROUPS: Final = 16
_MAX_PER_GROUP: Final = 64
_MAX_FLAVORS: Final = 256
_V1BETA1_FUNGIBILITY: Final = ("Borrow", "Preempt")

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


def parse_objects(documents: Iterable[Any]) -> ConfigObjects:
    """All objects of a stream; references between them are the catalog's business.

    Raises DocumentError with every flaw of every document.
    """
    flaws: list[Flaw] = []
    found = read_objects(
        ((describe(number, doc), doc) for number, doc in enumerate(documents, start=1)), flaws
    )
    if flaws:
        raise DocumentError(flaws)
    return found


def read_objects(
    labelled: Iterable[tuple[str, Any]], flaws: list[Flaw], also: Iterable[str] = ()
) -> ConfigObjects:
    """As `parse_objects`, for documents with labels; adds to `flaws` and returns what is left.

    `also` names the kinds that the caller reads itself, for the message about unknown ones.
    """
    found: dict[str, dict[str, ConfigObject]] = {kind: {} for kind in _READERS}
    for label, document in labelled:
        if (one := read_object(label, document, flaws, also)) is None:
            continue
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
    if version not in {KUEUE_V1BETA1, KUEUE_V1BETA2}:
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


def _cohort(spec: Fields, metadata: Fields, _version: str) -> Cohort:
    parent = spec.name("parentName") or None
    return Cohort(
        name=metadata.text("name"),
        parent=parent,
        resource_groups=_resource_groups(spec, limited=parent is not None, lends_nominal=False),
        fair_weight_milli=_weight(spec),
    )


def _cluster_queue(spec: Fields, metadata: Fields, version: str) -> ClusterQueue:
    cohort = spec.name("cohort" if version == KUEUE_V1BETA1 else "cohortName") or None
    spec.ignore("concurrentAdmissionPolicy")
    annotations = metadata.map("annotations")
    return ClusterQueue(
        name=metadata.text("name"),
        resource_groups=_resource_groups(spec, limited=cohort is not None, lends_nominal=True),
        cohort=cohort,
        queueing_strategy=spec.choice(
            "queueingStrategy", QueueingStrategy, QueueingStrategy.BEST_EFFORT_FIFO
        ),
        preemption=read_preemption(spec.map("preemption")),
        flavor_fungibility=_fungibility(spec.map("flavorFungibility"), version),
        fair_weight_milli=_weight(spec),
        usage_based_admission=_usage_based(spec),
        namespace_selector=_namespace_selector(spec),
        stop_policy=spec.choice("stopPolicy", StopPolicy, StopPolicy.NONE),
        admission_checks=_admission_checks(spec, version),
        max_running=_limit(annotations, MAX_RUNNING),
        max_running_per_user=_limit(annotations, MAX_RUNNING_PER_USER),
    )


def _local_queue(spec: Fields, metadata: Fields, version: str) -> LocalQueue:
    if version == KUEUE_V1BETA1:
        spec.ignore("flavors")
    return LocalQueue(
        key=f"{metadata.name('namespace', 'default')}/{metadata.text('name')}",
        cluster_queue=spec.name("clusterQueue", required=True),
        stop_policy=spec.choice("stopPolicy", StopPolicy, StopPolicy.NONE),
        fair_weight_milli=_weight(spec),
        max_running=_limit(metadata.map("annotations"), MAX_RUNNING),
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


def _resource_groups(
    spec: Fields, *, limited: bool, lends_nominal: bool
) -> tuple[ResourceGroup, ...]:
    """`limited`: there is a parent, towards which limits mean something."""
    groups = tuple(
        _resource_group(one, limited=limited, lends_nominal=lends_nominal)
        for one in spec.maps("resourceGroups")
    )
    resources = [name for group in groups for name in group.covered_resources]
    flavors = [flavor.name for group in groups for flavor in group.flavors]
    if len(groups) > _MAX_GROUPS:
        spec.wrong("resourceGroups", f"{len(groups)} groups; at most {_MAX_GROUPS} are allowed")
    if len(flavors) > _MAX_FLAVORS:
        spec.wrong("resourceGroups", f"{len(flavors)} flavors; at most {_MAX_FLAVORS} are allowed")
    for what, names in (("resource", resources), ("flavor", flavors)):
        for name in sorted({name for name in names if names.count(name) > 1}):
            spec.wrong("resourceGroups", f"{what} {name} occurs twice; name it in one group only")
    return groups


def _resource_group(fields: Fields, *, limited: bool, lends_nominal: bool) -> ResourceGroup:
    covered = fields.texts("coveredResources", required=True)
    flavors = fields.maps("flavors", required=True)
    for key, length in (("coveredResources", len(covered)), ("flavors", len(flavors))):
        if length > _MAX_PER_GROUP:
            fields.wrong(key, f"{length} entries; at most {_MAX_PER_GROUP} are allowed")
    group = ResourceGroup(
        covered_resources=covered,
        flavors=tuple(
            _flavor_quotas(one, covered, limited=limited, lends_nominal=lends_nominal)
            for one in flavors
        ),
    )
    fields.close()
    return group


def _flavor_quotas(
    fields: Fields, covered: tuple[str, ...], *, limited: bool, lends_nominal: bool
) -> FlavorQuotas:
    quotas = {
        one.text("name", required=True): _quota(one, limited=limited, lends_nominal=lends_nominal)
        for one in fields.maps("resources", required=True)
    }
    if tuple(quotas) != covered:
        fields.wrong(
            "resources", f"must list the group's coveredResources in their order: {list(covered)}"
        )
    flavor = FlavorQuotas(name=fields.name("name", required=True), resources=quotas)
    fields.close()
    return flavor


def _quota(fields: Fields, *, limited: bool, lends_nominal: bool) -> ResourceQuota:
    resource = fields.text("name")
    nominal = fields.quantity("nominalQuota", resource)
    borrowing = fields.quantity("borrowingLimit", resource)
    lending = fields.quantity("lendingLimit", resource)
    if nominal is None:
        fields.wrong("nominalQuota", "is missing")
    for key, limit in (("borrowingLimit", borrowing), ("lendingLimit", lending)):
        if limit is not None and not limited:
            fields.wrong(key, "is only allowed below a cohort; name one, or remove the limit")
    if lends_nominal and lending is not None and lending > (nominal or 0):
        fields.wrong("lendingLimit", "is above nominalQuota; lower it, or remove it to lend all")
    fields.close()
    return ResourceQuota(nominal=nominal or 0, borrowing_limit=borrowing, lending_limit=lending)


def read_preemption(fields: Fields) -> Preemption:
    borrow = fields.map("borrowWithinCohort")
    preemption = Preemption(
        within_cluster_queue=fields.choice(
            "withinClusterQueue", WithinClusterQueue, WithinClusterQueue.NEVER
        ),
        reclaim_within_cohort=fields.choice(
            "reclaimWithinCohort", ReclaimWithinCohort, ReclaimWithinCohort.NEVER
        ),
        borrow_within_cohort=borrow.choice("policy", BorrowWithinCohort, BorrowWithinCohort.NEVER),
        max_priority_threshold=borrow.priority("maxPriorityThreshold")
        if borrow.has("maxPriorityThreshold")
        else None,
    )
    borrow.ignore("maxPriorityThreshold")
    if (
        preemption.borrow_within_cohort is not BorrowWithinCohort.NEVER
        and preemption.reclaim_within_cohort is ReclaimWithinCohort.NEVER
    ):
        fields.wrong("borrowWithinCohort", "needs reclaimWithinCohort: LowerPriority or Any")
    borrow.close()
    fields.close()
    return preemption


def _fungibility(fields: Fields, version: str) -> FlavorFungibility:
    def choice(key: str, default: FungibilityChoice) -> FungibilityChoice:
        if version == KUEUE_V1BETA1 and fields.raw(key) in _V1BETA1_FUNGIBILITY:
            return FungibilityChoice.MAY_STOP_SEARCH
        return fields.choice(key, FungibilityChoice, default)

    fungibility = FlavorFungibility(
        when_can_borrow=choice("whenCanBorrow", FungibilityChoice.MAY_STOP_SEARCH),
        when_can_preempt=choice("whenCanPreempt", FungibilityChoice.TRY_NEXT_FLAVOR),
        preference=fields.choice(
            "preference",
            FungibilityPreference,
            FungibilityPreference.BORROWING_OVER_PREEMPTION,
        ),
    )
    both = {fungibility.when_can_borrow, fungibility.when_can_preempt}
    if fields.has("preference") and both != {FungibilityChoice.TRY_NEXT_FLAVOR}:
        fields.wrong("preference", "needs whenCanBorrow and whenCanPreempt: TryNextFlavor")
    fields.close()
    return fungibility


def _weight(spec: Fields) -> int:
    fair_sharing = spec.map("fairSharing")
    weight = fair_sharing.milli("weight", DEFAULT_WEIGHT_MILLI)
    fair_sharing.close()
    return weight


def _usage_based(spec: Fields) -> bool:
    modes = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
    scope = spec.map("admissionScope")
    mode = scope.text("admissionMode", modes[1], required=spec.has("admissionScope"))
    if mode not in modes:
        scope.wrong("admissionMode", f"{mode!r} is not one of {', '.join(modes)}")
    scope.close()
    return mode == modes[0]


def _namespace_selector(spec: Fields) -> dict[str, str] | None:
    if not spec.has("namespaceSelector"):
        spec.ignore("namespaceSelector")
        return None
    selector = spec.map("namespaceSelector")
    labels = selector.string_map("matchLabels")
    selector.close()
    return labels


def _admission_checks(spec: Fields, version: str) -> dict[str, tuple[str, ...]]:
    strategy = spec.map("admissionChecksStrategy")
    checks = {}
    for one in strategy.maps("admissionChecks"):
        checks[one.name("name", required=True)] = one.texts("onFlavors")
        one.close()
    strategy.close()
    if version == KUEUE_V1BETA1:
        checks |= dict.fromkeys(spec.texts("admissionChecks"), ())
    return checks


def _limit(annotations: Fields, key: str) -> int | None:
    """A count in an annotation, whose values are text."""
    text = annotations.text(key)
    if text and not text.isdecimal():
        annotations.wrong(key, f'{text!r} is not a count; write for example "10"')
        return None
    return int(text) if text else None
