"""What a change of a workload record means to people: lines of its timeline."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from sluice.core.lifecycle import checks
from sluice.core.lifecycle.record import (
    ON_CLUSTER,
    TERMINAL,
    IntentKind,
    State,
    Workload,
    is_migrating,
)
from sluice.core.values.plain import to_plain


@dataclass(frozen=True, slots=True)
class Happening:
    """One line of a workload's timeline, and one lifecycle event for users; `at` in epoch ms."""

    workload: Workload
    at: int
    what: str
    message: str
    detail: Mapping[str, Any] = field(default_factory=dict)


# What comes first of all that happens within one millisecond; anything else stands between.
_FIRST = (
    "Submitted", "Rejected", "Held", "Released", "Reprioritized", "Admitted", "Dispatched",
    "Running",
)  # fmt: skip
_LAST = (
    "LastCheckpointDecided", "Succeeded", "Failed", "Stopped", "Cancelled", "QuotaReleased",
    "Requeued", "TaskAnswered",
)  # fmt: skip


def rank(what: str) -> int:
    """The place of a line among others of the same instant."""
    if what in _FIRST:
        return _FIRST.index(what)
    return len(_FIRST) + (1 + _LAST.index(what) if what in _LAST else 0)


def happenings(before: Workload | None, now: Workload, at: int) -> Iterator[Happening]:
    """Nothing, one or more lines; `before` None is a new record."""
    if before is None or (before.state, before.generation) != (now.state, now.generation):
        yield _entered(now, at)
    elif now.state is State.DISPATCHED and now.started_at and not before.started_at:
        yield _running(now)
    elif now.held != before.held:
        what = "Held" if now.held else "Released"
        yield Happening(now, at, what, "held by a user" if now.held else "back in its queue")
    elif before.blocked and not now.blocked:
        yield Happening(now, at, "Unblocked", f"what it waited for has ended; now in {now.queue}")
    elif now.priority != before.priority:
        message = f"priority {before.priority} → {now.priority}"
        yield Happening(now, at, "Reprioritized", message)
    elif now.state in ON_CLUSTER and now.reason.code and now.reason != before.reason:
        yield Happening(now, at, "Hindered", now.reason.message, {"reason": now.reason.code})
    yield from _of_checks(before, now, at)
    yield from _of_waits(before, now)
    if now.gone and not (before is not None and before.gone) and not is_migrating(now):
        # The record of a move tells the same as SourceFenced, and to the millisecond.
        yield Happening(now, at, "Stopped", "nothing of it runs any more")
    if before is not None and before.reservation and not now.reservation:
        yield Happening(before, at, "QuotaReleased", f"quota of {before.cq} given back")


def unrecorded(before: Workload | None, now: Workload, at: int) -> list[Happening]:
    """The lines that somebody has to write down: neither the record tells them, nor will it.

    Those that it told until this change are among them.
    """
    told = list(told_by(now))
    lines = [*(told_by(before) if before is not None else ()), *happenings(before, now, at)]
    return [line for line in lines if not any(_same(line, other) for other in told)]


def told_by(record: Workload) -> Iterator[Happening]:
    """The lines that follow from the record itself, so that nobody has to write them down."""
    if record.state is State.REJECTED:
        yield _entered(record, record.created_at)
        return
    yield _submitted(replace(record, generation=0))
    for run in record.runs:
        if run.generation < record.generation:
            ran = replace(
                record,
                generation=run.generation,
                cluster=run.cluster,
                admitted_at=run.admitted_at,
                dispatched_at=run.dispatched_at,
                started_at=run.started_at,
                reservation=None,
                uid="",
            )
            yield from _stages(ran)
    yield from _stages(record)
    if record.state in TERMINAL and record.finished_at:
        yield _entered(record, record.finished_at)


def _stages(record: Workload) -> Iterator[Happening]:
    """How far its generation came."""
    if record.cluster and record.admitted_at:
        yield _admitted(record, record.admitted_at)
    if record.cluster and record.dispatched_at:
        yield _dispatched(record, record.dispatched_at)
    if record.cluster and record.started_at:
        yield _running(record)


def _same(one: Happening, other: Happening) -> bool:
    return as_line(one) == as_line(other)


def as_line(happening: Happening) -> dict[str, Any]:
    """As people and programs read it: at, generation, what, message, detail."""
    return {
        "at": happening.at,
        "generation": happening.workload.generation,
        "what": happening.what,
        "message": happening.message,
        "detail": dict(happening.detail),
    }


def story(written: Iterable[Mapping[str, Any]], record: Workload) -> list[Mapping[str, Any]]:
    """All that happened to a workload, oldest first: what was written down and what it tells.

    Of two accounts of the same the written one counts: it was made when more was known.
    """
    lines: dict[tuple[int, int, str], Mapping[str, Any]] = {}
    for line in (*map(as_line, told_by(record)), *written):
        lines[line["at"], line["generation"], line["what"]] = line
    return in_order(lines.values())


