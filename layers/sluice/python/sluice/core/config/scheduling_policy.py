"""The `SchedulingPolicy` document: how the queues of an installation, or of one tree, are served.

Kueue keeps these settings in its controller's `Configuration`; the fields that it has there have
the same names and meanings here (`fairSharing`, `admissionFairSharing`, `resources`,
`waitForPodsReady`).
Source: config.kueue.x-k8s.io/v1beta2, docs/decisions/0009-scheduling-policy.md.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.catalog import Problem
from sluice.core.config.document import DocumentError, Fields, Flaw
from sluice.core.config.model import FairPreemptionStrategy
from sluice.core.config.pods_ready import WaitForPodsReady, read_wait_for_pods_ready
from sluice.core.config.policy import AdmissionFairSharing, Aging, FairSharing, Policy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sluice.core.config.catalog import QueueCatalog

API_VERSION: Final = "sluice.dev/v1"
KIND: Final = "SchedulingPolicy"
SAMPLING_MS: Final = 300_000
SAVE_VICTIMS_MS: Final = 60_000


class QuotaCheckStrategy(StrEnum):
    """What a request for a resource means that the queue has no quota for."""

    BLOCK_UNDECLARED = "BlockUndeclared"
    IGNORE_UNDECLARED = "IgnoreUndeclared"


@dataclass(frozen=True, slots=True)
class SchedulingPolicy:
    """A policy and whom it is for: one root cohort, or (None) every root without its own."""

    name: str = ""
    root_cohort: str | None = None
    policy: Policy = field(default_factory=Policy)
    record_passes: bool = True
    save_victims_ms: int = SAVE_VICTIMS_MS
    """How long who comes back may keep its place for a dump of its processes; 0: not at all."""
    wait_for_pods_ready: WaitForPodsReady | None = None


@dataclass(frozen=True, slots=True)
class Policies:
    """All policies in force; without any, every root is served as Kueue does by default."""

    by_root: Mapping[str | None, SchedulingPolicy]

    def of(self, root: str) -> Policy:
        return self._for(root).policy

    def records(self, root: str) -> bool:
        """Whether what passes over a root decide is recorded for replay."""
        return self._for(root).record_passes

    def save_victims_ms(self, root: str) -> int:
        """How long others wait at most until a victim is saved."""
        return self._for(root).save_victims_ms

    def wait_for_pods_ready(self, root: str) -> WaitForPodsReady | None:
        return self._for(root).wait_for_pods_ready

    def _for(self, root: str) -> SchedulingPolicy:
        return self.by_root.get(root) or self.by_root.get(None) or SchedulingPolicy()


def policies(found: Iterable[SchedulingPolicy]) -> Policies:
    """Where two are for the same roots, the first by name counts; see `problems`."""
    ordered = sorted(found, key=lambda each: each.name, reverse=True)
    return Policies({each.root_cohort: each for each in ordered})


def problems(found: Iterable[SchedulingPolicy], catalog: QueueCatalog) -> Iterator[Problem]:
    """Policies that nobody follows: their root does not exist, or another one is for it."""
    roots, seen = catalog.roots(), dict[str | None, str]()
    for each in sorted(found, key=lambda each: each.name):
        root, field = each.root_cohort, "spec.rootCohort"
        if root is not None and root not in roots:
            known = ", ".join(roots) or "none"
            message = f"no root cohort is named {root}; known: {known}"
            yield Problem(KIND, each.name, field, message)
        if root in seen:
            whom = "every root cohort" if root is None else root
            message = f"SchedulingPolicy {seen[root]} is for {whom} already; change or delete it"
            yield Problem(KIND, each.name, field, message)
        seen.setdefault(root, each.name)


def parse(document: Mapping[str, Any]) -> SchedulingPolicy:
    """Raises DocumentError with every flaw."""
    flaws: list[Flaw] = []
    found = read(Fields(document, "", flaws))
    if flaws:
        raise DocumentError(flaws)
    return found


def read(fields: Fields) -> SchedulingPolicy:
    """One document; flaws go to the reader's list."""
    fields.ignore("kind", "status")
    if (version := fields.text("apiVersion")) != API_VERSION:
        fields.wrong("apiVersion", f"{version!r} must be {API_VERSION}")
    metadata, spec = fields.map("metadata", required=True), fields.map("spec")
    metadata.ignore("labels", "annotations")
    found = SchedulingPolicy(
        name=metadata.name("name", required=True),
        root_cohort=spec.name("rootCohort") or None,
        policy=Policy(
            fair_sharing=read_fair_sharing(spec),
            admission_fair_sharing=read_admission_fair_sharing(spec),
            aging=_aging(spec),
            ignore_undeclared=_ignores_undeclared(spec.map("resources")),
            min_run_ms=spec.duration("minRuntime", 0) or 0,
            prefer_least_lost_work=spec.boolean("preferLeastLostWork", default=True),
        ),
        record_passes=spec.boolean("recordPasses", default=True),
        save_victims_ms=spec.duration("saveVictimsWithin", SAVE_VICTIMS_MS) or 0,
        wait_for_pods_ready=read_wait_for_pods_ready(spec),
    )
    for each in (fields, metadata, spec):
        each.close()
    return found


def read_fair_sharing(spec: Fields) -> FairSharing | None:
    """`fairSharing`: its presence turns it on, unless it says `enable: false` (v1beta1)."""
    if not spec.has("fairSharing"):
        spec.ignore("fairSharing")
        return None
    fields = spec.map("fairSharing")
    known = {one.value: one for one in FairPreemptionStrategy}
    names = fields.texts("preemptionStrategies")
    for name in names:
        if name not in known:
            fields.wrong("preemptionStrategies", f"{name!r} is not one of {', '.join(known)}")
    enabled = fields.boolean("enable", default=True)
    fields.close()
    strategies = tuple(known[name] for name in names if name in known)
    if not enabled:
        return None
    return FairSharing(strategies) if strategies else FairSharing()


def read_admission_fair_sharing(spec: Fields) -> AdmissionFairSharing | None:
    """`admissionFairSharing`: its presence turns it on, for ClusterQueues that ask for it."""
    if not spec.has("admissionFairSharing"):
        spec.ignore("admissionFairSharing")
        return None
    fields = spec.map("admissionFairSharing")
    weights = fields.map("resourceWeights")
    sampling_ms = fields.duration("usageSamplingInterval", SAMPLING_MS)
    if sampling_ms == 0:
        fields.wrong("usageSamplingInterval", "must be longer than 0s; leave it out for 5m")
    settings = AdmissionFairSharing(
        half_life_ms=fields.duration("usageHalfLifeTime", required=True) or 0,
        sampling_interval_ms=sampling_ms or SAMPLING_MS,
        resource_weights={
            name: weights.weight_milli(name, 1000) / 1000 for name in weights.names()
        },
    )
    fields.close()
    return settings


def _aging(spec: Fields) -> Aging | None:
    if not spec.has("aging"):
        spec.ignore("aging")
        return None
    fields = spec.map("aging")
    interval_ms = fields.duration("interval", required=True) or 0
    if fields.has("interval") and interval_ms < 1:
        fields.wrong("interval", "must be a time above 0; for example 10m")
    reserve_ms = fields.duration("reserveAfter")
    fields.close()
    return Aging(max(1, interval_ms), reserve_ms)


def _ignores_undeclared(resources: Fields) -> bool:
    strategy = resources.choice(
        "quotaCheckStrategy", QuotaCheckStrategy, QuotaCheckStrategy.BLOCK_UNDECLARED
    )
    resources.close()
    return strategy is QuotaCheckStrategy.IGNORE_UNDECLARED
