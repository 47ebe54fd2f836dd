"""Reads the workloads of a Scenario: who asks for what, and who holds quota at the start."""

from __future__ import annotations

from dataclasses import replace
from difflib import get_close_matches
from typing import TYPE_CHECKING

from sluice.core.config.model import Assignment, PodSetAssignment, PodSetInfo, WorkloadInfo
from sluice.core.intake import workload_options
from sluice.core.intake.short_form import array_size
from sluice.core.lifecycle import dependencies, pending_policy
from sluice.core.lifecycle.options import Dependency, Options
from sluice.simulation.job import InitialHolding, Job

if TYPE_CHECKING:
    from sluice.core.config.document import Fields
    from sluice.core.config.kueue_objects import ConfigObjects
    from sluice.core.config.model import ClusterQueue
    from sluice.core.config.spec_fields import SpecFields


class WorkloadReader:
    """Reads `spec.workloads` of a Scenario against the objects of the same file."""

    def __init__(self, objects: ConfigObjects, spec: SpecFields) -> None:
        self._objects, self._spec = objects, spec
        self._queues = {queue.name: queue for queue in objects.cluster_queues}
        self._local_queues = {queue.key: queue for queue in objects.local_queues}
        # Kueue applies the class of this name to workloads that name no other priority.
        self._default_priority = next(
            (one.value for one in objects.priority_classes if one.name == "default"), 0
        )

    def local_queue(self, fields: Fields, *, required: bool = False) -> str:
        """The key of an existing LocalQueue; another one is a flaw."""
        key = fields.text("localQueue", required=required)
        if key and key not in self._local_queues:
            known = ", ".join(self._local_queues) or "none"
            fields.wrong("localQueue", f"there is no LocalQueue {key!r}; known: {known}")
        return key

    def jobs(self, start_ms: int) -> tuple[Job, ...]:
        """All workloads, in the order of writing."""
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
        local_queue = self.local_queue(fields)
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
