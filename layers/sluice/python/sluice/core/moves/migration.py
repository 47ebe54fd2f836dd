"""The move of one workload off a dying machine: its record, and every step as a guarded change.

    NOTICED → DUMPING ∥ replacing → DUMPED → FENCED → RESTORING → RUNNING (generation + 1), or LOST

While DUMPING a source is saved at once and works on; it is saved again, and held from then on, when
its replacement is ready. DUMPED says which of both dumps its successor starts from.
Who makes room for others is saved by the same steps, as far as DUMPED (core.moves.yielding).
The record tells and times the move. That only one run of a workload exists is up to the workload's
own record (core.lifecycle.workload: reclaim, gone, move), so nothing here can break it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Final

from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.options import CheckpointMode
from sluice.core.lifecycle.workload import Workload
from sluice.core.moves import gangs
from sluice.core.moves.checkpointing import (
    FREEZE_MS,
    LEAD_MS,
    MARGIN_MS,
    Action,
    Checkpoint,
    Part,
    mode,
    needs_and_has,
)
from sluice.core.moves.interruption import STAYS, Kind
from sluice.core.moves.refusals import lasting


class Stage(StrEnum):
    NOTICED = "NOTICED"
    DUMPING = "DUMPING"
    DUMPED = "DUMPED"
    FENCED = "FENCED"
    RESTORING = "RESTORING"
    RUNNING = "RUNNING"
    LOST = "LOST"


ENDED: Final = frozenset({Stage.RUNNING, Stage.LOST})
_BEFORE_STOP: Final = (Stage.NOTICED, Stage.DUMPING, Stage.DUMPED)
_BEFORE_DUMPED: Final = (Stage.NOTICED, Stage.DUMPING)


@dataclass(frozen=True, slots=True)
class Saved:
    """The checkpoint of one pod, as its node reported it."""

    uri: str
    size: int = 0
    took_ms: int = 0
    at: int = 0
    image: str = ""
    held_at: int = 0
    """Since when the pod's processes stand still; 0 if they worked on after the dump."""
    digest: str = ""
    node: str = ""
    part: str = ""
    """Which member of a gang it is (core.moves.gangs); empty for others."""

    def row(self) -> dict[str, Any]:
        return {
            "uri": self.uri,
            "size": self.size,
            "took_ms": self.took_ms,
            "at": self.at,
            "image": self.image,
            "held_at": self.held_at,
            "digest": self.digest,
            "node": self.node,
            "part": self.part,
        }


def checkpoint_of(
    workload: Workload,
    saved: Iterable[Saved],
    driver: CheckpointMode,
    cpus: Mapping[str, str],
    otherwise_at: int = 0,
) -> Checkpoint | None:
    """What the catalogue is to remember of a pod, or of all the members of a gang.

    `cpus`: node → its CPU (core.moves.compatibility), as far as it is known.

    None unless the members are as many as the workload has, each another one, and all of one order.
    A set is as old as its oldest part, and took as long as its slowest.
    """
    every = sorted(saved, key=lambda one: (len(one.part), one.part))
    if len(every) != gangs.members(workload):
        return None
    (first, *others) = every
    uri, size, image, node = first.uri, first.size, first.image, first.node
    cpu = cpus.get(node, "")
    parts: tuple[Part, ...] = ()
    if others:
        uri, size = gangs.address(one.uri for one in every), sum(one.size for one in every)
        image = node = cpu = ""
        if not uri or len({one.part for one in every} - {""}) != len(every):
            return None
        parts = tuple(
            Part(
                one.part,
                one.uri,
                one.size,
                one.digest,
                one.node,
                one.image,
                cpus.get(one.node, ""),
            )
            for one in every
        )
    return Checkpoint(
        workload.id,
        workload.generation,
        uri,
        min(one.at for one in every) or otherwise_at,
        driver,
        size,
        max(one.took_ms for one in every),
        workload.restore_from,
        node,
        image,
        parts=parts,
        cpu=cpu,
    )


