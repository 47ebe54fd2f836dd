"""The configuration as a whole: what exists, which queues share a root, and what is wrong."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.config.model import (
    CHECK_CONTROLLERS,
    Cohort,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sluice.core.config.budget import Budget
    from sluice.core.config.model import (
        AdmissionCheck,
        ClusterQueue,
        LocalQueue,
        ResourceFlavor,
        ResourceGroup,
        WorkloadPriorityClass,
    )


@dataclass(frozen=True, slots=True)
class Problem:
    """A mistake in the configuration: which object, which field, and what is wrong with it."""

    kind: str
    name: str
    field: str
    message: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}: {self.field}: {self.message}"


class QueueCatalog:
    """All queues, cohorts and flavors of an installation; never changed after construction.

    A catalog with problems still works: queues that a problem concerns are inactive where Kueue
    would make them so (a cohort cycle, an unknown flavor).
    """

    def __init__(
        self,
        *,
        flavors: Iterable[ResourceFlavor] = (),
        cohorts: Iterable[Cohort] = (),
        cluster_queues: Iterable[ClusterQueue] = (),
        local_queues: Iterable[LocalQueue] = (),
        priority_classes: Iterable[WorkloadPriorityClass] = (),
        budgets: Iterable[Budget] = (),
        admission_checks: Iterable[AdmissionCheck] | None = None,
    ) -> None:
        """`admission_checks` None: nobody looks at checks, as in a simulation without them."""
        flavors, cohorts, cluster_queues = list(flavors), list(cohorts), list(cluster_queues)
        local_queues, priority_classes = list(local_queues), list(priority_classes)
        self.flavors: Mapping[str, ResourceFlavor] = {each.name: each for each in flavors}
        self.cluster_queues: Mapping[str, ClusterQueue] = {q.name: q for q in cluster_queues}
        self.local_queues: Mapping[str, LocalQueue] = {each.key: each for each in local_queues}
        self.priority_classes: Mapping[str, WorkloadPriorityClass] = {
            each.name: each for each in priority_classes
        }
        self.budgets: tuple[Budget, ...] = tuple(budgets)
        self.admission_checks: Mapping[str, AdmissionCheck] | None = (
            None if admission_checks is None else {each.name: each for each in admission_checks}
        )
        named = {cohort.name: cohort for cohort in cohorts}
        for parent in [cohort.parent for cohort in cohorts] + [q.cohort for q in cluster_queues]:
            if parent is not None:
                named.setdefault(parent, Cohort(parent))
        self.cohorts: Mapping[str, Cohort] = named
        self._root_of_cohort, self.cyclic_cohorts = _roots(named)
        self.problems: tuple[Problem, ...] = (
            *_defined_twice("ResourceFlavor", [each.name for each in flavors]),
            *_defined_twice("Cohort", [each.name for each in cohorts]),
            *_defined_twice("ClusterQueue", [each.name for each in cluster_queues]),
            *_defined_twice("LocalQueue", [each.key for each in local_queues]),
            *_defined_twice("WorkloadPriorityClass", [each.name for each in priority_classes]),
            *_defined_twice("Budget", [each.name for each in self.budgets]),
            *self._problems(),
        )

    def roots(self) -> tuple[str, ...]:
        """Names of the units of decision: root cohorts and queues without a cohort, sorted."""
        alone = (name for name, queue in self.cluster_queues.items() if queue.cohort is None)
        return tuple(sorted({*self._root_of_cohort.values(), *alone}))

    def root_of(self, cluster_queue: str) -> str:
        """The root that decides for a ClusterQueue; raises KeyError if there is no such queue."""
        cohort = self.cluster_queues[cluster_queue].cohort
        return cluster_queue if cohort is None else self._root_of_cohort[cohort]

    def root_of_cohort(self, cohort: str) -> str:
        """The root above a cohort; raises KeyError if there is no such cohort."""
        return self._root_of_cohort[cohort]

    def inactive_reason(self, cluster_queue: ClusterQueue) -> str | None:
        """Why nothing can be admitted through a queue, apart from its stop policy."""
        if cluster_queue.cohort in self.cyclic_cohorts:
            return f"cohort {cluster_queue.cohort} is below or in a cycle of cohorts"
        for group in cluster_queue.resource_groups:
            for quotas in group.flavors:
                if quotas.name not in self.flavors:
                    return f"ResourceFlavor {quotas.name} does not exist"
        if self.admission_checks is not None:
            return unanswered(cluster_queue, self.admission_checks)
        return None

    def _problems(self) -> Iterator[Problem]:
        for name, cohort in self.cohorts.items():
            if name in self.cyclic_cohorts:
                yield Problem("Cohort", name, "spec.parentName", "leads into a cycle of cohorts")
            if name in self.cluster_queues:
                yield Problem("Cohort", name, "metadata.name", "is also a ClusterQueue's name")
            yield from self._unknown_flavors("Cohort", name, cohort.resource_groups)
        for name, queue in self.cluster_queues.items():
            yield from self._unknown_flavors("ClusterQueue", name, queue.resource_groups)
        for key, local in self.local_queues.items():
            if local.cluster_queue not in self.cluster_queues:
                message = f"no ClusterQueue is named {local.cluster_queue}"
                yield Problem("LocalQueue", key, "spec.clusterQueue", message)
        for budget in self.budgets:
            if budget.cluster_queue is not None and budget.cluster_queue not in self.cluster_queues:
                message = f"no ClusterQueue is named {budget.cluster_queue}"
                yield Problem("Budget", budget.name, "spec.clusterQueue", message)
            if budget.local_queue is not None and budget.local_queue not in self.local_queues:
                message = f"no LocalQueue is named {budget.local_queue}"
                yield Problem("Budget", budget.name, "spec.localQueue", message)

    def _unknown_flavors(
        self, kind: str, name: str, groups: tuple[ResourceGroup, ...]
    ) -> Iterator[Problem]:
        for index, group in enumerate(groups):
            for flavor in group.flavors:
                if flavor.name not in self.flavors:
                    field = f"spec.resourceGroups[{index}].flavors"
                    yield Problem(kind, name, field, f"no ResourceFlavor is named {flavor.name}")


def unanswered(queue: ClusterQueue, checks: Mapping[str, AdmissionCheck]) -> str | None:
    """Why a queue admits nobody because of its checks; as in Kueue, no mistake of the queue's."""
    for name in sorted(queue.admission_checks):
        if name not in checks:
            return f"AdmissionCheck {name} does not exist"
        if message := unknown_controller(checks[name]):
            return message
    return None


