"""Flavor assignment: which hardware each pod set of a workload would get, and how well it fits.

Source: Kueue's flavor assigner with FlavorFungibility and partial admission.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Protocol, TypeVar

from sluice.core.config.model import (
    BorrowWithinCohort,
    FungibilityChoice,
    FungibilityPreference,
    PodSetAssignment,
    ReclaimWithinCohort,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from sluice.core.config.model import Assignment, ClusterQueue
    from sluice.core.scheduling.last_tried_flavor import Starts
    from sluice.core.scheduling.quota import Cells, QuotaTree
    from sluice.core.scheduling.request_shape import FlavorOption, Shape

NEVER_LEVEL = 1 << 30

Found = TypeVar("Found")


class AssignmentMode(IntEnum):
    """How a flavor could serve a request, from worst to best."""

    NO_FIT = 0
    NO_CANDIDATES = 1
    PREEMPT = 2
    RECLAIM = 3
    FIT = 4


class PreemptionOracle(Protocol):
    """Tells whether preemption could make room in one cell."""

    def __call__(self, cell: int, amount: int) -> tuple[AssignmentMode, int]:
        """Answers NO_CANDIDATES, PREEMPT or RECLAIM, and the borrowing level afterwards."""


@dataclass(slots=True, eq=False)
class Nomination:
    """What a workload would get: the worst fit over its resources, and the amounts.

    `resume` says where the search goes on if this leads to nothing; None or empty: all was tried.
    """

    mode: AssignmentMode
    pod_sets: tuple[PodSetAssignment, ...]
    cells: Cells
    level: int = 0
    contested: frozenset[int] = frozenset()
    resume: Starts | None = None


NO_NOMINATION = Nomination(AssignmentMode.NO_FIT, (), ())


@dataclass(frozen=True, slots=True)
class FlavorRestrictions:
    """What restricts the flavors in one attempt.

    `starts` is where an earlier search resumes. `barred` are flavors that a budget cannot pay.
    `pinned`, if given, is the assignment whose flavors are the only ones.
    """

    starts: Starts = field(default_factory=dict)
    barred: frozenset[str] = frozenset()
    pinned: tuple[PodSetAssignment, ...] = ()

    def allows(self, index: int, option: FlavorOption) -> bool:
        """Whether the pod set of this index may have a flavor that its pods can use."""
        if option.flavor in self.barred:
            return False
        return not self.pinned or all(
            self.pinned[index].flavors.get(resource) == option.flavor
            for resource, _, _ in option.cells
        )


NO_RESTRICTIONS = FlavorRestrictions()


@dataclass(slots=True)
class Assigner:
    """Tries flavors for one workload at one ClusterQueue, against the present usage."""

    tree: QuotaTree
    node: int
    queue: ClusterQueue
    fair_sharing: bool
    oracle: PreemptionOracle
    restrictions: FlavorRestrictions = NO_RESTRICTIONS

    def assign(self, shape: Shape, counts: tuple[int, ...]) -> Nomination:
        """Chooses flavors for so many pods of each set."""
        if shape.undeclared is not None:
            return NO_NOMINATION
        usage: dict[int, int] = {}
        contested: set[int] = set()
        resume: dict[tuple[int, int], int] = {}
        pod_sets = []
        worst, level = AssignmentMode.FIT, 0
        for index, (pod_set, count) in enumerate(zip(shape.pod_sets, counts, strict=True)):
            flavors: dict[str, str] = {}
            resumes: dict[tuple[int, int], int] = {}
            for group, options in enumerate(pod_set.groups):
                start = self.restrictions.starts.get((index, group), 0)
                option, checks, following = self._choose(index, options[start:], count, usage)
                if option is None:
                    return Nomination(AssignmentMode.NO_FIT, (), (), resume=resume)
                if following:
                    resumes[index, group] = start + following
                for (resource, cell, per_pod), (fit, borrowing) in zip(
                    option.cells, checks, strict=True
                ):
                    flavors[resource] = option.flavor
                    usage[cell] = usage.get(cell, 0) + per_pod * count
                    worst, level = min(worst, fit), max(level, borrowing)
                    if fit is not AssignmentMode.FIT:
                        contested.add(cell)
            resume |= resumes
            pod_sets.append(PodSetAssignment(pod_set.name, count, flavors))
        cells = tuple(usage.items())
        return Nomination(worst, tuple(pod_sets), cells, level, frozenset(contested), resume)

    def _choose(
        self, index: int, options: tuple[FlavorOption, ...], count: int, assumed: Mapping[int, int]
    ) -> tuple[FlavorOption | None, list[tuple[AssignmentMode, int]], int]:
        """The preferred flavor of a group, the check of each resource, and the option to try next.

        The last is 0 when no option is left.
        """
        best: FlavorOption | None = None
        best_checks: list[tuple[AssignmentMode, int]] = []
        best_mode = (AssignmentMode.NO_FIT, NEVER_LEVEL)
        for tried, option in enumerate(options, start=1):
            if option.mismatch is not None or not self.restrictions.allows(index, option):
                continue
            checks = [
                self.check(cell, assumed.get(cell, 0) + per_pod * count)
                for _, cell, per_pod in option.cells
            ]
            mode = (AssignmentMode.FIT, 0)
            for check in checks:
                if self._preferred(mode, check):
                    mode = check
            if self._stops(mode):
                return option, checks, tried if tried < len(options) else 0
            if self._preferred(mode, best_mode):
                best, best_checks, best_mode = option, checks, mode
        return best, best_checks, 0

    def check(self, cell: int, amount: int) -> tuple[AssignmentMode, int]:
        """How one cell could serve an amount, and at which borrowing level."""
        tree, node = self.tree, self.node
        if amount > tree.potential[cell][node]:
            return AssignmentMode.NO_FIT, 0
        level, below_root = tree.borrowing_level(node, cell, amount)
        if amount <= max(0, tree.available(node, cell)):
            return AssignmentMode.FIT, level
        if (
            tree.nominal[cell][node] >= amount
            or below_root
            or may_preempt_while_borrowing(self.queue, fair_sharing=self.fair_sharing)
        ):
            return self.oracle(cell, amount)
        return AssignmentMode.NO_FIT, level

    def _stops(self, mode: tuple[AssignmentMode, int]) -> bool:
        """Whether the search may end at a flavor."""
        fit, level = mode
        rules = self.queue.flavor_fungibility
        if fit <= AssignmentMode.NO_CANDIDATES:
            return False
        if (
            fit is not AssignmentMode.FIT
            and rules.when_can_preempt is FungibilityChoice.TRY_NEXT_FLAVOR
        ):
            return False
        return level == 0 or rules.when_can_borrow is not FungibilityChoice.TRY_NEXT_FLAVOR

    def _preferred(self, a: tuple[AssignmentMode, int], b: tuple[AssignmentMode, int]) -> bool:
        """Whether mode a is better than mode b."""
        if a[0] is AssignmentMode.NO_FIT or b[0] is AssignmentMode.NO_FIT:
            return a[0] is not AssignmentMode.NO_FIT
        if (a[0] is AssignmentMode.NO_CANDIDATES) != (b[0] is AssignmentMode.NO_CANDIDATES):
            return b[0] is AssignmentMode.NO_CANDIDATES
        preference = self.queue.flavor_fungibility.preference
        if preference is FungibilityPreference.PREEMPTION_OVER_BORROWING:
            return (-a[1], a[0]) > (-b[1], b[0])
        return (a[0], -a[1]) > (b[0], -b[1])


def roomiest(
    tree: QuotaTree,
    node: int,
    shape: Shape,
    counts: tuple[int, ...],
    restrictions: FlavorRestrictions,
) -> Cells | None:
    """The amounts for so many pods in the flavors that lack least room; None if impossible."""
    usage: dict[int, int] = {}
    for index, (pod_set, count) in enumerate(zip(shape.pod_sets, counts, strict=True)):
        for options in pod_set.groups:
            best: tuple[int, FlavorOption] | None = None
            for option in options:
                if option.mismatch is not None or not restrictions.allows(index, option):
                    continue
                wanted = [(c, usage.get(c, 0) + per_pod * count) for _, c, per_pod in option.cells]
                if not tree.possible(node, tuple(wanted)):
                    continue
                lacking = max(_missing_ppm(tree, node, c, amount) for c, amount in wanted)
                if best is None or lacking < best[0]:
                    best = lacking, option
            if best is None:
                return None
            for _, cell, per_pod in best[1].cells:
                usage[cell] = usage.get(cell, 0) + per_pod * count
    return tuple(usage.items())


def _missing_ppm(tree: QuotaTree, node: int, cell: int, amount: int) -> int:
    """How much of an amount is not available, in millionths of it."""
    missing = max(0, amount - max(0, tree.available(node, cell)))
    return missing * 1_000_000 // amount if missing else 0


def may_preempt_while_borrowing(queue: ClusterQueue, *, fair_sharing: bool) -> bool:
    """Whether preemption may help a request that leaves the queue borrowing."""
    rules = queue.preemption
    return rules.borrow_within_cohort is not BorrowWithinCohort.NEVER or (
        fair_sharing and rules.reclaim_within_cohort is not ReclaimWithinCohort.NEVER
    )


def required_checks(queue: ClusterQueue, assignment: Assignment) -> tuple[str, ...]:
    """Admission checks that must be Ready before the assigned workload may start, sorted.

    A check that is limited to flavors concerns only workloads that use one of them.
    """
    used = assignment.flavors
    checks = queue.admission_checks.items()
    return tuple(sorted(name for name, flavors in checks if not flavors or used & set(flavors)))


def largest_partial(
    shape: Shape, attempt: Callable[[tuple[int, ...]], Found | None]
) -> Found | None:
    """Searches the largest admissible size between full and minimum counts.

    Binary search over i in [0, slack] with counts `count - delta * i // slack`; `attempt` returns
    None for counts that cannot be admitted. Without slack there is nothing to search.
    """
    if shape.slack == 0:
        return None
    best: Found | None = None
    low, high = 0, shape.slack + 1
    while low < high:
        middle = (low + high) // 2
        counts = tuple(
            pod_set.count - (pod_set.count - pod_set.min_count) * middle // shape.slack
            for pod_set in shape.pod_sets
        )
        found = attempt(counts)
        if found is None:
            low = middle + 1
        else:
            best, high = found, middle
    return best