@dataclass(frozen=True, slots=True)
class Migration:
    """One record of the table Migrations; times in epoch ms, 0 for not yet."""

    workload: str
    generation: int
    cluster: str
    instance: str
    node: str
    kind: str
    noticed_at: int
    received_at: int
    deadline: int
    driver: CheckpointMode
    action: Action
    reason: str
    numbers: Mapping[str, Any] = field(default_factory=dict)
    stage: Stage = Stage.NOTICED
    instance_type: str = ""
    zone: str = ""
    grace_ms: int = 0
    pods: tuple[str, ...] = ()
    saved: Mapping[str, Saved] = field(default_factory=dict)
    first: Mapping[str, Saved] = field(default_factory=dict)
    """The dump after which the source worked on; empty until it is whole."""
    first_at: int = 0
    """When the order of the first dump was answered, by `first` or by `first_error`."""
    first_error: str = ""
    last_at: int = 0
    """When the dump was ordered that holds; at once where there is time for one only."""
    last_reason: str = ""
    error: str = ""
    replacement_at: int = 0
    dumped_at: int = 0
    failed_at: int = 0
    stopping_at: int = 0
    fenced_at: int = 0
    restoring_at: int = 0
    running_at: int = 0
    checkpoint: str = ""
    checkpoint_at: int = 0

    @property
    def id(self) -> str:
        name = yield_id if self.kind == Kind.YIELD else migration_id
        return name(self.workload, self.generation)

    @property
    def give_up_at(self) -> int:
        """When the source is stopped whatever else happens, so that it has its grace.

        Who is saved needs none: it goes on elsewhere from before its SIGTERM. Nor is any kept back
        for who is yet to be saved, as `fit` promised, until an attempt has failed.
        """
        hopes = bool(self.first) or (self.action is Action.DUMP and not self.first_error)
        return self.deadline - (0 if hopes else self.grace_ms) - MARGIN_MS

    @property
    def dumps(self) -> bool:
        """Whether its source is to be saved, and is not yet."""
        return self.action is Action.DUMP and self.stage in _BEFORE_DUMPED

    @property
    def awaits_dump(self) -> bool:
        """Whether one is under way, and the source does not work on between its two dumps."""
        return self.dumps and bool(self.last_at or not self.first_at)


def migration_id(workload: str, generation: int) -> str:
    return f"{workload}#{generation}"


def yield_id(workload: str, generation: int) -> str:
    """Apart from that of a move, which a notice may have begun and lost its race."""
    return f"{workload}#{generation}#yield"


@dataclass(frozen=True, slots=True)
class Advance:
    """One conditional write: the stages in which it holds, and the attributes that it sets.

    `once` names a moment that is recorded only by the first who sees it, so that a race of two
    observers tells it once.
    """

    before: Migration
    stages: tuple[Stage, ...]
    set: Mapping[str, Any]
    once: str = ""

    def holds(self, migration: Migration) -> bool:
        untold = not self.once or not getattr(migration, self.once)
        return migration.stage in self.stages and untold

    def after(self, migration: Migration) -> Migration:
        return replace(migration, **self.set)


def order(migration: Migration) -> Advance:
    """The checkpoint is ordered, or the application warned."""
    return Advance(migration, (Stage.NOTICED,), {"stage": Stage.DUMPING})


def sooner(migration: Migration, deadline: int) -> Advance:
    """Another channel knows of an earlier end: the earliest counts."""
    return Advance(migration, _BEFORE_STOP, {"deadline": min(deadline, migration.deadline)})


def replaced(migration: Migration, now: int) -> Advance:
    """The replacement is ready; this side runs while the other dumps."""
    return Advance(migration, _BEFORE_STOP, {"replacement_at": now}, "replacement_at")


def first_saved(migration: Migration, saved: Mapping[str, Saved], now: int) -> Advance:
    """Every pod is saved, and works on."""
    return Advance(migration, _BEFORE_DUMPED, {"first": dict(saved), "first_at": now}, "first_at")


