"""CRIU dumps the processes of a pod through its kubelet, and the node agent stores the archive."""

from __future__ import annotations

from sluice.core.checkpoints.driver import (
    IN_S3,
    Capability,
    CheckpointDriver,
    CheckpointMode,
    PodFacts,
    RestoreNeeds,
    is_set,
)


class KubeletCheckpoints(CheckpointDriver):
    mode = CheckpointMode.KUBELET
    closes_connections = True
    filters_calls = True

    def why_not(self, pods: PodFacts, node: Capability) -> str:
        if pods.gpus:
            return "processes on GPUs cannot be dumped"
        if pods.containers > 1:
            return f"a pod of {pods.containers} containers cannot be dumped as one"
        if pods.gang:
            return pods.gang
        if pods.refused:
            return pods.refused
        return "" if node.kubelet else node.reason

    def restore_needs(self, source: str) -> RestoreNeeds:
        if is_set(source):  # each pod is handed its own archive
            return RestoreNeeds(gated=True)
        image = "" if source.startswith(IN_S3) else source
        return RestoreNeeds(annotated=bool(source), image=image)
