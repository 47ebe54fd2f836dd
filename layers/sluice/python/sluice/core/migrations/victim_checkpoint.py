"""Who gives its place back and comes back is saved first: whether, and what its account says of it.

The steps are those of core.migrations.migration: one dump, after which nothing of it works on.
It holds its quota until it is gone, so nobody starts the earlier for it.
"""

from __future__ import annotations

from collections.abc import Iterable

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle.record import COMES_BACK, State, Workload
from sluice.core.lifecycle.run import NO_END, RunEnd
from sluice.core.migrations.checkpointing import Checkpoint
from sluice.core.migrations.migration import PodCheckpoint


def may_be_saved(workload: Workload) -> bool:
    """Whether it stops only to run again, and has done work that somebody else could save."""
    return (
        workload.state is State.RECLAIMING
        and not workload.gone
        and workload.intent is not None
        and workload.intent.kind in COMES_BACK
        and bool(workload.started_at)
        and driver_of(workload.options).dumps
    )


def run_entry(saved: Iterable[PodCheckpoint], made: Checkpoint) -> RunEnd:
    """What its run's entry in `runs` says of the dump from which its next run starts.

    The time from its last work to its end, in which it holds its place for nothing, is its own.
    Nothing where it works on after the dump: then the release counts that as lost.
    """
    held = [each.held_at for each in saved]
    if not all(held):
        return NO_END
    stopped = max(held)
    return RunEnd(stopped_at=stopped, lost_ms=max(0, stopped - made.at))