def first_failed(migration: Migration, why: str, now: int) -> Advance:
    return Advance(migration, _BEFORE_DUMPED, {"first_error": why, "first_at": now}, "first_at")


def last_ordered(migration: Migration, why: str, now: int) -> Advance:
    """The source is saved once more, and held from then on."""
    return Advance(migration, _BEFORE_DUMPED, {"last_at": now, "last_reason": why}, "last_at")


def first_taken(migration: Migration, why: str, now: int) -> Advance:
    """The source is not saved once more. Holds only while that has not been ordered."""
    change = {"stage": Stage.DUMPED, "saved": dict(migration.first), "dumped_at": now}
    return Advance(migration, _BEFORE_DUMPED, change | {"last_reason": why}, "last_at")


def last_failed(migration: Migration, why: str, now: int) -> Advance:
    """The first dump has to do; the work since then is done again."""
    text = f"{why}; it goes on from the first one"
    change = {"stage": Stage.DUMPED, "saved": dict(migration.first), "error": text}
    return Advance(migration, _BEFORE_DUMPED, change | {"failed_at": now}, "failed_at")


def dumped(migration: Migration, saved: Mapping[str, Saved], now: int) -> Advance:
    """Every pod is saved: all or nothing, a torn set is never restored."""
    change = {"stage": Stage.DUMPED, "saved": dict(saved), "dumped_at": now}
    return Advance(migration, _BEFORE_DUMPED, change)


def dump_failed(migration: Migration, why: str, now: int) -> Advance:
    """The dump is given up: the application is told, and goes on from an earlier checkpoint."""
    change = {"stage": Stage.DUMPING, "action": Action.SIGNAL, "error": why, "failed_at": now}
    return Advance(migration, _BEFORE_DUMPED, change, "failed_at")


def stopping(migration: Migration, now: int) -> Advance:
    return Advance(migration, _BEFORE_STOP, {"stopping_at": now}, "stopping_at")


def fenced(migration: Migration, now: int) -> Advance:
    """The source is proven gone."""
    return Advance(migration, _BEFORE_STOP, {"stage": Stage.FENCED, "fenced_at": now})


def restoring(migration: Migration, checkpoint: str, now: int) -> Advance:
    change = {"stage": Stage.RESTORING, "checkpoint": checkpoint, "restoring_at": now}
    return Advance(migration, (*_BEFORE_STOP, Stage.FENCED), change)


def running(migration: Migration, now: int, told: Mapping[str, Any]) -> Advance:
    """The next generation runs: the move is over. `told`: more numbers for its account."""
    stages = (*_BEFORE_STOP, Stage.FENCED, Stage.RESTORING)
    numbers = {**migration.numbers, **told}
    change = {"stage": Stage.RUNNING, "running_at": now, "numbers": numbers}
    return Advance(migration, stages, change)


def abandoned(migration: Migration, why: str) -> Advance:
    """It ended otherwise: cancelled, finished by itself, or back in its queue."""
    stages = (*_BEFORE_STOP, Stage.FENCED, Stage.RESTORING)
    return Advance(migration, stages, {"stage": Stage.LOST, "error": why})


class Step(StrEnum):
    """What the source needs next."""

    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class View:
    """What the cluster shows of a move: pod → its checkpoint, or why there is none.

    Both by the order that the move has given last. `pods`: those that may still execute anything.
    """

    saved: Mapping[str, Saved] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    pods: frozenset[str] = frozenset()
    replacement_ready: bool = False
    still_running: bool = True


def progress(migration: Migration, view: View, now: int) -> list[Advance]:
    """What has been seen and is not yet recorded, and what follows from it."""
    found = []
    if view.replacement_ready and not migration.replacement_at:
        found.append(replaced(migration, now))
        migration = found[-1].after(migration)
    if migration.awaits_dump and (step := _answered(migration, view, now)):
        found.append(step)
        migration = step.after(migration)
    if migration.dumps and not migration.awaits_dump and (step := once_more(migration, now)):
        found.append(step)
    return found


