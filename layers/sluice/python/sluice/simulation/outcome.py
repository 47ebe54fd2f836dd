"""What happened in a simulation, as values; times are milliseconds since the scenario's start."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.config.model import Assignment
    from sluice.core.scheduling.scheduler import PreemptionStep, Refusal
    from sluice.simulation.job import Job


@dataclass(frozen=True, slots=True)
class AdmittedJob:
    """An admission of this run; `at_ms` is when it took effect."""

    job: Job
    assignment: Assignment
    at_ms: int
    cluster: str = ""


@dataclass(frozen=True, slots=True)
class EndedJob:
    """The end of a job that did not end by itself, in the words of `ls` and `why`."""

    job: Job
    at_ms: int
    phase: str
    reason: str
    message: str


@dataclass(frozen=True, slots=True)
class BudgetState:
    """A budget's present window at the end; micro-dollars."""

    name: str
    spent: int
    limit: int


@dataclass(frozen=True, slots=True)
class PreemptedJob:
    """A victim, its preemptor and the reason."""

    step: PreemptionStep
    at_ms: int


@dataclass(frozen=True, slots=True)
class QuotaNodeState:
    """A ClusterQueue or Cohort at the end; cells are (flavor, resource), amounts base units."""

    name: str
    usage: Mapping[tuple[str, str], int]
    available: Mapping[tuple[str, str], int]
    potential: Mapping[tuple[str, str], int]
    share: tuple[int, str]


@dataclass(frozen=True, slots=True)
class ProgressSample:
    """How things stand after a pass; `in_use` is what running workloads use, in base units."""

    at_ms: int
    admissions: int
    pending: int
    in_use: Mapping[str, int]


@dataclass(slots=True)
class SimulationResult:
    """Everything that a report needs.

    `useful` is, per resource, amount times milliseconds of all runs that finished or still run at
    the end; `waits_ms` the time from arrival to the
    first admission; `passes` those of the root that made the most.
    """

    admitted: list[AdmittedJob] = field(default_factory=list)
    preempted: list[PreemptedJob] = field(default_factory=list)
    finished: list[tuple[Job, int]] = field(default_factory=list)
    pending: list[tuple[Job, Refusal]] = field(default_factory=list)
    ended: list[EndedJob] = field(default_factory=list)
    budgets: list[BudgetState] = field(default_factory=list)
    waits_ms: dict[str, int] = field(default_factory=dict)
    useful: dict[str, int] = field(default_factory=dict)
    cluster_queues: list[QuotaNodeState] = field(default_factory=list)
    cohorts: list[QuotaNodeState] = field(default_factory=list)
    passes: int = 0
    end_ms: int = 0
    makespan_ms: int = 0
    peak_pending: int = 0
    decision_seconds: float = 0.0
