"""The closed vocabulary of waiting: every code with who can act on it and one plain sentence.

The same code appears in status, tables, events and metric labels. Prefixes group codes; a new code
is added here or nowhere. Also changes: a line of advice in tests/docs/advice.py, then `make docs`.
Where `sluice why` words a whole answer: usecases/reading/explain.py and advice.py beside it.
"""

from __future__ import annotations

from enum import StrEnum


class Action(StrEnum):
    """Who can end the wait."""

    WAIT = "WAIT"
    CHANGE_REQUEST = "CHANGE-REQUEST"
    RELEASE = "RELEASE"
    ASK_ADMIN = "ASK-ADMIN"
    PLATFORM_FAULT = "PLATFORM-FAULT"


class Reason(StrEnum):
    """Why a workload does not run."""

    NOMINAL_EXCEEDED = "QUOTA:NominalExceeded"
    COHORT_EXHAUSTED = "QUOTA:CohortExhausted"
    BORROW_LIMIT = "QUOTA:BorrowLimit"
    EXCEEDS_MAXIMUM = "QUOTA:ExceedsMaximum"
    BUDGET_EXHAUSTED = "QUOTA:BudgetExhausted"
    COST_LIMIT = "QUOTA:CostLimit"
    PRICE_UNKNOWN = "MISCONFIGURATION:PriceUnknown"
    USER_CAP = "QUOTA:UserCap"
    CONCURRENCY_CAP = "QUOTA:ConcurrencyCap"
    PENDING_CAP = "QUOTA:PendingCap"
    LOWER_SHARE = "FAIRSHARE:LowerShare"
    BEHIND_HIGHER = "PRIORITY:BehindHigher"
    PENDING_EVALUATION = "PRIORITY:PendingEvaluation"
    WAITING_FOR_PREEMPTED = "PRIORITY:WaitingForPreempted"
    INSUFFICIENT_INSTANCE = "CAPACITY:InsufficientInstance"
    NODE_POOL_LIMIT = "CAPACITY:NodePoolLimit"
    NODE_CLASS_NOT_READY = "CAPACITY:NodeClassNotReady"
    WAITING_FOR_NODE = "CAPACITY:WaitingForNode"
    ACCOUNT_QUOTA = "CAPACITY:AccountQuota"
    LAUNCH_THROTTLED = "CAPACITY:LaunchThrottled"
    LAUNCH_REFUSED = "CAPACITY:LaunchRefused"
    NO_MATCHING_FLAVOR = "MISCONFIGURATION:NoMatchingFlavor"
    NO_QUOTA_FOR_RESOURCE = "MISCONFIGURATION:NoQuotaForResource"
    REQUEST_LARGER_THAN_ANY_NODE = "MISCONFIGURATION:RequestLargerThanAnyNode"
    UNKNOWN_QUEUE = "MISCONFIGURATION:UnknownQueue"
    NAMESPACE_NOT_SELECTED = "MISCONFIGURATION:NamespaceNotSelected"
    RECOVERY_EXHAUSTED = "RECOVERY:BudgetExhausted"
    QUEUE_INACTIVE = "MISCONFIGURATION:QueueInactive"
    IMAGE_PULL = "MISCONFIGURATION:ImagePull"
    CONTAINER_START = "MISCONFIGURATION:ContainerStart"
    VOLUME_MOUNT = "MISCONFIGURATION:VolumeMount"
    POD_SANDBOX = "PLATFORM:PodSandbox"
    POLICY_DENIED = "MISCONFIGURATION:PolicyDenied"
    SCHEMA_INVALID = "MISCONFIGURATION:SchemaInvalid"
    DEADLINE_PASSED = "MISCONFIGURATION:DeadlinePassed"
    WAITING_FOR_DEPENDENCY = "DEPENDENCY:WaitingFor"
    DEPENDENCY_FAILED = "DEPENDENCY:NeverSatisfied"
    UNKNOWN_DEPENDENCY = "MISCONFIGURATION:UnknownDependency"
    DEPENDENCY_CYCLE = "MISCONFIGURATION:DependencyCycle"
    HELD_BY_USER = "HELD:User"
    HELD_BY_ADMIN = "HELD:Admin"
    QUEUE_CORDONED = "HELD:QueueCordoned"
    CLUSTER_CORDONED = "HELD:ClusterCordoned"
    ADMISSION_CHECK = "HELD:AdmissionCheck"
    WAITING_FOR_REPLACEMENT = "RECOVERY:WaitingForReplacement"
    RESTORING_CHECKPOINT = "RECOVERY:RestoringCheckpoint"
    CHECKPOINT_UNUSABLE = "RECOVERY:CheckpointUnusable"
    BACKOFF_UNTIL = "RECOVERY:BackoffUntil"
    CLUSTER_UNREACHABLE = "PLATFORM:ClusterUnreachable"
    CLUSTER_LOST = "RECOVERY:ClusterLost"
    KEY_REUSED = "MISCONFIGURATION:KeyReused"
    JOB_LOST = "RECOVERY:JobLost"
    PREEMPTED = "PRIORITY:Preempted"
    CANCELLED_BY_USER = "CANCELLED:User"
    PENDING_POLICY = "CANCELLED:PendingPolicy"
    DLQ = "PLATFORM:DLQ"
    MISSING_RIGHT = "MISCONFIGURATION:MissingRight"
    UNSUPPORTED_KIND = "MISCONFIGURATION:UnsupportedKind"

    @property
    def action(self) -> Action:
        return _MEANING[self][0]

    @property
    def sentence(self) -> str:
        """What the code means, for people."""
        return _MEANING[self][1]


