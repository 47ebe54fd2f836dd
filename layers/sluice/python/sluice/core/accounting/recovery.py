"""What interruptions cost a workload and what was saved, from the accounts of its runs.

An account is what the end of a run that was interrupted writes into it, whether its workload moved
with its quota or went back to its queue for a machine that stays: `node`, `instance`,
`why`, `interrupted_at`, `stopped_at`, `lost_ms` unless only the application knows it (`self_saved`
where it should have been dumped), and the
prices of the workload's share of the machine, `usd_per_hour` and `on_demand_usd_per_hour`, where
they are known. One that could not start from its checkpoint has `why` "restore", and `back_to` if
an older one counts instead: when that was taken (epoch ms), 0 for the beginning.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from sluice.core.lifecycle.record import IntentKind, Workload
from sluice.core.lifecycle.run import Run
from sluice.core.migrations.interruption import NoticeKind
from sluice.core.migrations.restoring import RESTORE

HOUR_MS: Final = 3_600_000
_NO_LOSS: Final = frozenset({RESTORE, NoticeKind.REQUEST.value})


@dataclass(frozen=True, slots=True)
class Recovery:
    """Sums over all moves of a workload; dollars are None where no price is known."""

    moves: int
    lost_ms: int
    """Work that had to be done again."""
    untold: int
    """MigrationRequests of which only the application knows how much was lost."""
    standstill_ms: int
    saved_usd: float | None
    """What the interrupted runs would have cost more on demand."""
    not_repeated_usd: float | None
    """What the work costs that checkpoints carried over."""


def has_moved(run: Run) -> bool:
    """Whether its successor had to continue it elsewhere."""
    return run.outcome == IntentKind.MIGRATE or run.interrupted_at is not None


def was_migrated(workload: Workload) -> bool:
    """Whether the present generation continues one that migrated, or left spot instead."""
    return bool(workload.runs) and has_moved(workload.runs[-1])


def interruptions(workload: Workload) -> int:
    """How often it lost its machine; neither a user's wish nor a bad checkpoint takes one away."""
    return sum(has_moved(run) and run.why not in _NO_LOSS for run in workload.runs)


def undone(runs: Iterable[Run]) -> list[Run]:
    """The runs, with what was thrown away later by going back to an older checkpoint as lost."""
    found = list[Run]()
    back_to: int | None = None
    for run in reversed(list(runs)):
        if back_to is None or not run.started_at:
            found.append(run)
        else:
            ended = run.stopped_at or run.ended_at
            vain = min(ran_ms(run), max(0, ended - back_to))
            found.append(replace(run, lost_ms=max(vain, run.lost_ms or 0)))
        if run.back_to is not None:
            back_to = run.back_to if back_to is None else min(run.back_to, back_to)
    return found[::-1]


def recovery(workload: Workload) -> Recovery:
    moved = [run for run in undone(workload.runs) if has_moved(run)]
    now_running = Run(started_at=workload.started_at)
    last = workload.runs[-1] if workload.runs else None
    ended = last is not None and last.generation == workload.generation
    chain = [*workload.runs] if ended else [*workload.runs, now_running]
    return Recovery(
        moves=sum(run.why != RESTORE for run in moved),
        lost_ms=sum(run.lost_ms or 0 for run in moved),
        untold=sum(run.lost_ms is None for run in moved),
        standstill_ms=sum(
            standstill_ms(run, after.started_at) for run, after in pairwise(chain) if has_moved(run)
        ),
        saved_usd=_sum(saved_usd(run) for run in moved),
        not_repeated_usd=_sum(not_repeated_usd(run) for run in moved),
    )


def standstill_ms(run: Run, started_at: int) -> int:
    """From the end of a run to the start of the next; 0 while that does not run."""
    ended = run.stopped_at or run.ended_at
    return max(0, started_at - ended) if started_at else 0


def ran_ms(run: Run) -> int:
    if not run.started_at:
        return 0
    return max(0, (run.stopped_at or run.ended_at) - run.started_at)


def saved_usd(run: Run) -> float | None:
    """The run's time, at what it would have cost more on demand."""
    paid, full = run.usd_per_hour, run.on_demand_usd_per_hour
    if paid is None or full is None:
        return None
    return (full - paid) * ran_ms(run) / HOUR_MS


def not_repeated_usd(run: Run) -> float | None:
    """What it would cost to do again what a checkpoint carried over."""
    if run.lost_ms is None or run.usd_per_hour is None:
        return None
    kept = max(0, ran_ms(run) - run.lost_ms)
    return run.usd_per_hour * kept / HOUR_MS


def _sum(amounts: Any) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
