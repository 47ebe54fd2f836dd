"""How long nothing ran because of a move, and what the account of the ended run says of it."""

from __future__ import annotations

from sluice.core.checkpoints.driver import WorkKept
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.checkpoints.fit import CheckpointAction
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.run import RunEnd
from sluice.core.migrations.interruption import NoticeKind
from sluice.core.migrations.migration import Migration


def downtime_ms(migration: Migration) -> int:
    """How long nothing ran: from the end of the source to the start of its successor."""
    return max(0, migration.running_at - stopped_at(migration)) if migration.running_at else 0


def paused_until(migration: Migration, workload: Workload) -> int:
    """When the next run may start: `recovery.onInterruption.backoff` after the end of this one.

    0 without a pause. Who asks for a move loses no machine, and does not wait.
    """
    pause = 1000 * (workload.options.recovery.backoff_seconds or 0)
    return stopped_at(migration) + pause if pause and migration.kind != NoticeKind.REQUEST else 0


def stopped_at(migration: Migration) -> int:
    """When the source did its last work; after a loss, the moment that EC2 names."""
    if migration.deadline <= migration.noticed_at:
        return migration.noticed_at
    held = [each.held_at for each in migration.saved.values()]
    if held and all(held):
        return max(held)
    # Who is told to go works on for as long as its grace lets it.
    return migration.fenced_at or migration.stopping_at or migration.restoring_at


def run_entry(migration: Migration, workload: Workload, good_at: int) -> RunEnd:
    """What the ended run's entry in `runs` says of the move (core.accounting.recovery).

    `good_at`: when the state was taken that its successor starts from, 0 if that is the beginning
    or the checkpoint that the run itself started from. What an application saved by itself, nobody
    else knows: also one that could not be dumped and was told to go.
    """
    stopped = stopped_at(migration)
    self_saved, lost_ms = False, None
    told_to_go = migration.action is CheckpointAction.SIGNAL and not (
        good_at or migration.checkpoint
    )
    if driver_of(workload.options).keeps is not WorkKept.BY_APPLICATION and told_to_go:
        self_saved = True
    elif driver_of(workload.options).keeps is not WorkKept.BY_APPLICATION:
        # A restore from an older generation's checkpoint loses no more than this run did.
        began = workload.started_at or stopped
        lost_ms = max(0, stopped - max(began, good_at))
    return RunEnd(
        node=migration.node,
        instance=migration.instance,
        why=migration.kind,
        interrupted_at=migration.noticed_at,
        stopped_at=stopped,
        lost_ms=lost_ms,
        self_saved=self_saved,
        # A user went back to a checkpoint: what came after it is done again.
        back_to=good_at if migration.checkpoint else None,
        usd_per_hour=migration.numbers.get("usd_per_hour"),
        on_demand_usd_per_hour=migration.numbers.get("on_demand_usd_per_hour"),
    )
