"""Watches one cluster for a while and marks in the records what it did."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.inventory import newest_by_node
from sluice.core.clusters.job_assessment import list_lost_commands, list_orphans
from sluice.core.jobs.table import EVERYWHERE, KINDS
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State, Workload
from sluice.errors import ClusterError
from sluice.ports import (
    Catalog,
    Clock,
    Cluster,
    Clusters,
    Commands,
    Document,
    Leases,
    LogArchive,
    Nodes,
    Prices,
    Workloads,
)
from sluice.usecases.admitting.submit import Submit
from sluice.usecases.configuration import cluster_spec
from sluice.usecases.fleet import beat
from sluice.usecases.migrations.migrate import Migrate
from sluice.usecases.migrations.placeholders import Placeholders
from sluice.usecases.running.archive_logs import RECENT_MS, ArchiveLogs
from sluice.usecases.running.cluster_events import DOOR, SELECTOR, ClusterEvents, Event
from sluice.usecases.running.count_nodes import CountNodes
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes
from sluice.usecases.running.kubernetes_door import KubernetesDoor
from sluice.usecases.running.observer_lease import LEASE_MS, ObserverLease
from sluice.usecases.running.order_checkpoints import OrderCheckpoints
from sluice.usecases.running.pods_ready import PodsReady
from sluice.usecases.running.problems import Problems
from sluice.usecases.running.update_records import UpdateRecords

NOT_FOUND = 404
RESEND_MS = 1_000  # how often moves are looked at: only time tells when a source has to stop
CHECK_MS = 10_000
LOG_THREADS = 8


@dataclass(frozen=True, kw_only=True)
class Observe:
    """Records follow the events of the cluster; a full comparison now and then repairs the rest."""

    workloads: Workloads
    catalog: Catalog
    clusters: Clusters
    commands: Commands
    nodes: Nodes
    leases: Leases
    clock: Clock
    migrate: Migrate
    update: UpdateRecords
    logs: ArchiveLogs
    count_nodes: CountNodes
    order_checkpoints: OrderCheckpoints
    problems: Problems
    door: KubernetesDoor

    def __call__(self, name: str, *, owner: str, until: int) -> None:
        """Observes until `until` (epoch ms), or just once if nothing of ours is on the cluster.

        Raises ClusterError when the cluster does not answer; records then stay as they are.
        """
        lease = ObserverLease(
            leases=self.leases,
            clock=self.clock,
            cluster=name,
            owner=owner,
            until=until,
            logs=self.logs,
        )
        archived = lease.take()
        try:
            cluster = self.clusters.cluster(name)
            state, versions, records = self.reconcile(name, cluster)
            beat(self.nodes, name, self.clock.now())
            waiting = self.door.look(name, cluster)
            if state.jobs or self.workloads.active(name) or self.door.busy:
                self.logs.start_recent(cluster, state, records, archived)
                due = self.order_checkpoints(name, records, state)
                self.watch(name, cluster, state, (versions, waiting), due, lease)
        finally:
            lease.release()

    def watch(
        self,
        name: str,
        cluster: Cluster,
        state: ClusterState,
        versions: tuple[Mapping[str, str], Mapping[str, str]],
        due: Mapping[str, int],
        lease: ObserverLease,
    ) -> None:
        """Follows the events; now and then looks for what no event tells.

        `versions`: where the watches start, of what runs and of what stands at the door.
        `due`: when each workload is to be checkpointed next (epoch ms).
        """
        until, ended = lease.until, lease.ended
        events = ClusterEvents(
            cluster=cluster, clock=self.clock, until=until, ended=ended, problems=self.problems
        )
        events.follow(*versions)
        checked = resent = self.clock.now()
        counted = 0
        while (now := self.clock.now()) < until and not ended.is_set():
            self.mark(name, cluster, state, events.take())
            urgent = state.list_urgent()
            if urgent and now - resent > RESEND_MS:
                self.commands.send(name, urgent)
                resent = now
            if state.uncounted and now - counted > RESEND_MS:
                # At once: a notice of the end of an unknown machine would find no workload.
                self.count_nodes(name, cluster, state, now)
                counted = now
            if now - checked > CHECK_MS:
                due = self.check(name, cluster, state)
                checked = now
            elif late := [workload_id for workload_id, at in due.items() if at <= now]:
                later = {i: at for i, at in due.items() if at > now}
                records = self.workloads.get_many(late)
                due = later | self.order_checkpoints(name, records, state)
        ended.set()
        # Events that came until then count too; the next observer would find them by its list.
        while (rest := events.take(wait=0)) and self.clock.now() < until + LEASE_MS:
            self.mark(name, cluster, state, rest)

    def reconcile(
        self, name: str, cluster: Cluster
    ) -> tuple[ClusterState, dict[str, str], Iterable[Workload]]:
        """Compares all records of the cluster with all its Jobs; repairs what an event lost.

        The records are read before the Jobs: a Job that a record names and the list lacks is gone.
        Returns the state, the version of each kind from which to watch, and the records as read.
        """
        records = self.workloads.get_many(self.workloads.active(name))
        kinds = cluster_spec(self.catalog.snapshot(), name).kinds | {w.kind for w in records}
        state, versions = list_objects(cluster, kinds)
        known = {w.id: w for w in records}
        state.forget_ended(known, self.clock.now() - RECENT_MS)
        state.node_rows = newest_by_node(self.nodes.of(name))
        self.update.read_warnings(cluster, state, records)
        unknown = [i for i in state.workload_ids() if i not in known]
        known |= {w.id: w for w in self.workloads.get_many(unknown)}
        self.update.assess(cluster, state, known.values(), missing=records)
        self.delete_orphans(cluster, state, known)
        self.resend(name, records, state)
        pods = [pod for pods in state.pods.values() for pod in pods.values()]
        self.update.note_checkpoints(pods, state)
        Placeholders(self.workloads, self.clock).remove_unused(cluster)
        self.count_nodes(name, cluster, state, self.clock.now())
        return state, versions, known.values()

    def check(self, name: str, cluster: Cluster, state: ClusterState) -> dict[str, int]:
        """Looks for what only time tells: late pods, lost commands, new nodes.

        Returns when each workload is to be checkpointed next (epoch ms).
        """
        records = self.workloads.get_many(self.workloads.active(name))
        self.update.read_warnings(cluster, state, records)
        self.update.assess(cluster, state, records)
        self.resend(name, records, state)
        due = self.order_checkpoints(name, records, state)
        Placeholders(self.workloads, self.clock).remove_unused(cluster)
        self.count_nodes(name, cluster, state, self.clock.now())
        self.logs.start_remaining(cluster, state, self.workloads.get_many)
        return due

    def mark(
        self, name: str, cluster: Cluster, state: ClusterState, events: Sequence[Event]
    ) -> None:
        """Assesses only the workloads whose Jobs the events have changed."""
        at_door = [(change, job) for change, kind, job in events if kind == DOOR]
        events = [event for event in events if event[1] != DOOR]
        keys = {state.update(kind, change, document) for change, kind, document in events}
        pods = [(change, pod) for change, kind, pod in events if kind == "Pod"]
        self.update.note_checkpoints([pod for _, pod in pods], state)
        self.logs.start_last(cluster, [pod for change, pod in pods if change != "DELETED"])
        changed = [key[0] for key in keys if key and state.has_changed(key)]
        if not changed:
            self.door.follow(name, cluster, at_door)
            return
        records = self.workloads.get_many(changed)
        started = self.clock.now()
        # A Job that was never seen may be too new; only a deletion that was seen counts here.
        deleted = {job["metadata"]["uid"] for change, _, job in events if change == "DELETED"}
        missing = [w for w in records if w.uid in deleted]
        self.update.assess(cluster, state, records, missing)
        self.logs.start_recent(cluster, state, records, started - CHECK_MS)  # `act` ended some
        stopping = [w.id for w in records if w.object and w.state is State.RECLAIMING]
        if stopping:  # its pods and its controller's word prove the end; `act` looks at both
            self.commands.send(name, stopping)
        self.door.follow(name, cluster, at_door)  # after those that ended and were deleted then

    def delete_orphans(
        self, cluster: Cluster, state: ClusterState, known: Mapping[str, Workload]
    ) -> None:
        """Deletes Jobs that no record wants."""
        # Read again: a record from before the list may be older than the Job it is compared with.
        suspects = {key for job in list_orphans(known, state) if (key := job_status.owner(job))}
        current = self.workloads.get_many(workload_id for workload_id, _ in suspects)
        for job in list_orphans({w.id: w for w in current}, state, only=suspects):
            metadata = job["metadata"]
            cluster.delete(
                job["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )

    def resend(self, name: str, records: Sequence[Workload], state: ClusterState) -> None:
        """Sends commands again that were lost, and those of workloads that need one each second."""
        lost = list_lost_commands(records, state, self.clock.now())
        if workloads := list(dict.fromkeys([*lost, *state.list_urgent()])):
            self.commands.send(name, workloads)


def compose_observe(
    *,
    workloads: Workloads,
    catalog: Catalog,
    clusters: Clusters,
    commands: Commands,
    nodes: Nodes,
    archive: LogArchive,
    leases: Leases,
    prices: Prices,
    clock: Clock,
    migrate: Migrate,
    order_checkpoints: OrderCheckpoints,
    detect_lost_nodes: DetectLostNodes,
    submit: Submit,
    pool: ThreadPoolExecutor | None = None,
) -> Observe:
    """The use case with its parts, which share the archive of logs and the list of problems."""
    problems = Problems()
    logs = ArchiveLogs(
        archive=archive,
        clock=clock,
        problems=problems,
        pool=pool or ThreadPoolExecutor(LOG_THREADS),
    )
    return Observe(
        workloads=workloads,
        catalog=catalog,
        clusters=clusters,
        commands=commands,
        nodes=nodes,
        leases=leases,
        clock=clock,
        migrate=migrate,
        update=UpdateRecords(
            workloads=workloads,
            commands=commands,
            clock=clock,
            migrate=migrate,
            logs=logs,
            problems=problems,
            rules=PodsReady(catalog, clock),
        ),
        logs=logs,
        count_nodes=CountNodes(nodes=nodes, prices=prices, detect_lost=detect_lost_nodes),
        order_checkpoints=order_checkpoints,
        problems=problems,
        door=KubernetesDoor(submit=submit, workloads=workloads, clock=clock, problems=problems),
    )


def list_objects(
    cluster: Cluster, kinds: Collection[str] = EVERYWHERE
) -> tuple[ClusterState, dict[str, str]]:
    """Our objects on the cluster, and from which version to watch each kind that it knows.

    `kinds` are those that the cluster should have, and those of its records.
    """
    state, versions = ClusterState(), dict[str, str]()
    for kind in (*(kind for kind in KINDS if kind in kinds), "Pod"):
        documents, version = list_kind(cluster, kind)
        if version:
            versions[kind] = version
        for document in documents:
            state.update(kind, "ADDED", {"kind": kind, **document})
    return state, versions


def list_kind(cluster: Cluster, kind: str) -> tuple[list[Document], str]:
    """Our objects of a kind and the version to watch from; no version if the kind is unknown."""
    try:
        return cluster.list(kind, selector=SELECTOR)
    except ClusterError as error:
        if error.status == NOT_FOUND and kind in KINDS and not KINDS[kind].built_in:
            return [], ""  # its controller is not installed
        raise
