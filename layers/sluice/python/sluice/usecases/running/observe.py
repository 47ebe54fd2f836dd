"""Watches one cluster for a while and marks in the records what it did."""

from __future__ import annotations

import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field

from sluice.core.clusters.inventory import newest_by_node
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import State
from sluice.ports import (
    Catalog,
    Clock,
    Cluster,
    Clusters,
    Commands,
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
from sluice.usecases.running.cluster_events import DOOR, TICK_SECONDS, ClusterEvents, Event
from sluice.usecases.running.compare_records import PAGE, CompareRecords
from sluice.usecases.running.count_nodes import CountNodes
from sluice.usecases.running.detect_lost_nodes import DetectLostNodes
from sluice.usecases.running.kubernetes_door import KubernetesDoor
from sluice.usecases.running.observed_cluster import ObservedCluster, list_cluster, list_into
from sluice.usecases.running.observer_lease import LEASE_MS, ObserverLease
from sluice.usecases.running.order_checkpoints import OrderCheckpoints
from sluice.usecases.running.pods_ready import PodsReady
from sluice.usecases.running.problems import Problems
from sluice.usecases.running.update_records import UpdateRecords

RESEND_MS = 1_000  # how often moves are looked at: only time tells when a source has to stop
CHECK_MS = 10_000
LIST_ACTIVE_MS = 30_000  # of a cluster with many workloads
MANY = 2_000
MANY_NODES, COUNT_MANY_MS = 500, 30_000
RELIST_MS = 900_000
"""How long a process goes on from what it has listed and watched."""
LOG_THREADS = 8
MOST_ENDED, MOST_REMOVED = 2_000, 200


@dataclass(frozen=True, kw_only=True)
class Observe:
    """Records follow the events of the cluster; comparisons now and then repair the rest.

    What a run knows at its end the next one goes on from, if the same process runs it and the API
    server still has the events since then.
    """

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
    compare: CompareRecords
    problems: Problems
    door: KubernetesDoor
    kept: dict[str, ObservedCluster] = field(default_factory=dict)
    """The view of the cluster that this process observed last."""

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
            view = self.kept.pop(name, None)
            self.kept.clear()  # one cluster at a time has room
            if view is None or not self.go_on(name, cluster, view, lease, archived):
                view = None  # two views of a large cluster do not fit beside each other
                view = self.reconcile(name, cluster, archived)
                waiting = self.door.look(name, cluster)
                if view.state.jobs or self.workloads.active(name) or self.door.busy:
                    view.door = waiting
                    self.watch(name, cluster, view, lease, archived)
        finally:
            lease.release()

    def go_on(
        self,
        name: str,
        cluster: Cluster,
        view: ObservedCluster,
        lease: ObserverLease,
        archived: int,
    ) -> bool:
        """Goes on from what the last run knew; False if everything has to be listed again."""
        if self.clock.now() - view.listed_at > RELIST_MS:
            return False
        if self.clock.now() - view.left_at > CHECK_MS:  # another process may have observed since
            self.count_nodes.read(name)
        view.door = self.door.look(name, cluster)
        view.watchlist.ask(view.watchlist.ended)  # their logs may not have been kept in time
        return self.watch(name, cluster, view, lease, archived)

    def watch(
        self,
        name: str,
        cluster: Cluster,
        view: ObservedCluster,
        lease: ObserverLease,
        archived: int,
    ) -> bool:
        """Follows the events; now and then looks for what no event tells.

        False if the API server does not have the events since the view's versions any more.
        """
        state, watchlist = view.state, view.watchlist
        until, over = lease.until, threading.Event()
        events = ClusterEvents(
            cluster=cluster,
            clock=self.clock,
            until=until,
            ended=over,
            problems=self.problems,
            versions=view.versions,
            door=view.door,
        )
        if self.clock.now() < until:
            events.follow()
        beat(self.nodes, name, self.clock.now())
        checked = resent = self.clock.now()
        counted = 0
        while (now := self.clock.now()) < until and not (over.is_set() or lease.ended.is_set()):
            taken = events.take(wait=0 if watchlist.queue else TICK_SECONDS)
            self.mark(name, cluster, view, taken, archived)
            if now - resent > RESEND_MS:
                self.send(name, state.list_urgent())
                resent = now
            few = len(state.node_rows) < MANY_NODES
            if state.uncounted and now - counted > (RESEND_MS if few else CHECK_MS):
                # At once: a notice of the end of an unknown machine would find no workload.
                self.count_nodes(name, cluster, state, now)
                counted = now
            if now - checked > CHECK_MS:
                self.check(name, cluster, view, archived, since=checked)
                checked = now
            watchlist.ask_due(now)
            if ids := watchlist.take(PAGE):
                self.send(name, self.compare(name, cluster, view, ids, archived))
        over.set()
        # Events that came until then count too; the next observer would find them by its list.
        while (rest := events.take(wait=0)) and self.clock.now() < until + LEASE_MS:
            self.mark(name, cluster, view, rest, archived)
        # Versions move on with the events that were taken, whoever holds the lease by now.
        if not events.broken:
            view.left_at, self.kept[name] = self.clock.now(), view
        return not events.expired

    def reconcile(self, name: str, cluster: Cluster, archived: int = 0) -> ObservedCluster:
        """Lists all our objects and compares all records with them, as far as its time goes.

        What it leaves over stands in the view's queue.
        """
        now, active = self.clock.now(), self.workloads.active(name)
        recent = now - RECENT_MS
        kinds = cluster_spec(self.catalog.snapshot(), name).kinds
        view = list_cluster(cluster, frozenset(active), recent, kinds)
        view.listed_at = view.listed_active_at = now
        view.state.node_rows = newest_by_node(self.count_nodes.read(name))
        self.update.note_checkpoints(view.answered, view.state)
        view.answered.clear()
        beat(self.nodes, name, self.clock.now())
        view.watchlist.ask_all(active, view.state)
        lost = list[str]()
        while self.clock.now() - now < CHECK_MS and (ids := view.watchlist.take(PAGE)):
            lost += self.compare(name, cluster, view, ids, archived)
        for kind in view.kinds - view.versions.keys():  # of records, though it should not be here
            list_into(view, cluster, kind, frozenset(active), recent)
        self.send(name, [*lost, *view.state.list_urgent()])
        Placeholders(self.workloads, self.clock).remove_unused(cluster)
        self.count_nodes(name, cluster, view.state, self.clock.now())
        return view

    def check(
        self, name: str, cluster: Cluster, view: ObservedCluster, archived: int = 0, since: int = 0
    ) -> None:
        """Looks for what only time tells: late pods, lost commands, new nodes.

        Reads the records that this can concern, and the next part of all others.
        """
        now, watchlist, state = self.clock.now(), view.watchlist, view.state
        many = len(watchlist.settled) > MANY
        if not many or now - view.listed_active_at > LIST_ACTIVE_MS:
            watchlist.ask_all(self.workloads.active(name), state)
            view.listed_active_at = now
        watchlist.ask_again(now - since if since else CHECK_MS)
        ids = watchlist.take(PAGE)
        lost = self.compare(name, cluster, view, ids, archived) if ids else []
        self.send(name, [*lost, *state.list_urgent()])
        Placeholders(self.workloads, self.clock).remove_unused(cluster)
        if len(state.node_rows) < MANY_NODES or now - view.counted_at > COUNT_MANY_MS:
            self.count_nodes(name, cluster, state, now)
            view.counted_at = now
        self.logs.start_remaining(cluster, state, self.workloads.get_many)
        self.forget_ended(cluster, view)

    def mark(
        self,
        name: str,
        cluster: Cluster,
        view: ObservedCluster,
        events: Sequence[Event],
        archived: int = 0,
    ) -> None:
        """Assesses only the workloads whose Jobs the events have changed."""
        state = view.state
        at_door = [(change, job) for change, kind, job in events if kind == DOOR]
        events = [event for event in events if event[1] != DOOR]
        keys = {state.update(kind, change, document) for change, kind, document in events}
        pods = [(change, pod) for change, kind, pod in events if kind == "Pod"]
        self.update.note_checkpoints([pod for _, pod in pods], state)
        self.logs.start_last(cluster, [pod for change, pod in pods if change != "DELETED"])
        added = {
            key for change, pod in pods if change == "ADDED" and (key := job_status.owner(pod))
        }
        changed = [key[0] for key in keys if key and state.has_changed(key)]
        unready = [key[0] for key in keys if key and state.statuses.get(key) != "ready"]
        view.watchlist.unsettle([*changed, *unready, *(key[0] for key in added)])
        if not changed:
            self.door.follow(name, cluster, at_door)
            return
        records = self.workloads.get_many(changed)
        self.compare.load_ended_pods(cluster, view, records, archived)
        started = self.clock.now()
        # A Job that was never seen may be too new; only a deletion that was seen counts here.
        deleted = {job["metadata"]["uid"] for change, _, job in events if change == "DELETED"}
        self.update.assess(cluster, state, records, [w for w in records if w.uid in deleted])
        self.logs.start_recent(cluster, state, records, started - CHECK_MS)  # `act` ended some
        # Its pods and its controller's word prove the end; `act` looks at both.
        self.send(name, [w.id for w in records if w.object and w.state is State.RECLAIMING])
        self.door.follow(name, cluster, at_door)  # after those that ended and were deleted then

    def send(self, name: str, lost: Sequence[str]) -> None:
        """Sends commands again that were lost, and those of workloads that need one each second."""
        if lost:
            self.commands.send(name, list(dict.fromkeys(lost)))

    def forget_ended(self, cluster: Cluster, view: ObservedCluster) -> None:
        """Forgets ended Jobs whose logs are kept, and removes the oldest where they are many."""
        state, pending = view.state, {key[0] for key in list(self.logs.pending)}
        for workload_id in view.watchlist.ended - pending:
            for key in state.keys.get(workload_id, ()):
                state.forget(key)
        before = self.clock.now() - RECENT_MS
        many = sorted(
            (each for each in state.ended.values() if not each.own_time),
            key=lambda each: each.ended_at,
        )
        for each in many[: max(0, min(len(many) - MOST_ENDED, MOST_REMOVED))]:
            if each.ended_at < before:
                cluster.delete(each.kind, each.namespace, each.name, uid=each.uid)


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
    update = UpdateRecords(
        workloads=workloads,
        commands=commands,
        clock=clock,
        migrate=migrate,
        logs=logs,
        problems=problems,
        rules=PodsReady(catalog, clock),
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
        update=update,
        logs=logs,
        count_nodes=CountNodes(nodes=nodes, prices=prices, detect_lost=detect_lost_nodes),
        compare=CompareRecords(
            workloads=workloads,
            clock=clock,
            update=update,
            logs=logs,
            order_checkpoints=order_checkpoints,
        ),
        problems=problems,
        door=KubernetesDoor(submit=submit, workloads=workloads, clock=clock, problems=problems),
    )
