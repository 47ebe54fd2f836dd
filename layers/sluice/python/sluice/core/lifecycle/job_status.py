"""What the status of a job of any kind, or of a pod, says in Sluice's words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from sluice.core.jobs import gang_start
from sluice.core.jobs.kind import value_at
from sluice.core.jobs.table import MAKERS_OF_JOBS, kind_of, list_pod_sets
from sluice.core.lifecycle.record_entries import JobResult

WORKLOAD_LABEL = "sluice.dev/workload"
GENERATION_LABEL = "sluice.dev/generation"
POD_SET_LABEL = "sluice.dev/pod-set"
STAND_IN = "sluice.dev/restore"
"""Finalizer of a pod in whose place another one is restored, by somebody else and at any time."""

TIME_TO_LIVE_SECONDS = 3600
"""How long Kubernetes keeps an ended Job whose author does not say."""
MOST_TOLD = 64
"""Pods, or nodes, that a record names one by one."""
LONGEST_RANGES = 2_000
"""Characters of the indexes of an array that a record names."""
TOO_LONG = "DeadlineExceeded"  # why a Job failed that ran for its activeDeadlineSeconds

Document = Mapping[str, Any]


def owner(document: Document) -> tuple[str, int] | None:
    """(workload id, generation) of an object of ours, from its labels."""
    labels = document["metadata"].get("labels") or {}
    generation = labels.get(GENERATION_LABEL, "")
    if WORKLOAD_LABEL not in labels or not generation.isdigit():
        return None
    return labels[WORKLOAD_LABEL], int(generation)


def child(document: Document) -> bool:
    """Whether another job of ours, such as a JobSet, made this Job: that one speaks for it."""
    owners = document["metadata"].get("ownerReferences") or ()
    return any(owner["kind"] in MAKERS_OF_JOBS for owner in owners)


def outcome(job: Document) -> JobResult | None:
    """The result of a Job that has ended, without exit codes and nodes of its pods; or None."""
    condition = _final(job)
    if condition is None:
        return None
    reason, message = condition.get("reason") or condition["type"], condition.get("message") or ""
    if reason == TOO_LONG and (longest := job["spec"].get("activeDeadlineSeconds")):
        message = f"it ran longer than the {longest} s of deadlines.maxRuntime ({TOO_LONG})"
    return JobResult(
        succeeded=condition["type"] in kind_of(job).succeeded,
        reason=reason,
        message=message,
        **_indexes(job),
    )


def _final(job: Document) -> Document | None:
    """The condition that says that the Job has ended."""
    kind = kind_of(job)
    for condition in (job.get("status") or {}).get("conditions") or ():
        ends = condition["type"] in (*kind.succeeded, *kind.failed)
        if condition["status"] == "True" and ends:
            return dict(condition)
    return None


def _indexes(job: Document) -> dict[str, Any]:
    """The indexes of an array by what became of them, as Kubernetes writes them: "1,3-5".

    Of very many ranges the first, and `index_counts` besides.
    """
    if job["spec"].get("completionMode") != "Indexed":
        return {}
    status, total = job["status"], job["spec"].get("completions", 1)
    completed = _members(status.get("completedIndexes", ""))
    failed = _members(status.get("failedIndexes", ""))
    unfinished = set(range(total)) - completed - failed
    parts = {"completed": completed, "failed": failed, "unfinished": unfinished}
    texts = {name: _ranges(part) for name, part in parts.items() if part}
    told = {name: _bounded(text) for name, text in texts.items()}
    counts = {name: len(part) for name, part in parts.items() if part}
    return {"indexes": told, **({} if told == texts else {"index_counts": counts})}


def _bounded(ranges: str) -> str:
    """Whole ranges from the first on, with an ellipsis where more would follow."""
    if len(ranges) <= LONGEST_RANGES:
        return ranges
    return ranges[: ranges.rindex(",", 0, LONGEST_RANGES) + 1] + "…"


def _members(ranges: str) -> set[int]:
    found: set[int] = set()
    for part in filter(None, ranges.split(",")):
        first, _, last = part.partition("-")
        found |= set(range(int(first), int(last or first) + 1))
    return found


def _ranges(members: set[int]) -> str:
    """The inverse of `_members`."""
    starts = sorted(n for n in members if n - 1 not in members)
    ends = sorted(n for n in members if n + 1 not in members)
    return ",".join(str(a) if a == b else f"{a}-{b}" for a, b in zip(starts, ends, strict=True))


def ended_at(job: Document) -> int:
    """When a Job came to its end, in epoch ms; 0 if it has not, or does not say when."""
    text = (_final(job) or {}).get("lastTransitionTime")
    return _epoch_ms(text) if text else 0


def ended_by_deletion(job: Document) -> bool:
    """Whether a failure only says that the Job's pods obeyed when it was deleted."""
    condition, deleted_at = _final(job), job["metadata"].get("deletionTimestamp")
    if condition is None or not deleted_at or condition["type"] in kind_of(job).succeeded:
        return False
    # Both are of the API server's form, in whole seconds: text compares as time does.
    return str(condition.get("lastTransitionTime") or deleted_at) >= str(deleted_at)


def ready_at(pods: Iterable[Document]) -> int:
    """Since when the last of its pods is ready (epoch ms); 0 if they do not all say it."""
    since = [_ready_since(pod) for pod in pods if running_pod(pod)]
    return max(_epoch_ms(at) for at in since) if since and all(since) else 0


