"""The life of a workload: its record, and every transition as a guarded change of that record.

A transition is data, not an act: `Change` says under which condition (`Guard`) which attributes are
set, removed or appended. DynamoDB, the in-memory fake and the tests all apply the same values.
Source of the protocol: docs/architecture.md, checked by tests/model.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from types import MappingProxyType
from typing import Any, Final

from sluice.core.kinds.budget import HOUR_MS
from sluice.core.values.reasons import Reason

OWN_BUDGET: Final = ""
"""How the charge for a workload's own `budget` is told from those of queues, which have names."""


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
class PodSetAssignment:
    """How many pods of a pod set run, and the flavor of each of its resources."""

    name: str
    count: int
    flavors: Mapping[str, str]


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


@dataclass(frozen=True, slots=True)
class Intent:
    kind: IntentKind
    reason: str
    message: str = ""
    by: str = ""
    not_before: int = 0
    account: Mapping[str, Any] = field(default_factory=dict)
    """What the entry of the ended run says besides (core.accounts.recovery)."""


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
    options: Mapping[str, Any] = field(default_factory=dict)
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
    ready_pods: int = 0
    machine: Mapping[str, Any] = field(default_factory=dict)
    """What the present generation has of its machines and pays for it (core.accounts.machines)."""
    result: Mapping[str, Any] = field(default_factory=dict)
    reason: Mapping[str, str] = field(default_factory=dict)
    errors: tuple[Mapping[str, str], ...] = ()
    restore_from: str = ""
    resume_from: str = ""
    steady: bool = False
    checkpoint_at: int = 0
    runs: tuple[Mapping[str, Any], ...] = ()
    placed: str = ""
    charges: tuple[Mapping[str, Any], ...] = ()
    checks: tuple[str, ...] = ()
    gated: bool = False
    answers: tuple[Mapping[str, Any], ...] = ()
    waits: tuple[Mapping[str, Any], ...] = ()
    task: bool = False

    @property
    def manifest_key(self) -> str:
        """Where its document lies: named by content too, so that nobody can replace it."""
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
    append: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a workload waits, as the `inbox` index tells it without a look at the record."""

    id: str
    priority: int
    queue: str


INDEXES = ("inbox", "inbox_order", "active", "active_order", "listed", "ran")
_PRIORITY_BIAS = 2**31


def pending_key(cq: str) -> str:
    """Hash key of the `inbox` index under which the workloads of a ClusterQueue wait."""
    return f"P#{cq}"


def blocked_key(namespace: str) -> str:
    """Hash key of the `inbox` index under which those wait that depend on others."""
    return f"D#{namespace}"


def release_key(root: str) -> str:
    """Hash key of the `inbox` index under which a root cohort's releases wait."""
    return f"R#{root}"


def checks_key(root: str) -> str:
    """Hash key of the `inbox` index under which those stand whose admission checks are pending."""
    return f"C#{root}"


def awaits_release(workload: Workload) -> bool:
    """Whether `admit` has quota of this workload to give back."""
    if workload.reservation is None:
        return False
    if workload.state is State.RECLAIMING:
        return workload.gone and _intent(workload).kind is not IntentKind.MIGRATE
    return workload.state in TERMINAL


def index_keys(workload: Workload) -> dict[str, str]:
    """The sparse index attributes that a record in this state carries."""
    order = f"{_PRIORITY_BIAS - workload.priority:010d}#{workload.created_at:013d}#{workload.id}"
    keys = {"listed": f"{workload.created_at:013d}#{workload.id}"} if workload.queue else {}
    if workload.state is State.PENDING and not workload.held:
        key = blocked_key(workload.namespace) if workload.blocked else pending_key(workload.cq)
        keys |= {"inbox": key, "inbox_order": f"{order}#{workload.queue}"}
    elif workload.state is State.ADMITTED and workload.gated:
        keys |= {"inbox": checks_key(workload.root), "inbox_order": order}
    elif awaits_release(workload):
        keys |= {"inbox": release_key(workload.root), "inbox_order": order}
    if workload.state not in ON_CLUSTER and workload.runs:
        keys["ran"] = f"{workload.runs[-1]['ended_at']:013d}#{workload.id}"
    if workload.state in ON_CLUSTER and workload.cluster:
        active_order = f"{workload.root}#{workload.id}"
        keys |= {"active": workload.cluster, "active_order": active_order}
    return keys


