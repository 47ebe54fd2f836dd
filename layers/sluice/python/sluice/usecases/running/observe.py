"""Watch one cluster for a while and mark in the records what it did."""

from __future__ import annotations

import contextlib
import queue
import threading
from collections import deque
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Any

from sluice.core.clusters.observation import (
    Seen,
    disappeared,
    judge,
    node_row,
    orphans,
    requested_cpu,
    unfinished_business,
)
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import Change, State, Workload
from sluice.core.lifecycle.stuck_pods import warning
from sluice.core.migrations.cedana import is_saved_by_cedana
from sluice.core.migrations.pod_annotations import EVICT, FIRST, MIGRATE, checkpoint_result
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
    Prices,
    Workloads,
)
from sluice.usecases.fleet import beat
from sluice.usecases.migrations.migrate import Migrate, was_moved
from sluice.usecases.running.periodic import Periodic
from sluice.usecases.running.unheard import Unheard

OURS = f"{job_status.WORKLOAD_LABEL}"
WATCHED = ("Job", "JobSet", "Pod")
NOT_FOUND = 404
TICK_SECONDS = 0.1
MOST_EVENTS = 500
MOST_TROUBLES = 10
NUDGE_MS = 1_000  # how often moves are looked at: only time tells when a source has to stop
CHECK_MS = 10_000
LEASE_MS = 8_000
LOG_BYTES = 10_000_000
RECENT_MS = 300_000
REMEMBERED = 20_000


Event = tuple[str, str, Document]  # change, kind, document
Events = queue.SimpleQueue[Event]


