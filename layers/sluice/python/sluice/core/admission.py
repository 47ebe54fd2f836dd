"""The admission pass over one root cohort: who runs, who yields, who waits and why."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.model import Assignment, Holding, Policy, PreemptionReason, Workload
    from sluice.core.quota import Catalog


@dataclass(frozen=True, slots=True)
class Admission:
    """A workload that gets quota now."""

    workload: str
    cluster_queue: str
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class PreemptionStep:
    """A running workload that must yield; its quota is free once its pods are gone."""

    victim: str
    cluster_queue: str
    by: str
    reason: PreemptionReason


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why a waiting workload does not run; `code` is a value of `reasons.Reason`."""

    workload: str
    cluster_queue: str
    code: str
    message: str
    position: int


@dataclass(frozen=True, slots=True)
class Plan:
    """What one pass decided.

    `admissions` and `preemptions` are in the order of decision. `refusals` holds those workloads
    that this pass looked at; `Scheduler.why` explains any other waiting workload.
    """

    admissions: tuple[Admission, ...]
    preemptions: tuple[PreemptionStep, ...]
    refusals: Mapping[str, Refusal]


class Scheduler:
    """The quota tree, holdings and backlog of one root cohort, kept between passes.

    The rule after a preemption: the victim keeps its quota until the caller says `release`.
    """

    def __init__(self, catalog: Catalog, root: str, policy: Policy) -> None:
        """Takes a root of `catalog.roots()`; raises KeyError for any other name."""

    def enqueue(self, workload: Workload, *, parked: bool = False) -> None:
        """Adds a waiting workload, or replaces one of the same id that waits."""

    def hold(self, holding: Holding) -> None:
        """Counts a workload that already holds quota; also above quota, as after a quota cut."""

    def release(self, workload_id: str) -> None:
        """Gives back the quota of a finished or evicted workload; unknown ids are ignored."""

    def remove(self, workload_id: str) -> None:
        """Forgets a waiting workload; unknown ids are ignored."""

    def run_pass(self, now_ms: int) -> Plan:
        """Decides; admitted workloads hold quota afterwards, victims are marked as evicting."""

    def has_candidates(self) -> bool:
        """Whether another pass could look at a workload that the last one left unparked."""

    def why(self, workload_id: str) -> Refusal:
        """The reason why a waiting workload waits; KeyError if it does not wait here."""

    def usage(self, node: str) -> Mapping[tuple[str, str], int]:
        """Usage per (flavor, resource) of a ClusterQueue or Cohort; likewise available,
        potential (never below 0)."""

    def share(self, node: str) -> tuple[int, str]:
        """Rounded dominant share and its resource."""

    def copy(self) -> Scheduler:
        """An independent scheduler in the same state, for what-if questions."""
