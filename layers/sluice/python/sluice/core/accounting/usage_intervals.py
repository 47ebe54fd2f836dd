"""Where the time of a workload went, from its submission to its end: intervals without a gap.

Each begins where the one before ends, so whatever the record lacks or says in the wrong order, they
add up to the whole. Times in epoch ms.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import pairwise

from sluice.core.accounting.recovery import has_moved, undone
from sluice.core.checkpoints.driver import WorkKept
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle.record import COMES_BACK, ON_CLUSTER, IntentKind, Workload, phase
from sluice.core.lifecycle.run import NO_RUN, Run
from sluice.core.lifecycle.runs import present_run


class IntervalKind(StrEnum):
    """What a workload did with its time."""

    WAITING = "waiting"  # it had no quota
    PLACING = "placing"  # it had quota and no machine: checks, dispatch, Karpenter buys
    STARTING = "starting"  # it had a machine and did not run yet: images, volumes, the other pods
    USEFUL = "useful"
    FAILED = "failed"  # it ran, and the workload failed or was cancelled
    REDONE = "redone"  # it ran, and its successor had to do that again
    MIGRATING = "moving"  # from the end of an interrupted run to the start of its successor


@dataclass(frozen=True, slots=True)
class UsageInterval:
    """`run`: the account of the run that had a machine meanwhile (core.lifecycle.runs), if any."""

    kind: IntervalKind
    begin: int
    end: int
    run: Run | None = None

    @property
    def ms(self) -> int:
        return self.end - self.begin

    def within(self, since: int, until: int) -> UsageInterval:
        """The part of it in a window, which may be empty."""
        begin = min(max(self.begin, since), until)
        return UsageInterval(self.kind, begin, max(begin, min(self.end, until)), self.run)


def usage_intervals(workload: Workload, now: int) -> list[UsageInterval]:
    """From submission to end, or to now; without empty ones."""
    return [each for each in _all(workload, workload.finished_at or now) if each.ms]


def loss_is_unknown(workload: Workload, run: Run) -> bool:
    """Whether only the application knows what of a run was done again: it counts as useful."""
    return bool(run.started_at) and _lost_ms(workload, run, 0) is None


def _all(workload: Workload, end: int) -> Iterator[UsageInterval]:
    walk = _Walk(workload.created_at, end)
    failed = phase(workload) in {"FAILED", "CANCELLED"}
    runs = list(_runs(workload))
    for before, run in pairwise((NO_RUN, *runs)):
        moved = before.outcome == IntentKind.MIGRATE
        ended = run.ended_at or end
        stopped = min(run.stopped_at or ended, ended)
        bound = run.bound_at or run.started_at or ended
        yield walk.to(run.admitted_at, IntervalKind.MIGRATING if moved else IntervalKind.WAITING)
        yield walk.to(min(bound, ended), IntervalKind.MIGRATING if moved else IntervalKind.PLACING)
        # A short Job may end before anybody saw all its pods ready.
        began = run.started_at or (bound if run.outcome in _ENDED else stopped)
        yield walk.to(
            min(began, stopped), IntervalKind.MIGRATING if moved else IntervalKind.STARTING, run
        )
        lost = _lost_ms(workload, run, stopped - walk.at) or 0
        yield walk.to(stopped - lost, IntervalKind.FAILED if failed else IntervalKind.USEFUL, run)
        yield walk.to(stopped, IntervalKind.REDONE, run)
        yield walk.to(ended, IntervalKind.MIGRATING, run)
    yield walk.to(end, IntervalKind.WAITING)


@dataclass
class _Walk:
    at: int
    end: int

    def to(self, moment: int, kind: IntervalKind, run: Run | None = None) -> UsageInterval:
        """The stretch from where the last one ended; empty if the moment is past."""
        begin, self.at = self.at, max(self.at, min(moment, self.end))
        return UsageInterval(kind, begin, self.at, run)


def _runs(workload: Workload) -> Iterable[Run]:
    yield from undone(workload.runs)
    if workload.state in ON_CLUSTER:
        yield present_run(workload)


_ENDED = {"succeeded", "failed"}


def _lost_ms(workload: Workload, run: Run, ran: int) -> int | None:
    """What of a run has to be done again; None if only the application knows.

    A run that gave way without a word of what it had saved is done again from where it began.
    """
    if run.lost_ms is not None:
        return run.lost_ms
    if run.self_saved:
        return None
    if not has_moved(run) and run.outcome not in COMES_BACK:
        return 0
    if driver_of(workload.options).keeps is WorkKept.BY_APPLICATION:
        return None
    return ran
