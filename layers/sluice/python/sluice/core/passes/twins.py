"""Waiting workloads that were not read: equal to one that was, but for who and when they are."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Final

from sluice.core.lifecycle.indexes import Place
from sluice.core.lifecycle.record import State, Workload
from sluice.core.passes.cycle_plan import CyclePlan, LedgerStep

# What a pass may decide by. Of a twin all but `id` and `created_at` are its example's.
DECIDES: Final = (
    "kind",
    "state",
    "generation",
    "cq",
    "queue",
    "namespace",
    "priority",
    "created_at",
    "pod_sets",
    "options",
    "submitted_by",
    "held",
    "blocked",
    "not_before",
    "requeues",
    "runs",
    "restore_from",
    "resume_from",
    "charges",
    "object",
)


def twin(place: Place, example: Workload, cq: str, root: str) -> Workload:
    """The record that stands at a place, as far as a pass is concerned."""
    return Workload(
        place.id,
        place.id,
        place.queue.partition("/")[0],
        place.queue,
        State.PENDING,
        cq=cq,
        root=root,
        tenant=example.tenant,
        submitted_by=example.submitted_by,
        priority=place.priority,
        created_at=place.since,
        pod_sets=example.pod_sets,
        options=example.options,
        kind=example.kind,
        shape_hash=example.shape_hash,
    )


def is_twin(assumed: Workload, found: Workload) -> bool:
    """Whether a pass would decide about the record that was found as it did about the twin."""
    return all(getattr(assumed, name) == getattr(found, name) for name in DECIDES)


def decided_unread(cycle: CyclePlan, unread: Iterable[str]) -> list[str]:
    """Of those that were not read whom the plan changes, or for whom it stops others."""
    concerned = {step.change.before.id for step in cycle.steps}
    concerned |= {step.change.set["intent"].by for step in cycle.preempted}
    return sorted(concerned.intersection(unread))


def with_records(cycle: CyclePlan, records: Mapping[str, Workload]) -> CyclePlan:
    """The same plan upon the records that the twins stood for."""

    def based(steps: Sequence[LedgerStep]) -> tuple[LedgerStep, ...]:
        return tuple(
            replace(step, change=replace(step.change, before=records[step.change.before.id]))
            if step.change.before.id in records
            else step
            for step in steps
        )

    return replace(cycle, admitted=based(cycle.admitted), expired=based(cycle.expired))