def place_of(inbox_order: str) -> Place:
    """The place behind an order key of `pending_key`; older keys do not name the LocalQueue."""
    inverted, _, rest = inbox_order.partition("#")
    workload, _, queue = rest.partition("#")[2].partition("#")
    return Place(workload, _PRIORITY_BIAS - int(inverted), queue)


def admit(
    workload: Workload,
    reservation: Reservation,
    root: str,
    now: int,
    placed: str = "",
    charges: tuple[Mapping[str, Any], ...] = (),
    checks: tuple[str, ...] = (),
) -> Change:
    """PENDING(g) → ADMITTED(g) with quota; part of a ledger transaction.

    `placed` says for people why it goes to that cluster; `charges` what budgets count for
    it, `checks` who has to say Ready before it is dispatched.

    `root` is written too: it may have changed while the workload waited, and names the ledger
    that its release must find.
    """
    return Change(
        workload,
        Guard((State.PENDING,), workload.generation, absent=("held", "blocked")),
        {
            "state": State.ADMITTED,
            "reservation": reservation,
            "root": root,
            "cluster": reservation.cluster,
            "admitted_at": now,
            "placed": placed,
            "charges": charges,
            "checks": checks,
            "gated": bool(checks),
        },
        ("not_before", "reason", "gone", "intent", "uid", "answers"),
    )


def claim(workload: Workload, uid: str, now: int) -> Change:
    """ADMITTED(g) → DISPATCHED(g, uid): this Job, and no other, may run the generation."""
    return Change(
        workload,
        Guard((State.ADMITTED,), workload.generation, absent=("gated",)),
        {"state": State.DISPATCHED, "uid": uid, "dispatched_at": now},
        ("reason",),
    )


def hinder(workload: Workload, code: str, message: str) -> Change:
    """Say in the record why its cluster was not made to match it; changes nothing else."""
    guard = Guard((State.ADMITTED, State.DISPATCHED, State.RECLAIMING), workload.generation)
    return Change(workload, guard, {"reason": {"code": code, "message": message}})


def answer(
    workload: Workload, check: str, state: str, message: str, now: int, event: str = ""
) -> Change:
    """What a check says of this generation; answers add up, and the newest of a check counts.

    `event` is the id of the event that brought it, by which its copies are known.
    """
    guard = Guard((State.ADMITTED,), workload.generation, present=("gated",))
    said: dict[str, Any] = {"check": check, "state": state, "message": message, "at": now}
    if event:
        said["event"] = event
    return Change(
        workload, guard, {}, append={"answers": said | {"generation": workload.generation}}
    )


def pass_checks(workload: Workload) -> Change:
    """All checks of this generation have said Ready: from now on it may be dispatched."""
    guard = Guard((State.ADMITTED,), workload.generation, present=("gated",))
    return Change(workload, guard, {}, ("gated",))


def start(workload: Workload, now: int) -> Change:
    """All pods are ready for the first time."""
    guard = Guard((State.DISPATCHED,), workload.generation, workload.uid, absent=("started_at",))
    return Change(workload, guard, {"started_at": now}, ("reason",))


def noting(change: Change, machine: Mapping[str, Any]) -> Change:
    """A start or reclaim of one whose pods are seen, which notes what they have of machines."""
    tells = "started_at" in change.set or change.set.get("state") is State.RECLAIMING
    if not tells or machine == change.before.machine:
        return change
    return replace(change, set={**change.set, "machine": dict(machine)})


def finish(
    workload: Workload,
    result: Mapping[str, Any],
    now: int,
    machine: Mapping[str, Any] = MappingProxyType({}),
) -> Change:
    """The Job of this generation ended by itself; its quota waits for `release`.

    `machine`: what was seen of its machines, if the record does not say it yet.
    """
    outcome = "succeeded" if result.get("succeeded") else "failed"
    return Change(
        workload,
        Guard((State.DISPATCHED, State.RECLAIMING), workload.generation, workload.uid),
        {"state": State.FINISHED, "finished_at": now, "result": dict(result)},
        ("intent", "gone", "reason", "machine", "placed"),
        {"runs": run(replace(workload, machine={**workload.machine, **machine}), outcome, now)},
    )


