"""Watch one cluster for a while and mark in the records what it did."""

from __future__ import annotations

import queue
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sluice.core import job_status
from sluice.core.observation import (
    Seen,
    disappeared,
    judge,
    node_row,
    orphans,
    unfinished_business,
)
from sluice.core.workload import Change, State, Workload
from sluice.errors import ClusterError
from sluice.ports import (
    Clock,
    Cluster,
    Clusters,
    Commands,
    Document,
    Leases,
    LogArchive,
    Nodes,
    Workloads,
)

OURS = f"{job_status.WORKLOAD_LABEL}"
WATCHED = ("Job", "Pod")
TICK_SECONDS = 0.1
RECONCILE_MS = 10_000
LEASE_MS = 8_000
LOG_BYTES = 10_000_000
RECENT_MS = 300_000
REMEMBERED = 20_000


@dataclass(frozen=True)
class Observe:
    workloads: Workloads
    clusters: Clusters
    commands: Commands
    nodes: Nodes
    archive: LogArchive
    leases: Leases
    clock: Clock
    pods_ready_ms: int = 900_000
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    archived: dict[tuple[str, int], None] = field(default_factory=dict)  # oldest first

    def __call__(self, name: str, *, owner: str, until: int) -> None:
        """Observes until `until` (epoch ms) or until nothing of ours is left on the cluster.

        Raises ClusterError when the cluster does not answer; records then stay as they are.
        """
        if not self.hold_lease(name, owner):
            return  # somebody else is watching
        cluster = self.clusters.cluster(name)
        seen = self.reconcile(name, cluster)
        if not seen.jobs and not self.workloads.active(name):
            self.leases.acquire(name, owner, now=self.clock.now(), until=0)
            return
        self.archive_recent(cluster, seen)
        events: queue.SimpleQueue[tuple[str, str, Document]] = queue.SimpleQueue()
        stop = threading.Event()
        watchers = [
            threading.Thread(
                target=self.follow, args=(cluster, kind, seen, events, until, stop), daemon=True
            )
            for kind in WATCHED
        ]
        for watcher in watchers:
            watcher.start()
        reconciled = self.clock.now()
        try:
            while (now := self.clock.now()) < until and not stop.is_set():
                self.mark(cluster, seen, drain(events))
                if now - reconciled > RECONCILE_MS:
                    if not self.hold_lease(name, owner):
                        break
                    self.reconcile(name, cluster, seen)
                    reconciled = now
                elif now - reconciled > LEASE_MS // 2:
                    self.hold_lease(name, owner)
        finally:
            stop.set()
            self.leases.acquire(name, owner, now=self.clock.now(), until=0)

    def hold_lease(self, name: str, owner: str) -> bool:
        now = self.clock.now()
        return self.leases.acquire(name, owner, now=now, until=now + LEASE_MS)

    def reconcile(self, name: str, cluster: Cluster, seen: Seen | None = None) -> Seen:
        """Compare all records of the cluster with all its Jobs; repairs whatever an event lost.

        The records are read before the Jobs: a Job that a record names and the list lacks is gone.
        """
        records = self.workloads.get_many(self.workloads.active(name))
        jobs, versions = [], {}
        for kind in ("Job",):
            found, versions[kind] = cluster.list(kind, selector=OURS)
            jobs += found
        pods, versions["Pod"] = cluster.list("Pod", selector=OURS)
        fresh = Seen.of(jobs, pods, versions)
        if seen is not None:
            seen.replace(fresh)
        now = self.clock.now()
        known = {w.id: w for w in records}
        missing = [i for i in fresh.ids() if i not in known]
        known |= {w.id: w for w in self.workloads.get_many(missing)}
        changes = [c for w in known.values() for c in judge(w, fresh, now, self.pods_ready_ms)]
        changes += [c for w in records for c in disappeared(w, fresh, now)]
        self.apply(cluster, fresh, changes)
        # Read again: a record from before the list may be older than the Job it is compared with.
        suspects = {key for job in orphans(known, fresh) if (key := job_status.owner(job))}
        current = self.workloads.get_many(workload_id for workload_id, _ in suspects)
        for job in orphans({w.id: w for w in current}, fresh, only=suspects):
            metadata = job["metadata"]
            cluster.delete(
                job["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        if again := unfinished_business(records, fresh, now):
            self.commands.send(name, again)
        nodes, _ = cluster.list("Node")
        self.nodes.put_many(name, [row for node in nodes if (row := node_row(node, now))])
        return fresh

    def mark(
        self,
        cluster: Cluster,
        seen: Seen,
        events: Sequence[tuple[str, str, Document]],
    ) -> None:
        """Judge just the workloads that these events are about."""
        keys = [seen.take(kind, change, document) for change, kind, document in events]
        touched = {key[0] for key in keys if key}
        if not touched:
            return
        records = self.workloads.get_many(touched)
        now = self.clock.now()
        changes = [c for w in records for c in judge(w, seen, now, self.pods_ready_ms)]
        # Only a deletion that was seen counts here: a Job may also be too new to be seen yet.
        deleted = {each["metadata"]["uid"] for change, _, each in events if change == "DELETED"}
        changes += [c for w in records if w.uid in deleted for c in disappeared(w, seen, now)]
        self.apply(cluster, seen, changes)

    def apply(self, cluster: Cluster, seen: Seen, changes: Sequence[Change]) -> None:
        if not changes:
            return
        applied = self.workloads.apply(changes)
        for change, done in zip(changes, applied, strict=True):
            if done and change.set.get("state") is State.FINISHED:
                self.pool.submit(self.archive_logs, cluster, change.before, seen)

    def archive_logs(self, cluster: Cluster, workload: Workload, seen: Seen) -> None:
        """Copy what the pods of this generation printed, while they are still there; once."""
        if (workload.id, workload.generation) in self.archived:
            return
        self.archived[workload.id, workload.generation] = None
        while len(self.archived) > REMEMBERED:
            del self.archived[next(iter(self.archived))]
        for pod in seen.pods_of(workload.id, workload.generation):
            metadata = pod["metadata"]
            for container in pod["spec"]["containers"]:
                try:
                    log = cluster.logs(
                        metadata["namespace"],
                        metadata["name"],
                        container["name"],
                        limit_bytes=LOG_BYTES,
                    )
                except ClusterError as error:
                    log = f"(the log could not be read: {error})\n".encode()
                if log:
                    self.archive.put(
                        workload.id, workload.generation, metadata["name"], container["name"], log
                    )

    def archive_recent(self, cluster: Cluster, seen: Seen) -> None:
        """Logs of Jobs that ended lately under an observer that this process knows nothing of."""
        since = self.clock.now() - RECENT_MS
        for workload in self.workloads.get_many(seen.ids()):
            if workload.state is State.FINISHED and workload.finished_at > since:
                self.pool.submit(self.archive_logs, cluster, workload, seen)

    def follow(
        self,
        cluster: Cluster,
        kind: str,
        seen: Seen,
        events: queue.SimpleQueue[tuple[str, str, Document]],
        until: int,
        stop: threading.Event,
    ) -> None:
        """Feed the events of one kind; a watch that ends or breaks ends the observation."""
        left = (until - self.clock.now()) / 1000
        try:
            for change, document in cluster.watch(
                kind, selector=OURS, version=seen.versions[kind], seconds=left
            ):
                if change == "ERROR" or stop.is_set():
                    return
                if change != "BOOKMARK":
                    events.put((change, kind, document))
        except ClusterError:
            return  # the next run lists everything again
        finally:
            stop.set()


def drain(
    events: queue.SimpleQueue[tuple[str, str, Document]],
) -> list[tuple[str, str, Document]]:
    """Everything that arrives within a tick, as (change, kind, document)."""
    taken = []
    try:
        taken.append(events.get(timeout=TICK_SECONDS))
        while True:
            taken.append(events.get_nowait())
    except queue.Empty:
        return taken
