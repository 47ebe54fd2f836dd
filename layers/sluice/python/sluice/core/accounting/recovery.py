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

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Final

from sluice.core.lifecycle.record import IntentKind, Workload
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


def has_moved(run: Mapping[str, Any]) -> bool:
    """Whether its successor had to continue it elsewhere."""
    return run.get("outcome") == IntentKind.MIGRATE or "interrupted_at" in run


def interruptions(workload: Workload) -> int:
    """How often it lost its machine; neither a user's wish nor a bad checkpoint takes one away."""
    return sum(has_moved(run) and run.get("why") not in _NO_LOSS for run in workload.runs)


def undone(runs: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """The runs, with what was thrown away later by going back to an older checkpoint as lost."""
    found = list[Mapping[str, Any]]()
    back_to: int | None = None
    for run in reversed(list(runs)):
        if back_to is None or not run.get("started_at"):
            found.append(run)
        else:
            ended = int(run.get("stopped_at") or run["ended_at"])
            vain = min(ran_ms(run), max(0, ended - back_to))
            found.append({**run, "lost_ms": max(vain, int(run.get("lost_ms", 0)))})
        if "back_to" in run:
            back_to = min(int(run["back_to"]), int(run["back_to"]) if back_to is None else back_to)
    return found[::-1]


def recovery(workload: Workload) -> Recovery:
    moved = [run for run in undone(workload.runs) if has_moved(run)]
    now_running = {"started_at": workload.started_at}
    last = workload.runs[-1] if workload.runs else {}
    ended = last.get("generation") == workload.generation
    chain = [*workload.runs] if ended else [*workload.runs, now_running]
    return Recovery(
        moves=sum(run.get("why") != RESTORE for run in moved),
        lost_ms=sum(run.get("lost_ms", 0) for run in moved),
        untold=sum("lost_ms" not in run for run in moved),
        standstill_ms=sum(
            standstill_ms(run, after.get("started_at", 0))
            for run, after in pairwise(chain)
            if has_moved(run)
        ),
        saved_usd=_sum(saved_usd(run) for run in moved),
        not_repeated_usd=_sum(not_repeated_usd(run) for run in moved),
    )


def standstill_ms(run: Mapping[str, Any], started_at: int) -> int:
    """From the end of a run to the start of the next; 0 while that does not run."""
    ended = run.get("stopped_at") or run.get("ended_at", 0)
    return max(0, started_at - ended) if started_at else 0


def ran_ms(run: Mapping[str, Any]) -> int:
    if not run.get("started_at"):
        return 0
    return max(0, int(run.get("stopped_at") or run["ended_at"]) - int(run["started_at"]))


def saved_usd(run: Mapping[str, Any]) -> float | None:
    """The run's time, at what it would have cost more on demand."""
    paid, full = run.get("usd_per_hour"), run.get("on_demand_usd_per_hour")
    if paid is None or full is None:
        return None
    return (float(full) - float(paid)) * ran_ms(run) / HOUR_MS


def not_repeated_usd(run: Mapping[str, Any]) -> float | None:
    """What it would cost to do again what a checkpoint carried over."""
    if "lost_ms" not in run or run.get("usd_per_hour") is None:
        return None
    kept = max(0, ran_ms(run) - int(run["lost_ms"]))
    return float(run["usd_per_hour"]) * kept / HOUR_MS


def _sum(amounts: Any) -> float | None:
    known = [amount for amount in amounts if amount is not None]
    return sum(known) if known else None