_MEANING: dict[Reason, tuple[Action, str]] = {
    Reason.NOMINAL_EXCEEDED: (
        Action.WAIT,
        "The queue's own quota is in use, and it has no cohort to borrow from.",
    ),
    Reason.COHORT_EXHAUSTED: (
        Action.WAIT,
        "The queue's quota and all that its cohort could lend are in use.",
    ),
    Reason.BORROW_LIMIT: (
        Action.WAIT,
        "The cohort has room, but a borrowing limit keeps the queue from using it.",
    ),
    Reason.EXCEEDS_MAXIMUM: (
        Action.CHANGE_REQUEST,
        "The request is larger than all that the queue could ever use.",
    ),
    Reason.BUDGET_EXHAUSTED: (
        Action.WAIT,
        "The expected cost exceeds what is left of the budget in this window.",
    ),
    Reason.COST_LIMIT: (
        Action.CHANGE_REQUEST,
        "It has cost as much as its own budget allows, and was stopped.",
    ),
    Reason.PRICE_UNKNOWN: (
        Action.ASK_ADMIN,
        "A budget limits it, and nobody knows what its flavor costs.",
    ),
    Reason.USER_CAP: (Action.WAIT, "The user already runs as many workloads as the queue allows."),
    Reason.CONCURRENCY_CAP: (Action.WAIT, "The queue already runs as many workloads as it may."),
    Reason.PENDING_CAP: (
        Action.CHANGE_REQUEST,
        "The tenant already has as many workloads waiting as it may.",
    ),
    Reason.LOWER_SHARE: (Action.WAIT, "A queue with a smaller share of the cohort goes first."),
    Reason.BEHIND_HIGHER: (Action.WAIT, "Workloads ahead of it in the order go first."),
    Reason.PENDING_EVALUATION: (Action.WAIT, "There is room for it; the next pass looks at it."),
    Reason.WAITING_FOR_PREEMPTED: (
        Action.WAIT,
        "Its place is reserved; the workloads that yield to it have not stopped yet.",
    ),
    Reason.INSUFFICIENT_INSTANCE: (
        Action.WAIT,
        "AWS has no such instances to give at the moment; it is asked again.",
    ),
    Reason.NODE_POOL_LIMIT: (Action.ASK_ADMIN, "The NodePool has reached its limits."),
    Reason.NODE_CLASS_NOT_READY: (Action.ASK_ADMIN, "The EC2NodeClass is not ready."),
    Reason.WAITING_FOR_NODE: (Action.WAIT, "A node for it is being started."),
    Reason.ACCOUNT_QUOTA: (
        Action.ASK_ADMIN,
        "The account's EC2 quota is used up; ask AWS for more, or wait for machines to end.",
    ),
    Reason.LAUNCH_THROTTLED: (Action.WAIT, "EC2 answers too many requests; it is tried again."),
    Reason.LAUNCH_REFUSED: (Action.ASK_ADMIN, "EC2 refuses to start machines as configured."),
    Reason.NO_MATCHING_FLAVOR: (
        Action.CHANGE_REQUEST,
        "No flavor of the queue matches the pods' selectors and tolerations.",
    ),
    Reason.NO_QUOTA_FOR_RESOURCE: (
        Action.CHANGE_REQUEST,
        "The queue has no quota for a resource that the pods request.",
    ),
    Reason.REQUEST_LARGER_THAN_ANY_NODE: (
        Action.CHANGE_REQUEST,
        "One pod is larger than any node that the flavor can provide.",
    ),
    Reason.UNKNOWN_QUEUE: (Action.CHANGE_REQUEST, "There is no such queue."),
    Reason.NAMESPACE_NOT_SELECTED: (
        Action.ASK_ADMIN,
        "The queue's namespaceSelector does not select the workload's namespace.",
    ),
    Reason.RECOVERY_EXHAUSTED: (
        Action.CHANGE_REQUEST,
        "It was interrupted more often than it allows.",
    ),
    Reason.QUEUE_INACTIVE: (
        Action.ASK_ADMIN,
        "The queue's configuration is incomplete or contradicts itself.",
    ),
    Reason.IMAGE_PULL: (Action.CHANGE_REQUEST, "A container image cannot be pulled."),
    Reason.CONTAINER_START: (
        Action.CHANGE_REQUEST,
        "A container cannot be made as described, such as with a Secret that is not there.",
    ),
    Reason.VOLUME_MOUNT: (
        Action.CHANGE_REQUEST,
        "A volume cannot be mounted, such as of a claim, ConfigMap or Secret that is not there.",
    ),
    Reason.POD_SANDBOX: (
        Action.PLATFORM_FAULT,
        "Its node cannot make the sandbox that its containers run in, such as its network.",
    ),
    Reason.POLICY_DENIED: (Action.CHANGE_REQUEST, "A policy of the cluster refused the pods."),
    Reason.KEY_REUSED: (
        Action.CHANGE_REQUEST,
        "The idempotency key was used before for another body.",
    ),
    Reason.CLUSTER_LOST: (
        Action.WAIT,
        "Its cluster was declared lost for good; it is queued again, for another one.",
    ),
    Reason.JOB_LOST: (Action.WAIT, "Its Job vanished from the cluster; it is queued again."),
    Reason.PREEMPTED: (Action.WAIT, "It yielded its quota to another workload."),
    Reason.CANCELLED_BY_USER: (Action.WAIT, "A user cancelled it."),
    Reason.PENDING_POLICY: (
        Action.CHANGE_REQUEST,
        "It waited as long as its pendingPolicy allows for such a reason.",
    ),
    Reason.SCHEMA_INVALID: (Action.CHANGE_REQUEST, "The document is not valid."),
    Reason.DEADLINE_PASSED: (
        Action.CHANGE_REQUEST,
        "It was not admitted before its deadline and will not be any more.",
    ),
    Reason.WAITING_FOR_DEPENDENCY: (Action.WAIT, "It waits for another workload."),
    Reason.DEPENDENCY_FAILED: (
        Action.CHANGE_REQUEST,
        "A workload that it waited for has ended otherwise than it was to end.",
    ),
    Reason.UNKNOWN_DEPENDENCY: (
        Action.CHANGE_REQUEST,
        "It waits for a workload that was never submitted.",
    ),
    Reason.DEPENDENCY_CYCLE: (Action.CHANGE_REQUEST, "It waits for itself by way of others."),
    Reason.HELD_BY_USER: (Action.RELEASE, "Its owner holds it back."),
    Reason.HELD_BY_ADMIN: (Action.ASK_ADMIN, "An administrator holds it back."),
    Reason.QUEUE_CORDONED: (Action.ASK_ADMIN, "The queue is stopped."),
    Reason.CLUSTER_CORDONED: (Action.ASK_ADMIN, "Every cluster that could run it is cordoned."),
    Reason.ADMISSION_CHECK: (Action.WAIT, "An admission check has not said yes."),
    Reason.WAITING_FOR_REPLACEMENT: (
        Action.WAIT,
        "Its node is going away; a replacement is being started.",
    ),
    Reason.RESTORING_CHECKPOINT: (Action.WAIT, "It is being restored from its last checkpoint."),
    Reason.CHECKPOINT_UNUSABLE: (
        Action.WAIT,
        "It could not start from its checkpoint: one more try if that may help, else an older one.",
    ),
    Reason.BACKOFF_UNTIL: (
        Action.WAIT,
        "It was interrupted or failed, and is tried again after a pause.",
    ),
    Reason.CLUSTER_UNREACHABLE: (
        Action.PLATFORM_FAULT,
        "The cluster's API server does not answer.",
    ),
    Reason.MISSING_RIGHT: (
        Action.ASK_ADMIN,
        "A function of Sluice lacks a right, in IAM or in a cluster; `sluice doctor` names it.",
    ),
    Reason.UNSUPPORTED_KIND: (
        Action.ASK_ADMIN,
        "The cluster does not know this kind of object; its controller is not installed there.",
    ),
    Reason.DLQ: (Action.PLATFORM_FAULT, "A message about it ended in a dead-letter queue."),
}
