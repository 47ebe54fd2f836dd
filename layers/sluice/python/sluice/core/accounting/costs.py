"""What work has cost: dollars and resource-time of runs in a window, split by what became of it.

Counted is the time from when a run had its machines until its end. All sums are whole numbers, so
that parts add up to the whole however they are grouped: resource-time in base units (millicores,
bytes, counts) times milliseconds, money in nano-dollars an hour times milliseconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from sluice.core.accounting.usage_intervals import IntervalKind, UsageInterval, loss_is_unknown
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.run import Run

PARTS: Final = (
    IntervalKind.USEFUL,
    IntervalKind.FAILED,
    IntervalKind.REDONE,
    IntervalKind.STARTING,
)
"""Disjoint, and together all of the time that runs had machines."""
_NANO: Final = 1_000_000_000
_HOUR_MS: Final = 3_600_000


@dataclass(slots=True)
class Amount:
    """Of runs that had machines: for how long, with which resources, at which price."""

    ms: int = 0
    resources: dict[str, int] = field(default_factory=dict)
    money: int = 0

    @property
    def usd(self) -> float:
        return self.money / _NANO / _HOUR_MS

    def add(self, ms: int, requests: Mapping[str, int], per_hour: int) -> None:
        self.ms += ms
        for resource, amount in requests.items():
            self.resources[resource] = self.resources.get(resource, 0) + amount * ms
        self.money += per_hour * ms


@dataclass(slots=True)
class Bill:
    """The account of a group of runs."""

    parts: dict[IntervalKind, Amount] = field(
        default_factory=lambda: {kind: Amount() for kind in PARTS}
    )
    unpriced: Amount = field(default_factory=Amount)
    """What of the parts has no price, because nobody knew one; their `money` is without it."""
    saved: int = 0
    """How much more, in units of `money`, it would have cost on demand, where both is known."""
    unknown_saving: Amount = field(default_factory=Amount)
    """What ran on spot machines and has a price, while that on demand is unknown."""
    workloads: set[str] = field(default_factory=set)
    runs: set[tuple[str, int]] = field(default_factory=set)
    losses_untold: set[tuple[str, int]] = field(default_factory=set)

    @property
    def total(self) -> Amount:
        whole = Amount()
        for part in self.parts.values():
            whole.ms += part.ms
            whole.money += part.money
            for resource, amount in part.resources.items():
                whole.resources[resource] = whole.resources.get(resource, 0) + amount
        return whole

    @property
    def saved_usd(self) -> float:
        return self.saved / _NANO / _HOUR_MS

    def add(self, stretch: UsageInterval, workload: Workload) -> None:
        """Counts an interval; without machines it costs nothing."""
        run = stretch.run
        if run is None:
            return
        requests = requested(workload, run)
        kind = IntervalKind.STARTING if stretch.kind is IntervalKind.MIGRATING else stretch.kind
        paid, full = _nano_usd(run.usd_per_hour), _nano_usd(run.on_demand_usd_per_hour)
        self.parts[kind].add(stretch.ms, requests, paid or 0)
        if paid is None:
            self.unpriced.add(stretch.ms, requests, 0)
        elif full is not None:
            self.saved += (full - paid) * stretch.ms
        elif "spot" in run.capacity:
            self.unknown_saving.add(stretch.ms, requests, paid)
        self.workloads.add(workload.id)
        key = workload.id, run.generation
        self.runs.add(key)
        if loss_is_unknown(workload, run):
            self.losses_untold.add(key)


def requested(workload: Workload, run: Run) -> dict[str, int]:
    """What the pods of a run request together, in base units; fewer pods if it was cut down."""
    counts, total = run.counts, dict[str, int]()
    for pod_set in workload.pod_sets:
        count = counts.get(pod_set.name, pod_set.count)
        for resource, amount in pod_set.requests.items():
            total[resource] = total.get(resource, 0) + amount * count
    return total


def _nano_usd(usd: float | None) -> int | None:
    return None if usd is None else round(usd * _NANO)
