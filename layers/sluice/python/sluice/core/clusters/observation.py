"""What a cluster shows, and which changes of records follow from it. Pure, apart from its cache."""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from sluice.core.accounting import machines
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.cost_limit import overspent
from sluice.core.lifecycle.record import Change, Intent, IntentKind, State, Workload, is_migrating
from sluice.core.lifecycle.stuck_pods import Stuck, in_preparation, stuck
from sluice.core.migrations.cedana import is_entrusted
from sluice.core.migrations.checkpointing import DUMPING, checkpoint_mode
from sluice.core.migrations.cpu_compatibility import cpu_of
from sluice.core.migrations.gangs import waits_for_part
from sluice.core.migrations.interruption import epoch_ms
from sluice.core.migrations.pod_annotations import LEAVING, annotations_of
from sluice.core.migrations.restoring import why_not_restored
from sluice.core.values.backoff import backoff_ms
from sluice.core.values.quantity import parse_quantity
from sluice.core.values.reasons import Reason

Document = dict[str, Any]
Key = tuple[str, int]

LATE_DISPATCH_MS = 15_000
PREPARED_MS = 10_000
"""After so long, images and volumes are there as a rule, and a node has warned if one is not."""
ASK_AGAIN_MS = 30_000
MOST_ASKED = 20  # pods at one look: large images take long, too
CHECKPOINT = "sluice.dev/checkpoint"


@dataclass
class Seen:
    """The Jobs (by workload, generation) and pods of ours on a cluster, as last seen."""

    jobs: dict[Key, Document] = field(default_factory=dict)
    pods: dict[Key, dict[str, Document]] = field(default_factory=dict)
    noted: dict[Key, str] = field(default_factory=dict)
    leaving: dict[str, str] = field(default_factory=dict)
    """Pods (by UID) on machines that go away, and the workloads to which they belong."""
    gated: dict[str, str] = field(default_factory=dict)
    """Pods (by UID) that wait for what they are restored from, and whose they are."""
    entrusted: dict[str, str] = field(default_factory=dict)
    """Pods (by UID) that Cedana is to save, or has just restored, and whose they are."""
    placed: dict[str, Key] = field(default_factory=dict)
    """Where pods (by UID) are counted: what was restored is handed to a later generation."""
    reminded: set[Key] = field(default_factory=set)
    counted: set[str] = field(default_factory=set)
    """Nodes that stand in the inventory; their ends are understood."""
    strange: set[str] = field(default_factory=set)
    """Nodes with pods of ours that do not stand there yet."""
    warned: dict[str, Stuck] = field(default_factory=dict)
    """What events say of pods (by UID) that are being prepared."""
    asked: dict[str, int] = field(default_factory=dict)
    """Pods (by UID) whose events were asked for, and when."""
    inventory: dict[str, Document] = field(default_factory=dict)
    """By node name: machines with their prices, as last counted; those that are gone stay."""

    def fresh_news(self, key: Key) -> bool:
        """Whether the Job says something that it had not said at the last question."""
        news, before = self._news(key), self.noted.get(key, "")
        self.noted[key] = news
        return news not in ("", before)

    def _news(self, key: Key) -> str:
        job = self.jobs.get(key)
        if job is None:
            return "gone"
        if job_status.outcome(job) is not None:
            return "ended"
        if job_status.all_ready(job):
            return "ready"
        return str(stuck(self.pods_of(*key), self.warned) or "")

    def take(self, kind: str, change: str, document: Document) -> Key | None:
        """Remember one event; the workload and generation that it is about."""
        key = job_status.owner(document)
        if key is None or job_status.child(document):
            return None
        uid = document["metadata"]["uid"]
        if kind == "Pod":
            self._take_pod(key, document, deleted=change == "DELETED")
        elif change != "DELETED":
            self.jobs[key] = document
        elif key in self.jobs and self.jobs[key]["metadata"]["uid"] == uid:
            del self.jobs[key]
        return key

    def _take_pod(self, key: Key, pod: Document, *, deleted: bool) -> None:
        uid = pod["metadata"]["uid"]
        self.pods.get(self.placed.pop(uid, key), {}).pop(uid, None)
        if deleted:
            self.warned.pop(uid, None)
            self.asked.pop(uid, None)
        else:
            self.pods.setdefault(key, {})[uid] = pod
            self.placed[uid] = key
            if (node := pod["spec"].get("nodeName")) and node not in self.counted:
                self.strange.add(node)
        for who, belongs in (
            (self.leaving, LEAVING in annotations_of(pod)),
            (self.gated, waits_for_part(pod)),
            (self.entrusted, is_entrusted(pod)),
        ):
            if belongs and not deleted:
                who[uid] = key[0]
            else:
                who.pop(uid, None)

    def know(self, nodes: Iterable[str], rows: Iterable[Document] = ()) -> None:
        """These nodes, and whatever was strange before they were listed, are looked for no more.

        `rows` of the inventory are of those among them that are machines of EC2.
        """
        rows = list(rows)
        # Karpenter labels a node a moment after it has joined; until then it has no price.
        unlabelled = {row["node"] for row in rows if not row["type"]}
        self.counted |= {*nodes, *self.strange} - unlabelled
        self.strange &= unlabelled
        self.inventory |= {row["node"]: row for row in rows}

    def settle(self, active: Container[str], before: int) -> None:
        """Forget Jobs that ended before a time (epoch ms) unless a record is active: all is said.

        Kubernetes keeps ended Jobs for an hour, so they are most of what a list shows.
        """
        for key, job in list(self.jobs.items()):
            if key[0] not in active and 0 < job_status.ended_at(job) < before:
                del self.jobs[key]
                self.pods.pop(key, None)

    def long_prepared(self, records: Iterable[Workload], now: int) -> list[Document]:
        """Pods that do not start, of workloads that have not: whose events may say why."""
        waiting = [
            pod
            for w in records
            if w.state is State.DISPATCHED and not w.started_at
            for pod in self.pods_of(w.id, w.generation)
            if in_preparation(pod) and now - w.dispatched_at > PREPARED_MS
        ]
        due = [pod for pod in waiting if now - self._asked_at(pod) > ASK_AGAIN_MS]
        return sorted(due, key=self._asked_at)[:MOST_ASKED]

    def _asked_at(self, pod: Document) -> int:
        return self.asked.get(pod["metadata"]["uid"], 0)

    def hear(self, pod: Document, said: Stuck | None, now: int) -> None:
        """What the events of a pod say; Kubernetes forgets them after an hour, and repeats some."""
        uid = pod["metadata"]["uid"]
        self.asked[uid] = now
        if said is not None:
            self.warned[uid] = said

    def pressing(self) -> list[str]:
        """Workloads of which only a look at the cluster tells what is to be done next."""
        return sorted({w for of in (self.leaving, self.gated, self.entrusted) for w in of.values()})

    def ids(self) -> list[str]:
        return list(dict.fromkeys(workload for workload, _ in self.jobs))

    def pods_of(self, workload_id: str, generation: int) -> list[Document]:
        return list(self.pods.get((workload_id, generation), {}).values())


