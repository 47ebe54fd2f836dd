"""What-if: decides a recorded pass again with another nominal quota."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.core.passes.recording import Snapshot, decide, plain_plan, read_recording

if TYPE_CHECKING:
    from sluice.core.config.model import ClusterQueue
    from sluice.core.passes.cycle_plan import CyclePlan

Json = dict[str, Any]


def cells(document: Any) -> list[Json]:
    """The quotas that a recorded pass was decided with, in the core's units.

    CPU is in millicores, memory in bytes, devices are counted.
    """
    recording = read_recording(document)
    return [
        {
            "queue": queue.name,
            "flavor": flavor.name,
            "resource": resource,
            "nominal": quota.nominal,
        }
        for queue in recording.snapshot.objects.cluster_queues
        for group in queue.resource_groups
        for flavor in group.flavors
        for resource, quota in flavor.resources.items()
    ]


def try_nominal(document: Any, *, queue: str, flavor: str, resource: str, nominal: int) -> Json:
    """The plan with this nominal quota, beside the plan with the recorded one.

    Raises ValueError for a document that is no recorded pass.
    """
    recording = read_recording(document)
    snapshot = recording.snapshot
    changed = tuple(
        _with_nominal(item, flavor, resource, nominal) if item.name == queue else item
        for item in snapshot.objects.cluster_queues
    )
    trial = replace(snapshot, objects=replace(snapshot.objects, cluster_queues=changed))
    return {"recorded": _outcome(snapshot), "trial": _outcome(trial)}


def _with_nominal(queue: ClusterQueue, flavor: str, resource: str, nominal: int) -> ClusterQueue:
    groups = []
    for group in queue.resource_groups:
        flavors = []
        for item in group.flavors:
            if item.name == flavor and resource in item.resources:
                quota = replace(item.resources[resource], nominal=nominal)
                flavors.append(replace(item, resources={**item.resources, resource: quota}))
            else:
                flavors.append(item)
        groups.append(replace(group, flavors=tuple(flavors)))
    return replace(queue, resource_groups=tuple(groups))


def _outcome(snapshot: Snapshot) -> Json:
    decided: CyclePlan = decide(snapshot)
    plan = plain_plan(decided)
    names = {workload.id: workload.name for workload in snapshot.gathered.waiting}
    return {
        "admitted": [_named(names, step["step"]) for step in plan["admitted"]],
        "preempted": [_named(names, step["step"]) for step in plan["preempted"]],
        "waiting": len(snapshot.gathered.waiting) - len(plan["admitted"]),
    }


def _named(names: dict[str, str], step: list[Any]) -> Json:
    return {"id": step[0], "name": names.get(step[0], ""), "queue": step[2]}
