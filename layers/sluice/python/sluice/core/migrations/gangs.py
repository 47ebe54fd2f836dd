"""Gangs: workloads of several pods, of which all are saved as one set, or none is.

A pod that ends and begins again has another name, so what tells one member from the others is its
completion index; pods without one are nobody in particular, and cannot be given their own dump.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

from sluice.core.jobs.table import kind_of, list_pod_sets
from sluice.core.lifecycle.record import Workload

Document = Mapping[str, Any]

INDEX: Final = "batch.kubernetes.io/job-completion-index"
REPLICATED_JOB: Final = "jobset.sigs.k8s.io/replicatedjob-name"
JOB_INDEX: Final = "jobset.sigs.k8s.io/job-index"
GATE: Final = "sluice.dev/restore"
"""Keeps a pod from being scheduled until it has been handed its part of a set."""
MOST_PARTS: Final = 64
"""A set is one entry of the catalogue, which DynamoDB limits to 400 kB with all others."""


def members(workload: Workload) -> int:
    """How many pods of the workload run at once, as admitted."""
    if workload.reservation is not None:
        return sum(assigned.count for assigned in workload.reservation.pod_sets)
    return sum(pod_set.count for pod_set in workload.pod_sets)


def part_of(pod: Document) -> str:
    """Which member a pod is: `2`, in a JobSet `workers-0-2`; empty if it is nobody in particular.

    Source: the labels and annotations of the Job and JobSet controllers.
    """
    metadata = pod["metadata"]
    marks = {**(metadata.get("annotations") or {}), **(metadata.get("labels") or {})}
    index = str(marks.get(INDEX, ""))
    if not index or REPLICATED_JOB not in marks:
        return index
    return f"{marks[REPLICATED_JOB]}-{marks.get(JOB_INDEX, '0')}-{index}"


def why_no_set(workload: Workload, job: Document | None, pods: Sequence[Document]) -> str:
    """Why the members cannot be saved as one set; empty if they can, or if there is one only.

    `pods` are those of its generation that may still execute anything.
    """
    expected = members(workload)
    if expected == 1:
        return ""
    if expected > MOST_PARTS:
        return f"a gang of {expected} pods is larger than a set of {MOST_PARTS} dumps"
    if job is None:
        return "its Job is gone"
    for pod_set in list_pod_sets(job):
        spec = pod_set.job or {}
        if spec.get("completionMode", kind_of(job).completion_mode) != "Indexed":
            return "pods without a completion index cannot be told apart, so none gets its own dump"
        together = spec.get("parallelism", 1)
        if spec.get("completions", together) != together:
            return f"only {together} of {spec['completions']} indexes run at once"
    names = {part_of(pod) for pod in pods if (pod.get("status") or {}).get("phase") == "Running"}
    if "" in names:
        return "pods without a completion index cannot be told apart, so none gets its own dump"
    if len(names) != expected or len(pods) != expected:
        return f"{len(names)} of {expected} members run: what has ended has nothing to dump"
    return ""


def most_on_one_node(pods: Sequence[Document]) -> int:
    """How many of the pods share a node, where they share it most; at least one."""
    return max(Counter(pod["spec"].get("nodeName", "") for pod in pods).values(), default=1)


def address(archives: Iterable[str]) -> str:
    """The folder of one order, in which all of these archives lie; empty if they do not.

    Archives of different orders never form a set.
    """
    folders = {archive.rpartition("/")[0] for archive in archives}
    (folder, *others) = folders or {""}
    return f"{folder}/" if folder.startswith("s3://") and not others else ""


def waits_for_part(pod: Document) -> bool:
    return any(gate["name"] == GATE for gate in pod["spec"].get("schedulingGates") or ())
