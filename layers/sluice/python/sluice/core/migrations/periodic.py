"""When a running workload is saved although nothing threatens it: orders with names made of time.

An order's name says which checkpoint it follows and how many intervals later it is due, so that
whoever looks, however often, orders the same one.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Final

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.checkpoints.fit import MARGIN_MS, Bandwidth
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.options import Options
from sluice.core.lifecycle.record import State, Workload
from sluice.core.migrations import checkpointing, gangs
from sluice.core.migrations.interruption import NOTICE_MS
from sluice.core.migrations.losses import Loss, mean_between_ms
from sluice.core.migrations.migration import PodCheckpoint
from sluice.core.migrations.pod_annotations import LEAVING, ORDER, annotations_of, ordered_result

SHORTEST_MS: Final = 60_000
"""Of a computed interval. `checkpoint.interval` of a workload counts as it is; who reads it:
core/intake/workload_options.py."""
PREFIX: Final = "periodic-"
TRIAL: Final = "trial-"
TRIAL_MS: Final = 15_000
"""So long after its start a workload is saved that never was, to know whether it can be."""
TRIAL_REASON: Final = "to know whether it can be saved, and how fast"


@dataclass(frozen=True, slots=True)
class Rhythm:
    """How often a workload is saved, and the reason with its numbers."""

    every_ms: int
    reason: str


@dataclass(frozen=True, slots=True)
class Due:
    """One order: the same name until it is answered or the next one is due. `at` in epoch ms."""

    name: str
    at: int
    following: int
    """When the next one is due, if this is not answered."""


@dataclass(frozen=True)
class Observed:
    """The machines and losses of a cluster; what follows from them is worked out once."""

    inventory: Sequence[InventoryRow]
    losses: Sequence[Loss]
    now: int
    _between: dict[tuple[str, bool], float] = field(default_factory=dict)

    @cached_property
    def capacity_types(self) -> Mapping[str, str]:
        """Of each node by name."""
        return {row.node: row.capacity_type for row in self.inventory}

    def between_ms(self, capacity_type: str, *, only_unnoticed: bool) -> float:
        key = capacity_type, only_unnoticed
        if key not in self._between:
            self._between[key] = mean_between_ms(
                self.inventory, self.losses, capacity_type, self.now, only_unnoticed=only_unnoticed
            )
        return self._between[key]


def can_be_ordered(options: Options) -> bool:
    """Whether anybody but the application itself can have it saved."""
    return bool(options.checkpoint_signal) or driver_of(options).dumps


def rhythm(
    workload: Workload, pods: Sequence[Mapping[str, Any]], observed: Observed
) -> Rhythm | None:
    """The workload's own interval, else Young's and Daly's; None if it cannot be ordered."""
    if not can_be_ordered(workload.options):
        return None
    asked = workload.options.checkpoint_interval_seconds
    if asked:
        return Rhythm(asked * 1000, f"every {_span(asked)}, as the workload asks")
    cost = cost_ms(workload, pods)
    fits = cost <= NOTICE_MS - MARGIN_MS
    names = {pod["spec"].get("nodeName", "") for pod in pods}
    # A node that nobody has counted yet is taken for the kind that is lost more often.
    types = {observed.capacity_types.get(name, "spot") for name in names}
    capacity_type = "spot" if "spot" in types else min(types, default="spot")
    between = observed.between_ms(capacity_type, only_unnoticed=fits)
    seconds = checkpointing.interval_seconds(cost / 1000, between / 1000, len(names))
    every = max(int(seconds * 1000), SHORTEST_MS)
    kind = "loss without warning" if fits else "loss"
    machines = f" on {len(names)} machines" if len(names) > 1 else ""
    return Rhythm(
        every,
        f"every {_span(every / 1000)}: a checkpoint costs {_span(cost / 1000)}, one {kind} of"
        f" {capacity_type} in {_span(between / 1000)}{machines}",
    )


def cost_ms(workload: Workload, pods: Sequence[Mapping[str, Any]]) -> int:
    """What a checkpoint took last, else what its size lets expect, else the grace it is given."""
    took = [done.took_ms for pod in pods if isinstance(done := ordered_result(pod), PodCheckpoint)]
    if any(took):
        return max(took)
    if driver_of(workload.options).dumps:
        together = gangs.most_on_one_node(pods)
        return Bandwidth().needs_ms(checkpointing.size_of([], workload.pod_sets, together))
    return checkpointing.grace_ms(workload.options, pods)


def due(
    workload: Workload, pods: Sequence[Mapping[str, Any]], every_ms: int, now: int
) -> Due | None:
    """The newest order that is due, or the first that will be; None while another is under way."""
    if workload.state is not State.DISPATCHED or not workload.started_at or not pods:
        return None
    for pod in pods:
        marks = annotations_of(pod)
        if LEAVING in marks or (marks.get(ORDER) and ordered_result(pod) is None):
            return None
    if _never_tried(workload, pods):
        trial = workload.started_at + min(TRIAL_MS, every_ms)
        return Due(f"{TRIAL}{workload.started_at}", trial, workload.started_at + every_ms)
    last = max(workload.started_at, workload.checkpoint_at, told_at(pods))
    rounds = max(1, (now - last) // every_ms)
    at = last + rounds * every_ms
    return Due(f"{PREFIX}{last}-{rounds}", at, at + every_ms)


def _never_tried(workload: Workload, pods: Iterable[Mapping[str, Any]]) -> bool:
    """Whether nothing is known of how its processes can be saved."""
    if not driver_of(workload.options).dumps or workload.checkpoint_at:
        return False
    return not all(annotations_of(pod).get(ORDER) for pod in pods)


def borne(order: Due, pods: Iterable[Mapping[str, Any]]) -> bool:
    """Whether all pods have got this order."""
    return all(annotations_of(pod).get(ORDER) == order.name for pod in pods)


def reason_of(order: Due, rhythm: Rhythm) -> str:
    return TRIAL_REASON if order.name.startswith(TRIAL) else rhythm.reason


def told_at(pods: Iterable[Mapping[str, Any]]) -> int:
    """When the applications were told last, all of them; 0 if one was not."""
    answers = [ordered_result(pod) for pod in pods]
    return min((done.at if isinstance(done, PodCheckpoint) else 0 for done in answers), default=0)


def _span(seconds: float) -> str:
    """`38 s`, `12 min`, `3.5 h`."""
    if seconds < 120:  # noqa: PLR2004
        return f"{seconds:.0f} s"
    if seconds < 7_200:  # noqa: PLR2004
        return f"{seconds / 60:.0f} min"
    return f"{seconds / 3600:.1f} h"