def _answered(migration: Migration, view: View, now: int) -> Advance | None:
    """What became of the dump that is under way; None while it is not known."""
    if migration.pods and all(pod in view.saved for pod in migration.pods):
        saved = {pod: view.saved[pod] for pod in migration.pods}
        end = dumped if migration.last_at else first_saved
        return end(migration, saved, now)
    why = _why_not_dumped(migration, view, now)
    if not why:
        return None
    if migration.first:
        return last_failed(migration, why, now)
    if not migration.last_at and (meaning := lasting(why)):
        return dump_failed(migration, f"{why}; it is not dumped again: {meaning}", now)
    tried = migration.last_at or now >= migration.give_up_at
    return (dump_failed if tried else first_failed)(migration, why, now)


def once_more(migration: Migration, now: int) -> Advance | None:
    """Whether who was saved, or could not be, is saved again now; None while it works on.

    When its replacement is ready, or when no more time is left than another dump needs. If that
    does not fit, or the replacement waited already when the first dump was there, the first does.
    """
    first = migration.first.values()
    expected = int(migration.numbers.get("needs_ms", 0))
    needs = FREEZE_MS + max(one.took_ms for one in first) if first else expected
    has = migration.give_up_at - now
    if not migration.replacement_at and has > needs + LEAD_MS:
        return None
    if first and 0 < migration.replacement_at <= migration.first_at:
        return first_taken(migration, "its replacement was ready before its dump", now)
    why = "its replacement is ready" if migration.replacement_at else "no replacement is ready"
    why = f"{why}; {needs_and_has(needs, has)}"
    if needs <= has:
        return last_ordered(migration, f"{why}: dump", now)
    if first:
        return first_taken(migration, f"{why}: it goes on from its first dump", now)
    return dump_failed(migration, f"{why}: it is not dumped again", now)


def _why_not_dumped(migration: Migration, view: View, now: int) -> str:
    """Why nobody waits for the rest of the dumps any more; empty while they may still come.

    Of a gang one failure decides: the others' dumps are worth nothing without it.
    """
    gang = len(migration.pods) > 1
    missing = [pod for pod in migration.pods if pod not in view.saved]
    if view.failed:
        told = (f"{pod}: {why}" if gang else why for pod, why in view.failed.items())
        return "; ".join(sorted(told))
    if gang and (ended := [pod for pod in missing if pod not in view.pods]):
        return f"{', '.join(ended)} ended before it was saved"
    if now < migration.give_up_at:
        return ""
    late = f": {', '.join(missing)} of {len(migration.pods)} pods are missing" if gang else ""
    return f"the dump was not complete in time{late}"


def next_step(migration: Migration, view: View, now: int) -> Step:
    """Whether the source may still run.

    One that is saved for the last time stops at once, since what it does afterwards is lost or done
    twice. Otherwise it works on until its replacement is ready, or until its grace is all the time
    that is left.
    """
    if migration.stopping_at or not view.still_running or now >= migration.give_up_at:
        return Step.STOP
    if migration.action is Action.DUMP:
        return Step.STOP if migration.stage is Stage.DUMPED else Step.WAIT
    stays = migration.kind in STAYS  # no machine goes away, so nothing is bought for it
    return Step.STOP if stays or migration.replacement_at or view.replacement_ready else Step.WAIT


def restore_source(migration: Migration | None, made: Checkpoint | None, last: str) -> str:
    """The checkpoint that the next generation starts from: the new one, or the last good one.

    `made`: what the move itself has saved and entered in the catalogue.
    """
    if migration is not None and migration.checkpoint:
        return migration.checkpoint  # the one that a user asked for
    return made.source if made is not None else last