def _ready_since(pod: Document) -> str:
    """The time of its condition Ready, as Kubernetes writes it; empty if it is not ready."""
    for condition in (pod.get("status") or {}).get("conditions") or ():
        if condition["type"] == "Ready" and condition["status"] == "True":
            return str(condition.get("lastTransitionTime", ""))
    return ""


def all_ready(job: Document, pods: Iterable[Document]) -> bool:
    """Whether every pod that should run is ready or already done.

    Of kinds whose status does not say it, the pods of each pod set are counted.
    """
    kind = kind_of(job)
    if kind.all_ready is not None:
        return kind.all_ready(job)
    ready = Counter(_pod_set(pod) for pod in pods if is_ready(pod))
    return all(ready[pod_set.name] >= pod_set.count for pod_set in list_pod_sets(job))


def is_ready(pod: Document) -> bool:
    """Whether a pod is ready, or has done its work."""
    return bool(_ready_since(pod)) or (pod.get("status") or {}).get("phase") == "Succeeded"


def _pod_set(pod: Document) -> str:
    return str((pod["metadata"].get("labels") or {}).get(POD_SET_LABEL, ""))


def suspended(job: Document) -> bool:
    return bool(value_at(job, kind_of(job).suspend))


def time_to_live(job: Document) -> int | None:
    """How many seconds Kubernetes keeps it once it has ended; None: for ever, as far as it says."""
    path = kind_of(job).time_to_live
    seconds = value_at(job, path) if path else None
    return None if seconds is None else int(seconds)


def exit_codes(pods: Iterable[Document]) -> dict[str, dict[str, int]]:
    """Pod → container → exit code, of every container that has ended."""
    codes: dict[str, dict[str, int]] = {}
    for pod in pods:
        for container in (pod.get("status") or {}).get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated")
            if ended:
                codes.setdefault(pod["metadata"]["name"], {})[container["name"]] = ended["exitCode"]
    return codes


def told_exit_codes(codes: Mapping[str, Mapping[str, int]]) -> dict[str, Any]:
    """What a record keeps of the exit codes: all of few pods; of many, counts and some failures.

    DynamoDB limits a record to 400 KB, which the codes of 10,000 pods alone would fill.
    """
    if len(codes) <= MOST_TOLD:
        return {"exit_codes": codes}
    counts = Counter(str(int(code)) for pod in codes.values() for code in pod.values())
    failed = sorted(name for name, containers in codes.items() if any(containers.values()))
    return {
        "exit_codes": {name: codes[name] for name in failed[:MOST_TOLD]},
        "exit_code_counts": dict(sorted(counts.items())),
    }


def why_failed(pods: Iterable[Document]) -> str:
    """For people: the first container that ended badly, or what a pod says of itself."""
    for pod in pods:
        name, status = pod["metadata"]["name"], pod.get("status") or {}
        for container in status.get("containerStatuses") or ():
            ended = (container.get("state") or {}).get("terminated")
            if ended and ended["exitCode"]:
                reason = ended.get("reason") or "Error"
                tail = f": {ended['message']}" if ended.get("message") else ""
                return (
                    f"container {container['name']} of pod {name} exited with"
                    f" {ended['exitCode']} ({reason}){tail}"
                )
        if status.get("phase") == "Failed" and status.get("message"):
            return f"pod {name}: {status.get('reason', 'Failed')}: {status['message']}"
    return ""


def failed_by_itself(pod: Document) -> bool:
    """Whether the pod failed, and not because its node went away."""
    status = pod.get("status") or {}
    disrupted = any(
        condition["type"] == "DisruptionTarget" and condition["status"] == "True"
        for condition in status.get("conditions") or ()
    )
    return status.get("phase") == "Failed" and not disrupted


def running_pod(pod: Document) -> bool:
    """Whether the pod, or the one that is restored in its place, may still execute anything."""
    phase = (pod.get("status") or {}).get("phase")
    return stands_in(pod) or phase not in ("Succeeded", "Failed")


def gang_may_start(pods: Iterable[Document]) -> bool:
    """Whether the pods of one gang, ended ones among them, wait for nothing but each other."""
    running, ended = list[Document](), list[Document]()
    for pod in pods:
        (running if running_pod(pod) else ended).append(pod)
    return gang_start.may_start(running, ended)


def stands_in(pod: Document) -> bool:
    return STAND_IN in (pod["metadata"].get("finalizers") or ())


def bare(pod: Document) -> bool:
    """Whether no controller owns the pod, as none owns what was restored just now."""
    owners = pod["metadata"].get("ownerReferences") or ()
    return not any(owner.get("controller") for owner in owners)


def outlive_their_job(job: Document, pods: Iterable[Document]) -> bool:
    """Whether something may run of which the end of the Job says nothing."""
    early = kind_of(job).ends_before_its_pods
    return any(stands_in(pod) or ((early or bare(pod)) and running_pod(pod)) for pod in pods)


def ended_when_deleted(pod: Document) -> int:
    """When a pod that was told to go had ended, by its node's word (epoch ms); 0 if it has not."""
    metadata, status = pod["metadata"], pod.get("status") or {}
    if running_pod(pod) or not metadata.get("deletionTimestamp"):
        return 0
    ends = [
        ended["finishedAt"]
        for container in status.get("containerStatuses") or ()
        if (ended := (container.get("state") or {}).get("terminated")) and ended.get("finishedAt")
    ]
    return _epoch_ms(max(ends, default=metadata["deletionTimestamp"]))


def _epoch_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
