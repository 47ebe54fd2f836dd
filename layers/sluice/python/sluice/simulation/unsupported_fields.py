"""What a file says that a simulation accepts and does not act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.ignored_fields import list_ignored_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Kind → field of its spec → why it changes nothing here.
_WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, str]]] = {
    "ClusterQueue": {
        "admissionChecks": "checks count as ready; say in the Scenario's spec.admissionChecks how "
        "they answer",
        "admissionChecksStrategy": "checks count as ready; say in the Scenario's "
        "spec.admissionChecks how they answer",
    },
    "SchedulingPolicy": {
        "recordPasses": "nothing is recorded",
        "waitForPodsReady": "pods are ready as soon as they are admitted",
    },
    "Cluster": {
        "alwaysWatch": "nobody creates objects there",
        "managePools": "no machines are bought",
        "maxWaitingPods": "pods get their machines at once",
    },
}
_OF_CHECKS: Final = frozenset({"admissionChecks", "admissionChecksStrategy"})


def list_unsupported_fields(
    labelled: Iterable[tuple[str, Any]], *, answered: bool, namespaces: bool, shared: bool
) -> Iterator[str]:
    """One line for each field.

    `answered`, `namespaces` and `shared` say whether the Scenario speaks of answers to checks, of
    the labels of namespaces and of fair sharing.
    """
    for label, document in labelled:
        if not isinstance(document, Mapping) or not isinstance(document.get("spec"), Mapping):
            continue
        spec: Mapping[str, Any] = document["spec"]
        for path, why in list_ignored_fields(document, fair_sharing=shared):
            yield f"{label}: {path} has no effect here: {why}"
        for key, why in _WITHOUT_EFFECT.get(str(document.get("kind")), {}).items():
            meant = spec.get(key) not in (None, [], {})
            if meant and not (answered and key in _OF_CHECKS):
                yield f"{label}: spec.{key} has no effect here: {why}"
        selector = spec.get("namespaceSelector")
        if (
            isinstance(selector, Mapping)
            and (selector.get("matchLabels") or selector.get("matchExpressions"))
            and not namespaces
        ):
            yield (
                f"{label}: spec.namespaceSelector has no effect here: it is taken to select every "
                "namespace; give the Scenario spec.namespaceLabels"
            )
