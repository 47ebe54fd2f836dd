"""The quota arithmetic once more, straight from its definition: slow, recursive, independent."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from sluice.core.config.kueue_objects import ConfigObjects
from sluice.core.config.model import Assignment, Cohort, ResourceQuota, WorkloadInfo
from sluice.simulation.outcome import SimulationResult

Cell = tuple[str, str]
Usage = Mapping[str, Mapping[Cell, int]]


@dataclass(frozen=True)
class Tree:
    """Names, parents and quotas of all nodes; usage is given per ClusterQueue."""

    parent: Mapping[str, str | None]
    quotas: Mapping[str, Mapping[Cell, ResourceQuota]]
    cells: frozenset[Cell]

    @classmethod
    def of(cls, objects: ConfigObjects) -> "Tree":
        cohorts = {one.name: one for one in objects.cohorts}
        above = [one.parent for one in objects.cohorts]
        above += [one.cohort for one in objects.cluster_queues]
        for name in above:
            if name is not None:
                cohorts.setdefault(name, Cohort(name))
        parent = {one.name: one.parent for one in cohorts.values()}
        parent |= {one.name: one.cohort for one in objects.cluster_queues}
        groups = {one.name: one.resource_groups for one in cohorts.values()}
        groups |= {one.name: one.resource_groups for one in objects.cluster_queues}
        quotas = {
            name: {
                (flavor.name, resource): quota
                for group in of_node
                for flavor in group.flavors
                for resource, quota in flavor.resources.items()
            }
            for name, of_node in groups.items()
        }
        return cls(parent, quotas, frozenset(cell for each in quotas.values() for cell in each))

    def quota(self, node: str, cell: Cell) -> ResourceQuota:
        return self.quotas[node].get(cell, ResourceQuota(0))

    def children(self, node: str) -> Iterator[str]:
        return (name for name, parent in self.parent.items() if parent == node)

    def subtree_quota(self, node: str, cell: Cell) -> int:
        lent = (
            self.subtree_quota(kid, cell) - self.local_quota(kid, cell)
            for kid in self.children(node)
        )
        return self.quota(node, cell).nominal + sum(lent)

    def local_quota(self, node: str, cell: Cell) -> int:
        lending = self.quota(node, cell).lending_limit
        return 0 if lending is None else max(0, self.subtree_quota(node, cell) - lending)

    def usage(self, node: str, cell: Cell, used: Usage) -> int:
        kids = [
            max(0, self.usage(kid, cell, used) - self.local_quota(kid, cell))
            for kid in self.children(node)
        ]
        return used.get(node, {}).get(cell, 0) + sum(kids)

    def potential(self, node: str, cell: Cell) -> int:
        parent, subtree = self.parent[node], self.subtree_quota(node, cell)
        if parent is None:
            return subtree
        reachable = self.local_quota(node, cell) + self.potential(parent, cell)
        limit = self.quota(node, cell).borrowing_limit
        return reachable if limit is None else min(reachable, subtree + limit)

    def exceeded(self, used: Usage) -> list[str]:
        """Nodes that use more than they may: the root its quota, others quota plus limit."""
        found = []
        for node, parent in self.parent.items():
            for cell in sorted(self.cells):
                usage, most = self.usage(node, cell, used), self.subtree_quota(node, cell)
                limit = self.quota(node, cell).borrowing_limit
                if parent is not None:
                    most = usage if limit is None else most + limit
                if usage > most:
                    found.append(f"{node} uses {usage} of {most} {cell}")
        return found


def charge(workload: WorkloadInfo, assignment: Assignment) -> dict[Cell, int]:
    """What an admitted workload counts for, per (flavor, resource)."""
    cells: dict[Cell, int] = {}
    for pods, assigned in zip(workload.pod_sets, assignment.pod_sets, strict=True):
        for resource, amount in pods.requests.items():
            cell = (assigned.flavors[resource], resource)
            cells[cell] = cells.get(cell, 0) + amount * assigned.count
    return cells


def usage_over_time(outcome: SimulationResult) -> Iterator[tuple[int, dict[str, dict[Cell, int]]]]:
    """Usage per ClusterQueue after each instant at which it changed, from what was reported."""
    ends: dict[str, list[int]] = {}
    for job, at_ms in outcome.finished:
        ends.setdefault(job.workload.id, []).append(at_ms)
    for one in outcome.preempted:
        ends.setdefault(one.step.victim, []).append(one.at_ms)
    changes: list[tuple[int, int, str, dict[Cell, int]]] = []
    for admitted in sorted(outcome.admitted, key=lambda one: one.at_ms):
        workload = admitted.job.workload
        cells = charge(workload, admitted.assignment)
        changes.append((admitted.at_ms, 1, workload.cluster_queue, cells))
        later = sorted(at_ms for at_ms in ends.get(workload.id, []) if at_ms >= admitted.at_ms)
        if later:
            ends[workload.id].remove(later[0])
            changes.append((later[0], -1, workload.cluster_queue, cells))
    used: dict[str, dict[Cell, int]] = {}
    for instant in sorted({change[0] for change in changes}):
        for _, sign, name, cells in (one for one in changes if one[0] == instant):
            of_queue = used.setdefault(name, {})
            for cell, amount in cells.items():
                of_queue[cell] = of_queue.get(cell, 0) + sign * amount
        yield instant, used
