"""What Kueue's API server and webhooks refuse beyond wrong types: limits, labels, references.

Asked of documents that are applied or simulated, not of stored ones: what an earlier version
accepted stays readable. Source: the markers of apis/kueue/v1beta2 and pkg/webhooks of Kueue 0.20.
"""

from __future__ import annotations

import re
from collections import Counter
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.document import Fields, Flaw

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

_MAX_SELECTION: Final = 8  # labels, taints or tolerations of a flavor
_MAX_RESOURCES: Final = 256
_MAX_COMBINATIONS: Final = 512  # (flavor, resource) of a ClusterQueue
_MAX_CHECKS: Final = 64
_MAX_NAME: Final = 253
_PART: Final = r"[a-z0-9]([-a-z0-9]*[a-z0-9])?"
_SUBDOMAIN: Final = re.compile(rf"{_PART}(\.{_PART})*", re.ASCII)
_LABEL_NAME: Final = re.compile(r"[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?", re.ASCII)
_MIGRATION_MODES: Final = ("TryPreferredFlavors", "RetainFirstAdmission")
_WITH_VALUES: Final = ("In", "NotIn")
_WITHOUT_VALUES: Final = ("Exists", "DoesNotExist")
KUEUE_V1BETA1: Final = "kueue.x-k8s.io/v1beta1"


def validate_object(label: str, document: Mapping[str, Any], flaws: list[Flaw]) -> None:
    """Adds what Kueue would refuse of a document whose fields have the right types."""
    fields = Fields(document, label, flaws)
    _check_name(fields.map("metadata"), "name")
    validate = _VALIDATORS.get(fields.text("kind"))
    if validate is not None:
        validate(fields.map("spec"), fields.text("apiVersion"))


def _validate_flavor(spec: Fields, _version: str) -> None:
    labels = spec.string_map("nodeLabels")
    _check_labels(spec, "nodeLabels", labels)
    taints, tolerations = spec.maps("nodeTaints"), spec.maps("tolerations")
    for key, number in (
        ("nodeLabels", len(labels)),
        ("nodeTaints", len(taints)),
        ("tolerations", len(tolerations)),
    ):
        _check_number(spec, key, number, _MAX_SELECTION)
    for taint in taints:
        _check_label_key(taint, "key", taint.text("key"))
        _check_label_value(taint, "value", taint.text("value"))
    pairs = Counter((taint.text("key"), taint.text("effect")) for taint in taints)
    for (key, effect), number in pairs.items():
        if number > 1:
            spec.wrong("nodeTaints", f"{key}:{effect} occurs twice; key and effect must be unique")
    for toleration in tolerations:
        _validate_toleration(toleration)
    if spec.has("topologyName"):
        _check_name(spec, "topologyName")
        if not labels:
            spec.wrong("topologyName", "needs at least one of nodeLabels")


def _validate_toleration(fields: Fields) -> None:
    key, exists = fields.text("key"), fields.text("operator") == "Exists"
    if key:
        _check_label_key(fields, "key", key)
    elif not exists:
        fields.wrong("operator", "must be Exists where key is empty, which tolerates every key")
    if exists and fields.text("value"):
        fields.wrong("value", "must be empty where operator is Exists")
    elif not exists:
        _check_label_value(fields, "value", fields.text("value"))
    if fields.has("tolerationSeconds"):
        fields.integer("tolerationSeconds")
        if fields.text("effect") != "NoExecute":
            fields.wrong("tolerationSeconds", "needs effect: NoExecute")


def _validate_cohort(spec: Fields, _version: str) -> None:
    _check_name(spec, "parentName")
    _check_name(spec, "parent")
    _validate_groups(spec)


def _validate_cluster_queue(spec: Fields, version: str) -> None:
    _check_name(spec, "cohort")
    _check_name(spec, "cohortName")
    flavors = _validate_groups(spec)
    _validate_checks(spec, version, flavors)
    _validate_selector(spec.map("namespaceSelector"))
    if spec.has("concurrentAdmissionPolicy"):
        _validate_concurrent_admission(spec.map("concurrentAdmissionPolicy"))


def _validate_groups(spec: Fields) -> frozenset[str]:
    """Returns the flavors of all groups."""
    flavors, resources, combinations = [], 0, 0
    for group in spec.maps("resourceGroups"):
        covered = group.texts("coveredResources")
        for number, resource in enumerate(covered):
            _check_label_key(group, f"coveredResources[{number}]", resource)
        of_group = group.maps("flavors")
        for flavor in of_group:
            _check_name(flavor, "name")
        flavors += [flavor.text("name") for flavor in of_group]
        resources += len(covered)
        combinations += len(covered) * len(of_group)
    _check_number(spec, "resourceGroups", resources, _MAX_RESOURCES, "resources")
    what = "combinations of flavor and resource"
    _check_number(spec, "resourceGroups", combinations, _MAX_COMBINATIONS, what)
    return frozenset(flavors)


