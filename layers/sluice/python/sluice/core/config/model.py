"""Configuration and work as the scheduling core sees them: frozen values, integers, no I/O.

Times are integer milliseconds since the epoch. Quantities are integers in the unit of their
resource: CPU in millicores, memory and storage in bytes, dollars in micro-dollars, everything else
as a count. Field names follow Kueue's `kueue.x-k8s.io/v1beta2` API.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING

from sluice.core.config.pods_ready import WaitForPodsReady

if TYPE_CHECKING:
    from collections.abc import Mapping

DEFAULT_WEIGHT_MILLI = 1000
# Admission checks: answered by the reservation itself, since what exceeds a budget is not admitted,
# or asked by an event and answered through the api.
BUDGET_CHECK = "sluice.dev/budget"
CALLBACK_CHECK = "sluice.dev/callback"
CHECK_CONTROLLERS = (BUDGET_CHECK, CALLBACK_CHECK)


class QueueingStrategy(StrEnum):
    """Whether a head that cannot be admitted blocks the workloads behind it."""

    STRICT_FIFO = "StrictFIFO"
    BEST_EFFORT_FIFO = "BestEffortFIFO"


class StopPolicy(StrEnum):
    """How a queue is stopped; the drain also evicts admitted work."""

    NONE = "None"
    HOLD = "Hold"
    HOLD_AND_DRAIN = "HoldAndDrain"


class WithinClusterQueue(StrEnum):
    """Which workloads of its own ClusterQueue a preemptor may evict."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    LOWER_OR_NEWER_EQUAL_PRIORITY = "LowerOrNewerEqualPriority"


class ReclaimWithinCohort(StrEnum):
    """Which borrowing workloads of other ClusterQueues a preemptor may evict."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"
    ANY = "Any"


class BorrowWithinCohort(StrEnum):
    """Whether a preemptor may end up borrowing."""

    NEVER = "Never"
    LOWER_PRIORITY = "LowerPriority"


class FungibilityChoice(StrEnum):
    """What the flavor search does at a flavor that needs borrowing or preemption."""

    MAY_STOP_SEARCH = "MayStopSearch"
    TRY_NEXT_FLAVOR = "TryNextFlavor"


class FungibilityPreference(StrEnum):
    """What is worse, once every flavor was tried."""

    BORROWING_OVER_PREEMPTION = "BorrowingOverPreemption"
    PREEMPTION_OVER_BORROWING = "PreemptionOverBorrowing"


class FairPreemptionStrategy(StrEnum):
    """Rules S2-a and S2-b of Kueue's fair sharing."""

    LESS_THAN_OR_EQUAL_TO_FINAL_SHARE = "LessThanOrEqualToFinalShare"
    LESS_THAN_INITIAL_SHARE = "LessThanInitialShare"


class PreemptionReason(StrEnum):
    """Why a victim was chosen; Kueue's names, and one of ours for drained queues."""

    IN_CLUSTER_QUEUE = "InClusterQueue"
    IN_COHORT_RECLAMATION = "InCohortReclamation"
    IN_COHORT_FAIR_SHARING = "InCohortFairSharing"
    IN_COHORT_RECLAIM_WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
    QUEUE_DRAINED = "QueueDrained"


class CheckState(StrEnum):
    """The answer of one admission check."""

    PENDING = "Pending"
    READY = "Ready"
    RETRY = "Retry"
    REJECTED = "Rejected"


class TaintEffect(StrEnum):
    """Kubernetes' taint effects; only the first and the last keep a pod away."""

    NO_SCHEDULE = "NoSchedule"
    PREFER_NO_SCHEDULE = "PreferNoSchedule"
    NO_EXECUTE = "NoExecute"


@dataclass(frozen=True, slots=True)
class Taint:
    """A taint of the nodes of a flavor."""

    key: str
    effect: TaintEffect
    value: str = ""


