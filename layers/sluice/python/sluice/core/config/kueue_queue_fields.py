"""The fields of Kueue's ClusterQueues and Cohorts: quota, preemption, flavors, shares, checks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from sluice.core.config.kueue_validation import KUEUE_V1BETA1
from sluice.core.config.model import (
    DEFAULT_WEIGHT_MILLI,
    BorrowWithinCohort,
    FlavorFungibility,
    FlavorQuotas,
    FungibilityChoice,
    FungibilityPreference,
    LabelRequirement,
    Preemption,
    ReclaimWithinCohort,
    ResourceGroup,
    ResourceQuota,
    WithinClusterQueue,
)

if TYPE_CHECKING:
    from sluice.core.config.document import Fields

_MAX_GROUPS: Final = 16
_MAX_PER_GROUP: Final = 64
_MAX_FLAVORS: Final = 256
_V1BETA1_FUNGIBILITY: Final = ("Borrow", "Preempt")


def read_resource_groups(
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


def read_fungibility(fields: Fields, version: str) -> FlavorFungibility:
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


def read_weight(spec: Fields) -> float:
    """The weight times 1000."""
    fair_sharing = spec.map("fairSharing")
    weight = fair_sharing.weight_milli("weight", DEFAULT_WEIGHT_MILLI)
    fair_sharing.close()
    return weight


def read_usage_based(spec: Fields) -> bool:
    modes = ("UsageBasedAdmissionFairSharing", "NoAdmissionFairSharing")
    scope = spec.map("admissionScope")
    mode = scope.text("admissionMode", modes[1], required=spec.has("admissionScope"))
    if mode not in modes:
        scope.wrong("admissionMode", f"{mode!r} is not one of {', '.join(modes)}")
    scope.close()
    return mode == modes[0]


def read_namespace_selector(
    spec: Fields,
) -> tuple[dict[str, str] | None, tuple[LabelRequirement, ...]]:
    """`matchLabels` and `matchExpressions`; None selects no namespace."""
    if not spec.has("namespaceSelector"):
        spec.ignore("namespaceSelector")
        return None, ()
    selector = spec.map("namespaceSelector")
    labels = selector.string_map("matchLabels")
    expressions = []
    for one in selector.maps("matchExpressions"):
        key, operator, values = one.text("key"), one.text("operator"), one.texts("values")
        expressions.append(LabelRequirement(key, operator, values))
        one.close()
    selector.close()
    return labels, tuple(expressions)


def read_admission_checks(spec: Fields, version: str) -> dict[str, tuple[str, ...]]:
    strategy = spec.map("admissionChecksStrategy")
    checks = {}
    for one in strategy.maps("admissionChecks"):
        checks[one.name("name", required=True)] = one.texts("onFlavors")
        one.close()
    strategy.close()
    if version == KUEUE_V1BETA1:
        checks |= dict.fromkeys(spec.texts("admissionChecks"), ())
    return checks


def read_count_annotation(annotations: Fields, key: str) -> int | None:
    """A count in an annotation, whose values are text."""
    text = annotations.text(key)
    if text and not text.isdecimal():
        annotations.wrong(key, f'{text!r} is not a count; write for example "10"')
        return None
    return int(text) if text else None
