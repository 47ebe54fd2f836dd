"""On which machines dumped processes can go on: those with the same make and generation of CPU.

CRIU restores the registers and the vector state of a process as they were saved, so the machine
must know the same instructions: neither another vendor's does, nor always another generation's.
Source: facts, checkpoint-restore §3 (`cpu_mismatch`), spot-and-karpenter §6.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

MANUFACTURER: Final = "karpenter.k8s.aws/instance-cpu-manufacturer"
GENERATION: Final = "karpenter.k8s.aws/instance-generation"


def cpu_of(labels: Mapping[str, str]) -> str:
    """The CPU of a node, such as `intel/7`; empty if its labels do not tell both."""
    made, generation = labels.get(MANUFACTURER, ""), labels.get(GENERATION, "")
    return f"{made}/{generation}" if made and generation else ""


def node_labels(cpu: str) -> dict[str, str]:
    """What a node must be labelled with to have it; nothing where it is not known."""
    made, _, generation = cpu.partition("/")
    return {MANUFACTURER: made, GENERATION: generation} if generation else {}
