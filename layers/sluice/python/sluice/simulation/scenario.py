"""Reads one scenario file: Kueue's objects, listed and generated work, and the expectation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from sluice.core.document import DocumentError, Fields, Flaw
from sluice.core.model import (
    Assignment,
    ClusterQueue,
    PodSet,
    PodSetAssignment,
    Policy,
    ResourceFlavor,
    Workload,
)
from sluice.core.objects import ConfigObjects, describe, read_objects
from sluice.core.scheduling_policy import read_admission_fair_sharing, read_fair_sharing
from sluice.simulation.expectation import Expectation, read_expectation
from sluice.simulation.job import Holds, Job
from sluice.simulation.load import Load, read_load

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SLUICE_V1: Final = "sluice.dev/v1"
SIMULATION_KINDS: Final = ("Scenario", "Load", "Expectation")
DEFAULT_START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z, for files that name no time


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file, ready to run.

    `passes` None runs until nothing more can change; `consumed` is past usage per LocalQueue in
    base units; `generated` says that a Load takes part.
    """

    name: str
    objects: ConfigObjects
    jobs: tuple[Job, ...]
    start_ms: int = DEFAULT_START_MS
    passes: int | None = None
    policy: Policy = field(default_factory=Policy)
    consumed: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    expectation: Expectation | None = None
    generated: bool = False

    @property
    def capacity(self) -> dict[str, int]:
        """The sum of all nominal quotas, per resource and in base units."""
        capacity: dict[str, int] = {}
        groups = [group for queue in self.objects.cluster_queues for group in queue.resource_groups]
        groups += [group for cohort in self.objects.cohorts for group in cohort.resource_groups]
        for group in groups:
            for flavor in group.flavors:
                for resource, quota in flavor.resources.items():
                    capacity[resource] = capacity.get(resource, 0) + quota.nominal
        return capacity