@dataclass(frozen=True)
class Observe:
    workloads: Workloads
    clusters: Clusters
    commands: Commands
    nodes: Nodes
    archive: LogArchive
    leases: Leases
    prices: Prices
    clock: Clock
    migrate: Migrate
    periodic: Periodic
    unheard: Unheard
    pods_ready_ms: int = 900_000
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(8))
    noted: dict[tuple[str, str], None] = field(default_factory=dict)
    archived: dict[tuple[str, int], None] = field(default_factory=dict)  # oldest first
    archiving: dict[tuple[str, int], int] = field(default_factory=dict)
    """Whose logs are still on their way to the bucket, and when they ended."""
    partings: dict[tuple[str, bool], Future[None]] = field(default_factory=dict)
    """Copies of logs by the UID of a pod that was told to go, and whether it had ended by then."""
    troubles: deque[Exception] = field(default_factory=lambda: deque(maxlen=MOST_TROUBLES))
    """What went wrong beside the observation, which goes on without it; the caller empties it."""

    def __call__(self, name: str, *, owner: str, until: int) -> None:
        """Observes until `until` (epoch ms), or just once if nothing of ours is on the cluster.

        Raises ClusterError when the cluster does not answer; records then stay as they are.
        """
        # The newest observer takes over, so that no minute passes between one and the next; the
        # former one stops when it fails to renew. Two at once would be wasteful, never wrong.
        archived = self.leases.take(name, owner, until=self.clock.now() + LEASE_MS)
        stop = threading.Event()
        holding = (name, owner, until, stop)
        threading.Thread(target=self.hold_lease, args=holding, daemon=True).start()
        try:
            cluster = self.clusters.cluster(name)
            seen, versions, known = self.reconcile(name, cluster)
            beat(self.nodes, name, self.clock.now())
            if seen.jobs or self.workloads.active(name):
                self.archive_recent(cluster, seen, known, archived)
                due = self.periodic(name, known, seen)
                self.watch(name, cluster, seen, versions, due, until, stop)
        finally:
            stop.set()
            self.renew(name, owner, until=0)
            self.archiving.clear()  # what is left is the next observer's: the lease tells it so

    def hold_lease(self, name: str, owner: str, until: int, stop: threading.Event) -> None:
        """However long the marking takes; a lost lease ends the observation."""
        try:
            while not stop.wait(LEASE_MS / 3000) and self.clock.now() < until:
                if not self.renew(name, owner, until=self.clock.now() + LEASE_MS):
                    self.archiving.clear()
                    return
        finally:
            stop.set()

    def renew(self, name: str, owner: str, *, until: int) -> bool:
        now = self.clock.now()
        archived = min(list(self.archiving.values()), default=now)
        return self.leases.acquire(name, owner, now=now, until=until, done=archived)

    def watch(
        self,
        name: str,
        cluster: Cluster,
        seen: Seen,
        versions: Mapping[str, str],
        due: Mapping[str, int],
        until: int,
        stop: threading.Event,
    ) -> None:
        """Follow the events; now and then look for what no event will tell.

        `due` says which workloads are to be saved next, and when.
        """
        events: Events = queue.SimpleQueue()
        for kind, version in versions.items():
            following = (cluster, kind, version, events, until, stop)
            threading.Thread(target=self.follow, args=following, daemon=True).start()
        checked = nudged = self.clock.now()
        counted = 0
        while (now := self.clock.now()) < until and not stop.is_set():
            self.mark(cluster, seen, drain(events))
            pressing = seen.pressing()
            if pressing and now - nudged > NUDGE_MS:
                self.commands.send(name, pressing)
                nudged = now
            if seen.strange and now - counted > NUDGE_MS:
                # At once: word of the end of a machine that nobody knows would go unheard.
                self.count_nodes(name, cluster, seen, now)
                counted = now
            if now - checked > CHECK_MS:
                due = self.check(name, cluster, seen)
                checked = now
            elif late := [workload_id for workload_id, at in due.items() if at <= now]:
                later = {i: at for i, at in due.items() if at > now}
                due = later | self.periodic(name, self.workloads.get_many(late), seen)
        stop.set()
        # What came until then counts too; the next observer would find it only by its list.
        while (rest := drain(events, wait=0)) and self.clock.now() < until + LEASE_MS:
            self.mark(cluster, seen, rest)

    def reconcile(
        self, name: str, cluster: Cluster
    ) -> tuple[Seen, dict[str, str], Iterable[Workload]]:
        """Compare all records of the cluster with all its Jobs; repairs whatever an event lost.

        The records are read before the Jobs: a Job that a record names and the list lacks is gone.
        Returns what was seen, from which version of each kind to follow, and the records as read.
        """
        records = self.workloads.get_many(self.workloads.active(name))
        seen, versions = Seen(), {}
        for kind in WATCHED:
            documents, version = listed(cluster, kind)
            if version:
                versions[kind] = version
            for document in documents:
                seen.take(kind, "ADDED", {"kind": kind, **document})
        known, now = {w.id: w for w in records}, self.clock.now()
        seen.settle(known, now - RECENT_MS)
        seen.inventory = newest_by_node(self.nodes.of(name))
        self.hear_warnings(cluster, seen, records, now)
        unknown = [i for i in seen.ids() if i not in known]
        known |= {w.id: w for w in self.workloads.get_many(unknown)}
        changes = [c for w in known.values() for c in judge(w, seen, now, self.pods_ready_ms)]
        changes += [c for w in records for c in disappeared(w, seen, now)]
        self.apply(cluster, seen, changes)
        # Read again: a record from before the list may be older than the Job it is compared with.
        suspects = {key for job in orphans(known, seen) if (key := job_status.owner(job))}
        current = self.workloads.get_many(workload_id for workload_id, _ in suspects)
        for job in orphans({w.id: w for w in current}, seen, only=suspects):
            metadata = job["metadata"]
            cluster.delete(
                job["kind"], metadata["namespace"], metadata["name"], uid=metadata["uid"]
            )
        self.remind(name, records, seen, now)
        self.note_checkpoints([pod for pods in seen.pods.values() for pod in pods.values()], seen)
        self.migrate.tidy(cluster)
        self.count_nodes(name, cluster, seen, now)
        return seen, versions, known.values()

    def check(self, name: str, cluster: Cluster, seen: Seen) -> dict[str, int]:
        """What only time tells: pods that are late, commands that were lost, new nodes.

        Returns when which workload is to be saved next.
        """
        now = self.clock.now()
        records = self.workloads.get_many(self.workloads.active(name))
        self.hear_warnings(cluster, seen, records, now)
        self.apply(
            cluster, seen, [c for w in records for c in judge(w, seen, now, self.pods_ready_ms)]
        )
        self.remind(name, records, seen, now)
        due = self.periodic(name, records, seen)
        self.migrate.tidy(cluster)
        self.count_nodes(name, cluster, seen, now)
        self.archive_remaining(cluster, seen, now)
        return due

    def hear_warnings(
        self, cluster: Cluster, seen: Seen, records: Sequence[Workload], now: int
    ) -> None:
        """Ask for the events of pods that do not start: only they tell of volumes and sandboxes."""
        for pod in seen.long_prepared(records, now):
            metadata = pod["metadata"]
            about = f"involvedObject.uid={metadata['uid']}"
            try:
                events, _ = cluster.list("Event", field=about, namespace=metadata["namespace"])
            except ClusterError as error:  # a right that an older manifest did not give, say
                self.troubles.append(error)
                return
            seen.hear(pod, warning(events), now)

    def remind(self, name: str, records: Sequence[Workload], seen: Seen, now: int) -> None:
        again = unfinished_business(records, seen, now)
        if again := [*again, *(each for each in seen.pressing() if each not in again)]:
            self.commands.send(name, again)

    def count_nodes(self, name: str, cluster: Cluster, seen: Seen, now: int) -> None:
        """The inventory: what each machine is, costs, and holds of ours."""
        nodes, _ = cluster.list("Node")
        requested = requested_cpu(seen)
        rows = []
        for node in nodes:
            if row := node_row(node, now):
                row["requested"] = {"cpu": f"{requested.get(row['node'], 0)}m"}
                rows.append(row | self.priced(row))
        self.nodes.put_many(name, rows)
        self.unheard(rows, requested, lambda: self.nodes.of(name))
        seen.know((node["metadata"]["name"] for node in nodes), rows)

    def priced(self, row: Document) -> Document:
        """What the machine costs an hour, and would cost on demand; as far as anybody knows."""
        asked = {"price": row["capacity_type"], "on_demand_price": "on-demand"}
        found = {
            name: self.prices.hourly(row["type"], row["zone"], capacity_type)
            for name, capacity_type in asked.items()
        }
        return {name: price for name, price in found.items() if price is not None}

    def mark(self, cluster: Cluster, seen: Seen, events: Sequence[Event]) -> None:
        """Judge just the workloads whose Jobs have something new to say."""
        keys = {seen.take(kind, change, document) for change, kind, document in events}
        pods = [(change, each) for change, kind, each in events if kind == "Pod"]
        self.note_checkpoints([each for _, each in pods], seen)
        self.keep_last_words(cluster, [each for change, each in pods if change != "DELETED"])
        touched = [key[0] for key in keys if key and seen.fresh_news(key)]
        if not touched:
            return
        records = self.workloads.get_many(touched)
        now = self.clock.now()
        changes = [c for w in records for c in judge(w, seen, now, self.pods_ready_ms)]
        # Only a deletion that was seen counts here: a Job may also be too new to be seen yet.
        deleted = {each["metadata"]["uid"] for change, _, each in events if change == "DELETED"}
        changes += [c for w in records if w.uid in deleted for c in disappeared(w, seen, now)]
        self.apply(cluster, seen, changes)
        self.archive_recent(cluster, seen, records, now - CHECK_MS)  # whose end `act` has marked

    def note_checkpoints(self, pods: Sequence[Document], seen: Seen) -> None:
        """Checkpoints of workloads that run on; who looks after one that leaves notes its own."""
        for pod in pods:
            key, owner = fresh_checkpoint(pod), job_status.owner(pod)
            if key is None or owner is None or key in self.noted:
                continue
            self.noted[key] = None
            workload = self.workloads.get(owner[0])
            if workload is not None and workload.generation == owner[1]:
                self.migrate.saved(workload, pod, seen.pods_of(*owner))

    def apply(self, cluster: Cluster, seen: Seen, changes: Sequence[Change]) -> None:
        if not changes:
            return
        ended = [change for change in changes if change.set.get("state") is State.FINISHED]
        for change in ended:  # noted first: the lease tells the next observer what is left to do
            self.note_end(change.before, change.set["finished_at"])
        for change in changes:  # before the mark, which is made once: a crash between repeats both
            if (at := ran_since(change)) and was_moved(change.before):
                self.migrate.resumed(change.before, at)
        self.workloads.apply(changes)
        for change in ended:  # whoever has marked it
            self.pool.submit(self.archive_logs, cluster, change.before, seen)
            if change.set["result"]["succeeded"]:
                self.migrate.finished(change.before)
                if is_saved_by_cedana(change.before):  # `act` alone may tell Cedana
                    self.commands.send(change.before.cluster, [change.before.id])

    def note_end(self, workload: Workload, ended: int) -> None:
        """Remember whose logs are to be archived, unless they are already."""
        key = workload.id, workload.generation
        if key not in self.archived:
            self.archiving.setdefault(key, ended)

    def archive_logs(self, cluster: Cluster, workload: Workload, seen: Seen) -> None:
        """Copy what the pods of this generation printed, while they are still there; once."""
        key = workload.id, workload.generation
        if key in self.archived or key not in self.archiving:
            return
        self.archived[key] = None
        while len(self.archived) > REMEMBERED:
            del self.archived[next(iter(self.archived))]
        complete = False
        try:
            complete = self.copy_logs(cluster, workload, seen)
        except Exception as error:  # noqa: BLE001 - nobody asks a thread of the pool how it went
            self.troubles.append(error)
        if complete:
            self.archiving.pop(key, None)
        else:
            self.archived.pop(key, None)  # `archive_remaining` tries again

    def copy_logs(self, cluster: Cluster, workload: Workload, seen: Seen) -> bool:
        """Whether nothing more can be read; False after an error that may pass.

        A log that cannot be read is replaced by a note, unless an earlier observer has archived
        it: two observers may copy the same logs, and the pod may be deleted in between.
        """
        complete = True
        for pod in seen.pods_of(workload.id, workload.generation):
            for container in pod["spec"]["containers"]:
                where = (
                    *(workload.id, workload.generation),
                    *(pod["metadata"]["name"], container["name"]),
                )
                try:
                    log = log_of(cluster, pod, container["name"])
                except ClusterError as error:
                    self.troubles.append(error)
                    complete = complete and error.status == NOT_FOUND
                    note = f"(the log could not be read: {error})\n".encode()
                    self.archive.put_if_absent(*where, note)
                else:
                    if log:
                        self.archive.put(*where, log)
        return complete

    def archive_remaining(self, cluster: Cluster, seen: Seen, now: int) -> None:
        """Try the logs again that could not be read, until their Jobs have ended long ago."""
        remaining = [key for key in list(self.archiving) if key not in self.archived]
        for key in remaining:
            if self.archiving.get(key, now) < now - RECENT_MS:
                self.archiving.pop(key, None)
        for workload in self.workloads.get_many(dict.fromkeys(i for i, _ in remaining)):
            if (workload.id, workload.generation) in remaining:
                self.pool.submit(self.archive_logs, cluster, workload, seen)

    def keep_last_words(self, cluster: Cluster, pods: Sequence[Document]) -> None:
        """What runs that are stopped have printed: when they are told to end, and once they have.

        Their pods vanish right after; so the second copy may come too late, and the first stays.
        """
        for pod in pods:
            metadata, owner = pod["metadata"], job_status.owner(pod)
            if owner is None or not metadata.get("deletionTimestamp"):
                continue
            uid, ended = metadata["uid"], not job_status.running_pod(pod)
            before = self.partings.get((uid, False))
            if (uid, ended) in self.partings or (ended and before is None):
                continue  # copied already, or ended before anybody deleted it
            copy = self.pool.submit(self.copy_last_words, cluster, owner, pod, before)
            self.partings[uid, ended] = copy
            while len(self.partings) > REMEMBERED:
                del self.partings[next(iter(self.partings))]

    def copy_last_words(
        self,
        cluster: Cluster,
        owner: tuple[str, int],
        pod: Document,
        before: Future[None] | None,
    ) -> None:
        """After the copy `before`, which must not overwrite this one."""
        if before is not None:
            before.result()
        for container in pod["spec"]["containers"]:
            try:
                log = log_of(cluster, pod, container["name"])
                if log:
                    self.archive.put(*owner, pod["metadata"]["name"], container["name"], log)
            except ClusterError:
                continue  # it is gone already
            except Exception as error:  # noqa: BLE001 - nobody asks a thread of the pool
                self.troubles.append(error)

    def archive_recent(
        self, cluster: Cluster, seen: Seen, records: Iterable[Workload], archived: int
    ) -> None:
        """Logs of Jobs that ended lately, after those that the former observer has `archived`."""
        since = max(archived, self.clock.now() - RECENT_MS)
        for workload in records:
            if workload.state is State.FINISHED and workload.finished_at >= since:
                self.note_end(workload, workload.finished_at)
                self.pool.submit(self.archive_logs, cluster, workload, seen)

    def follow(
        self,
        cluster: Cluster,
        kind: str,
        version: str,
        events: Events,
        until: int,
        stop: threading.Event,
    ) -> None:
        """Feed the events of one kind; a watch that ends or breaks ends the observation."""
        left = (until - self.clock.now()) / 1000
        try:
            watched = cluster.watch(kind, selector=OURS, version=version, seconds=left)
            for change, document in watched:
                if change == "ERROR" or stop.is_set():
                    return
                if change != "BOOKMARK":
                    events.put((change, kind, document))
        except ClusterError as error:
            self.troubles.append(error)  # the next run lists everything again
        finally:
            stop.set()