def reclaim(workload: Workload, intent: Intent) -> Change:
    """Take a workload off its cluster; quota stays until its pods are proven gone."""
    return Change(
        workload,
        Guard((State.ADMITTED, State.DISPATCHED), workload.generation, workload.uid),
        {"state": State.RECLAIMING, "intent": intent},
        ("gone", "gated"),
    )


def change_intent(workload: Workload, intent: Intent) -> Change:
    """A stronger wish overtakes a reclaim that is under way: cancel beats every other intent."""
    guard = Guard((State.RECLAIMING,), workload.generation, workload.uid, present=("intent",))
    return Change(workload, guard, {"intent": intent})


def unblock(workload: Workload) -> Change:
    """Those that it depends on have ended as they should: it enters its queue."""
    guard = Guard((State.PENDING,), workload.generation, present=("blocked",))
    return Change(workload, guard, {}, ("blocked", "reason"))


def wait_for(workload: Workload, options: Mapping[str, Any], reason: Mapping[str, str]) -> Change:
    """It goes on waiting, and now it is known for whom."""
    guard = Guard((State.PENDING,), workload.generation, present=("blocked",))
    return Change(workload, guard, {"options": dict(options), "reason": dict(reason)})


def reject_pending(workload: Workload, code: str, field: str, message: str, now: int) -> Change:
    """PENDING → REJECTED for what could not be seen at submission.

    Only a blocked one: it never had quota, so a corrected submission may take its place.
    """
    return Change(
        workload,
        Guard((State.PENDING,), workload.generation, present=("blocked",)),
        {
            "state": State.REJECTED,
            "finished_at": now,
            "reason": {"code": code, "message": f"{field}: {message}"},
            "errors": ({"field": field, "message": message},),
        },
        ("not_before", "held", "blocked"),
    )


def cancel_pending(
    workload: Workload, message: str, now: int, code: str = Reason.CANCELLED_BY_USER
) -> Change:
    """PENDING → CANCELLED; nothing is held, so nothing is released."""
    return Change(
        workload,
        Guard((State.PENDING,), workload.generation),
        {
            "state": State.CANCELLED,
            "finished_at": now,
            "reason": {"code": code, "message": message},
        },
        ("not_before", "held", "blocked"),
    )


def gone(workload: Workload) -> Change:
    """Proof that neither the Job of this generation nor a pod of it exists any more."""
    guard = Guard((State.RECLAIMING,), workload.generation, workload.uid, absent=("gone",))
    return Change(workload, guard, {"gone": True})


def release(workload: Workload, now: int) -> Change:
    """Give the quota back; part of a ledger transaction, so only `admit` applies it.

    Source: a finished or cancelled workload keeps its state; a reclaimed one returns to PENDING
    with the next generation, held if it was deactivated, or is CANCELLED.
    """
    if workload.state is not State.RECLAIMING:
        guard = Guard((workload.state,), workload.generation, present=("reservation",))
        return Change(workload, guard, {}, ("reservation", "charges"))
    intent = _intent(workload)
    # The intent too: a cancel that overtook a requeue must not be lost to an older snapshot.
    guard = Guard(
        (State.RECLAIMING,), workload.generation, workload.uid, ("gone",), intent=intent.kind
    )
    account = run(workload, intent.kind.value, now) | dict(intent.account)
    for charge in workload.charges:
        if charge["budget"] == OWN_BUDGET:
            account["microusd"] = accrued(workload, charge, now)
    if intent.kind in COMES_BACK and workload.checkpoint_at > workload.started_at > 0:
        account.setdefault("lost_ms", max(0, now - workload.checkpoint_at))
    ended = {"runs": account | {"by": intent.by} if intent.by else account}
    taken = ("reservation", "charges", "gone", "intent", "cluster", "uid", "machine")
    reason = {"code": intent.reason, "message": intent.message}
    if intent.kind is IntentKind.CANCEL:
        end = {"state": State.CANCELLED, "finished_at": now, "reason": reason}
        return Change(workload, guard, end, taken, ended)
    if intent.kind is IntentKind.FAIL:
        result = {"succeeded": False, "reason": intent.reason, "message": intent.message}
        end = {"state": State.FINISHED, "finished_at": now, "reason": reason, "result": result}
        return Change(workload, guard, end, taken, ended)
    back: dict[str, Any] = {
        "state": State.PENDING,
        "generation": workload.generation + 1,
        "not_before": intent.not_before,
        "reason": reason,
        "requeues": workload.requeues + (intent.kind is IntentKind.REQUEUE),
    }
    if source := workload.resume_from or workload.restore_from:
        back["restore_from"] = source
    if intent.kind is IntentKind.DEACTIVATE:
        back["held"] = True
    times = ("admitted_at", "dispatched_at", "started_at", "ready_pods")
    return Change(workload, guard, back, (*taken, *times), ended)