def parse_scenario(documents: Iterable[Any], default_name: str) -> Scenario:
    """One file's documents, as a YAML parser returned them.

    Raises DocumentError with every flaw found.
    """
    flaws: list[Flaw] = []
    ours: list[tuple[str, Any]] = []
    kueue: list[tuple[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        if document is not None:
            is_ours = isinstance(document, dict) and document.get("kind") in SIMULATION_KINDS
            (ours if is_ours else kueue).append((describe(number, document), document))
    objects = read_objects(kueue, flaws, also=SIMULATION_KINDS)
    scenario, loads = Scenario(name="", objects=objects, jobs=()), list[tuple[str, Load]]()
    seen: set[str] = set()
    for label, document in ours:
        fields = Fields(document, label, flaws)
        kind, name, spec = _heading(fields)
        if kind != "Load" and kind in seen:
            fields.wrong("kind", f"is the second {kind}; one file holds at most one")
        seen.add(kind)
        if kind == "Scenario":
            read = _ScenarioReader(objects, spec).read()
            scenario = replace(read, name=name, expectation=scenario.expectation)
        elif kind == "Load":
            loads.append((label, read_load(name or f"load-{len(loads) + 1}", spec)))
        else:
            scenario = replace(scenario, expectation=read_expectation(spec))
        spec.close()
        fields.close()
    if flaws:
        raise DocumentError(flaws)
    name = scenario.name or (loads[0][1].name if loads else default_name)
    complete = _with_loads(replace(scenario, name=name), loads, flaws)
    flaws += _shared_names(complete.objects)
    if flaws:
        raise DocumentError(flaws)
    return complete


def _heading(fields: Fields) -> tuple[str, str, Fields]:
    """The kind, name and spec of one of our documents."""
    version = fields.text("apiVersion", required=True)
    if version not in {"", SLUICE_V1}:
        fields.wrong("apiVersion", f"{version!r} must be {SLUICE_V1}")
    return fields.text("kind"), fields.map("metadata").name("name"), fields.map("spec")


def _with_loads(scenario: Scenario, loads: list[tuple[str, Load]], flaws: list[Flaw]) -> Scenario:
    """Adds the generated queues and jobs; names that exist already are flaws of their Load."""
    objects = scenario.objects
    flavors = {one.name: one for one in objects.resource_flavors}
    queues = {one.name: one for one in objects.cluster_queues}
    jobs = {one.workload.id: one for one in scenario.jobs}
    for label, load in loads:
        flavors.setdefault(load.flavor, ResourceFlavor(load.flavor))
        new_queues = {one.name: one for one in load.cluster_queues()}
        new_jobs = {one.workload.id: one for one in load.jobs(scenario.start_ms)}
        for kind, old, new in (
            ("ClusterQueue", queues.keys(), new_queues.keys()),
            ("workload", jobs.keys(), new_jobs.keys()),
        ):
            if taken := min(old & new, default=None):
                message = f"it makes a {kind} {taken}, which there is already; rename one of them"
                flaws.append(Flaw(label, "metadata.name", message))
        queues |= new_queues
        jobs |= new_jobs
    return replace(
        scenario,
        objects=replace(
            objects,
            resource_flavors=tuple(flavors.values()),
            cluster_queues=tuple(queues.values()),
        ),
        jobs=tuple(jobs.values()),
        generated=bool(loads),
    )


def _shared_names(objects: ConfigObjects) -> Iterator[Flaw]:
    """ClusterQueues called like a cohort; reports and limits could not tell the two apart."""
    cohorts = {one.name for one in objects.cohorts}
    cohorts |= {one.parent for one in objects.cohorts if one.parent is not None}
    cohorts |= {one.cohort for one in objects.cluster_queues if one.cohort is not None}
    for queue in objects.cluster_queues:
        if queue.name in cohorts:
            message = "is a cohort's name, too; rename one of them"
            yield Flaw(f"ClusterQueue {queue.name}", "metadata.name", message)


class _ScenarioReader:
    """Reads a Scenario's `spec` against the objects of the same file."""

    def __init__(self, objects: ConfigObjects, spec: Fields) -> None:
        self._objects, self._spec = objects, spec
        self._queues = {queue.name: queue for queue in objects.cluster_queues}
        self._local_queues = {queue.key: queue for queue in objects.local_queues}
        # Kueue applies the class of this name to workloads that name no other priority.
        self._default_priority = next(
            (one.value for one in objects.priority_classes if one.name == "default"), 0
        )

    def read(self) -> Scenario:
        spec = self._spec
        start_ms = spec.instant("start", DEFAULT_START_MS)
        return Scenario(
            name="",
            objects=self._objects,
            start_ms=start_ms,
            passes=spec.integer("passes", minimum=1) if spec.has("passes") else None,
            policy=Policy(
                fair_sharing=read_fair_sharing(spec),
                admission_fair_sharing=read_admission_fair_sharing(spec),
            ),
            consumed=self._consumed(),
            jobs=self._jobs(start_ms),
        )

    def _consumed(self) -> dict[str, dict[str, int]]:
        consumed = {}
        for one in self._spec.maps("localQueueUsage"):
            key = self._local_queue(one, required=True)
            consumed[key] = one.amounts("consumed", required=True)
            one.close()
        return consumed

    def _local_queue(self, fields: Fields, *, required: bool = False) -> str:
        key = fields.text("localQueue", required=required)
        if key and key not in self._local_queues:
            known = ", ".join(self._local_queues) or "none"
            fields.wrong("localQueue", f"there is no LocalQueue {key!r}; known: {known}")
        return key

    def _jobs(self, start_ms: int) -> tuple[Job, ...]:
        jobs = {}
        for sequence, fields in enumerate(self._spec.maps("workloads")):
            job = self._job(fields, sequence, start_ms)
            if job.workload.id in jobs:
                fields.wrong("name", f"{job.workload.id!r} is listed twice; names are unique")
            jobs[job.workload.id] = job
            fields.close()
        return tuple(jobs.values())

    def _job(self, fields: Fields, sequence: int, start_ms: int) -> Job:
        local_queue = self._local_queue(fields)
        pod_sets = tuple(_pod_set(one) for one in fields.maps("podSets", required=True))
        if len({one.name for one in pod_sets}) < len(pod_sets):
            fields.wrong("podSets", "two pod sets have the same name")
        workload = Workload(
            id=fields.name("name", required=True),
            cluster_queue=self._cluster_queue(fields, local_queue),
            local_queue=local_queue or None,
            pod_sets=pod_sets,
            priority=fields.priority("priority")
            if fields.has("priority")
            else self._default_priority,
            queued_at_ms=fields.instant("createdAt", start_ms),
            sequence=sequence,
        )
        fields.ignore("priority")
        return Job(
            workload,
            arrives_ms=fields.duration("arrivesAfter", 0) or 0,
            runtime_ms=fields.duration("runtime"),
            holds=self._holds(fields, workload) if fields.has("holds") else None,
        )

    def _cluster_queue(self, fields: Fields, local_queue: str) -> str:
        name = fields.name("clusterQueue")
        if bool(name) == bool(local_queue):
            fields.wrong("clusterQueue", "name either clusterQueue or localQueue")
        elif name and name not in self._queues:
            known = ", ".join(self._queues) or "none"
            fields.wrong("clusterQueue", f"there is no ClusterQueue {name!r}; known: {known}")
        if name or local_queue not in self._local_queues:
            return name
        target = self._local_queues[local_queue].cluster_queue
        if target not in self._queues:
            fields.wrong("localQueue", f"{local_queue} points to {target!r}, which does not exist")
        return target

    def _holds(self, fields: Fields, workload: Workload) -> Holds:
        holds = fields.map("holds")
        if fields.duration("arrivesAfter", 0):
            fields.wrong("arrivesAfter", "what holds quota is there from the start; remove one")
        flavors = holds.map("flavors", required=True)
        provided = _provided(self._queues.get(workload.cluster_queue))
        assignments = []
        for pod_set in workload.pod_sets:
            assigned = flavors.string_map(pod_set.name)
            if assigned.keys() != pod_set.requests.keys():
                wanted = ", ".join(pod_set.requests) or "none"
                flavors.wrong(
                    pod_set.name, f"must give a flavor to each of its resources: {wanted}"
                )
            for resource, flavor in assigned.items():
                if (flavor, resource) not in provided:
                    message = f"{workload.cluster_queue} has no quota of {flavor} for {resource}"
                    flavors.wrong(pod_set.name, message)
            assignments.append(PodSetAssignment(pod_set.name, pod_set.count, assigned))
        since_ms = holds.instant("since", required=True)
        flavors.close()
        holds.close()
        return Holds(since_ms, Assignment(tuple(assignments)))


def _provided(queue: ClusterQueue | None) -> set[tuple[str, str]]:
    groups = queue.resource_groups if queue else ()
    return {
        (flavor.name, resource)
        for group in groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


def _pod_set(fields: Fields) -> PodSet:
    count = fields.integer("count", 1, minimum=1, required=True)
    min_count = fields.integer("minCount", count, minimum=1) if fields.has("minCount") else None
    if min_count is not None and min_count > count:
        fields.wrong("minCount", f"{min_count} exceeds the count of {count}")
    pod_set = PodSet(
        name=fields.name("name", required=True),
        count=count,
        min_count=min_count,
        requests=fields.amounts("requests", required=True),
    )
    fields.ignore("minCount")
    fields.close()
    return pod_set
