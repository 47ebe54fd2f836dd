"""What a file says that a simulation accepts and does not act on."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

# Kind → field of its spec → why it changes nothing here.
_WITHOUT_EFFECT: Final[Mapping[str, Mapping[str, str]]] = {
    "ClusterQueue": {
        "concurrentAdmissionPolicy": "each workload is one admission",
        "admissionChecks": "checks count as ready; say in the Scenario's spec.admissionChecks how "
        "they answer",
        "admissionChecksStrategy": "checks count as ready; say in the Scenario's "
        "spec.admissionChecks how they answer",
    },
    "LocalQueue": {"flavors": "the ClusterQueue's flavors count"},
    "ResourceFlavor": {"topologyName": "pods are not placed on racks"},
    "AdmissionCheck": {
        "retryDelayMinutes": "retries back off by themselves",
        "parameters": "the Scenario says how the check answers",
    },
    "SchedulingPolicy": {"recordPasses": "nothing is recorded"},
    "Cluster": {
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
        for key, why in _WITHOUT_EFFECT.get(str(document.get("kind")), {}).items():
            meant = spec.get(key) not in (None, [], {})
            if meant and not (answered and key in _OF_CHECKS):
                yield f"{label}: spec.{key} has no effect here: {why}"
        rules = spec.get("preemption")
        borrow = rules.get("borrowWithinCohort") if isinstance(rules, Mapping) else None
        if shared and isinstance(borrow, Mapping) and borrow.get("policy") not in (None, "Never"):
            yield (
                f"{label}: spec.preemption.borrowWithinCohort has no effect here: with fair "
                "sharing, shares decide"
            )
        selector = spec.get("namespaceSelector")
        if isinstance(selector, Mapping) and selector.get("matchLabels") and not namespaces:
            yield (
                f"{label}: spec.namespaceSelector has no effect here: it is taken to select every "
                "namespace; give the Scenario spec.namespaceLabels"
            )
