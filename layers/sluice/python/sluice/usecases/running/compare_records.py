"""Compares some records of a cluster with what the cluster shows, and repairs what events lost."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.job_assessment import list_lost_commands, list_orphans
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State, Workload
from sluice.ports import Clock, Cluster, Workloads
from sluice.usecases.running.archive_logs import ArchiveLogs
from sluice.usecases.running.observed_cluster import ObservedCluster, load
from sluice.usecases.running.order_checkpoints import OrderCheckpoints
from sluice.usecases.running.update_records import UpdateRecords

PAGE = 500
"""Records of one look; 3 MB, and a second of a function of 512 MB."""
SLACK_MS = 120_000
"""As long as a list may take, and more than clocks differ."""


@dataclass(frozen=True, kw_only=True)
class CompareRecords:
    workloads: Workloads
    clock: Clock
    update: UpdateRecords
    logs: ArchiveLogs
    order_checkpoints: OrderCheckpoints

    def __call__(
        self, name: str, cluster: Cluster, view: ObservedCluster, ids: Sequence[str], archived: int
    ) -> list[str]:
        """Returns the workloads whose command is to be sent again.

        `archived`: up to which end (epoch ms) logs are known to be kept.
        """
        state = view.state
        found = self.workloads.get_many(ids)
        self.load_ended_pods(cluster, view, found, archived)
        here = [w for w in found if w.cluster == name]
        view.kinds.update(w.kind for w in here)
        self.update.read_warnings(cluster, state, here)
        self.update.assess(cluster, state, found, missing=missing(cluster, state, here))
        self.delete_orphans(cluster, state, ids, {w.id: w for w in found})
        self.logs.start_recent(cluster, state, found, archived)
        due = self.order_checkpoints(name, here, state)
        view.watchlist.note(ids, found, name, state, due)
        return list_lost_commands(here, state, self.clock.now())

    def load_ended_pods(
        self, cluster: Cluster, view: ObservedCluster, records: Sequence[Workload], archived: int
    ) -> None:
        """The lists left out pods that have ended; they tell the result and print the logs."""
        wanted = [
            w.id
            for w in records
            if w.id not in view.complete
            and w.dispatched_at < view.listed_at + SLACK_MS  # of later ones the watch told all
            and counts_ended_pods(w, view.state, archived)
        ]
        if wanted:
            pods = load(cluster, view.state, "Pod", wanted)
            self.update.note_checkpoints(pods, view.state)
            view.complete.update(wanted)

    def delete_orphans(
        self,
        cluster: Cluster,
        state: ClusterState,
        ids: Sequence[str],
        known: Mapping[str, Workload],
    ) -> None:
        """Deletes Jobs that no record wants."""
        # Read again: a record from before the list may be older than the Job it is compared with.
        suspects = {
            key[0] for job in list_orphans(ids, known, state) if (key := job_status.owner(job))
        }
        current = {w.id: w for w in self.workloads.get_many(suspects)} if suspects else {}
        for job in list_orphans(sorted(suspects), current, state):
            metadata = job["metadata"]
            cluster.delete(
                job["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )


def counts_ended_pods(workload: Workload, state: ClusterState, archived: int) -> bool:
    """Whether pods that ended before the list may say something that its record does not."""
    if workload.state is State.FINISHED:
        return workload.finished_at >= archived  # their logs
    if workload.state not in (State.DISPATCHED, State.RECLAIMING):
        return False
    job = state.jobs.get((workload.id, workload.generation))
    undisturbed = workload.state is State.DISPATCHED and workload.started_at
    return job is not None and not (undisturbed and job_status.outcome(job) is None)


def missing(cluster: Cluster, state: ClusterState, records: Sequence[Workload]) -> list[Workload]:
    """Records of this cluster whose Jobs the state lacks, asked for by name once more.

    The records were read before that answer: a Job that one of them names and the answer lacks is
    gone, whatever the watches have not told yet.
    """
    suspects = [w for w in records if lacks_job(w, state)]
    for kind in dict.fromkeys([*(w.kind for w in suspects), *(["Pod"] if suspects else [])]):
        load(cluster, state, kind, [w.id for w in suspects if kind in ("Pod", w.kind)])
    return [w for w in suspects if lacks_job(w, state)]


def lacks_job(workload: Workload, state: ClusterState) -> bool:
    if workload.state not in (State.DISPATCHED, State.RECLAIMING) or workload.gone:
        return False
    job = state.jobs.get((workload.id, workload.generation))
    return job is None or bool(workload.uid and job["metadata"]["uid"] != workload.uid)
