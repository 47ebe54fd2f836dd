"""The record of a workload, and a change of it: which write under which condition.

A transition is data, not an act: `Change` says under which `Guard` which attributes are set,
removed or appended. DynamoDB, the in-memory fake and the tests all apply the same values.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Final

from sluice.core.config.model import LabelRequirement, PodSetAssignment, Toleration
from sluice.core.lifecycle.options import NO_OPTIONS, Options
from sluice.core.lifecycle.record_entries import (
    NO_REASON,
    NO_RESULT,
    Charge,
    CheckAnswer,
    FieldError,
    JobResult,
    PendingPolicyAct,
    StatusReason,
)
from sluice.core.lifecycle.run import NO_END, NO_MACHINE, MachineShare, Run, RunEnd
from sluice.core.values.reasons import Reason


class State(StrEnum):
    PENDING = "PENDING"
    ADMITTED = "ADMITTED"
    DISPATCHED = "DISPATCHED"
    RECLAIMING = "RECLAIMING"
    FINISHED = "FINISHED"
    CANCELLED = "CANCELLED"
    REJECTED = "REJECTED"


TERMINAL = frozenset({State.FINISHED, State.CANCELLED, State.REJECTED})


ON_CLUSTER = frozenset({State.ADMITTED, State.DISPATCHED, State.RECLAIMING})


class IntentKind(StrEnum):
    """What becomes of a workload that is being taken off its cluster."""

    REQUEUE = "requeue"
    PREEMPT = "preempt"
    CANCEL = "cancel"
    FAIL = "fail"
    DEACTIVATE = "deactivate"
    MIGRATE = "migrate"


COMES_BACK: Final = frozenset({IntentKind.REQUEUE, IntentKind.PREEMPT, IntentKind.DEACTIVATE})
"""What ends a run and not its workload, which goes back to its queue, perhaps held there."""


@dataclass(frozen=True, slots=True)
class Reservation:
    """Quota held in a ledger: exists exactly while the ledger counts it."""

    generation: int
    cq: str
    cluster: str
    at: int
    pod_sets: tuple[PodSetAssignment, ...]

    @property
    def flavors(self) -> frozenset[str]:
        """Every flavor that a resource of a pod set is assigned."""
        return frozenset(flavor for s in self.pod_sets for flavor in s.flavors.values())


@dataclass(frozen=True, slots=True)
class PodSet:
    """Pods of one shape. `requests` per pod: millicores, bytes, else counts."""

    name: str
    count: int
    requests: Mapping[str, int]
    min_count: int | None = None
    flavors: tuple[str, ...] = ()
    node_selector: Mapping[str, str] = field(default_factory=dict)
    affinity: tuple[tuple[LabelRequirement, ...], ...] = ()
    tolerations: tuple[Toleration, ...] = ()


@dataclass(frozen=True, slots=True)
class ClusterObject:
    """An object that somebody made in a cluster, and that alone runs its workload."""

    cluster: str
    name: str
    uid: str


@dataclass(frozen=True, slots=True)
class Intent:
    kind: IntentKind
    reason: str
    message: str = ""
    by: str = ""
    not_before: int = 0
    account: RunEnd = NO_END
    """What is known of the end of the run besides."""


@dataclass(frozen=True, slots=True)
class Workload:
    """One record of the table Workloads; field names are attribute names, times epoch ms."""

    id: str
    name: str
    namespace: str
    queue: str
    state: State
    generation: int = 0
    cq: str = ""
    root: str = ""
    tenant: str = ""
    submitted_by: str = ""
    digest: str = ""
    priority: int = 0
    priority_class: str = ""
    created_at: int = 0
    pod_sets: tuple[PodSet, ...] = ()
    options: Options = NO_OPTIONS
    labels: Mapping[str, str] = field(default_factory=dict)
    kind: str = "Job"
    reservation: Reservation | None = None
    uid: str = ""
    cluster: str = ""
    intent: Intent | None = None
    gone: bool = False
    held: bool = False
    blocked: bool = False
    not_before: int = 0
    requeues: int = 0
    admitted_at: int = 0
    dispatched_at: int = 0
    started_at: int = 0
    finished_at: int = 0
    machine: MachineShare = NO_MACHINE
    """What the present generation has of its machines."""
    result: JobResult = NO_RESULT
    reason: StatusReason = NO_REASON
    errors: tuple[FieldError, ...] = ()
    restore_from: str = ""
    resume_from: str = ""
    steady: bool = False
    checkpoint_at: int = 0
    runs: tuple[Run, ...] = ()
    placed: str = ""
    charges: tuple[Charge, ...] = ()
    checks: tuple[str, ...] = ()
    gated: bool = False
    answers: tuple[CheckAnswer, ...] = ()
    waits: tuple[PendingPolicyAct, ...] = ()
    task: bool = False
    object: ClusterObject | None = None
    """What came through the Kubernetes door; None: Sluice makes an object for each generation."""
    shape_hash: str = ""
    """Equal for those about whom a pass decides alike; empty: it is read by itself."""

    @property
    def manifest_key(self) -> str:
        """Where its document is stored: nobody can make another document of this key."""
        return f"{self.id}.{self.digest}"

    @property
    def task_key(self) -> str:
        """Where tokens of tasks are stored that wait for it."""
        return f"{self.id}.{self.digest[:16]}"


@dataclass(frozen=True, slots=True)
class Guard:
    """The condition of a change.

    `uid` and `intent` None: not looked at. `present` and `absent` name attributes.
    """

    states: tuple[State, ...]
    generation: int
    uid: str | None = None
    present: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    intent: IntentKind | None = None

    def holds(self, workload: Workload) -> bool:
        return (
            workload.state in self.states
            and workload.generation == self.generation
            and (self.uid is None or workload.uid == self.uid)
            and all(getattr(workload, name) for name in self.present)
            and not any(getattr(workload, name) for name in self.absent)
            and (
                self.intent is None
                or (workload.intent is not None and workload.intent.kind is self.intent)
            )
        )


@dataclass(frozen=True, slots=True)
class Change:
    """One conditional write to one workload.

    `before` is the record that the change was decided on; the guard says what of it must still
    hold. `set` holds values of `Workload`'s own types; `remove` names attributes that return to
    their default; `append` adds one element to a list attribute.
    """

    before: Workload
    guard: Guard
    set: Mapping[str, Any]
    remove: tuple[str, ...] = ()
    append: Mapping[str, Any] = field(default_factory=dict)


def is_migrating(workload: Workload) -> bool:
    """Whether it leaves its machine, and takes its quota along."""
    intent = workload.intent
    leaves = workload.state is State.RECLAIMING and intent is not None
    return leaves and intent_of(workload).kind is IntentKind.MIGRATE


def awaits_release(workload: Workload) -> bool:
    """Whether `admit` has quota of this workload to give back."""
    if workload.reservation is None:
        return False
    if workload.state is State.RECLAIMING:
        return workload.gone and not is_migrating(workload)
    return workload.state in TERMINAL


PHASES: Final = (
    *("PENDING", "ADMITTED", "STARTING", "RUNNING", "RECOVERING", "STOPPING", "CANCELLING"),
    *("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"),
)


def phase(workload: Workload) -> str:
    """The state in the words of users: one of PHASES."""
    if workload.state is State.FINISHED:
        return "SUCCEEDED" if workload.result.succeeded else "FAILED"
    if workload.state is State.RECLAIMING:
        kind = intent_of(workload).kind
        return {IntentKind.CANCEL: "CANCELLING", IntentKind.MIGRATE: "RECOVERING"}.get(
            kind, "STOPPING"
        )
    if workload.state is State.DISPATCHED:
        return "RUNNING" if workload.started_at else "STARTING"
    if workload.state is State.ADMITTED and workload.generation and workload.restore_from:
        return "RECOVERING"
    return workload.state.value


def after(change: Change, workload: Workload | None = None) -> Workload:
    """The record once `change` is applied to `workload`, by default to the one decided on."""
    workload = workload or change.before
    values = {name: getattr(workload, name) for name in Workload.__slots__}
    for name in change.remove:
        values[name] = getattr(_BLANK, name)
    values |= dict(change.set)
    for name, element in change.append.items():
        values[name] = (*values[name], element)
    return Workload(**values)


def intent_of(workload: Workload) -> Intent:
    return workload.intent or Intent(IntentKind.REQUEUE, Reason.JOB_LOST)


_BLANK = Workload("", "", "", "", State.PENDING)