@dataclass(frozen=True, slots=True)
class AtRisk:
    """A workload on a dying machine, and what would be lost with it.

    `pods` are those on the machine; `others` the rest of a gang that is saved as a whole, and
    `no_set` why it cannot be.
    """

    workload: Workload
    pods: tuple[Mapping[str, Any], ...]
    unsaved_ms: int
    others: tuple[Mapping[str, Any], ...] = ()
    no_set: str = ""

    @property
    def all_pods(self) -> tuple[Mapping[str, Any], ...]:
        return (*self.pods, *self.others)

    @property
    def value(self) -> tuple[int, int]:
        """Unsaved work in core-milliseconds, weighed by priority. Source: facts §6.3."""
        cores = sum(s.count * s.requests.get("cpu", 0) for s in self.workload.pod_sets)
        return self.workload.priority, self.unsaved_ms * cores


def most_valuable_first(many: Iterable[AtRisk]) -> list[AtRisk]:
    return sorted(many, key=lambda each: (each.value, each.workload.id), reverse=True)


def unsaved_ms(workload: Workload, last_checkpoint_at: int, now: int) -> int:
    return max(0, now - max(workload.started_at or now, last_checkpoint_at))


_LINES: Final[Sequence[tuple[str, str]]] = (
    ("noticed_at", "InterruptionNoticed"),
    ("received_at", "CheckpointDecided"),
    ("replacement_at", "ReplacementReady"),
    ("last_at", "LastCheckpointDecided"),
    ("dumped_at", "CheckpointCompleted"),
    ("stopping_at", "SourceStopping"),
    ("fenced_at", "SourceFenced"),
    ("restoring_at", "Moved"),
    ("running_at", "Resumed"),
)


def story(migration: Migration, workload: Workload) -> Iterator[Happening]:
    """The lines of the timeline that the record tells so far; told again, they change nothing."""
    told = replace(workload, generation=migration.generation)
    yield from _of_first(migration, told)
    for attribute, what in _LINES:
        if at := getattr(migration, attribute):
            if what == "LastCheckpointDecided" and not migration.last_reason:
                continue  # the only one: CheckpointDecided says it
            if what == "InterruptionNoticed" and migration.kind == Kind.YIELD:
                continue  # the workload's own record says why it stops
            if what == "CheckpointCompleted" and migration.saved == migration.first:
                what = "LastCheckpointDecided"  # noqa: PLW2901 - against another dump
            message, detail = _told(migration, what)
            yield Happening(told, at, what, message, detail)
    if migration.failed_at and migration.stage is not Stage.LOST:
        yield Happening(told, migration.failed_at, "CheckpointFailed", migration.error)


def _of_first(m: Migration, told: Workload) -> Iterator[Happening]:
    """What became of the dump after which the source worked on."""
    if m.first:
        text, detail = _saved(m.first)
        yield Happening(told, m.first_at, "CheckpointCompleted", f"{text}; it works on", detail)
    elif m.first_error:
        yield Happening(told, m.first_at, "CheckpointFailed", f"{m.first_error}; it works on")


def _saved(saved: Mapping[str, Saved]) -> tuple[str, dict[str, Any]]:
    every = list(saved.values())
    detail = {"bytes": sum(s.size for s in every), "took_ms": max(s.took_ms for s in every)}
    return how_saved(every), detail


def news(before: Migration, now: Migration, workload: Workload) -> list[Happening]:
    """The lines that a step adds to the story."""
    known = list(story(before, workload))
    return [line for line in story(now, workload) if line not in known]


def _told(m: Migration, what: str) -> tuple[str, dict[str, Any]]:
    match what:
        case "InterruptionNoticed":
            if m.kind == Kind.REQUEST:
                return f"a user asked to move it from {m.node}", {"kind": m.kind}
            left = max(0, m.deadline - m.received_at) / 1000
            text = f"{m.node} ({m.instance}) goes away: {m.kind}; {left:.0f} s are left"
            return text, {"instance": m.instance, "kind": m.kind, "deadline": m.deadline}
        case "CheckpointDecided":
            return m.reason, {"driver": m.driver.value, "action": m.action.value, **m.numbers}
        case "ReplacementReady":
            return _after(m, m.replacement_at), {}
        case "LastCheckpointDecided":
            return m.last_reason, {}
        case "CheckpointCompleted":
            return _saved(m.saved)
        case "SourceStopping":
            return _after(m, m.stopping_at), {}
        case "SourceFenced":
            return f"nothing of generation {m.generation} runs any more", {}
        case "Moved":
            text = f"generation {m.generation + 1} starts from {_source(m)}"
            return text, {"from": m.checkpoint}
    return _resumed(m)


