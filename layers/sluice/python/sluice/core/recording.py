"""A recorded pass: everything that was decided on, what was decided, and both digests.

A recording is one JSON document. Its snapshot is complete, so that the same code gives the same
plan from it anywhere and at any time.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from sluice.core.admission import Admission, Plan, PreemptionStep, Scheduler
from sluice.core.catalog import Catalog
from sluice.core.model import Holding, Policy, Workload
from sluice.core.objects import ConfigObjects
from sluice.core.plain import digest, from_plain, to_plain

if TYPE_CHECKING:
    from collections.abc import Iterator

API_VERSION: Final = "sluice.dev/v1"
KIND: Final = "RecordedPass"


@dataclass(frozen=True, slots=True)
class Consumed:
    """Past usage of a LocalQueue: amounts per resource in base units, and when that was so."""

    amounts: Mapping[str, float]
    at_ms: int


@dataclass(frozen=True, slots=True)
class Snapshot:
    """All that one pass over one root decides on; `waiting` in the order of enqueueing."""

    root: str
    now_ms: int
    policy: Policy
    objects: ConfigObjects
    holdings: tuple[Holding, ...] = ()
    waiting: tuple[Workload, ...] = ()
    consumed: Mapping[str, Consumed] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Recording:
    """A snapshot with the plan that was made of it."""

    snapshot: Snapshot
    plan: Mapping[str, Any]


def objects_below(catalog: Catalog, root: str) -> ConfigObjects:
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
    )


def decide(snapshot: Snapshot) -> Plan:
    """The plan of one pass; raises KeyError if the objects have no such root or queue."""
    objects = snapshot.objects
    catalog = Catalog(
        flavors=objects.resource_flavors,
        cohorts=objects.cohorts,
        cluster_queues=objects.cluster_queues,
        local_queues=objects.local_queues,
        priority_classes=objects.priority_classes,
    )
    scheduler = Scheduler(catalog, snapshot.root, snapshot.policy)
    for local_queue, consumed in snapshot.consumed.items():
        scheduler.set_local_queue_usage(local_queue, consumed.amounts, consumed.at_ms)
    for holding in snapshot.holdings:
        scheduler.hold(holding)
    for workload in snapshot.waiting:
        scheduler.enqueue(workload)
    return scheduler.run_pass(snapshot.now_ms)


def plain_plan(plan: Plan) -> dict[str, Any]:
    """Who is admitted how and who yields to whom, in order of decision; not the explanations."""
    return {
        "admissions": [_plain_admission(one) for one in plan.admissions],
        "preemptions": [_plain_step(one) for one in plan.preemptions],
    }


def _plain_admission(one: Admission) -> dict[str, Any]:
    return {
        "workload": one.workload,
        "cluster_queue": one.cluster_queue,
        "assignment": to_plain(one.assignment),
    }


def _plain_step(one: PreemptionStep) -> dict[str, Any]:
    return {
        "victim": one.victim,
        "cluster_queue": one.cluster_queue,
        "by": one.by,
        "reason": one.reason.value,
    }


def snapshot_digest(snapshot: Snapshot) -> str:
    """`sha256:…` of the snapshot's canonical JSON."""
    return digest(to_plain(snapshot))


def plan_digest(plan: Plan) -> str:
    """`sha256:…` of the plan's canonical JSON."""
    return digest(plain_plan(plan))


def record(snapshot: Snapshot, plan: Plan) -> dict[str, Any]:
    """The JSON document of a recorded pass."""
    plain_snapshot, decided = to_plain(snapshot), plain_plan(plan)
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "snapshot": plain_snapshot,
        "snapshotDigest": digest(plain_snapshot),
        "plan": decided,
        "planDigest": digest(decided),
    }


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


def first_difference(recorded: Any, replayed: Any, path: str = "plan") -> str | None:
    """The first place where two plain plans differ, in words; None if they are equal."""
    return next(_differences(recorded, replayed, path), None)


def _differences(recorded: Any, replayed: Any, path: str) -> Iterator[str]:
    if isinstance(recorded, dict) and isinstance(replayed, dict):
        for key in sorted(recorded.keys() | replayed.keys()):
            yield from _differences(recorded.get(key), replayed.get(key), f"{path}.{key}")
    elif isinstance(recorded, list) and isinstance(replayed, list):
        for index in range(max(len(recorded), len(replayed))):
            old = recorded[index] if index < len(recorded) else None
            new = replayed[index] if index < len(replayed) else None
            yield from _differences(old, new, f"{path}[{index}]")
    elif recorded != replayed:
        yield f"{path}: recorded {recorded!r}, replayed {replayed!r}"