def move(
    workload: Workload,
    restore_from: str,
    now: int,
    account: Mapping[str, Any] = MappingProxyType({}),
) -> Change:
    """RECLAIMING(g, migrate) → ADMITTED(g + 1): the reservation travels, no ledger is written.

    Only after `gone`: the source is fenced before its successor may exist. `account` says more of
    the run that ended (core.moves.losses).
    """
    if workload.reservation is None:
        raise ValueError(f"workload {workload.id} holds no quota, so it cannot move with it")
    kept = workload.reservation
    generation = workload.generation + 1
    reservation = Reservation(generation, kept.cq, kept.cluster, kept.at, kept.pod_sets)
    return Change(
        workload,
        fenced(workload),
        {
            "state": State.ADMITTED,
            "generation": generation,
            "reservation": reservation,
            "restore_from": restore_from,
            "resume_from": restore_from,
            "admitted_at": now,
        },
        ("gone", "intent", "uid", "dispatched_at", "started_at", "ready_pods", "machine"),
        {"runs": run(workload, IntentKind.MIGRATE.value, now) | dict(account)},
    )


def lose(workload: Workload, intent: Intent) -> Change:
    """Its cluster is lost for good, and nothing of it runs: so says an administrator.

    That word is the proof that no cluster can give any more. What is being stopped already ends
    as it was to end; a move, which needs its cluster, becomes a return to the queue.
    """
    stopping = workload.intent
    stays = stopping is not None and stopping.kind is not IntentKind.MIGRATE
    guard = Guard(
        (workload.state,),
        workload.generation,
        workload.uid,
        intent=stopping.kind if stopping is not None else None,
    )
    kept = {} if stays else {"intent": intent}
    return Change(
        workload, guard, {"state": State.RECLAIMING, "gone": True, **kept}, ("gated", "reason")
    )


def saved(workload: Workload, at: int, source: str) -> Change:
    """A complete checkpoint shows the workload as it was at `at`; its next run starts from it."""
    guard = Guard((State.DISPATCHED, State.RECLAIMING), workload.generation)
    return Change(workload, guard, {"checkpoint_at": at, "resume_from": source})


def accounted(workload: Workload, account: Mapping[str, Any]) -> Change:
    """What the account of the run that is being stopped will say besides, as far as is known.

    Only while it stops for the same reason: a cancel that overtook it has nothing to say of that.
    """
    intent = _intent(workload)
    guard = Guard(
        (State.RECLAIMING,), workload.generation, workload.uid, ("intent",), intent=intent.kind
    )
    return Change(workload, guard, {"intent": replace(intent, account=dict(account))})


def leave_spot(workload: Workload, restore_from: str, intent: Intent) -> Change:
    """Instead of a move: back into the queue with its checkpoint, for a machine that stays.

    `admit` gives its quota back, and admits it again with on-demand flavors first.
    """
    left = {"intent": intent, "resume_from": restore_from, "steady": True}
    return Change(workload, fenced(workload), left)


def fenced(workload: Workload) -> Guard:
    """That it still moves, and nothing of the generation that moves runs any more."""
    return Guard(
        (State.RECLAIMING,),
        workload.generation,
        workload.uid,
        ("gone",),
        intent=IntentKind.MIGRATE,
    )


def hold(workload: Workload, *, on: bool) -> Change:
    """A held workload waits outside its queue until it is released."""
    guard = Guard((State.PENDING,), workload.generation)
    return Change(workload, guard, {"held": on})


