"""Reads one scenario file: Kueue's objects, listed and generated work, and the expectation."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.document import DocumentError, Fields, Flaw
from sluice.core.config.kueue_objects import ConfigObjects, describe, read_objects
from sluice.core.config.model import (
    Assignment,
    ClusterQueue,
    PodSetAssignment,
    PodSetInfo,
    Policy,
    ResourceFlavor,
    WorkloadInfo,
)
from sluice.core.config.scheduling_policy import (
    SAVE_VICTIMS_MS,
    read_admission_fair_sharing,
    read_fair_sharing,
)
from sluice.core.config.spec_fields import SpecFields
from sluice.core.intake import workload_options
from sluice.core.intake.short_form import array_size
from sluice.core.lifecycle import dependencies, pending_policy
from sluice.core.lifecycle.options import Dependency, Options
from sluice.simulation import installation as installed
from sluice.simulation.expectation import Expectation, read_expectation
from sluice.simulation.installation import Installation, read_installation
from sluice.simulation.job import InitialHolding, Job
from sluice.simulation.load import Load, read_load
from sluice.simulation.unsupported_fields import list_unsupported_fields

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

SLUICE_V1: Final = "sluice.dev/v1"
SIMULATION_KINDS: Final = ("Scenario", "Load", "Expectation")
MAX_PASSES: Final = 100_000
DEFAULT_START_MS: Final = 1_767_225_600_000  # 2026-01-01T00:00:00Z, for files that name no time


@dataclass(frozen=True, slots=True)
class Scenario:
    """One file, ready to run.

    `passes` None runs until nothing more can change; `consumed` is past usage per LocalQueue in
    base units; `generated` says that a Load takes part; `notices` tell what has no effect.
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
    installation: Installation = field(default_factory=Installation)
    notices: tuple[str, ...] = ()

    def policy_of(self, root: str) -> Policy:
        """The settings of a root cohort: its SchedulingPolicy's, where the file has any."""
        stated = self.installation.policies
        return self.policy if stated is None else stated.of(root)

    def save_victims_ms(self, root: str) -> int:
        """How long a victim's dump is waited for, as its SchedulingPolicy says or by default."""
        stated = self.installation.policies
        return SAVE_VICTIMS_MS if stated is None else stated.save_victims_ms(root)

    def catalog(self) -> QueueCatalog:
        """The file's queues; what checks answer counts only if the Scenario says it."""
        objects, installation = self.objects, self.installation
        return QueueCatalog(
            flavors=objects.resource_flavors,
            cohorts=objects.cohorts,
            cluster_queues=objects.cluster_queues,
            local_queues=objects.local_queues,
            priority_classes=objects.priority_classes,
            budgets=installation.budgets,
            admission_checks=None if installation.answers is None else objects.admission_checks,
        )

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
    applied: list[tuple[str, Any]] = []
    kueue: list[tuple[str, Any]] = []
    for number, document in enumerate(documents, start=1):
        if document is not None:
            kind = document.get("kind") if isinstance(document, dict) else None
            known = ours if kind in SIMULATION_KINDS else kueue
            (applied if kind in installed.KINDS else known).append(
                (describe(number, document), document)
            )
    objects = read_objects(kueue, flaws, also=(*installed.KINDS, *SIMULATION_KINDS))
    installation = read_installation(applied, flaws)
    scenario = Scenario(name="", objects=objects, jobs=(), installation=installation)
    loads: list[tuple[str, Load]] = []
    seen: set[str] = set()
    for label, document in ours:
        fields = SpecFields(document, label, flaws)
        kind, name, spec = _heading(fields)
        if kind != "Load" and kind in seen:
            fields.wrong("kind", f"is the second {kind}; one file holds at most one")
        seen.add(kind)
        if kind == "Scenario":
            read = _ScenarioReader(objects, installation, spec).read()
            scenario = replace(read, name=name, expectation=scenario.expectation)
        elif kind == "Load":
            # A SchedulingPolicy says for how long everybody is left in peace.
            stated = {} if installation.policies is None else {"min_run_ms": 0}
            loads.append((label, read_load(name or f"load-{len(loads) + 1}", spec, **stated)))
        else:
            scenario = replace(scenario, expectation=read_expectation(spec))
        spec.close()
        fields.close()
    if flaws:
        raise DocumentError(flaws)
    name = scenario.name or (loads[0][1].name if loads else default_name)
    complete = _with_loads(replace(scenario, name=name), loads, flaws)
    flaws += _shared_names(complete.objects)
    flaws += installed.problems(complete.installation, complete.catalog())
    if flaws:
        raise DocumentError(flaws)
    return _told(complete, (*kueue, *applied))