def unknown_controller(check: AdmissionCheck) -> str | None:
    """Why nobody will ever answer a check; it is valid all the same, as in Kueue."""
    if check.controller in CHECK_CONTROLLERS:
        return None
    known = ", ".join(CHECK_CONTROLLERS)
    return (
        f"nobody answers AdmissionCheck {check.name}: its controllerName {check.controller} is "
        f"unknown; known: {known}"
    )


def _defined_twice(kind: str, names: list[str]) -> Iterator[Problem]:
    for name, times in Counter(names).items():
        if times > 1:
            yield Problem(kind, name, "metadata.name", f"is defined {times} times")


def _roots(cohorts: Mapping[str, Cohort]) -> tuple[dict[str, str], frozenset[str]]:
    """The root above each cohort, and the cohorts whose way up ends in a cycle.

    Members of a cycle share its alphabetically first cohort as their root.
    """
    roots: dict[str, str] = {}
    cyclic: set[str] = set()
    for name in sorted(cohorts):
        path: list[str] = []
        at = name
        while at not in roots and at not in path:
            path.append(at)
            parent = cohorts[at].parent
            if parent is None:
                roots[at] = at
            else:
                at = parent
        if at not in roots:
            cycle = path[path.index(at) :]
            roots |= dict.fromkeys(cycle, min(cycle))
            cyclic |= set(cycle)
        if at in cyclic:
            cyclic |= set(path)
        roots |= dict.fromkeys(path, roots[at])
    return roots, frozenset(cyclic)