def judge(workload: Workload, seen: Seen, now: int, pods_ready_ms: int) -> Iterator[Change]:
    """What the Job of the present generation says: running, finished, or late with its pods."""
    job = seen.jobs.get((workload.id, workload.generation))
    if job is None or not workload.uid or job["metadata"]["uid"] != workload.uid:
        return
    pods = seen.pods_of(workload.id, workload.generation)
    ended = job_status.outcome(job)
    if why := why_not_restored(workload, job, pods):
        if workload.state is State.DISPATCHED:
            intent = Intent(IntentKind.MIGRATE, Reason.CHECKPOINT_UNUSABLE, why)
            machine = machines.held(pods, seen.inventory, workload.machine)
            yield lifecycle.noting(lifecycle.reclaim(workload, intent), machine)
    elif ended is not None:
        # Whatever the record said when it was read: the Job may have been deleted since.
        obeyed = job_status.ended_by_deletion(job)
        settled = not job_status.outlive_their_job(pods)
        if workload.state in (State.DISPATCHED, State.RECLAIMING) and not obeyed and settled:
            machine = machines.held(pods, seen.inventory, workload.machine)
            ended_at = max(
                _to_the_second(job_status.ended_at(job), now),
                workload.started_at or workload.dispatched_at,
            )
            yield lifecycle.finish(workload, _result(ended, pods), ended_at, machine)
    elif workload.state is State.DISPATCHED:
        machine = machines.held(pods, seen.inventory, workload.machine)
        for change in _ongoing(workload, job, pods, seen.warned, now, pods_ready_ms):
            yield lifecycle.noting(change, machine)


def _to_the_second(told: int, now: int) -> int:
    """When something happened of which Kubernetes tells the second, or (0) nothing."""
    return min(now, told + 999) if told else now