def _told(scenario: Scenario, labelled: Iterable[tuple[str, Any]]) -> Scenario:
    """With notices; queues select every namespace where nobody says what labels there are."""
    labels, answers = scenario.installation.labels, scenario.installation.answers
    told = list_unsupported_fields(
        labelled,
        answered=answers is not None,
        namespaces=labels is not None,
        shared=scenario.policy.fair_sharing is not None,
    )
    objects = scenario.objects
    if labels is None:
        queues = tuple(
            replace(queue, namespace_selector=queue.namespace_selector and {})
            for queue in objects.cluster_queues
        )
        objects = replace(objects, cluster_queues=queues)
    return replace(scenario, objects=objects, notices=tuple(told))


def _heading(fields: SpecFields) -> tuple[str, str, SpecFields]:
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

    def __init__(
        self, objects: ConfigObjects, installation: Installation, spec: SpecFields
    ) -> None:
        self._objects, self._installation, self._spec = objects, installation, spec
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
            passes=spec.integer("passes", minimum=1, maximum=MAX_PASSES)
            if spec.has("passes")
            else None,
            policy=Policy(
                fair_sharing=read_fair_sharing(spec),
                admission_fair_sharing=read_admission_fair_sharing(spec),
            ),
            consumed=self._consumed(),
            jobs=self._jobs(start_ms),
            installation=installed.of_scenario(self._installation, spec, self._objects),
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
        self._depend(jobs)
        return tuple(jobs.values())

    def _job(self, fields: SpecFields, sequence: int, start_ms: int) -> Job:
        local_queue = self._local_queue(fields)
        indexes, together = array_size(fields) if fields.has("array") else (None, None)
        pod_sets = tuple(_pod_set(one, together) for one in fields.maps("podSets", required=True))
        if indexes and len(pod_sets) > 1:
            fields.wrong("array", "an array has one pod set; leave out the others")
        if len({one.name for one in pod_sets}) < len(pod_sets):
            fields.wrong("podSets", "two pod sets have the same name")
        workload = WorkloadInfo(
            id=fields.name("name", required=True),
            cluster_queue=self._cluster_queue(fields, local_queue),
            local_queue=local_queue or None,
            pod_sets=pod_sets,
            priority=fields.priority("priority")
            if fields.has("priority")
            else self._default_priority,
            queued_at_ms=fields.instant("createdAt", start_ms),
            sequence=sequence,
            user=fields.text("user") or None,
        )
        fields.ignore("priority", "array")
        job = Job(
            workload,
            arrives_ms=fields.duration("arrivesAfter", 0) or 0,
            runtime_ms=fields.duration("runtime"),
            holds=self._holds(fields, workload, start_ms) if fields.has("holds") else None,
            indexes=indexes or None,
            fails=fields.boolean("fails", default=False),
        )
        return self._wishing(job, fields, start_ms)

    def _wishing(self, job: Job, fields: SpecFields, start_ms: int) -> Job:
        """The job with the options of a Workload's spec, if it has any."""
        if fields.has("recovery"):
            fields.wrong("recovery", "nothing is interrupted in a simulation; leave it out")
        options = workload_options.read(fields, workload_options.Tenantless)
        if options == Options():
            return job
        if options.depends_on and job.holds is not None:
            fields.wrong("dependsOn", "what holds quota waits for nobody; remove one")
        classes = {one.name: one.value for one in self._objects.priority_classes}
        try:
            options = pending_policy.escalating(options, classes)
        except pending_policy.UnknownClass as unknown:
            known = ", ".join(sorted(classes)) or "none"
            where = f"pendingPolicy[{unknown.number}].priority"
            fields.wrong(where, f"there is no class {unknown.wanted!r}; known: {known}")
        written = fields.has("createdAt")
        since = job.workload.queued_at_ms if written else start_ms + job.arrives_ms
        wishes = replace(job.record(start_ms), created_at=since, options=options)
        return replace(job, wishes=wishes)

    def _depend(self, jobs: dict[str, Job]) -> None:
        """Names of other jobs become their ids, which are the same here."""
        for place, job in enumerate(list(jobs.values())):
            if job.wishes is None or not job.wishes.options.depends_on:
                continue
            entries = []
            for number, entry in enumerate(job.wishes.options.depends_on):
                name = entry.name or entry.id
                other = jobs.get(name)
                field = f"workloads[{place}].dependsOn[{number}].name"
                if other is None:
                    near = get_close_matches(name, jobs, n=1)
                    hint = f"did you mean {near[0]}?" if near else "list it, too"
                    self._spec.wrong(field, f"there is no workload {name!r}; {hint}")
                elif other.record(0).namespace != job.wishes.namespace:
                    self._spec.wrong(field, f"{name} is in another namespace; nobody waits for it")
                entries.append(Dependency(entry.condition, id=name))
            options = replace(job.wishes.options, depends_on=tuple(entries))
            wishes = dependencies.blocked(replace(job.wishes, options=options))
            jobs[job.workload.id] = replace(job, wishes=wishes)

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

    def _holds(self, fields: Fields, workload: WorkloadInfo, start_ms: int) -> InitialHolding:
        holds = fields.map("holds")
        if fields.duration("arrivesAfter", 0):
            fields.wrong("arrivesAfter", "what holds quota is there from the start; remove one")
        flavors = holds.map("flavors", required=True)
        queue = self._queues.get(workload.cluster_queue)
        provided = _provided(queue)
        assignments = []
        for pod_set in workload.pod_sets:
            assigned = flavors.string_map(pod_set.name)
            if assigned.keys() != pod_set.requests.keys():
                wanted = ", ".join(pod_set.requests) or "none"
                flavors.wrong(
                    pod_set.name, f"must give a flavor to each of its resources: {wanted}"
                )
            for resource, flavor in assigned.items():
                if queue is not None and (flavor, resource) not in provided:
                    message = f"{queue.name} has no quota of {flavor} for {resource}"
                    flavors.wrong(pod_set.name, message)
            assignments.append(PodSetAssignment(pod_set.name, pod_set.count, assigned))
        since_ms = holds.instant("since", required=True)
        if since_ms > start_ms:
            holds.wrong("since", "is after the scenario's start; what holds quota does so by then")
        flavors.close()
        saved_ms = holds.instant("checkpointAt") if holds.has("checkpointAt") else None
        holds.ignore("checkpointAt")
        holds.close()
        return InitialHolding(since_ms, Assignment(tuple(assignments)), saved_ms)


def _provided(queue: ClusterQueue | None) -> set[tuple[str, str]]:
    groups = queue.resource_groups if queue else ()
    return {
        (flavor.name, resource)
        for group in groups
        for flavor in group.flavors
        for resource in flavor.resources
    }


def _pod_set(fields: Fields, together: int | None) -> PodSetInfo:
    """`together` is how many pods of an array run at once; None: it is no array."""
    count = fields.integer("count", together or 1, minimum=1, required=together is None)
    if together and count != together:
        fields.wrong("count", f"the array says {together} already; leave it out")
    min_count = fields.integer("minCount", count, minimum=1) if fields.has("minCount") else None
    if min_count is not None and min_count > count:
        fields.wrong("minCount", f"{min_count} exceeds the count of {count}")
    pod_set = PodSetInfo(
        name=fields.name("name", required=True),
        count=count,
        min_count=min_count,
        requests=fields.amounts("requests", required=True),
    )
    fields.ignore("minCount")
    fields.close()
    return pod_set
