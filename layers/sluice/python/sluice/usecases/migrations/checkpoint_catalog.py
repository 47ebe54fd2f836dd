"""The checkpoints of a workload: entered when they are whole, and removed with their archives."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import State, Workload
from sluice.core.migrations import checkpointing
from sluice.core.migrations.checkpointing import Checkpoint, SaveFailure
from sluice.core.migrations.migration import PodCheckpoint, whole_checkpoint
from sluice.errors import SluiceError
from sluice.ports import Archives, Migrations, Nodes, Workloads

MOST_WORDS = 1_000
MOST_PIECES = 512
"""Archives in the catalogue of one workload, some 300 bytes each, of the 400 kB of an item."""


@dataclass(frozen=True, kw_only=True)
class CheckpointCatalog:
    """Every method may be repeated; what fails to be removed is tried again later."""

    workloads: Workloads
    migrations: Migrations
    archives: Archives
    nodes: Nodes

    def describe(
        self,
        workload: Workload,
        saved: Iterable[PodCheckpoint],
        driver: CheckpointMode,
        otherwise_at: int = 0,
    ) -> Checkpoint | None:
        """The checkpoint of a pod or a whole gang, with the CPUs that can run it; else None."""
        cpus = {row.node: row.cpu for row in self.nodes.of(workload.cluster)}
        return whole_checkpoint(workload, saved, driver, cpus, otherwise_at)

    def enter(self, workload: Workload, made: Checkpoint) -> bool:
        """Whether the catalogue names it now: only then is it there as a whole."""
        self.migrations.keep(
            made, retain=retain(workload, len(made.pieces)), pinned=workload.restore_from
        )
        self.remove_dropped(workload.id)
        if made.uri not in {each.uri for each in self.migrations.checkpoints(workload.id)}:
            return False
        if made.at > workload.checkpoint_at:  # else a migration's own was taken meanwhile
            self.workloads.apply([lifecycle.saved(workload, made.at, made.source)])
        return True

    def refuse(self, workload: Workload, at: int, why: str) -> None:
        """It could not be saved when that was tried last."""
        self.migrations.refuse(workload.id, SaveFailure(at, workload.generation, why[:MOST_WORDS]))

    def cpu_of_source(self, workload: Workload) -> str:
        """On which machines a run can start from its checkpoint; empty: on any.

        Members of a gang have theirs one by one (usecases.migrations.restore_gang_members).
        """
        if not (workload.restore_from and driver_of(workload.options).dumps):
            return ""
        kept = self.migrations.checkpoints(workload.id)
        return next((each.cpu for each in kept if each.source == workload.restore_from), "")

    def note_failed_restore(self, workload: Workload) -> None:
        """Before the successor's source is chosen: a crash between the two repeats it."""
        why = workload.intent.message if workload.intent else ""
        source, generation = workload.restore_from, workload.generation
        self.migrations.fail(workload.id, source, generation, why)

    def remove_dropped(self, workload_id: str) -> None:
        """Remove the archives of what has left the catalogue."""
        removed = []
        for checkpoint in self.migrations.dropped(workload_id):
            try:
                self.archives.remove(checkpoint)
            except SluiceError:
                continue
            removed.append(checkpoint)
        if removed:
            self.migrations.forget(workload_id, removed)

    def drop_all(self, workload: Workload) -> None:
        """After a success nothing is restored; a failed workload keeps its checkpoints."""
        if not driver_of(workload.options).dumps:
            return
        current = self.workloads.get(workload.id)
        if current is not None and current.state is State.FINISHED:  # else the mark lost its race
            self.migrations.drop(workload.id)
            self.remove_dropped(workload.id)


def retain(workload: Workload, pieces: int = 1) -> int:
    """How many checkpoints stay listed; fewer of large sets, for which an entry has no room."""
    policy = workload.options.checkpoint
    asked = (policy.retain if policy else None) or checkpointing.KEPT
    return min(asked, max(1, MOST_PIECES // pieces))
