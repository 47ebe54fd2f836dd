"""What a cluster shows of our Jobs and pods, kept up to date by its lists and watches."""

from __future__ import annotations

from collections.abc import Container, Iterable
from dataclasses import dataclass, field
from typing import Any

from sluice.core.jobs import gang_start
from sluice.core.lifecycle import in_place, job_status
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State, Workload
from sluice.core.lifecycle.stuck_pods import Stuck, in_preparation, stuck
from sluice.core.migrations.gangs import waits_for_part
from sluice.core.migrations.pod_annotations import LEAVING, annotations_of
from sluice.core.migrations.service_pods import needs_reconciling

Document = dict[str, Any]
Key = tuple[str, int]

PREPARED_MS = 10_000
"""Images and volumes are usually there after this long; if not, an event says so."""
ASK_AGAIN_MS = 30_000
MOST_ASKED = 20  # pods at one look: large images take long, too


@dataclass
class ClusterState:
    """The Jobs (by workload and generation) and pods of Sluice on one cluster, as last seen."""

    jobs: dict[Key, Document] = field(default_factory=dict)
    pods: dict[Key, dict[str, Document]] = field(default_factory=dict)
    statuses: dict[Key, str] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods on machines that are about to end."""
    gated: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods whose scheduling gate waits for their checkpoint."""
    entrusted: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods that a driver's service has to save or has just restored."""
    in_gang: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods that wait until their whole gang has machines."""
    key_by_pod: dict[str, Key] = field(default_factory=dict)
    """Pod UID → the generation it belongs to; a restored pod is given to a later generation."""
    key_by_job: dict[str, Key] = field(default_factory=dict)
    """Job UID → the generation that it runs."""
    resent: set[Key] = field(default_factory=set)
    """Generations whose dispatch was asked for a second time."""
    counted: set[str] = field(default_factory=set)
    """Nodes that are in the inventory, so that a notice of their end finds them."""
    uncounted: set[str] = field(default_factory=set)
    """Nodes with pods of Sluice that are not in the inventory yet."""
    warnings: dict[str, Stuck] = field(default_factory=dict)
    """Pod UID → why the pod does not start, from its events."""
    events_read_at: dict[str, int] = field(default_factory=dict)
    """Pod UID → when its events were read last (epoch ms)."""
    node_rows: dict[str, InventoryRow] = field(default_factory=dict)
    """Node name → its inventory row with its price; rows of ended nodes stay."""

    def has_changed(self, key: Key) -> bool:
        """Whether the status of the Job differs from the one at the last call."""
        status, before = self._status(key), self.statuses.get(key, "")
        self.statuses[key] = status
        return status not in ("", before)

    def _status(self, key: Key) -> str:
        job = self.jobs.get(key)
        if job is None:
            return "gone"
        if job_status.outcome(job) is not None:
            last = job_status.outlive_their_job(job, self.pods_of(*key))
            return "ends" if last else "ended"
        if job_status.all_ready(job, self.pods_of(*key)):
            return "ready"
        pods = self.pods_of(*key)
        if in_place.came_by_door(job) and in_place.answers(job):
            return f"{in_place.answers(job)} {sum(map(job_status.running_pod, pods))}"
        return str(stuck(pods, self.warnings) or "")

    def update(self, kind: str, change: str, document: Document) -> Key | None:
        """Apply one event; returns the workload and generation that the object belongs to."""
        key = job_status.owner(document)
        if key is None or job_status.child(document):
            return None
        uid = document["metadata"]["uid"]
        if kind == "Pod":
            self._update_pod(key, document, deleted=change == "DELETED")
            return key
        before = self.key_by_job.pop(uid, key)
        if before != key:  # one object runs all generations of what came by the Kubernetes door
            self.jobs.pop(before, None)
        self.key_by_job[uid] = key
        # Of what its owner deletes as soon as it has ended, that is the last word.
        ended = in_place.came_by_door(document) and job_status.outcome(document) is not None
        if change != "DELETED" or ended:
            self.jobs[key] = document
        elif key in self.jobs and self.jobs[key]["metadata"]["uid"] == uid:
            del self.jobs[key]
            self.key_by_job.pop(uid, None)
        return key

    def _update_pod(self, key: Key, pod: Document, *, deleted: bool) -> None:
        uid = pod["metadata"]["uid"]
        self.pods.get(self.key_by_pod.pop(uid, key), {}).pop(uid, None)
        if deleted:
            self.warnings.pop(uid, None)
            self.events_read_at.pop(uid, None)
        else:
            self.pods.setdefault(key, {})[uid] = pod
            self.key_by_pod[uid] = key
            if (node := pod["spec"].get("nodeName")) and node not in self.counted:
                self.uncounted.add(node)
        for workloads, belongs in (
            (self.leaving, LEAVING in annotations_of(pod)),
            (self.gated, waits_for_part(pod)),
            (self.entrusted, needs_reconciling(pod)),
            (self.in_gang, gang_start.waits(pod)),
        ):
            if belongs and not deleted:
                workloads[uid] = key[0]
            else:
                workloads.pop(uid, None)

    def mark_counted(self, nodes: Iterable[str], rows: Iterable[InventoryRow] = ()) -> None:
        """These nodes were listed, so all of them, and what was uncounted before, are counted now.

        `rows` are the inventory rows of those that are EC2 instances.
        """
        rows = list(rows)
        # Karpenter labels a node a moment after it has joined; until then it has no price.
        unlabelled = {row.node for row in rows if not row.type}
        self.counted |= {*nodes, *self.uncounted} - unlabelled
        self.uncounted &= unlabelled
        self.node_rows |= {row.node: row for row in rows}

    def forget_ended(self, active: Container[str], before: int) -> None:
        """Forget Jobs that ended before a time (epoch ms), unless their record is active.

        Kubernetes keeps ended Jobs for an hour, so they are most of what a list shows.
        """
        for key, job in list(self.jobs.items()):
            if key[0] not in active and 0 < job_status.ended_at(job) < before:
                self.key_by_job.pop(self.jobs.pop(key)["metadata"]["uid"], None)
                for uid in self.pods.pop(key, {}):
                    self.in_gang.pop(uid, None)

    def list_slow_pods(self, records: Iterable[Workload], now: int) -> list[Document]:
        """Pods of starting workloads that take long to prepare; their events may say why."""
        waiting = [
            pod
            for w in records
            if w.state is State.DISPATCHED and not w.started_at
            for pod in self.pods_of(w.id, w.generation)
            if in_preparation(pod) and now - w.dispatched_at > PREPARED_MS
        ]
        due = [pod for pod in waiting if now - self._events_read_at(pod) > ASK_AGAIN_MS]
        return sorted(due, key=self._events_read_at)[:MOST_ASKED]

    def _events_read_at(self, pod: Document) -> int:
        return self.events_read_at.get(pod["metadata"]["uid"], 0)

    def note_warning(self, pod: Document, warning: Stuck | None, now: int) -> None:
        """Keep what the events of a pod say: Kubernetes deletes events after an hour."""
        uid = pod["metadata"]["uid"]
        self.events_read_at[uid] = now
        if warning is not None:
            self.warnings[uid] = warning

    def list_urgent(self) -> list[str]:
        """Workloads whose next step only the pods on the cluster can tell."""
        waiting = {w for of in (self.leaving, self.gated, self.entrusted) for w in of.values()}
        return sorted(waiting | self._gangs_with_machines())

    def _gangs_with_machines(self) -> set[str]:
        """Workloads of several pods that wait for each other and all have a machine."""
        keys = {self.key_by_pod[uid] for uid in self.in_gang}
        return {key[0] for key in keys if self._gangs_to_start(key)}

    def _gangs_to_start(self, key: Key) -> bool:
        gangs = gang_start.group(self.pods[key].values())
        return any(job_status.gang_may_start(gang) for gang in gangs.values())

    def workload_ids(self) -> list[str]:
        return list(dict.fromkeys(workload for workload, _ in self.jobs))

    def pods_of(self, workload_id: str, generation: int) -> list[Document]:
        return list(self.pods.get((workload_id, generation), {}).values())
