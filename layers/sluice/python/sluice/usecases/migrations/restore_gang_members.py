"""Hand each pod of a restored gang its part of the set, and only then let it be scheduled.

The template of a Job names one checkpoint for all of its pods, so they are made with a scheduling
gate. Whatever Kubernetes makes anew in this generation is handed the same part again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from sluice.core.checkpoints.driver import is_set
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload
from sluice.core.migrations import gangs
from sluice.core.migrations.checkpointing import Checkpoint, Part
from sluice.core.migrations.cpu_compatibility import node_labels
from sluice.core.migrations.pod_annotations import RESTORE_DIGEST, RESTORE_FROM
from sluice.core.values.reasons import Reason
from sluice.ports import Cluster, Document, Migrations, Workloads
from sluice.usecases.migrations import pod_writer
from sluice.usecases.migrations.placeholders import remove_placeholders
from sluice.usecases.migrations.pods_of_run import pods_of


@dataclass(frozen=True)
class RestoreGangMembers:
    """Only a set that the catalogue names is handed out, so that no run starts from half of one."""

    workloads: Workloads
    migrations: Migrations

    def __call__(self, cluster: Cluster, workload: Workload) -> None:
        waiting = [pod for pod in pods_of(cluster, workload) if gangs.waits_for_part(pod)]
        if not waiting:
            return
        source = workload.restore_from
        kept = self.migrations.checkpoints(workload.id)
        found = next((each for each in kept if each.source == source), None)
        if found is None or not names_all(found, waiting):
            what = "is not in its catalogue any more" if found is None else "lacks one of its pods"
            why = f"the set {source} {what}, so none of them is started"
            unusable = Intent(IntentKind.MIGRATE, Reason.CHECKPOINT_UNUSABLE, why)
            self.workloads.apply([lifecycle.reclaim(workload, unusable)])
            return
        remove_placeholders(cluster, workload)
        parts = {part.name: part for part in found.parts}
        for pod in waiting:
            pod_writer.patch(cluster, pod, released(pod, parts[gangs.part_of(pod)]))


def restores_set(workload: Workload) -> bool:
    return workload.state is State.DISPATCHED and is_set(workload.restore_from)


def names_all(found: Checkpoint, pods: Iterable[Document]) -> bool:
    return {gangs.part_of(pod) for pod in pods} <= {part.name for part in found.parts}


def released(pod: Document, part: Part) -> Document:
    """One patch, so that no pod is ever scheduled without its part."""
    spec = pod["spec"]
    gates = [gate for gate in spec["schedulingGates"] if gate["name"] != gangs.GATE]
    marks = {RESTORE_FROM: part.source, RESTORE_DIGEST: part.digest}
    change: Document = {"schedulingGates": gates}
    if labels := node_labels(part.cpu):
        change["nodeSelector"] = {**labels, **(spec.get("nodeSelector") or {})}
    if part.image:
        change["containers"] = with_image(spec["containers"], part.image)
    return {
        "metadata": {
            "uid": pod["metadata"]["uid"],
            "annotations": {name: text for name, text in marks.items() if text},
        },
        "spec": change,
    }


def with_image(containers: Sequence[Document], image: str) -> list[Document]:
    """A merge patch replaces lists whole; the image is all that Kubernetes lets change."""
    (first, *others) = containers
    return [{**first, "image": image}, *others]
