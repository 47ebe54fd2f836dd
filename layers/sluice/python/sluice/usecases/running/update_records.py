"""Marks in the records what the Jobs and pods of a cluster show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from sluice.core.accounting.recovery import was_migrated
from sluice.core.checkpoints.drivers import driver_of
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.job_assessment import assess_job, assess_missing_job
from sluice.core.config.pods_ready import PodsReadyRules
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import Change, State, Workload
from sluice.core.lifecycle.record_entries import NO_RESULT
from sluice.core.lifecycle.stuck_pods import warning
from sluice.core.migrations.pod_annotations import EVICT, FIRST, MIGRATE, checkpoint_result
from sluice.errors import ClusterError
from sluice.ports import Clock, Cluster, Commands, Document, Workloads
from sluice.usecases.migrations.migrate import Migrate
from sluice.usecases.migrations.record_checkpoint import RecordCheckpoint
from sluice.usecases.running.archive_logs import ArchiveLogs
from sluice.usecases.running.problems import Problems


@dataclass
class UpdateRecords:
    """Also does what follows from an end: logs, checkpoints and the timeline of a move."""

    workloads: Workloads
    commands: Commands
    clock: Clock
    migrate: Migrate
    logs: ArchiveLogs
    problems: Problems
    rules: Callable[[Workload], PodsReadyRules]
    """How long each workload may be without its pods."""
    known_checkpoints: set[tuple[str, str]] = field(default_factory=set)
    """(pod UID, token of the order) of the checkpoints that are in the catalogue."""

    def assess(
        self,
        cluster: Cluster,
        state: ClusterState,
        records: Iterable[Workload],
        missing: Iterable[Workload] = (),
    ) -> None:
        """Applies what the Jobs of `records` show, and that those of `missing` may be gone."""
        now = self.clock.now()
        changes = [c for w in records for c in assess_job(w, state, now, self.rules(w))]
        changes += [c for w in missing for c in assess_missing_job(w, state, now)]
        self.apply(cluster, state, changes)

    def apply(self, cluster: Cluster, state: ClusterState, changes: Sequence[Change]) -> None:
        if not changes:
            return
        ended = [change for change in changes if change.set.get("state") is State.FINISHED]
        for change in ended:  # before the record: the lease tells the next observer what is left
            self.logs.expect(change.before, change.set["finished_at"])
        for change in changes:  # before the record, which changes once: a crash repeats both
            if (at := began_at(change)) and was_migrated(change.before):
                self.migrate.resumed(change.before, at)
        self.workloads.apply(changes)
        for change in ended:
            self.logs.start(cluster, change.before, state)
            if change.set["result"].exit_code_counts:
                self.logs.keep_exit_codes(change.before, state)
            if change.set["result"].succeeded:
                self.migrate.catalog.drop_all(change.before)
                if driver_of(change.before.options).service:  # `act` alone may speak to it
                    self.commands.send(change.before.cluster, [change.before.id])

    def read_warnings(
        self, cluster: Cluster, state: ClusterState, records: Sequence[Workload]
    ) -> None:
        """Reads the events of pods that do not start: only they tell of volumes and sandboxes."""
        now = self.clock.now()
        for pod in state.list_slow_pods(records, now):
            metadata = pod["metadata"]
            field = f"involvedObject.uid={metadata['uid']}"
            try:
                events, _ = cluster.list("Event", field=field, namespace=metadata["namespace"])
            except ClusterError as error:  # a right that an older manifest did not give, say
                self.problems.report(error)
                return
            state.note_warning(pod, warning(events), now)

    def note_checkpoints(self, pods: Iterable[Document], state: ClusterState) -> None:
        """Adds checkpoints of running workloads to the catalogue; moves add their own."""
        for pod in pods:
            key, owner = checkpoint_outside_of_moves(pod), job_status.owner(pod)
            if key is None or owner is None or key in self.known_checkpoints:
                continue
            self.known_checkpoints.add(key)
            workload = self.workloads.get(owner[0])
            if workload is not None and workload.generation == owner[1]:
                record = RecordCheckpoint(self.migrate.catalog, self.migrate.timeline)
                record(workload, pod, state.pods_of(*owner))


def checkpoint_outside_of_moves(pod: Document) -> tuple[str, str] | None:
    """Pod UID and token of a finished checkpoint that no move or preemption ordered."""
    token = found[0] if (found := checkpoint_result(pod)) else ""
    if not token or token.startswith((FIRST, MIGRATE, EVICT)):
        return None
    return pod["metadata"]["uid"], token


def began_at(change: Change) -> int:
    """When the run began that a change tells of first (epoch ms); 0 if it tells of none.

    A short run may end before any observer saw its pods ready.
    """
    if "started_at" in change.set:
        return int(change.set["started_at"])
    succeeded = change.set.get("result", NO_RESULT).succeeded
    unseen = succeeded and not change.before.started_at
    return int(change.set["finished_at"]) if unseen else 0
