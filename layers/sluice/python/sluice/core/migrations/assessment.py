"""Whether processes are saved before they go: what that needs against the time that is left."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from sluice.core.checkpoints.driver import Capability, CheckpointMode, PodFacts
from sluice.core.checkpoints.drivers import driver_of, usable_driver
from sluice.core.checkpoints.fit import Bandwidth, CheckpointAction, CheckpointFit
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations import checkpointing, gangs
from sluice.core.migrations.at_risk import AtRisk
from sluice.core.migrations.checkpointing import Checkpoint, SaveFailure
from sluice.core.migrations.lasting_failures import standing_cause


@dataclass(frozen=True, slots=True)
class CheckpointAssessment:
    """The decision with its numbers; `pods` are those that are saved together, by name."""

    driver: CheckpointMode
    fit: CheckpointFit
    reason: str
    numbers: Mapping[str, Any]
    grace_ms: int
    pods: tuple[str, ...]

    @property
    def dumped(self) -> bool:
        return self.fit.action is CheckpointAction.DUMP


def assess_checkpoint(
    at_risk: AtRisk,
    machines: Sequence[InventoryRow],
    kept: Sequence[Checkpoint],
    left_ms: int,
    *,
    restores: bool = False,
    refused: SaveFailure | None = None,
) -> CheckpointAssessment:
    """`machines`: inventory rows of all pods that would be saved together; `left_ms` of time.

    `kept`: earlier checkpoints, which tell what saving takes. A workload that `restores` another
    checkpoint does not need what is on the machine. `refused`: why it could not be saved last time.
    """
    workload = at_risk.workload
    asked = driver_of(workload.options)
    containers = max(len(pod["spec"]["containers"]) for pod in at_risk.all_pods)
    gpus = sum(s.requests.get("nvidia.com/gpu", 0) for s in workload.pod_sets)
    facts = PodFacts(
        containers=containers, gpus=gpus, gang=at_risk.no_set, refused=_standing(refused)
    )
    driver, unusable = usable_driver(asked, facts, common_capability(machines))
    together = gangs.most_on_one_node(at_risk.all_pods)  # the slowest node decides for all
    grace = checkpointing.grace_ms(workload.options, at_risk.pods)
    fit = driver.fit(
        size=checkpointing.size_of(kept, workload.pod_sets, together),
        left_ms=left_ms,
        grace_ms=grace,
        bandwidth=checkpointing.observed_bandwidth(kept, Bandwidth()),
    )
    if restores:
        fit = CheckpointFit(CheckpointAction.LET_GO, 0, 0, 0, "a user restores it")
    why = f" ({asked.mode}: {unusable})" if unusable else ""
    numbers: dict[str, Any] = fit.numbers() | {"unsaved_ms": at_risk.unsaved_ms}
    dumped = fit.action is CheckpointAction.DUMP
    saved = at_risk.all_pods if dumped else at_risk.pods
    if dumped and len(saved) > 1:
        why = f" of {len(saved)} parts on {len(machines)} nodes"
        numbers |= {"parts": len(saved), "nodes": len(machines)}
    names = tuple(sorted(pod["metadata"]["name"] for pod in saved))
    return CheckpointAssessment(driver.mode, fit, fit.sentence + why, numbers, grace, names)


def _standing(refused: SaveFailure | None) -> str:
    cause = standing_cause(refused.why) if refused else ""
    return f"its trial failed: {cause}" if cause else ""


def common_capability(machines: Sequence[InventoryRow]) -> Capability:
    """What all of these machines can do."""
    for row in machines:
        found = checkpointing.capability(row)
        if not found.kubelet:
            alone = len(machines) == 1
            return found if alone else replace(found, reason=f"{row.node}: {found.reason}")
    return checkpointing.capability(machines[0])
