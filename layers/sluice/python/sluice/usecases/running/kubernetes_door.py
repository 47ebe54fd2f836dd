"""Submits what users create in a cluster themselves, and cancels what they delete there."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from sluice.core.intake.kubernetes_door import created_ms, document_of, user_of
from sluice.core.jobs.table import KINDS
from sluice.core.lifecycle import in_place, job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import (
    Change,
    ClusterObject,
    Intent,
    IntentKind,
    State,
    Workload,
)
from sluice.core.values.identity import workload_id
from sluice.core.values.reasons import Reason
from sluice.ports import Clock, Cluster, Document, Workloads
from sluice.usecases.admitting.submit import Message, Submit
from sluice.usecases.configuration import cluster_spec
from sluice.usecases.object_events import NORMAL, WARNING, tell
from sluice.usecases.running.problems import Problems

KINDS_AT_DOOR = tuple(kind.kind for kind in KINDS.values() if kind.starts_in_place)


@dataclass
class KubernetesDoor:
    """Level-triggered: an object that has a record is left alone, whoever asks how often."""

    submit: Submit
    workloads: Workloads
    clock: Clock
    problems: Problems
    known: set[str] = field(default_factory=set)
    """UIDs of objects that have a record."""
    busy: bool = False
    """Whether anything stands there, or may come at any time: then somebody has to look."""

    def look(self, name: str, cluster: Cluster) -> dict[str, str]:
        """Submits what stands there; the version of each kind from which to watch for more."""
        versions: dict[str, str] = {}
        self.busy = cluster_spec(self.submit.catalog.snapshot(), name).always_watched
        for kind in KINDS_AT_DOOR:
            listed, versions[kind] = cluster.list(kind, selector=in_place.QUEUE_LABEL)
            self.busy |= any(job_status.outcome({"kind": kind, **job}) is None for job in listed)
            api = KINDS[kind].api_version
            self.take(name, cluster, [{"apiVersion": api, "kind": kind, **job} for job in listed])
        return versions

    def follow(self, name: str, cluster: Cluster, events: Iterable[tuple[str, Document]]) -> None:
        """Events of the watch: change and object."""
        events = list(events)
        self.take(name, cluster, [job for change, job in events if change != "DELETED"])
        self.cancel(job for change, job in events if change == "DELETED")

    def take(self, name: str, cluster: Cluster, jobs: Iterable[Document]) -> None:
        """Submits the new ones among the objects that stand at the door of the cluster `name`."""
        fresh = {
            job["metadata"]["uid"]: job
            for job in jobs
            if is_waiting(job) and job["metadata"]["uid"] not in self.known
        }
        unknown = self.without_record(fresh) if fresh else []
        if not unknown:
            self.known |= fresh.keys()
            return
        done = self.submit([message_of(name, job) for job in unknown])
        for failure in done.failed:
            self.problems.report(failure.error)
        failed = {failure.message_id for failure in done.failed}
        for job, record in self.records_of(unknown):
            announce(cluster, job, record, self.clock.now())
        self.known |= fresh.keys() - failed

    def without_record(self, jobs: Mapping[str, Document]) -> list[Document]:
        recorded = {
            w.object.uid for w in self.workloads.get_many(map(id_of, jobs.values())) if w.object
        }
        return [job for uid, job in jobs.items() if uid not in recorded]

    def records_of(self, jobs: Sequence[Document]) -> list[tuple[Document, Workload]]:
        found = {w.id: w for w in self.workloads.get_many(map(id_of, jobs))}
        nobodys = self.workloads.get_many(workload_id("", j["metadata"]["uid"]) for j in jobs)
        by_uid = {w.object.uid: w for w in (*found.values(), *nobodys) if w.object}
        uids = [(job, job["metadata"]["uid"]) for job in jobs]
        return [(job, by_uid[uid]) for job, uid in uids if uid in by_uid]

    def cancel(self, jobs: Iterable[Document]) -> None:
        """Their objects are gone from the cluster, and with them what could run."""
        gone = {job["metadata"]["uid"]: job for job in jobs if job_status.outcome(job) is None}
        if not gone:
            return
        records = self.workloads.get_many(map(id_of, gone.values()))
        changes = (cancelled(w, self.clock.now()) for w in records)
        self.workloads.apply([change for change in changes if change is not None])


def is_waiting(job: Document) -> bool:
    """Whether nobody has prepared it for a generation yet, and it is there to stay."""
    prepared = job_status.owner(job) is not None
    if prepared or job["metadata"].get("deletionTimestamp") or not in_place.came_by_door(job):
        return False
    # Another scheduler's Jobs, of before, may run or have ended.
    return job_status.suspended(job) and job_status.outcome(job) is None


def id_of(job: Document) -> str:
    return workload_id(job["metadata"]["namespace"], job["metadata"]["uid"])


def message_of(cluster: str, job: Document) -> Message:
    metadata = job["metadata"]
    return Message(
        id=metadata["uid"],
        sender=user_of(job),
        sent_at=created_ms(job),
        body=json.dumps(document_of(job)),
        object=ClusterObject(cluster, metadata["name"], metadata["uid"]),
        namespace=metadata["namespace"],
    )


def announce(cluster: Cluster, job: Document, record: Workload, now: int) -> None:
    """Where the object's owner looks: what became of it, with the id under which to ask."""
    if record.state is State.REJECTED:
        text = f"{record.reason.code}: {record.reason.message}"
        tell(cluster, job, "Refused", text, kind=WARNING, now=now)
        return
    text = f"workload {record.id} waits in {record.queue}; `sluice why {record.id}`"
    tell(cluster, job, "Queued", text, kind=NORMAL, now=now)


def cancelled(workload: Workload, now: int) -> Change | None:
    """The change for a workload whose object was deleted; None if it has ended or is ending so."""
    if workload.state is State.PENDING:
        return lifecycle.cancel_pending(workload, in_place.DELETED, now)
    intent = Intent(IntentKind.CANCEL, Reason.CANCELLED_BY_USER, in_place.DELETED)
    if workload.state in (State.ADMITTED, State.DISPATCHED):
        return lifecycle.reclaim(workload, intent)
    stopping = workload.intent
    if workload.state is State.RECLAIMING and stopping and stopping.kind is not IntentKind.CANCEL:
        return lifecycle.change_intent(workload, intent)
    return None
