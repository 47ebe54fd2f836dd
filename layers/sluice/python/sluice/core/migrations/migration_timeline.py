"""The timeline of a move: what its record tells so far, for people."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from sluice.core.checkpoints.driver import WorkKept
from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import Workload
from sluice.core.migrations.downtime import downtime_ms
from sluice.core.migrations.interruption import LOSSES, NoticeKind
from sluice.core.migrations.migration import Migration, PodCheckpoint, Stage

_CAUSES: Final[Mapping[str, str]] = {
    NoticeKind.REQUEST: "the wish",
    NoticeKind.EVICTION: "it was told to go",
}
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


def timeline_events(migration: Migration, workload: Workload) -> Iterator[Happening]:
    """The lines of the timeline that the record tells so far; told again, they change nothing."""
    told = replace(workload, generation=migration.generation)
    yield from _of_first(migration, told)
    for attribute, what in _LINES:
        if at := getattr(migration, attribute):
            if what == "LastCheckpointDecided" and not migration.last_reason:
                continue  # the only one: CheckpointDecided says it
            if what == "InterruptionNoticed" and migration.kind == NoticeKind.EVICTION:
                continue  # the workload's own record says why it stops
            if what == "CheckpointCompleted" and migration.saved == migration.first:
                what = "LastCheckpointDecided"  # noqa: PLW2901 - against another dump
            message, detail = _told(migration, what)
            yield Happening(told, at, what, message, detail)
    if migration.called_off:
        why = f"{migration.error}; it keeps running on {migration.node}"
        yield Happening(told, migration.failed_at, "MigrationCalledOff", why)
    if migration.failed_at and migration.stage is not Stage.LOST:
        yield Happening(told, migration.failed_at, "CheckpointFailed", migration.error)


def _of_first(m: Migration, told: Workload) -> Iterator[Happening]:
    """What became of the dump after which the source worked on."""
    if m.first:
        text, detail = _saved(m.first)
        yield Happening(told, m.first_at, "CheckpointCompleted", f"{text}; it works on", detail)
    elif m.first_error:
        yield Happening(told, m.first_at, "CheckpointFailed", f"{m.first_error}; it works on")


def _saved(saved: Mapping[str, PodCheckpoint]) -> tuple[str, dict[str, Any]]:
    every = list(saved.values())
    detail = {"bytes": sum(s.size for s in every), "took_ms": max(s.took_ms for s in every)}
    return checkpoint_summary(every), detail


def new_events(before: Migration, now: Migration, workload: Workload) -> list[Happening]:
    """The lines that a step adds to the story."""
    known = list(timeline_events(before, workload))
    return [line for line in timeline_events(now, workload) if line not in known]


def _told(m: Migration, what: str) -> tuple[str, dict[str, Any]]:
    match what:
        case "InterruptionNoticed":
            return _noticed(m)
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


def _noticed(m: Migration) -> tuple[str, dict[str, Any]]:
    if m.kind == NoticeKind.REQUEST:
        return f"a user asked to move it from {m.node}", {"kind": m.kind}
    # As it was heard first: a later notice may know of an earlier end.
    left = max(0, m.numbers.get("left_ms", m.deadline - m.received_at)) / 1000
    goes = f"goes away: {m.kind}; {left:.0f} s are left"
    if m.kind in LOSSES:
        goes = f"ends without a warning that left time: {m.kind}"
    detail = {"instance": m.instance, "kind": m.kind, "deadline": m.deadline}
    return f"{m.node} ({m.instance}) {goes}", detail


def _source(m: Migration) -> str:
    """What the next generation starts from, in words."""
    if m.checkpoint:
        return m.checkpoint
    alone = DRIVERS[m.driver].keeps is WorkKept.NOTHING
    return "the beginning" if alone else "what it saved itself, if any"


def checkpoint_summary(saved: Sequence[PodCheckpoint]) -> str:
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


def _after(migration: Migration, at: int) -> str:
    cause = _CAUSES.get(migration.kind, "the notice")
    return f"{max(0, at - migration.noticed_at) / 1000:.1f} s after {cause}"