def act_on_wait(workload: Workload, told: Mapping[str, Any], priority: int) -> Change:
    """An entry of its `pendingPolicy` has acted (pending_policy); it goes on waiting."""
    guard = Guard((State.PENDING,), workload.generation)
    raised = {} if priority == workload.priority else {"priority": priority}
    return Change(workload, guard, raised, append={"waits": told})


def reprioritise(workload: Workload, priority: int) -> Change:
    guard = Guard((State.PENDING,), workload.generation)
    return Change(workload, guard, {"priority": priority})


def run(workload: Workload, outcome: str, now: int) -> dict[str, Any]:
    """The account of one generation: where it ran, from when to when (epoch ms), how it ended.

    And what it held there: its flavor or flavors, `counts` of pods where they are not those of the
    pod sets, and what its machines cost (core.accounts.machines).
    """
    return {
        "generation": workload.generation,
        "cluster": workload.cluster,
        "admitted_at": workload.admitted_at,
        "dispatched_at": workload.dispatched_at,
        "started_at": workload.started_at,
        "ended_at": now,
        "outcome": outcome,
        **_holding(workload.pod_sets, workload.reservation),
        **_of_machine(workload.machine),
    }


def present_run(workload: Workload) -> dict[str, Any]:
    """The account so far of a generation that is on a cluster; `ended_at` is 0."""
    return run(workload, "", 0)


def _holding(pod_sets: tuple[PodSet, ...], reservation: Reservation | None) -> dict[str, Any]:
    if reservation is None:
        return {}
    counts = {each.name: each.count for each in reservation.pod_sets}
    partly = counts != {each.name: each.count for each in pod_sets}
    held: dict[str, Any] = {"flavor": ",".join(sorted(reservation.flavors))}
    return held | {"counts": counts} if partly else held


def _of_machine(machine: Mapping[str, Any]) -> dict[str, Any]:
    """What accounts need of it: with both prices known, they tell what kind of machine it was."""
    told = "on_demand_usd_per_hour" in machine
    return {name: value for name, value in machine.items() if name != "capacity" or not told}


def accrued(workload: Workload, charge: Mapping[str, Any], now: int) -> int:
    """What the time since the reservation has cost, until the workload ended or now."""
    if workload.reservation is None:
        return 0
    ended = workload.finished_at or now
    held = max(0, ended - workload.reservation.at)
    return -(-int(charge["per_hour"]) * held // HOUR_MS)


def waited_ms(workload: Workload, now: int) -> int:
    """How long it waited for quota: until it was admitted, and after each return to its queue.

    A move is no wait: the workload keeps its quota.
    """
    stays = [(run["admitted_at"], run["ended_at"], run["outcome"]) for run in workload.runs]
    if not workload.runs or workload.runs[-1]["generation"] != workload.generation:
        stays.append((workload.admitted_at or workload.finished_at or now, now, ""))
    waited, queued_at = 0, workload.created_at
    for admitted_at, ended_at, outcome in stays:
        if queued_at:
            waited += max(0, admitted_at - queued_at)
        queued_at = 0 if outcome == IntentKind.MIGRATE else ended_at
    return waited


def queued_at(workload: Workload) -> int:
    """Since when it has been in its queue: its submission, or the end of its last run."""
    return int(workload.runs[-1]["ended_at"]) if workload.runs else workload.created_at


def first_admitted_at(workload: Workload) -> int:
    """When quota was given first; 0 while it never was."""
    return next((run["admitted_at"] for run in workload.runs), workload.admitted_at)


PHASES: Final = (
    *("PENDING", "ADMITTED", "STARTING", "RUNNING", "RECOVERING", "STOPPING", "CANCELLING"),
    *("SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"),
)


def phase(workload: Workload) -> str:
    """The state in the words of users: one of PHASES."""
    if workload.state is State.FINISHED:
        return "SUCCEEDED" if workload.result.get("succeeded") else "FAILED"
    if workload.state is State.RECLAIMING:
        kind = _intent(workload).kind
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


def _intent(workload: Workload) -> Intent:
    return workload.intent or Intent(IntentKind.REQUEUE, Reason.JOB_LOST)


_BLANK = Workload("", "", "", "", State.PENDING)