def _ongoing(
    workload: Workload,
    job: Document,
    pods: Sequence[Document],
    warned: Mapping[str, Stuck],
    now: int,
    pods_ready_ms: int,
) -> Iterator[Change]:
    """Of a Job that has not ended."""
    if (too_dear := overspent(workload, now)) is not None:
        yield lifecycle.reclaim(workload, too_dear)
    elif not workload.started_at:
        if job_status.all_ready(job):
            seen_at = _to_the_second(job_status.ready_at(pods), now)
            yield lifecycle.start(workload, max(seen_at, workload.dispatched_at))
        else:
            yield from _not_started(workload, pods, warned, now, pods_ready_ms)
    elif begun_anew(workload, pods):
        message = "its machine vanished, and Kubernetes began anew; it goes on from its checkpoint"
        intent = Intent(IntentKind.MIGRATE, Reason.RESTORING_CHECKPOINT, message)
        yield lifecycle.reclaim(workload, intent)


def _not_started(
    workload: Workload,
    pods: Sequence[Document],
    warned: Mapping[str, Stuck],
    now: int,
    pods_ready_ms: int,
) -> Iterator[Change]:
    """An image that cannot be had ends it; what may yet be mended, such as a Secret, is waited for.

    The kubelet's message may differ at each of its attempts, so only another word is told again.
    """
    why = stuck(pods, warned)
    if why is not None and why.code is Reason.IMAGE_PULL:
        yield lifecycle.reclaim(workload, Intent(IntentKind.FAIL, why.code, str(why)))
    elif now - workload.dispatched_at > pods_ready_ms:
        yield lifecycle.reclaim(workload, _too_late(workload, now, pods_ready_ms, why))
    elif why is not None and not (why.passes and now - workload.dispatched_at <= PREPARED_MS):
        told = workload.reason.get("code"), workload.reason.get("message", "").partition(":")[0]
        if told != (why.code, why.word):
            yield lifecycle.hinder(workload, why.code, str(why))


def begun_anew(workload: Workload, pods: Sequence[Document]) -> bool:
    """Whether a pod replaces a vanished one of which there is a later state than its own.

    A pod that was retried after a failure is no such pod: it would only fail again.
    """
    if (
        checkpoint_mode(workload.options) not in DUMPING
        or workload.checkpoint_at <= workload.started_at
    ):
        return False
    if any(job_status.failed_by_itself(pod) for pod in pods):
        return False
    made = [pod["metadata"].get("creationTimestamp", "") for pod in pods]
    return any(text and epoch_ms(text) > workload.checkpoint_at for text in made)


def disappeared(workload: Workload, seen: Seen, now: int) -> Iterator[Change]:
    """A Job that is no longer there: the proof that a reclaimed generation is gone, or a loss."""
    job = seen.jobs.get((workload.id, workload.generation))
    if workload.state not in (State.DISPATCHED, State.RECLAIMING) or workload.gone:
        return
    if job is not None and (not workload.uid or job["metadata"]["uid"] == workload.uid):
        return
    pods = seen.pods_of(workload.id, workload.generation)
    if any(job_status.running_pod(pod) for pod in pods):
        return  # somebody deleted the Job without its pods: they still count
    if workload.state is State.RECLAIMING:
        yield lifecycle.gone(workload)
    else:
        message = f"its Job vanished from {workload.cluster}"
        intent = Intent(IntentKind.REQUEUE, Reason.JOB_LOST, message, not_before=now)
        yield lifecycle.reclaim(workload, intent)


def orphans(
    known: Mapping[str, Workload], seen: Seen, only: Container[Key] | None = None
) -> Iterator[Document]:
    """Jobs that no record stands for: left by a stale dispatcher, or of an ended generation."""
    for key, job in seen.jobs.items():
        workload_id, generation = key
        workload = known.get(workload_id)
        if job["metadata"].get("deletionTimestamp") or (only is not None and key not in only):
            continue
        if workload is None or workload.generation != generation:
            yield job
        elif workload.state is State.ADMITTED:
            continue
        elif workload.state in (State.DISPATCHED, State.RECLAIMING, State.FINISHED):
            if workload.uid and workload.uid != job["metadata"]["uid"]:
                yield job
        else:
            yield job