@dataclass(frozen=True, slots=True)
class Toleration:
    """A pod's toleration; an empty key tolerates every key, no effect every effect."""

    key: str = ""
    operator: str = "Equal"
    value: str = ""
    effect: TaintEffect | None = None

    def tolerates(self, taint: Taint) -> bool:
        if self.effect is not None and self.effect is not taint.effect:
            return False
        if self.key and self.key != taint.key:
            return False
        return self.operator == "Exists" or (bool(self.key) and self.value == taint.value)


@dataclass(frozen=True, slots=True)
class LabelRequirement:
    """One `matchExpressions` entry of a required node affinity or of a label selector."""

    key: str
    operator: str
    values: tuple[str, ...] = ()

    def __str__(self) -> str:
        values = f" ({', '.join(self.values)})" if self.values else ""
        return f"{self.key} {self.operator}{values}"

    def selects(self, labels: Mapping[str, str]) -> bool:
        """Whether a label selector with this entry selects an object with these labels."""
        value = labels.get(self.key)
        match self.operator:
            case "In":
                return value in self.values
            case "NotIn":
                return value not in self.values
            case "Exists":
                return value is not None
            case _:
                return value is None


@dataclass(frozen=True, slots=True)
class ResourceFlavor:
    """A kind of hardware.

    `rates` are stated prices: by resource, micro-dollars an hour for so much of it.
    """

    name: str
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_taints: tuple[Taint, ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    topology_name: str | None = None
    rates: Mapping[str, tuple[int, int]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ResourceQuota:
    """Quota of one flavor for one resource, in the resource's unit; None is no limit."""

    nominal: int
    borrowing_limit: int | None = None
    lending_limit: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorQuotas:
    """One flavor of a resource group, with a quota for each covered resource."""

    name: str
    resources: Mapping[str, ResourceQuota]


@dataclass(frozen=True, slots=True)
class ResourceGroup:
    """Resources that always get the same flavor; flavors are tried in this order."""

    covered_resources: tuple[str, ...]
    flavors: tuple[FlavorQuotas, ...]


@dataclass(frozen=True, slots=True)
class Preemption:
    """A ClusterQueue's rules as a preemptor."""

    within_cluster_queue: WithinClusterQueue = WithinClusterQueue.NEVER
    reclaim_within_cohort: ReclaimWithinCohort = ReclaimWithinCohort.NEVER
    borrow_within_cohort: BorrowWithinCohort = BorrowWithinCohort.NEVER
    max_priority_threshold: int | None = None


@dataclass(frozen=True, slots=True)
class FlavorFungibility:
    """How the search for a flavor goes on when one is not free at once."""

    when_can_borrow: FungibilityChoice = FungibilityChoice.MAY_STOP_SEARCH
    when_can_preempt: FungibilityChoice = FungibilityChoice.TRY_NEXT_FLAVOR
    preference: FungibilityPreference = FungibilityPreference.BORROWING_OVER_PREEMPTION


@dataclass(frozen=True, slots=True)
class ClusterQueue:
    """Quota and rules shared by the LocalQueues that point here.

    `namespace_selector` holds `matchLabels`: None admits no namespace, an empty mapping all of
    them; `namespace_expressions` holds `matchExpressions`. `admission_checks` maps a check to the
    flavors it applies to, an empty tuple meaning all.
    `fair_weight_milli` is the weight times 1000.
    """

    name: str
    resource_groups: tuple[ResourceGroup, ...]
    cohort: str | None = None
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    preemption: Preemption = Preemption()
    flavor_fungibility: FlavorFungibility = FlavorFungibility()
    fair_weight_milli: float = DEFAULT_WEIGHT_MILLI
    usage_based_admission: bool = False
    namespace_selector: Mapping[str, str] | None = field(default_factory=dict)
    namespace_expressions: tuple[LabelRequirement, ...] = ()
    stop_policy: StopPolicy = StopPolicy.NONE
    admission_checks: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    max_running: int | None = None
    max_running_per_user: int | None = None
    wait_for_pods_ready: WaitForPodsReady | None = None


@dataclass(frozen=True, slots=True)
class Cohort:
    """An inner node of the quota tree; one that is only named by others has no quota or limits."""

    name: str
    parent: str | None = None
    resource_groups: tuple[ResourceGroup, ...] = ()
    fair_weight_milli: float = DEFAULT_WEIGHT_MILLI


@dataclass(frozen=True, slots=True)
class LocalQueue:
    """Where a team submits; `key` is NAMESPACE/NAME."""

    key: str
    cluster_queue: str
    stop_policy: StopPolicy = StopPolicy.NONE
    fair_weight_milli: float = DEFAULT_WEIGHT_MILLI
    max_running: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadPriorityClass:
    """A named priority; higher means more important."""

    name: str
    value: int


@dataclass(frozen=True, slots=True)
class AdmissionCheck:
    """A question to somebody outside before an admitted workload starts; `controller` answers."""

    name: str
    controller: str


@dataclass(frozen=True, slots=True)
class PodSetInfo:
    """Equal pods of a workload; `requests` are per pod.

    `min_count` None forbids partial admission. `affinity` is the required node affinity: any of
    the terms must match, within a term all requirements. `flavors`, if given, are the only flavors
    the pods may use, tried in this order instead of the queue's.
    """

    name: str
    count: int
    requests: Mapping[str, int]
    min_count: int | None = None
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[LabelRequirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()
    flavors: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Gate:
    """Something outside quota that keeps a workload waiting.

    `code` is a value of `reasons.Reason`; `until_ms` is when it opens by itself, if it does.
    """

    code: str
    message: str
    until_ms: int | None = None


@dataclass(frozen=True, slots=True)
class WorkloadInfo:
    """One unit that is admitted as a whole.

    `queued_at_ms` orders it in its queue (creation, or eviction after a readiness timeout);
    `sequence` breaks ties, then `id`. `gate` keeps it out of consideration altogether;
    `checks` are the states of the admission checks that its ClusterQueue asks for.
    `min_run_ms` is how long it may not be preempted after it was admitted. `deadline_ms` is the
    latest useful admission: a workload past it is never admitted. `cost_microusd_per_hour` maps a
    flavor to the expected price of the whole workload there, for budgets.
    """

    id: str
    cluster_queue: str
    pod_sets: tuple[PodSetInfo, ...]
    priority: int = 0
    queued_at_ms: int = 0
    sequence: int = 0
    local_queue: str | None = None
    user: str | None = None
    preemptible: bool = True
    min_run_ms: int = 0
    deadline_ms: int | None = None
    max_runtime_ms: int | None = None
    cost_microusd_per_hour: Mapping[str, int] = field(default_factory=dict)
    gate: Gate | None = None
    checks: Mapping[str, CheckState] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class PodSetAssignment:
    """How many pods of a set, and for each requested resource the flavor that provides it."""

    name: str
    count: int
    flavors: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class Assignment:
    """What an admitted workload holds; `borrowing_level` 0 is within its queue's own quota."""

    pod_sets: tuple[PodSetAssignment, ...]
    borrowing_level: int = 0

    @property
    def flavors(self) -> frozenset[str]:
        """Every flavor that a resource of a pod set is assigned."""
        return frozenset(flavor for s in self.pod_sets for flavor in s.flavors.values())


@dataclass(frozen=True, slots=True)
class Holding:
    """A workload that holds quota.

    `since_ms` is when quota was reserved, `checkpoint_at_ms` the last durable checkpoint; work
    since the later of the two would be lost. `evicting` marks a victim whose pods still run.
    """

    workload: WorkloadInfo
    assignment: Assignment
    since_ms: int
    checkpoint_at_ms: int | None = None
    evicting: bool = False
