"""What a move needs next, from its record and from what its cluster shows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum

from sluice.core.checkpoints.fit import FREEZE_MS, LEAD_MS, CheckpointAction, needs_and_has
from sluice.core.migrations.checkpointing import Checkpoint
from sluice.core.migrations.interruption import STAYS
from sluice.core.migrations.lasting_failures import lasting_cause
from sluice.core.migrations.migration import (
    Migration,
    MigrationStep,
    PodCheckpoint,
    Stage,
    called_off,
    dump_failed,
    dumped,
    first_failed,
    first_saved,
    first_taken,
    last_failed,
    last_ordered,
    replaced,
)


class SourceStep(StrEnum):
    """What the source needs next."""

    WAIT = "wait"
    STOP = "stop"


@dataclass(frozen=True, slots=True)
class SourceView:
    """What the cluster shows of a move: pod → its checkpoint, or why there is none.

    Both by the order that the move has given last. `pods`: those that may still execute anything.
    """

    saved: Mapping[str, PodCheckpoint] = field(default_factory=dict)
    failed: Mapping[str, str] = field(default_factory=dict)
    pods: frozenset[str] = frozenset()
    replacement_ready: bool = False
    still_running: bool = True


def progress(migration: Migration, view: SourceView, now: int) -> list[MigrationStep]:
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


def _answered(migration: Migration, view: SourceView, now: int) -> MigrationStep | None:
    """What became of the dump that is under way; None while it is not known."""
    if migration.pods and all(pod in view.saved for pod in migration.pods):
        saved = {pod: view.saved[pod] for pod in migration.pods}
        end = dumped if migration.last_at else first_saved
        return end(migration, saved, now)
    why = _why_not_dumped(migration, view, now)
    if not why:
        return None
    if migration.may_be_called_off:
        return called_off(migration, why, now)
    if migration.first:
        return last_failed(migration, why, now)
    if not migration.last_at and (meaning := lasting_cause(why)):
        return dump_failed(migration, f"{why}; it is not dumped again: {meaning}", now)
    tried = migration.last_at or now >= migration.give_up_at
    return (dump_failed if tried else first_failed)(migration, why, now)


def once_more(migration: Migration, now: int) -> MigrationStep | None:
    """Whether who was saved, or could not be, is saved again now; None while it works on.

    When its replacement is ready, or when no more time is left than another dump needs. If that
    does not fit, or would hold it for longer than it has worked since the first, the first does.
    """
    first = migration.first.values()
    expected = int(migration.numbers.get("needs_ms", 0))
    needs = FREEZE_MS + max(one.took_ms for one in first) if first else expected
    has = migration.give_up_at - now
    if not migration.replacement_at and has > needs + LEAD_MS:
        return None
    if first and migration.replacement_at:
        worked = now - min(one.at or migration.first_at for one in first)
        if worked <= needs:
            why = f"{worked / 1000:.1f} s of work since its dump, less than another would take"
            return first_taken(migration, f"its replacement is ready; {why}", now)
    why = "its replacement is ready" if migration.replacement_at else "no replacement is ready"
    why = f"{why}; {needs_and_has(needs, has)}"
    if needs <= has:
        return last_ordered(migration, f"{why}: dump", now)
    if first:
        return first_taken(migration, f"{why}: it goes on from its first dump", now)
    return dump_failed(migration, f"{why}: it is not dumped again", now)


def _why_not_dumped(migration: Migration, view: SourceView, now: int) -> str:
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


def next_step(migration: Migration, view: SourceView, now: int) -> SourceStep:
    """Whether the source may still run.

    One that is saved for the last time stops at once, since what it does afterwards is lost or done
    twice. Otherwise it works on until its replacement is ready, or until its grace is all the time
    that is left.
    """
    if migration.stopping_at or not view.still_running or now >= migration.give_up_at:
        return SourceStep.STOP
    if migration.action is CheckpointAction.DUMP:
        return SourceStep.STOP if migration.stage is Stage.DUMPED else SourceStep.WAIT
    stays = migration.kind in STAYS  # no machine goes away, so nothing is bought for it
    return (
        SourceStep.STOP
        if stays or migration.replacement_at or view.replacement_ready
        else SourceStep.WAIT
    )


def restore_source(migration: Migration | None, made: Checkpoint | None, last: str) -> str:
    """The checkpoint that the next generation starts from: the new one, or the last good one.

    `made`: what the move itself has saved and entered in the catalogue.
    """
    if migration is not None and migration.checkpoint:
        return migration.checkpoint  # the one that a user asked for
    return made.source if made is not None else last