def unfinished_business(records: Iterable[Workload], seen: Seen, now: int) -> list[str]:
    """Workloads whose command was lost: not dispatched, not un-suspended, not deleted yet.

    Or whose pods wait for their parts of a set.

    A dispatch is asked for once: under load its command may only be waiting for its turn, and
    repetitions would make the queue longer.
    """
    late = []
    for workload in records:
        key = workload.id, workload.generation
        job = seen.jobs.get(key)
        if workload.state is State.DISPATCHED and workload.id in seen.gated.values():
            late.append(workload.id)
        elif workload.state is State.RECLAIMING:
            deleting = job is not None and bool(job["metadata"].get("deletionTimestamp"))
            if is_migrating(workload) or not (
                workload.gone or (deleting and not _left_behind(seen, key))
            ):
                late.append(workload.id)
        elif _dispatch_is_late(workload, job, now - LATE_DISPATCH_MS) and key not in seen.reminded:
            seen.reminded.add(key)
            late.append(workload.id)
    return late


def _left_behind(seen: Seen, key: Key) -> bool:
    """Whether a deleted Job is kept only by pods that have ended: their node may have gone, too."""
    pods = seen.pods_of(*key)
    return bool(pods) and not any(job_status.running_pod(pod) for pod in pods)


def _dispatch_is_late(workload: Workload, job: Document | None, since: int) -> bool:
    if workload.state is State.ADMITTED:
        return not workload.gated and workload.admitted_at < since
    claimed = workload.state is State.DISPATCHED and workload.dispatched_at < since
    return claimed and job is not None and job_status.suspended(job)


def requested_cpu(seen: Seen) -> dict[str, int]:
    """Node → millicores that our running pods request there."""
    total: dict[str, int] = {}
    for pods in seen.pods.values():
        for pod in pods.values():
            node = pod["spec"].get("nodeName")
            if node and job_status.running_pod(pod):
                for container in pod["spec"]["containers"]:
                    requests = (container.get("resources") or {}).get("requests") or {}
                    total[node] = total.get(node, 0) + parse_quantity(
                        "cpu", str(requests.get("cpu", "0"))
                    )
    return total


def node_row(node: Document, now: int) -> Document | None:
    """One line of the inventory; None for a machine that is no EC2 instance."""
    metadata, labels = node["metadata"], node["metadata"].get("labels") or {}
    provider = (node.get("spec") or {}).get("providerID", "")
    if not provider.startswith("aws:///"):
        return None
    conditions: Sequence[Document] = (node.get("status") or {}).get("conditions") or ()
    ready = any(c["type"] == "Ready" and c["status"] == "True" for c in conditions)
    return {
        "instance": provider.rsplit("/", 1)[-1],
        "node": metadata["name"],
        "type": labels.get("node.kubernetes.io/instance-type", ""),
        "zone": labels.get("topology.kubernetes.io/zone", ""),
        "capacity_type": labels.get("karpenter.sh/capacity-type", ""),
        "nodepool": labels.get("karpenter.sh/nodepool", ""),
        "created": metadata.get("creationTimestamp", ""),
        "allocatable": dict((node.get("status") or {}).get("allocatable") or {}),
        "ready": ready,
        "reservation": labels.get("karpenter.k8s.aws/capacity-reservation-id", ""),
        "cpu": cpu_of(labels),
        "checkpoint": labels.get(CHECKPOINT, ""),
        "checkpoint_reason": (metadata.get("annotations") or {}).get(f"{CHECKPOINT}-reason", ""),
        "seen_at": now,
    }


def _result(ended: Mapping[str, Any], pods: Sequence[Document]) -> dict[str, Any]:
    result = dict(ended) | {"exit_codes": job_status.exit_codes(pods)}
    result["nodes"] = sorted(
        {pod["spec"]["nodeName"] for pod in pods if pod["spec"].get("nodeName")}
    )
    killed = ended["reason"] == job_status.TOO_LONG  # so that what its pods say is no cause
    if not (ended["succeeded"] or killed) and (why := job_status.why_failed(pods)):
        result["message"] = why
    return result


def _too_late(workload: Workload, now: int, pods_ready_ms: int, why: Stuck | None) -> Intent:
    wait = backoff_ms(workload.requeues)
    message = (
        f"not all pods were ready within {pods_ready_ms // 1000} s;"
        f" back in the queue, next try in {wait // 1000} s"
    )
    code = Reason.WAITING_FOR_NODE
    if why is not None:
        code, message = why.code, f"{why}; {message}"
    return Intent(IntentKind.REQUEUE, code, message, not_before=now + wait)
