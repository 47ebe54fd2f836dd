"""A recorded pass: everything that was decided on, what was decided, and both digests.

A recording is one JSON document. Its snapshot is complete, so that the same code gives the same
plan from it anywhere and at any time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.budget import Budget
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.kueue_objects import ConfigObjects
from sluice.core.config.policy import Policy
from sluice.core.passes import admission_cycle
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan, LedgerStep
from sluice.core.values.plain import canonical, digest, digest_of_text, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

API_VERSION: Final = "sluice.dev/v1"
KIND: Final = "RecordedPass"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one cycle over one root decides on."""

    gathered: CycleInput
    policy: Policy
    objects: ConfigObjects
    budgets: tuple[Budget, ...] = ()


@dataclass(frozen=True, slots=True)
class Recording:
    """A snapshot with the plan that was made of it."""

    snapshot: Snapshot
    plan: Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class Recorded:
    """A recording as text, and the digest of its snapshot."""

    text: str
    snapshot_digest: str


@lru_cache(maxsize=64)
def objects_below(catalog: QueueCatalog, root: str) -> ConfigObjects:
    """The part of a catalog that decisions over one root depend on, in the order of names."""
    queues = tuple(
        queue
        for name, queue in sorted(catalog.cluster_queues.items())
        if catalog.root_of(name) == root
    )
    names = {queue.name for queue in queues}
    flavors = {
        flavor.name
        for queue in queues
        for group in queue.resource_groups
        for flavor in group.flavors
    }
    return ConfigObjects(
        resource_flavors=tuple(
            flavor for name, flavor in sorted(catalog.flavors.items()) if name in flavors
        ),
        cohorts=tuple(
            cohort
            for name, cohort in sorted(catalog.cohorts.items())
            if catalog.root_of_cohort(name) == root
        ),
        cluster_queues=queues,
        local_queues=tuple(
            local
            for _, local in sorted(catalog.local_queues.items())
            if local.cluster_queue in names
        ),
        admission_checks=tuple(
            check for _, check in sorted((catalog.admission_checks or {}).items())
        ),
    )


def decide(snapshot: Snapshot) -> CyclePlan:
    """The cycle again; raises KeyError if the objects have no such root or queue."""
    objects = snapshot.objects
    catalog = QueueCatalog(
        flavors=objects.resource_flavors,
        cohorts=objects.cohorts,
        cluster_queues=objects.cluster_queues,
        local_queues=objects.local_queues,
        priority_classes=objects.priority_classes,
        budgets=snapshot.budgets,
        admission_checks=objects.admission_checks,
    )
    return admission_cycle.decide(catalog, snapshot.gathered, snapshot.policy)


def plain_plan(decided: CyclePlan) -> dict[str, Any]:
    """Every change in the order of its commit, as in the audit; not the explanations."""
    return {
        "released": _lines(decided.released),
        "expired": _lines(decided.expired),
        "admitted": [
            {"step": step.line, "reservation": to_plain(step.change.set["reservation"])}
            for step in decided.admitted
        ],
        "preempted": [
            {"step": step.line, "intent": to_plain(step.change.set["intent"])}
            for step in decided.preempted
        ],
    }


def _lines(steps: Sequence[LedgerStep]) -> list[list[object]]:
    return [step.line for step in steps]


def snapshot_digest(snapshot: Snapshot) -> str:
    """`sha256:…` of the snapshot's canonical JSON."""
    return digest(to_plain(snapshot))


def record(snapshot: Snapshot, decided: CyclePlan) -> Recorded:
    """The JSON document of a recorded pass; the large part of it is rendered only once."""
    plain, plan = canonical(to_plain(snapshot)), canonical(plain_plan(decided))
    seen = digest_of_text(plain)
    head = f'"apiVersion":"{API_VERSION}","kind":"{KIND}"'
    digests = f'"snapshotDigest":"{seen}","planDigest":"{digest_of_text(plan)}"'
    return Recorded(f'{{{head},{digests},"plan":{plan},"snapshot":{plain}}}', seen)


def read_recording(document: Any) -> Recording:
    """A recording as `record` wrote it.

    Raises ValueError when it is none, or when its content does not match its own digests.
    """
    if not isinstance(document, dict) or document.get("kind") != KIND:
        raise ValueError(f"not a recorded pass; it must be a JSON object of kind {KIND}")
    if document.get("apiVersion") != API_VERSION:
        raise ValueError(f"apiVersion must be {API_VERSION}")
    for part in ("snapshot", "plan"):
        if digest(document.get(part)) != document.get(f"{part}Digest"):
            raise ValueError(f"{part} does not match {part}Digest; the recording was changed")
    return Recording(from_plain(Snapshot, document["snapshot"], "snapshot"), document["plan"])


def differences(recorded: Any, replayed: Any, path: str = "plan") -> Iterator[str]:
    """Where two plain plans differ, in words."""
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for key in sorted(recorded.keys() | replayed.keys()):
            yield from differences(recorded.get(key), replayed.get(key), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(replayed, list):
        for index in range(max(len(recorded), len(replayed))):
            old = recorded[index] if index < len(recorded) else None
            new = replayed[index] if index < len(replayed) else None
            yield from differences(old, new, f"{path}[{index}]")
    elif recorded != replayed:
        yield f"{path}: recorded {recorded!r}, replayed {replayed!r}"
