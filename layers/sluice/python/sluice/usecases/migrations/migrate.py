"""Carry moves on: stop the source when it is time, and start its successor when it is gone."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.core.accounting import recovery
from sluice.core.checkpoints.fit import CheckpointAction
from sluice.core.clusters.fallback import INTERRUPTIONS
from sluice.core.intake.replacement import ready
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import (
    Change,
    Intent,
    IntentKind,
    State,
    Workload,
    after,
)
from sluice.core.lifecycle.run import NO_END
from sluice.core.migrations import (
    decisions,
    downtime,
    gangs,
    migration,
    migration_timeline,
    restoring,
    victim_checkpoint,
)
from sluice.core.migrations.checkpointing import Checkpoint
from sluice.core.migrations.decisions import SourceStep, SourceView
from sluice.core.migrations.interruption import NoticeKind
from sluice.core.migrations.lasting_failures import lasting_restore_cause
from sluice.core.migrations.migration import Migration, PodCheckpoint, migration_id
from sluice.core.migrations.pod_annotations import (
    DONE,
    EVICT,
    LEAVING,
    MIGRATE,
    ORDER,
    annotations_of,
    order_of,
    result_of_order,
)
from sluice.core.values.reasons import Reason
from sluice.ports import (
    Archives,
    Clock,
    Cluster,
    Document,
    Migrations,
    Nodes,
    Timeline,
    Workloads,
)
from sluice.usecases.migrations import pod_writer
from sluice.usecases.migrations.checkpoint_catalog import CheckpointCatalog
from sluice.usecases.migrations.migration_steps import record_step
from sluice.usecases.migrations.placeholders import list_placeholders
from sluice.usecases.migrations.pods_of_run import pods_of
from sluice.usecases.migrations.stop_run import stop

DUMPED_GRACE_SECONDS = 1
"""What is left of a process after its dump is lost anyway, so it is ended at once."""


@dataclass(frozen=True, kw_only=True)
class Migrate:
    """Level-triggered like `act`: looks at record and cluster, and does what is due."""

    workloads: Workloads
    migrations: Migrations
    archives: Archives
    timeline: Timeline
    nodes: Nodes
    clock: Clock

    @property
    def catalog(self) -> CheckpointCatalog:
        return CheckpointCatalog(
            workloads=self.workloads,
            migrations=self.migrations,
            archives=self.archives,
            nodes=self.nodes,
        )

    def __call__(
        self, cluster: Cluster, moving: Iterable[Workload], leaving: Collection[str] = ()
    ) -> list[str]:
        """Returns the ids of those that are admitted again and wait to be dispatched.

        Those in `leaving` go back to their queues if EC2 has taken their machine.
        """
        return [w.id for w in moving if self.carry_on(cluster, w, leaves=w.id in leaving)]

    def carry_on(self, cluster: Cluster, workload: Workload, *, leaves: bool = False) -> bool:
        record = self.migrations.get(migration_id(workload.id, workload.generation))
        if record is not None and record.called_off and not self.begun_by_record(workload):
            record = None  # of an earlier request; this migration has another cause
        if record is not None:
            record, step = self.look_after(cluster, workload, record)
            if record.called_off:
                self.call_off(cluster, workload)
                return False
            if not workload.gone and step is SourceStep.WAIT:
                return False
        if not workload.gone:
            stopped = self.stop(cluster, workload, record)
            if stopped is None:
                return False
            workload = stopped
        return self.move(workload, record, leaves=leaves)

    def begun_by_record(self, workload: Workload) -> bool:
        """Whether the migration was begun together with its record (usecases.interrupt)."""
        intent = workload.intent
        return intent is not None and intent.reason == Reason.WAITING_FOR_REPLACEMENT

    def call_off(self, cluster: Cluster, workload: Workload) -> None:
        """It could not be saved and nobody needs its machine, so it keeps running.

        The orders go first: those of a notice that comes once it runs again are to stay.
        """
        for pod in pods_of(cluster, workload):
            pod_writer.annotate(cluster, pod, {ORDER: None, LEAVING: None, DONE: None})
        self.workloads.apply([lifecycle.call_off_migration(workload)])

    def look_after(
        self, cluster: Cluster, workload: Workload, record: Migration
    ) -> tuple[Migration, SourceStep]:
        """Record what is to be seen of a source, give it its order; and whether it may run on."""
        pods = [] if workload.gone else pods_of(cluster, workload)
        view = look(cluster, workload, pods, order_of(record))
        for step in decisions.progress(record, view, self.clock.now()):
            self.keep_early(workload, step)
            record = self.advance(workload, step)
        if record.dumps:
            demand(cluster, pods, record)
        if record.failed_at and record.action is CheckpointAction.SIGNAL and len(record.pods) > 1:
            recall(cluster, pods)
        return record, decisions.next_step(record, view, self.clock.now())

    def end(self, cluster: Cluster, workload: Workload, record: Migration | None) -> Change | None:
        """Stop the source, at once if it is saved; the proof that nothing of it runs, if any."""
        if record is not None and not record.stopping_at:
            record = self.advance(workload, migration.stopping(record, self.clock.now()))
        saved = record is not None and record.stage is migration.Stage.DUMPED
        return stop(cluster, workload, self.clock.now(), DUMPED_GRACE_SECONDS if saved else None)

    def stop(
        self, cluster: Cluster, workload: Workload, record: Migration | None
    ) -> Workload | None:
        """End the source; its record if that is proven, None while it is not."""
        change = self.end(cluster, workload, record)
        if change is None or self.workloads.apply([change]) != [True]:
            return None
        if change.set.get("state") is State.FINISHED:
            if record is not None:
                self.advance(
                    workload, migration.abandoned(record, "it ended before it had to move")
                )
            return None
        return after(change)

    def move(self, workload: Workload, record: Migration | None, *, leaves: bool = False) -> bool:
        """The source is gone: the next generation takes over reservation and checkpoint.

        One that `leaves` takes over the checkpoint only. False while it has to wait.
        """
        now, until = self.clock.now(), 0
        if restoring.unusable(workload):
            self.catalog.note_failed_restore(workload)
        kept = self.migrations.checkpoints(workload.id)
        last = restoring.next_source(workload, kept, gangs.members(workload))
        end = NO_END
        if record is not None:
            made = self.keep_dump(workload, record)
            source = decisions.restore_source(record, made, last)
            kept += [made] if made else []
            record = self.advance(workload, migration.fenced(record, now))
            until = downtime.paused_until(record, workload)
            now = max(self.clock.now(), now + 1)  # the timeline sorts by time
            end = downtime.run_entry(record, workload, good_at(source, kept))
        else:
            source = last
            if restoring.unusable(workload):
                self.tell_next(workload, source, now)
                end = restoring.run_entry(workload, source, kept)
        if leaves and record is not None and record.kind in INTERRUPTIONS:
            why = "it lost spot machines too often: back in its queue, on-demand flavors first"
            intent = Intent(
                IntentKind.REQUEUE,
                Reason.INSUFFICIENT_INSTANCE,
                why,
                not_before=until,
                account=end,
            )
            if self.workloads.apply([lifecycle.leave_spot(workload, source, intent)]) == [True]:
                self.advance(workload, migration.restoring(record, source, now))
            return False
        if until > now:
            self.pause(workload)
            return False
        moved = self.workloads.apply([lifecycle.migrate(workload, source, now, end)]) == [True]
        if moved and record is not None:
            self.advance(workload, migration.restoring(record, source, now))
        return moved

    def tell_next(self, workload: Workload, source: str, now: int) -> None:
        why = workload.intent.message if workload.intent else ""
        if source == workload.restore_from:
            what = "it is tried once more"
        else:
            what = f"generation {workload.generation + 1} starts from {source or 'the beginning'}"
            if cause := lasting_restore_cause(why):
                what = f"{cause}, so it is not tried again; {what}"
        text = f"could not start from {workload.restore_from}: {what}; {why}"
        self.timeline.append([Happening(workload, now, "RestoreFailed", text)])

    def pause(self, workload: Workload) -> None:
        """Say once why it does not run; `observe` asks again every few seconds."""
        if workload.reason.code != Reason.BACKOFF_UNTIL:
            pause = workload.options.recovery.backoff_seconds
            message = f"it keeps its quota, and runs again {pause} s after it was interrupted"
            self.workloads.apply([lifecycle.hinder(workload, Reason.BACKOFF_UNTIL, message)])

    def keep_dump(self, workload: Workload, record: Migration) -> Checkpoint | None:
        """Enter what a move has saved in the catalogue; None if there is nothing to start from."""
        if record.stage is not migration.Stage.DUMPED:
            return None
        at = record.dumped_at or record.first_at
        made = self.catalog.describe(workload, record.saved.values(), record.driver, at)
        return made if made is not None and self.catalog.enter(workload, made) else None

    def keep_early(self, workload: Workload, step: migration.MigrationStep) -> None:
        """Enter a dump in the catalogue before it is recorded: a crash between repeats it.

        A first one, so that it counts whatever becomes of the move, and stays until the last one
        is entered; and that of who makes room, which is not moved once it is gone.
        """
        yields = step.before.kind == NoticeKind.EVICTION
        saved = step.set.get("saved" if yields else "first")
        if not saved:
            return
        at = step.set.get("dumped_at") or step.set["first_at"]
        made = self.catalog.describe(workload, saved.values(), step.before.driver, at)
        if made is not None and self.catalog.enter(workload, made) and yields:
            end = victim_checkpoint.run_entry(saved.values(), made)
            self.workloads.apply([lifecycle.note_run_end(workload, end)])

    def resumed(self, workload: Workload, at: int) -> None:
        """The generation after a move runs: the account of the move is closed.

        Told in full once more, for the lines of a Lambda that died after a step and before its
        word; so this may be called again, until the workload itself is marked as started.
        """
        runs = recovery.undone(workload.runs)
        while runs and runs[-1].why == restoring.RESTORE:
            runs.pop()  # the same move, still: its checkpoint was no good
        moved = runs[-1].generation if runs else workload.generation - 1
        record = self.migrations.get(migration_id(workload.id, moved))
        if record is None or record.stage is migration.Stage.LOST:
            return
        if record.stage is not migration.Stage.RUNNING:
            if not record.restoring_at:
                moved_at = runs[-1].ended_at
                step = migration.restoring(record, workload.restore_from, moved_at)
                record = self.advance(workload, step)
            run = runs[-1]
            told: dict[str, Any] = {} if run.lost_ms is None else {"lost_ms": run.lost_ms}
            if saved := recovery.saved_usd(run):
                told["saved_usd"] = saved
            record = self.advance(workload, migration.running(record, at, told))
        self.timeline.append(list(migration_timeline.timeline_events(record, workload)))

    def advance(self, workload: Workload, step: migration.MigrationStep) -> Migration:
        return record_step(self.migrations, self.timeline, workload, step)


def good_at(source: str, kept: Sequence[Checkpoint]) -> int:
    """When the state was taken that the next generation starts from; 0 for none that is known."""
    return next((each.at for each in kept if each.source == source), 0)


def look(cluster: Cluster, workload: Workload, pods: Sequence[Document], order: str) -> SourceView:
    """What the cluster shows of a move; an answer to another order is no part of this dump."""
    answers = {pod["metadata"]["name"]: result_of_order(order, pod) for pod in pods}
    return SourceView(
        saved={name: each for name, each in answers.items() if isinstance(each, PodCheckpoint)},
        failed={name: each for name, each in answers.items() if isinstance(each, str)},
        replacement_ready=ready(list_placeholders(cluster, workload)),
        pods=frozenset(answers),
        still_running=bool(pods),
    )


def demand(cluster: Cluster, pods: Iterable[Document], record: Migration) -> None:
    """Every pod of the migration bears the order that its record names."""
    annotations = {LEAVING: str(record.deadline), ORDER: order_of(record)}
    for pod in pods:
        named = pod["metadata"]["name"] in record.pods
        if named and annotations_of(pod).get(ORDER) != annotations[ORDER]:
            pod_writer.annotate(cluster, pod, annotations)


def recall(cluster: Cluster, pods: Iterable[Document]) -> None:
    """Members that are held since their dump run on: without the others' it is worth nothing.

    The node lets a pod without its order go.
    """
    for pod in pods:
        if annotations_of(pod).get(ORDER, "").startswith((MIGRATE, EVICT)):
            pod_writer.annotate(cluster, pod, {ORDER: None})