def log_of(cluster: Cluster, pod: Document, container: str) -> bytes:
    metadata = pod["metadata"]
    return cluster.logs(metadata["namespace"], metadata["name"], container, limit_bytes=LOG_BYTES)


def newest_by_node(rows: Iterable[Mapping[str, Any]]) -> dict[str, Document]:
    """Rows of the inventory by node name; names are given again, to later machines."""
    return {
        str(row["node"]): dict(row)
        for row in sorted(rows, key=lambda each: int(each.get("seen_at", 0)))
        if row.get("node")
    }


def fresh_checkpoint(pod: Document) -> tuple[str, str] | None:
    """What names an answered order for a checkpoint outside of a move, be it overtaken by one."""
    token = found[0] if (found := checkpoint_result(pod)) else ""
    if not token or token.startswith((FIRST, MIGRATE, EVICT)):
        return None
    return pod["metadata"]["uid"], token


def ran_since(change: Change) -> int:
    """When the run began that a change tells of first; 0 if it tells of none.

    A short one may have ended well before anybody saw its pods ready.
    """
    if "started_at" in change.set:
        return int(change.set["started_at"])
    succeeded = bool((change.set.get("result") or {}).get("succeeded"))
    unseen = succeeded and not change.before.started_at
    return int(change.set["finished_at"]) if unseen else 0


def listed(cluster: Cluster, kind: str) -> tuple[list[Document], str]:
    """Our objects of a kind and the version to watch from; no version if the kind is unknown."""
    try:
        return cluster.list(kind, selector=OURS)
    except ClusterError as error:
        if error.status == NOT_FOUND and kind == "JobSet":
            return [], ""  # JobSet is an add-on
        raise


def drain(events: Events, wait: float = TICK_SECONDS) -> list[Event]:
    """What is there once something is, at most `wait` seconds from now.

    Bounded, so that the observer looks at its clock and lease in between.
    """
    taken: list[Event] = []
    with contextlib.suppress(queue.Empty):
        taken.append(events.get(block=wait > 0, timeout=wait))
        while len(taken) < MOST_EVENTS:
            taken.append(events.get_nowait())
    return taken
