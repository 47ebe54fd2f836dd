"""Fields of Kueue's objects that are accepted and have no effect, and why.

Fields that have an effect are read in kueue_objects.py and kueue_queue_fields.py.
Fields of pods: core/intake/pod_fields.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

# Kind → field of its spec → why it changes nothing.
IGNORED_FIELDS: Final[Mapping[str, Mapping[str, str]]] = {
    "ClusterQueue": {"concurrentAdmissionPolicy": "each workload is one admission"},
    "LocalQueue": {"flavors": "the ClusterQueue's flavors count"},
    "ResourceFlavor": {"topologyName": "pods are not placed on racks"},
    "AdmissionCheck": {
        "retryDelayMinutes": "retries back off by themselves",
        "parameters": "the check's controller knows its own settings",
    },
}


def list_ignored_fields(
    document: Mapping[str, Any], *, fair_sharing: bool
) -> Iterator[tuple[str, str]]:
    """Path and reason of each field of a document that has no effect.

    `fair_sharing` says whether shares decide in the document's root cohort.
    """
    spec = document.get("spec")
    if not isinstance(spec, Mapping):
        return
    for key, why in IGNORED_FIELDS.get(str(document.get("kind")), {}).items():
        if spec.get(key) not in (None, [], {}):
            yield f"spec.{key}", why
    rules = spec.get("preemption")
    borrow = rules.get("borrowWithinCohort") if isinstance(rules, Mapping) else None
    if fair_sharing and isinstance(borrow, Mapping) and borrow.get("policy") not in (None, "Never"):
        yield "spec.preemption.borrowWithinCohort", "with fair sharing, shares decide"
    tolerations = spec.get("tolerations")
    for number, one in enumerate(tolerations if isinstance(tolerations, list) else ()):
        if isinstance(one, Mapping) and one.get("tolerationSeconds") is not None:
            path = f"spec.tolerations[{number}].tolerationSeconds"
            yield path, "pods tolerate the taint for as long as they run"
