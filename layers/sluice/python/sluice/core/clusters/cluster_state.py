"""What a cluster shows of our Jobs and pods, kept up to date by its lists and watches."""

from __future__ import annotations

from collections.abc import Iterable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

from sluice.core.clusters.judged_fields import PackedDocuments
from sluice.core.jobs import gang_start
from sluice.core.lifecycle import in_place, job_status
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State, Workload
from sluice.core.lifecycle.stuck_pods import Stuck, in_preparation, stuck
from sluice.core.migrations.gangs import waits_for_part
from sluice.core.migrations.pod_annotations import LEAVING, annotations_of
from sluice.core.migrations.service_pods import needs_reconciling
from sluice.core.values.quantity import parse_quantity

Document = dict[str, Any]
Key = tuple[str, int]

PREPARED_MS = 10_000
"""Images and volumes are usually there after this long; if not, an event says so."""
ASK_AGAIN_MS = 30_000
MOST_ASKED = 20  # pods at one look: large images take long, too


@dataclass(frozen=True, slots=True)
class ForgottenJob:
    """Where an ended Job lies; `own_time`: its author says how long Kubernetes keeps it."""

    ended_at: int
    kind: str
    namespace: str
    name: str
    uid: str
    own_time: bool


@dataclass
class ClusterState:
    """The Jobs (by workload and generation) and pods of Sluice on one cluster, as last seen.

    Documents have only their judged fields (`core.clusters.judged_fields`) and are kept as text, so
    that 50,000 pods and their Jobs take some 150 MB.
    """

    jobs: MutableMapping[Key, Document] = field(default_factory=PackedDocuments)
    pods: dict[Key, PackedDocuments[str]] = field(default_factory=dict)
    """By UID."""
    keys: dict[str, tuple[Key, ...]] = field(default_factory=dict)
    """Workload id → the generations of which there is a Job."""
    ended: dict[Key, ForgottenJob] = field(default_factory=dict)
    """Jobs whose records say that they ended, and of which nothing more is kept."""
    statuses: dict[Key, str] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods on machines that are about to end."""
    gated: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods whose scheduling gate waits for their checkpoint."""
    entrusted: dict[str, str] = field(default_factory=dict)
    """Pod UID → workload id, of pods that a driver's service has to save or has just restored."""
    gangs: dict[Key, bool] = field(default_factory=dict)
    """Generations with pods that wait for their whole gang → whether all have machines."""
    gang_news: set[Key] = field(default_factory=set)
    """Gangs whose pods have changed since that was looked at."""
    key_by_pod: dict[str, Key] = field(default_factory=dict)
    """Pod UID → the generation it belongs to; a restored pod is given to a later generation."""
    key_by_job: dict[str, Key] = field(default_factory=dict)
    """Job UID → the generation that it runs."""
    placed: dict[str, tuple[str, int]] = field(default_factory=dict)
    """Pod UID → its node and the millicores that it requests there, while it may run."""
    requested: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Node → how many pods of ours may run there, and the millicores that they request."""
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
        if status == "gone":
            self.statuses.pop(key, None)
        else:
            self.statuses[key] = status
        return status not in ("", before)

    def _status(self, key: Key) -> str:
        job = self.jobs.get(key)
        if job is None:
            return "gone"
        if job_status.outcome(job) is not None:
            last = job_status.outlive_their_job(job, self.pods_of(*key))
            return "ends" if last else "ended"
        pods = self.pods_of(*key)
        if job_status.all_ready(job, pods):
            return "ready"
        if in_place.came_by_door(job) and in_place.answers(job):
            return f"{in_place.answers(job)} {sum(map(job_status.running_pod, pods))}"
        return str(stuck(pods, self.warnings) or "")

    def update(self, kind: str, change: str, document: Document) -> Key | None:
        """Apply one event; returns the workload and generation that the object belongs to.

        None if it belongs to none, or to one that has ended and of which the record says so.
        """
        key = job_status.owner(document)
        if key is None or job_status.child(document):
            return None
        if key in self.ended:
            if kind != "Pod" and change == "DELETED":
                del self.ended[key]
            return None
        uid, deleted = document["metadata"]["uid"], change == "DELETED"
        if kind == "Pod":
            self._update_pod(key, document, deleted=deleted)
            return key
        before = self.key_by_job.get(uid, key)
        if before != key and before in self.jobs:
            self._drop_job(before)  # one object runs all generations of what came by the door
        # Of what its owner deletes as soon as it has ended, that is the last word.
        ended = in_place.came_by_door(document) and job_status.outcome(document) is not None
        if not deleted or ended:
            self.jobs[key] = document
            self.key_by_job[uid] = key
            if key not in (of := self.keys.get(key[0], ())):
                self.keys[key[0]] = (*of, key)
        elif key in self.jobs and self.jobs[key]["metadata"]["uid"] == uid:
            self._drop_job(key)
        return key

    def _drop_job(self, key: Key) -> None:
        self.key_by_job.pop(self.jobs.pop(key)["metadata"]["uid"], None)
        if rest := tuple(each for each in self.keys.get(key[0], ()) if each != key):
            self.keys[key[0]] = rest
        else:
            self.keys.pop(key[0], None)

    def _update_pod(self, key: Key, pod: Document, *, deleted: bool) -> None:
        uid = pod["metadata"]["uid"]
        self._drop_pod(self.key_by_pod.pop(uid, key), uid)
        if deleted:
            self.warnings.pop(uid, None)
            self.events_read_at.pop(uid, None)
        else:
            self.pods.setdefault(key, PackedDocuments())[uid] = pod
            self.key_by_pod[uid] = key
            self._place(uid, pod)
        for workloads, belongs in (
            (self.leaving, LEAVING in annotations_of(pod)),
            (self.gated, waits_for_part(pod)),
            (self.entrusted, needs_reconciling(pod)),
        ):
            if belongs and not deleted:
                workloads[uid] = key[0]
            else:
                workloads.pop(uid, None)
        if gang_start.waits(pod) or key in self.gangs:
            self.gang_news.add(key)

    def _drop_pod(self, key: Key, uid: str) -> None:
        if (pods := self.pods.get(key)) is not None:
            pods.pop(uid, None)
            if not pods:
                del self.pods[key]
        if uid in self.placed:
            node, cpu = self.placed.pop(uid)
            count, total = self.requested[node]
            if count > 1:
                self.requested[node] = (count - 1, total - cpu)
            else:
                del self.requested[node]

    def _place(self, uid: str, pod: Document) -> None:
        if not (node := pod["spec"].get("nodeName")):
            return
        if node not in self.counted:
            self.uncounted.add(node)
        if job_status.running_pod(pod):
            cpu = requested_millicores(pod)
            count, total = self.requested.get(node, (0, 0))
            self.placed[uid] = (node, cpu)
            self.requested[node] = (count + 1, total + cpu)

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

    def is_over(self, document: Document, before: int) -> bool:
        """Whether this is a Job that ended before a time (epoch ms)."""
        return 0 < job_status.ended_at(document) < before

    def forget(self, key: Key) -> None:
        """Forget a Job and its pods whose record says that it ended, but for where it lies.

        Kubernetes keeps ended Jobs for an hour, so they would be most of what is kept here.
        """
        if (job := self.jobs.get(key)) is None:
            return
        metadata = job["metadata"]
        self._drop_job(key)
        for uid in list(self.pods.get(key, ())):
            self._drop_pod(key, uid)
            for known in (self.key_by_pod, self.leaving, self.gated, self.entrusted):
                known.pop(uid, None)
            self.warnings.pop(uid, None)
            self.events_read_at.pop(uid, None)
        self.gangs.pop(key, None)
        self.gang_news.discard(key)
        self.statuses.pop(key, None)
        self.resent.discard(key)
        own_time = job_status.time_to_live(job) != job_status.TIME_TO_LIVE_SECONDS
        self.ended[key] = ForgottenJob(
            job_status.ended_at(job),
            str(job["kind"]),
            metadata["namespace"],
            metadata["name"],
            metadata["uid"],
            own_time,
        )

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
        for key in self.gang_news:
            pods = self.pods_of(*key)
            if any(gang_start.waits(pod) for pod in pods):
                gangs = gang_start.group(pods)
                self.gangs[key] = any(job_status.gang_may_start(gang) for gang in gangs.values())
            else:
                self.gangs.pop(key, None)
        self.gang_news.clear()
        return {key[0] for key, may_start in self.gangs.items() if may_start}

    def pods_of(self, workload_id: str, generation: int) -> list[Document]:
        return list(self.pods.get((workload_id, generation), {}).values())


def requested_millicores(pod: Document) -> int:
    return sum(
        parse_quantity("cpu", str(amount))
        for container in pod["spec"].get("containers") or ()
        if (amount := ((container.get("resources") or {}).get("requests") or {}).get("cpu"))
    )
