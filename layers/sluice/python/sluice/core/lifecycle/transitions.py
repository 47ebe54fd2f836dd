"""The life of a workload: every transition as a guarded change of its record.

Source of the protocol: docs/architecture.md, checked by tests/model.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from sluice.core.lifecycle.options import Options
from sluice.core.lifecycle.record import (
    COMES_BACK,
    Change,
    Guard,
    Intent,
    IntentKind,
    Reservation,
    State,
    Workload,
    intent_of,
)
from sluice.core.lifecycle.record_entries import (
    OWN_BUDGET,
    Charge,
    CheckAnswer,
    FieldError,
    JobResult,
    PendingPolicyAct,
    StatusReason,
)
from sluice.core.lifecycle.run import NO_END, MachineShare, RunEnd
from sluice.core.lifecycle.runs import accrued, run
from sluice.core.values.reasons import Reason


def admit(
    workload: Workload,
    reservation: Reservation,
    root: str,
    now: int,
    placed: str = "",
    charges: tuple[Charge, ...] = (),
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
    return Change(workload, guard, {"reason": StatusReason(code, message)})


def answer(
    workload: Workload, check: str, state: str, message: str, now: int, event: str = ""
) -> Change:
    """What a check says of this generation; answers add up, and the newest of a check counts.

    `event` is the id of the event that brought it, by which its copies are known.
    """
    guard = Guard((State.ADMITTED,), workload.generation, present=("gated",))
    said = CheckAnswer(check, state, now, workload.generation, message, event)
    return Change(workload, guard, {}, append={"answers": said})


def pass_checks(workload: Workload) -> Change:
    """All checks of this generation have said Ready: from now on it may be dispatched."""
    guard = Guard((State.ADMITTED,), workload.generation, present=("gated",))
    return Change(workload, guard, {}, ("gated",))


def start(workload: Workload, now: int) -> Change:
    """All pods are ready for the first time."""
    guard = Guard((State.DISPATCHED,), workload.generation, workload.uid, absent=("started_at",))
    return Change(workload, guard, {"started_at": now}, ("reason",))


def noting(change: Change, machine: MachineShare) -> Change:
    """A start or reclaim of one whose pods are seen, which notes what they have of machines."""
    tells = "started_at" in change.set or change.set.get("state") is State.RECLAIMING
    if not tells or machine == change.before.machine:
        return change
    return replace(change, set={**change.set, "machine": machine})


def finish(
    workload: Workload,
    result: JobResult,
    now: int,
    machine: MachineShare | None = None,
) -> Change:
    """The Job of this generation ended by itself; its quota waits for `release`.

    `machine`: what was seen of its machines, if the record does not say it yet.
    """
    outcome = "succeeded" if result.succeeded else "failed"
    return Change(
        workload,
        Guard((State.DISPATCHED, State.RECLAIMING), workload.generation, workload.uid),
        {"state": State.FINISHED, "finished_at": now, "result": result},
        ("intent", "gone", "reason", "machine", "placed"),
        {"runs": run(replace(workload, machine=machine or workload.machine), outcome, now)},
    )


def reclaim(workload: Workload, intent: Intent) -> Change:
    """Take a workload off its cluster; quota stays until its pods are proven gone."""
    return Change(
        workload,
        Guard((State.ADMITTED, State.DISPATCHED), workload.generation, workload.uid),
        {"state": State.RECLAIMING, "intent": intent},
        ("gone", "gated"),
    )


def call_off_migration(workload: Workload) -> Change:
    """RECLAIMING(g, migrate) → DISPATCHED(g): it cannot be saved, so it keeps running.

    Only while nothing of it was told to end; its Job and its pods are as they were.
    """
    guard = Guard(
        (State.RECLAIMING,),
        workload.generation,
        workload.uid,
        absent=("gone",),
        intent=IntentKind.MIGRATE,
    )
    return Change(workload, guard, {"state": State.DISPATCHED}, ("intent",))


def change_intent(workload: Workload, intent: Intent) -> Change:
    """A stronger wish overtakes a reclaim that is under way: cancel beats every other intent."""
    guard = Guard((State.RECLAIMING,), workload.generation, workload.uid, present=("intent",))
    return Change(workload, guard, {"intent": intent})


def unblock(workload: Workload) -> Change:
    """Those that it depends on have ended as they should: it enters its queue."""
    guard = Guard((State.PENDING,), workload.generation, present=("blocked",))
    return Change(workload, guard, {}, ("blocked", "reason"))


def wait_for(workload: Workload, options: Options, reason: StatusReason) -> Change:
    """It goes on waiting, and now it is known for whom."""
    guard = Guard((State.PENDING,), workload.generation, present=("blocked",))
    return Change(workload, guard, {"options": options, "reason": reason})


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
            "reason": StatusReason(code, f"{field}: {message}"),
            "errors": (FieldError(field, message),),
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
            "reason": StatusReason(code, message),
        },
        ("not_before", "held", "blocked"),
    )


def gone(workload: Workload) -> Change:
    """Proof that no pod of this generation executes anything, and that no other will be made."""
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
    intent = intent_of(workload)
    # The intent too: a cancel that overtook a requeue must not be lost to an older snapshot.
    guard = Guard(
        (State.RECLAIMING,), workload.generation, workload.uid, ("gone",), intent=intent.kind
    )
    last = replace(run(workload, intent.kind.value, now).with_known(intent.account), by=intent.by)
    for charge in workload.charges:
        if charge.budget == OWN_BUDGET:
            last = replace(last, microusd=accrued(workload, charge, now))
    unknown = last.lost_ms is None and intent.kind in COMES_BACK
    if unknown and workload.checkpoint_at > workload.started_at > 0:
        last = replace(last, lost_ms=max(0, now - workload.checkpoint_at))
    ended = {"runs": last}
    taken = ("reservation", "charges", "gone", "intent", "cluster", "uid", "machine")
    reason = StatusReason(intent.reason, intent.message)
    if intent.kind is IntentKind.CANCEL:
        end = {"state": State.CANCELLED, "finished_at": now, "reason": reason}
        return Change(workload, guard, end, taken, ended)
    if intent.kind is IntentKind.FAIL:
        result = JobResult(succeeded=False, reason=intent.reason, message=intent.message)
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
    times = ("admitted_at", "dispatched_at", "started_at")
    return Change(workload, guard, back, (*taken, *times), ended)


def migrate(
    workload: Workload,
    restore_from: str,
    now: int,
    end: RunEnd = NO_END,
) -> Change:
    """RECLAIMING(g, migrate) → ADMITTED(g + 1): the reservation travels, no ledger is written.

    Only after `gone`: the source is fenced before its successor may exist. `end` says more of
    the run that ended.
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
        ("gone", "intent", "uid", "dispatched_at", "started_at", "machine"),
        {"runs": run(workload, IntentKind.MIGRATE.value, now).with_known(end)},
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


def note_run_end(workload: Workload, end: RunEnd) -> Change:
    """What is known of the end of the run that is being stopped.

    Only while it stops for the same reason: a cancel that overtook it has nothing to say of that.
    """
    intent = intent_of(workload)
    guard = Guard(
        (State.RECLAIMING,), workload.generation, workload.uid, ("intent",), intent=intent.kind
    )
    kept = replace(end, why=end.why or intent.account.why, ordered_at=intent.account.ordered_at)
    return Change(workload, guard, {"intent": replace(intent, account=kept)})


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


def act_on_wait(workload: Workload, act: PendingPolicyAct, priority: int) -> Change:
    """An entry of its `pendingPolicy` has acted (pending_policy); it goes on waiting."""
    guard = Guard((State.PENDING,), workload.generation)
    raised = {} if priority == workload.priority else {"priority": priority}
    return Change(workload, guard, raised, append={"waits": act})


def reprioritise(workload: Workload, priority: int) -> Change:
    guard = Guard((State.PENDING,), workload.generation)
    return Change(workload, guard, {"priority": priority})