def _source(m: Migration) -> str:
    """What the next generation starts from, in words."""
    if m.checkpoint:
        return m.checkpoint
    alone = m.driver is CheckpointMode.NONE
    return "the beginning" if alone else "what it saved itself, if any"


def how_saved(saved: Sequence[Saved]) -> str:
    """For people: how much, how long; of a gang also how far apart in time its parts are."""
    size, took = sum(one.size for one in saved), max(one.took_ms for one in saved)
    text = f"{size / 1e6:.1f} MB saved in {took / 1000:.1f} s"
    if len(saved) == 1:
        return text
    apart = max(one.at for one in saved) - min(one.at for one in saved)
    return f"{text}: {len(saved)} parts, begun within {apart / 1000:.1f} s"


def _resumed(m: Migration) -> tuple[str, dict[str, Any]]:
    down = downtime_ms(m)
    text, detail = f"runs again after {down / 1000:.1f} s of standstill", {"downtime_ms": down}
    if (lost := m.numbers.get("lost_ms")) is not None:
        text += f"; {lost / 1000:.1f} s of work are done again"
        detail["lost_ms"] = lost
    if saved := m.numbers.get("saved_usd"):
        text += f"; ${saved:.4f} saved by spot until then"
        detail["saved_usd"] = saved
    return text, detail


def downtime_ms(migration: Migration) -> int:
    """How long nothing ran: from the end of the source to the start of its successor."""
    return max(0, migration.running_at - stopped_at(migration)) if migration.running_at else 0


def paused_until(migration: Migration, workload: Workload) -> int:
    """When the next run may start: `recovery.onInterruption.backoff` after the end of this one.

    0 without a pause. Who asks for a move loses no machine, and does not wait.
    """
    recovery = workload.options.get("recovery") or {}
    pause = 1000 * int(recovery.get("backoff_seconds", 0))
    return stopped_at(migration) + pause if pause and migration.kind != Kind.REQUEST else 0


def stopped_at(migration: Migration) -> int:
    """When the source did its last work; after a loss, the moment that EC2 names."""
    if migration.deadline <= migration.noticed_at:
        return migration.noticed_at
    held = [each.held_at for each in migration.saved.values()]
    if held and all(held):
        return max(held)
    return migration.stopping_at or migration.fenced_at or migration.restoring_at


def account(migration: Migration, workload: Workload, good_at: int) -> dict[str, Any]:
    """What the ended run's entry in `runs` says of the move (core.accounts.recovery).

    `good_at`: when the state was taken that its successor starts from, 0 if that is the beginning
    or the checkpoint that the run itself started from. What an application saved by itself, nobody
    else knows.
    """
    stopped = stopped_at(migration)
    found: dict[str, Any] = {
        "node": migration.node,
        "instance": migration.instance,
        "why": migration.kind,
        "interrupted_at": migration.noticed_at,
        "stopped_at": stopped,
    }
    if mode(workload.options) is not CheckpointMode.APPLICATION and workload.started_at:
        # A restore from an older generation's checkpoint loses no more than this run did.
        found["lost_ms"] = max(0, stopped - max(workload.started_at, good_at))
    prices = ("usd_per_hour", "on_demand_usd_per_hour")
    return found | {name: migration.numbers[name] for name in prices if name in migration.numbers}


def _after(migration: Migration, at: int) -> str:
    cause = _CAUSES.get(migration.kind, "the notice")
    return f"{max(0, at - migration.noticed_at) / 1000:.1f} s after {cause}"


_CAUSES: Final[Mapping[str, str]] = {Kind.REQUEST: "the wish", Kind.YIELD: "it was told to go"}
