"""Spot or on-demand against a deadline: what a workload that is idle should take.

Uniform Progress, without parameters of its own. Source: facts, spot-and-karpenter §5 (Can't Be
Late, NSDI '24): while on a machine, stay; idle, take spot whenever there is some; wait for spot
only while ahead of an even pace; and once no more loss can be afforded, on-demand to the end.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Final

from sluice.core.accounting.recovery import undone
from sluice.core.checkpoints.driver import WorkKept
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle.record import IntentKind, Workload
from sluice.core.lifecycle.run import Run

RESTART_MS: Final = 180_000
"""From a lost machine to the same work on another one; buying one included."""
TICK_MS: Final = 120_000
"""A waiting workload is looked at once a minute, and may be missed once."""


class Pace(Enum):
    """What an idle workload can afford."""

    AHEAD = "ahead"  # to wait for spot
    BEHIND = "behind"  # to take what there is, spot first
    LAST_CHANCE = "last chance"  # no further loss


@dataclass(frozen=True, slots=True)
class Race:
    """All in milliseconds: the whole work, what is left of it, the time allowed and left for it.

    `restart` is what a change of machines costs, `unsaved` the most work that a loss can cost.
    """

    work: int
    work_left: int
    allowed: int
    time_left: int
    restart: int = RESTART_MS
    unsaved: int = 0
    tick: int = TICK_MS


def pace(race: Race) -> Pace:
    """Rounded to the careful side: equality on the boundary of a tick is not safe."""
    if race.time_left <= race.work_left + _reserve(race):
        return Pace.LAST_CHANCE
    done, passed = race.work - race.work_left, race.allowed - race.time_left
    return Pace.BEHIND if done * race.allowed < passed * race.work else Pace.AHEAD


def _reserve(race: Race) -> int:
    return 2 * race.restart + race.unsaved + race.tick


def race_of(workload: Workload, now: int) -> Race | None:
    """The race of a workload that says how long it may take and needs; None if it does not."""
    deadlines = workload.options.deadlines
    allowed = 1000 * (deadlines.finish_within_seconds or 0)
    work = 1000 * (deadlines.expected_runtime_seconds or 0)
    if not allowed or not work:
        return None
    keeps = driver_of(workload.options).keeps
    kept = sum(_kept(run, keeps) for run in undone(workload.runs))
    match keeps:
        case WorkKept.NOTHING:
            unsaved = work
        case WorkKept.BY_APPLICATION:
            unsaved = 0  # it saves itself within its grace
        case WorkKept.PROCESSES:
            unsaved = 1000 * workload.options.checkpoint_interval_seconds or work
    left = max(0, work - kept)
    return Race(
        work, left, allowed, workload.created_at + allowed - now, unsaved=min(unsaved, work)
    )


def _kept(run: Run, keeps: WorkKept) -> int:
    """How much of one run was not done in vain; what nobody knows counts as lost."""
    if not run.started_at:
        return 0
    if keeps is not WorkKept.BY_APPLICATION and (
        run.outcome != IntentKind.MIGRATE or run.lost_ms is None
    ):
        return 0
    ended = run.stopped_at or run.ended_at
    return max(0, ended - run.started_at - (run.lost_ms or 0))


def changes_at(workload: Workload, now: int) -> list[int]:
    """When an idle workload, left alone, has no more lead, and when its last chance begins."""
    race = race_of(workload, now)
    if race is None:
        return []
    began = now + race.time_left - race.allowed
    behind = (race.work - race.work_left) * race.allowed // race.work + 1
    last = race.allowed - race.work_left - _reserve(race)
    return sorted(began + passed for passed in (behind, last))
