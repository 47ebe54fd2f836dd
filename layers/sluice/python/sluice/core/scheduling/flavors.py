"""Flavor assignment: which hardware each pod set of a workload would get, and how well it fits.

A shape is a request compiled for one ClusterQueue, so that the pass over many equal workloads does
integer work only. Source: Kueue's flavor assigner with FlavorFungibility and partial admission.
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
    TaintEffect,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Hashable, Mapping

    from sluice.core.config.model import (
        Assignment,
        ClusterQueue,
        LabelRequirement,
        PodSetInfo,
        ResourceFlavor,
        ResourceGroup,
    )
    from sluice.core.scheduling.last_tried_flavor import Starts
    from sluice.core.scheduling.quota import Cells, QuotaTree

PODS = "pods"
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


@dataclass(frozen=True, slots=True)
class FlavorOption:
    """One flavor of a resource group; `mismatch` says why the pods cannot use it."""

    flavor: str
    cells: tuple[tuple[str, int, int], ...]  # resource, cell, amount per pod
    mismatch: str | None


@dataclass(frozen=True, slots=True)
class ShapedPodSet:
    """A pod set with its options, one tuple of options per resource group."""

    name: str
    count: int
    min_count: int
    groups: tuple[tuple[FlavorOption, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Shape:
    """A request as one ClusterQueue sees it.

    `cells` is set where every pod set has exactly one usable flavor per group: then the whole
    request is one fixed tuple of amounts, and `pod_sets_fixed` its assignment.
    """

    pod_sets: tuple[ShapedPodSet, ...]
    slack: int
    undeclared: str | None
    cells: Cells | None
    fixed: tuple[PodSetAssignment, ...]


@dataclass(slots=True, eq=False)
class Nomination:
    """What a workload would get: the worst fit over its resources, and the amounts.

    `resume` says where the search goes on if this leads to nothing; None or empty: all was tried.
    """

    fit: AssignmentMode
    pod_sets: tuple[PodSetAssignment, ...]
    cells: Cells
    level: int = 0
    contested: frozenset[int] = frozenset()
    resume: Starts | None = None


NO_NOMINATION = Nomination(AssignmentMode.NO_FIT, (), ())


@dataclass(frozen=True, slots=True)
class FlavorRestrictions:
    """What narrows the choice of flavors in one attempt.

    `starts` is where an earlier search goes on, `barred` are flavors that nobody would pay for, and
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


def shape_key(pod_sets: tuple[PodSetInfo, ...]) -> Hashable:
    """Equal for pod sets that no decision can tell apart."""
    return tuple(
        (
            each.name,
            each.count,
            each.min_count,
            tuple(sorted(each.requests.items())),
            tuple(sorted(each.node_selector.items())),
            each.affinity,
            each.tolerations,
            each.flavors,
        )
        for each in pod_sets
    )


def compile_shape(
    pod_sets: tuple[PodSetInfo, ...],
    queue: ClusterQueue,
    flavors: Mapping[str, ResourceFlavor],
    tree: QuotaTree,
    *,
    ignore_undeclared: bool,
) -> Shape:
    """Resolves requests to cells and flavors to those that the pods may use."""
    covered = {name for group in queue.resource_groups for name in group.covered_resources}
    undeclared = None
    shaped = []
    for pod_set in pod_sets:
        requests = dict(pod_set.requests)
        if PODS in covered:
            requests[PODS] = 1
        missing = [name for name, amount in requests.items() if name not in covered and amount]
        if missing and not ignore_undeclared:
            undeclared = min(missing)
        groups = tuple(
            options
            for group in queue.resource_groups
            if (options := _options(pod_set, requests, group, flavors, tree))
        )
        least = pod_set.count if pod_set.min_count is None else pod_set.min_count
        shaped.append(ShapedPodSet(pod_set.name, pod_set.count, least, groups))
    slack = sum(pod_set.count - pod_set.min_count for pod_set in shaped)
    cells, fixed = _fixed(shaped) if undeclared is None else (None, ())
    return Shape(tuple(shaped), slack, undeclared, cells, fixed)