def _validate_checks(spec: Fields, version: str, flavors: frozenset[str]) -> None:
    strategy = spec.map("admissionChecksStrategy")
    checks = strategy.maps("admissionChecks")
    names = [check.text("name") for check in checks]
    listed = spec.texts("admissionChecks") if version == KUEUE_V1BETA1 else ()
    _check_number(strategy, "admissionChecks", len(names), _MAX_CHECKS)
    _check_number(spec, "admissionChecks", len(listed), _MAX_CHECKS)
    if listed and names:
        spec.wrong("admissionChecks", "admissionChecksStrategy is given, too; keep one of the two")
    if spec.has("admissionChecksStrategy") and version != KUEUE_V1BETA1 and not names:
        strategy.wrong("admissionChecks", "must not be empty")
    _check_unique(strategy, "admissionChecks", names)
    for check in checks:
        on_flavors = check.texts("onFlavors")
        _check_number(check, "onFlavors", len(on_flavors), _MAX_CHECKS)
        _check_unique(check, "onFlavors", on_flavors)
        for name in sorted({*on_flavors} - flavors):
            known = ", ".join(sorted(flavors)) or "none"
            check.wrong("onFlavors", f"the queue has no flavor {name!r}; known: {known}")


def _validate_selector(selector: Fields) -> None:
    _check_labels(selector, "matchLabels", selector.string_map("matchLabels"))
    for one in selector.maps("matchExpressions"):
        operator, values = one.text("operator", required=True), one.texts("values")
        _check_label_key(one, "key", one.text("key", required=True))
        if operator in _WITH_VALUES and not values:
            one.wrong("values", f"must not be empty where operator is {operator}")
        elif operator in _WITHOUT_VALUES and values:
            one.wrong("values", f"must be empty where operator is {operator}")
        elif operator and operator not in (*_WITH_VALUES, *_WITHOUT_VALUES):
            known = ", ".join((*_WITH_VALUES, *_WITHOUT_VALUES))
            one.wrong("operator", f"{operator!r} is not one of {known}")
        for number, value in enumerate(values):
            _check_label_value(one, f"values[{number}]", value)


def _validate_concurrent_admission(policy: Fields) -> None:
    migration = policy.map("migration", required=True)
    mode = migration.text("mode", required=policy.has("migration"))
    if mode and mode not in _MIGRATION_MODES:
        migration.wrong("mode", f"{mode!r} is not one of {', '.join(_MIGRATION_MODES)}")
    constraints = migration.map("constraints")
    if constraints.has("lastAcceptableFlavorName"):
        _check_name(constraints, "lastAcceptableFlavorName")
        if mode != _MIGRATION_MODES[0]:
            constraints.wrong("lastAcceptableFlavorName", f"needs mode: {_MIGRATION_MODES[0]}")
    for fields in (constraints, migration, policy):
        fields.close()


_VALIDATORS: Final[Mapping[str, Callable[[Fields, str], None]]] = {
    "ResourceFlavor": _validate_flavor,
    "Cohort": _validate_cohort,
    "ClusterQueue": _validate_cluster_queue,
}


def _check_number(fields: Fields, key: str, number: int, most: int, what: str = "entries") -> None:
    if number > most:
        fields.wrong(key, f"{number} {what}; at most {most} are allowed")


def _check_unique(fields: Fields, key: str, names: Iterable[str]) -> None:
    for name, number in Counter(names).items():
        if number > 1:
            fields.wrong(key, f"{name} occurs twice")


def _check_name(fields: Fields, key: str) -> None:
    """A DNS subdomain, as names of objects are; an absent field is no flaw here."""
    name = fields.text(key)
    if name and (len(name) > _MAX_NAME or _SUBDOMAIN.fullmatch(name) is None):
        message = "is not a name; use lower case letters, digits and '-', at most 253 characters"
        fields.wrong(key, f"{name[:_MAX_NAME]!r} {message}")


def _check_labels(fields: Fields, key: str, labels: Mapping[str, str]) -> None:
    for name, value in labels.items():
        _check_label_key(fields, f"{key}.{name}", name)
        _check_label_value(fields, f"{key}.{name}", value)


def _check_label_key(fields: Fields, key: str, name: str) -> None:
    """`NAME` or `PREFIX/NAME`, as keys of labels and names of resources are."""
    prefix, slash, rest = name.rpartition("/")
    prefixed = len(prefix) <= _MAX_NAME and _SUBDOMAIN.fullmatch(prefix) is not None
    if (slash and not prefixed) or _LABEL_NAME.fullmatch(rest) is None:
        message = "write NAME or PREFIX/NAME, with at most 63 characters in NAME"
        fields.wrong(key, f"{name!r} is not a valid key; {message}")


def _check_label_value(fields: Fields, key: str, value: str) -> None:
    if value and _LABEL_NAME.fullmatch(value) is None:
        message = "use at most 63 letters, digits, '-', '_' and '.'"
        fields.wrong(key, f"{value!r} is not a value of a label; {message}")