def in_order(lines: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """By time; what happened within one millisecond as a life goes.

    The stream tells only the second of `Stopped`: a checkpoint of the same second was before it.
    """
    every = list(lines)
    saved: dict[tuple[int, int], int] = {}
    for line in every:
        if line["what"] == "CheckpointCompleted":
            second = line["generation"], line["at"] // 1_000
            saved[second] = max(saved.get(second, 0), line["at"])

    def place(line: Mapping[str, Any]) -> tuple[int, int, int]:
        at, generation = line["at"], line["generation"]
        if line["what"] == "Stopped" and at % 1_000 == 0:
            at = max(at, saved.get((generation, at // 1_000), 0))
        return at, generation, rank(line["what"])

    return sorted(every, key=place)


def _of_waits(before: Workload | None, now: Workload) -> Iterator[Happening]:
    """What entries of its `pendingPolicy` have done."""
    for act in now.waits[len(before.waits) if before is not None else 0 :]:
        why = {"code": act.reason, "message": act.message}
        detail = {"reason": why, "action": act.action}
        yield Happening(now, act.at, f"WaitedTooLong:{act.entry}", act.message, detail)


def _of_checks(before: Workload | None, now: Workload, at: int) -> Iterator[Happening]:
    """What admission checks are asked, and what they say."""
    if now.gated and (before is None or before.state is not State.ADMITTED):
        for check in now.checks:
            message = f"admission check {check} is asked"
            detail = {"check": check, "token": checks.token(now, check)}
            yield Happening(now, at, f"AdmissionCheckRequested:{check}", message, detail)
    if before is not None and len(now.answers) > len(before.answers):
        for answer in now.answers[len(before.answers) :]:
            said = f": {answer.message}" if answer.message else ""
            message = f"admission check {answer.check} says {answer.state}{said}"
            what = f"AdmissionCheckAnswered:{answer.check}"
            yield Happening(now, answer.at, what, message, to_plain(answer))
    if before is not None and before.gated and now.state is State.ADMITTED and not now.gated:
        # The stream counts in seconds; it cannot have been before the last answer.
        passed = max((at, *(answer.at for answer in now.answers)))
        yield Happening(now, passed, "AdmissionChecksPassed", "no admission check holds it back")


def _entered(now: Workload, at: int) -> Happening:
    match now.state:
        case State.PENDING if now.generation:
            message = now.reason.message or "back in its queue"
            return Happening(now, at, "Requeued", message, {"reason": now.reason.code})
        case State.PENDING:
            return _submitted(now)
        case State.REJECTED:
            return Happening(now, now.created_at, "Rejected", now.reason.message)
        case State.ADMITTED:
            return _admitted(now, now.admitted_at or at)
        case State.DISPATCHED:
            return _dispatched(now, now.dispatched_at or at)
        case State.RECLAIMING:
            intent = now.intent
            kind = intent.kind if intent else IntentKind.REQUEUE
            message = intent.message if intent else ""
            detail = {"reason": intent.reason, "by": intent.by} if intent else {}
            return Happening(now, at, _RECLAIMS[kind], message, detail)
        case State.CANCELLED:
            message = now.reason.message
            return Happening(now, now.finished_at or at, "Cancelled", message)
        case State.FINISHED:
            what = "Succeeded" if now.result.succeeded else "Failed"
            message = now.result.message
            return Happening(now, now.finished_at or at, what, message, now.result.as_json())
    raise AssertionError(now.state)


_RECLAIMS = {
    IntentKind.REQUEUE: "Requeueing",
    IntentKind.PREEMPT: "Preempted",
    IntentKind.CANCEL: "Cancelling",
    IntentKind.FAIL: "Stopping",
    IntentKind.DEACTIVATE: "Deactivating",
    IntentKind.MIGRATE: "Migrating",
}


def _submitted(now: Workload) -> Happening:
    return Happening(now, now.created_at, "Submitted", f"waits in {now.queue}")


def _admitted(now: Workload, at: int) -> Happening:
    return Happening(now, at, "Admitted", _admission(now))


def _dispatched(now: Workload, at: int) -> Happening:
    return Happening(now, at, "Dispatched", f"Job created on {now.cluster}", {"uid": now.uid})


def _running(now: Workload) -> Happening:
    return Happening(now, now.started_at, "Running", f"all pods ready on {now.cluster}")


def _admission(now: Workload) -> str:
    if now.reservation is None:
        return f"admitted to {now.cluster}"
    sets = ", ".join(
        f"{s.count} × {s.name} on {'/'.join(sorted(set(s.flavors.values())))}"
        for s in now.reservation.pod_sets
    )
    return f"{sets} of {now.reservation.cq}, cluster {now.cluster}"
