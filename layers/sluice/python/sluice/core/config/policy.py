"""Settings of scheduling for a whole root cohort; every default is Kueue's behaviour."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from sluice.core.config.model import FairPreemptionStrategy

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class FairSharing:
    """Dominant-resource fair sharing, for the whole tree."""

    preemption_strategies: tuple[FairPreemptionStrategy, ...] = (
        FairPreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE,
        FairPreemptionStrategy.LESS_THAN_INITIAL_SHARE,
    )


@dataclass(frozen=True, slots=True)
class AdmissionFairSharing:
    """Order by past usage of LocalQueues; resource weights are factors, default 1."""

    half_life_ms: int
    sampling_interval_ms: int = 300_000
    resource_weights: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Aging:
    """Keeps waiting work from starving.

    In the order of a queue, waiting `interval_ms` counts as much as one point of priority; it does
    not make anyone a victim. After `reserve_after_ms` the longest waiting workload of a queue keeps
    what becomes free until it has enough, so that small ones no longer overtake it.
    """

    interval_ms: int
    reserve_after_ms: int | None = None


@dataclass(frozen=True, slots=True)
class Policy:
    """Settings of a whole installation; every field's default is Kueue's behaviour.

    `heads_per_pass` bounds how many workloads of one ClusterQueue a pass looks at (None: all).
    `min_run_ms` protects every admitted workload from preemption for that long.
    `prefer_least_lost_work` weighs work since the last checkpoint, once any candidate has one.
    """

    fair_sharing: FairSharing | None = None
    admission_fair_sharing: AdmissionFairSharing | None = None
    aging: Aging | None = None
    ignore_undeclared: bool = False
    heads_per_pass: int | None = None
    min_run_ms: int = 0
    prefer_least_lost_work: bool = True
