"""What a pass decides: admissions, evictions, and refusals with their reasons."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config.model import Assignment, PreemptionReason
    from sluice.core.values.reasons import Reason


@dataclass(frozen=True, slots=True)
class Admission:
    """A workload that gets quota now."""

    workload: str
    cluster_queue: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class PreemptionStep:
    """A running workload that must yield; its quota is free once its pods are gone.

    `by` is the workload that it yields to, empty for a drained queue.
    """

    victim: str
    cluster_queue: str
    by: str
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a waiting workload does not run, and how many of its queue are ahead of it."""

    workload: str
    cluster_queue: str
    reason: Reason
    message: str
    position: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass decided.

    `admissions` and `preemptions` are in the order of decision. `refusals`, if asked for, explains
    the first workload of every group of equal ones; `Scheduler.why` explains any other.
    """

    admissions: tuple[Admission, ...]
    preemptions: tuple[PreemptionStep, ...]
    refusals: Mapping[str, Refusal]