def _options(
    pod_set: PodSetInfo,
    requests: Mapping[str, int],
    group: ResourceGroup,
    flavors: Mapping[str, ResourceFlavor],
    tree: QuotaTree,
) -> tuple[FlavorOption, ...]:
    needed = [name for name in group.covered_resources if name in requests]
    if not needed:
        return ()
    order = {name: place for place, name in enumerate(pod_set.flavors or ())}
    return tuple(
        FlavorOption(
            quotas.name,
            tuple((r, tree.cell_index[quotas.name, r], requests[r]) for r in needed),
            mismatch(pod_set, flavors.get(quotas.name), quotas.name),
        )
        for quotas in sorted(group.flavors, key=lambda each: order.get(each.name, len(order)))
    )


def mismatch(pod_set: PodSetInfo, flavor: ResourceFlavor | None, name: str) -> str | None:
    """Why pods cannot run on a flavor's nodes, or None if they can.

    As in Kueue, only labels that the flavor itself defines restrict; an affinity term without any
    of them matches.
    """
    if flavor is None:
        return f"flavor {name} does not exist"
    if pod_set.flavors is not None and name not in pod_set.flavors:
        return f"the workload does not allow flavor {name}"
    tolerations = pod_set.tolerations + flavor.tolerations
    for taint in flavor.node_taints:
        if taint.effect is TaintEffect.PREFER_NO_SCHEDULE:
            continue
        if not any(toleration.tolerates(taint) for toleration in tolerations):
            return f"untolerated taint {taint.key}={taint.value}:{taint.effect} in flavor {name}"
    labels = flavor.node_labels
    selected = all(labels[k] == v for k, v in pod_set.node_selector.items() if k in labels)
    if not selected or not _affinity_matches(pod_set.affinity, labels):
        return f"flavor {name} does not match the node affinity"
    return None


def _affinity_matches(
    terms: tuple[tuple[LabelRequirement, ...], ...], labels: Mapping[str, str]
) -> bool:
    relevant = [[need for need in term if need.key in labels] for term in terms]
    if not all(relevant):
        return True
    return not relevant or any(
        all(_requirement_holds(need, labels[need.key]) for need in term) for term in relevant
    )


def _requirement_holds(need: LabelRequirement, value: str) -> bool:
    """Compares with a label that exists."""
    match need.operator:
        case "In":
            return value in need.values
        case "NotIn":
            return value not in need.values
        case "Exists":
            return True
        case "Gt" | "Lt":
            if not value.lstrip("-").isdigit():
                return False
            bound = int(need.values[0])
            return int(value) > bound if need.operator == "Gt" else int(value) < bound
        case _:
            return False


def _fixed(shaped: list[ShapedPodSet]) -> tuple[Cells | None, tuple[PodSetAssignment, ...]]:
    total: dict[int, int] = {}
    assigned = []
    for pod_set in shaped:
        flavors: dict[str, str] = {}
        for options in pod_set.groups:
            usable = [option for option in options if option.mismatch is None]
            if len(usable) != 1:
                return None, ()
            for resource, cell, per_pod in usable[0].cells:
                total[cell] = total.get(cell, 0) + per_pod * pod_set.count
                flavors[resource] = usable[0].flavor
        assigned.append(PodSetAssignment(pod_set.name, pod_set.count, flavors))
    return tuple(total.items()), tuple(assigned)


@dataclass(slots=True)
class Assigner:
    """Tries flavors for one workload at one ClusterQueue, against the present usage."""

    tree: QuotaTree
    node: int
    queue: ClusterQueue
    fair_sharing: bool
    oracle: PreemptionOracle
    choice: FlavorRestrictions = NO_RESTRICTIONS

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
                start = self.choice.starts.get((index, group), 0)
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
            if option.mismatch is not None or not self.choice.allows(index, option):
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
    tree: QuotaTree, node: int, shape: Shape, counts: tuple[int, ...], choice: FlavorRestrictions
) -> Cells | None:
    """The amounts for so many pods in the flavors that lack least room; None if impossible."""
    usage: dict[int, int] = {}
    for index, (pod_set, count) in enumerate(zip(shape.pod_sets, counts, strict=True)):
        for options in pod_set.groups:
            best: tuple[int, FlavorOption] | None = None
            for option in options:
                if option.mismatch is not None or not choice.allows(index, option):
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
