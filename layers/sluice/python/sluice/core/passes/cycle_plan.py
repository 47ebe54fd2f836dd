"""What an admission cycle decides on, and what it decides, as records."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from sluice.core.clusters.fallback import Market
from sluice.core.clusters.fleet import Site
from sluice.core.lifecycle.record import Change, Workload
from sluice.core.lifecycle.reservations import Cells
from sluice.core.scheduling.past_usage import PastUsage
from sluice.core.scheduling.plan import Plan, Refusal


@dataclass(frozen=True, slots=True)
class CycleInput:
    """All that a cycle decides on. `usage` is the ledger's; times are epoch ms.

    `holders` are the workloads that hold quota, where somebody may have to yield; quota of holders
    that are not listed counts all the same. `market` tells which clusters offer which flavors, and
    what cannot be had there now. `parked` were refused by the last cycle, and nothing has changed
    for them since. `past` is the ledger's account of each LocalQueue; None where nobody
    has kept any yet. `spent` is its account of budgets. `sites` are the clusters with what is known
    of them, `labels` those of namespaces.
    """

    root: str
    usage: Mapping[str, Mapping[str, int]]
    releasing: Sequence[Workload]
    waiting: Sequence[Workload]
    holders: Sequence[Workload]
    market: Market
    sites: Sequence[Site]
    now: int
    parked: frozenset[str] = frozenset()
    past: Mapping[str, PastUsage] | None = None
    spent: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    labels: Mapping[str, Mapping[str, str]] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class LedgerStep:
    """One change of a record, and what it adds to its ClusterQueue's usage (or gives back)."""

    change: Change
    cq: str
    weight: Cells

    @property
    def line(self) -> list[object]:
        """The step in the audit record: id, generation, ClusterQueue, cells."""
        before = self.change.before
        return [before.id, before.generation, self.cq, self.weight]


@dataclass(frozen=True, slots=True)
class CyclePlan:
    """In the order in which they must be committed: releases first, then admissions."""

    released: tuple[LedgerStep, ...]
    admitted: tuple[LedgerStep, ...]
    preempted: tuple[LedgerStep, ...]
    refusals: Mapping[str, Refusal]
    plan: Plan | None = field(default=None, compare=False)
    expired: tuple[LedgerStep, ...] = ()

    @property
    def steps(self) -> tuple[LedgerStep, ...]:
        return (*self.released, *self.expired, *self.admitted, *self.preempted)

    def until(self, count: int) -> CyclePlan:
        """Its first steps, as if there were no more."""
        kept = {id(step) for step in self.steps[:count]}

        def of(steps: tuple[LedgerStep, ...]) -> tuple[LedgerStep, ...]:
            return tuple(step for step in steps if id(step) in kept)

        return CyclePlan(
            of(self.released),
            of(self.admitted),
            of(self.preempted),
            self.refusals,
            self.plan,
            of(self.expired),
        )
