"""What a pod's annotations order its node's agent to do."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from sluice.core.job_status import GENERATION_LABEL, WORKLOAD_LABEL
from sluice.core.marks import DESTINATION, DRIVER, LEAVING, ORDER, SIGNAL, answer, marks_on
from sluice.core.options import CheckpointMode


@dataclass(frozen=True, slots=True)
class Order:
    """One checkpoint to make. `deadline` in epoch ms, 0 for none."""

    namespace: str
    pod: str
    uid: str
    node: str
    containers: tuple[str, ...]
    workload: str
    generation: str
    driver: CheckpointMode
    token: str
    destination: str = ""
    signal: str = ""
    deadline: int = 0

    @property
    def key(self) -> tuple[str, str]:
        """What makes a repeated order the same one."""
        return self.uid, self.token


def order_of(pod: Mapping[str, Any]) -> Order | None:
    """The order that waits for an answer, if there is one."""
    marks, metadata, spec = marks_on(pod), pod["metadata"], pod["spec"]
    running = (pod.get("status") or {}).get("phase") == "Running"
    if ORDER not in marks or not running or answer(pod) is not None:
        return None
    labels = metadata.get("labels") or {}
    try:
        driver = CheckpointMode(marks.get(DRIVER, CheckpointMode.NONE.value))
    except ValueError:
        return None
    leaving = marks.get(LEAVING, "")
    return Order(
        namespace=metadata["namespace"],
        pod=metadata["name"],
        uid=metadata["uid"],
        node=spec.get("nodeName", ""),
        containers=tuple(container["name"] for container in spec["containers"]),
        workload=labels.get(WORKLOAD_LABEL, ""),
        generation=labels.get(GENERATION_LABEL, ""),
        driver=driver,
        token=marks[ORDER],
        destination=marks.get(DESTINATION, ""),
        signal=marks.get(SIGNAL, ""),
        deadline=int(leaving) if leaving.isdigit() else 0,
    )
