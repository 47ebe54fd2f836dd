"""What a workload's `pendingPolicy` does once it has waited too long for a reason.

Like Batch's jobStateTimeLimitActions: what counts is how long it has been in its queue, and why it
still is. Each entry acts once in each stay in the queue; the first one that cancels is the last.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.options import PendingAction
from sluice.core.lifecycle.record_entries import PendingPolicyAct
from sluice.core.lifecycle.runs import queued_at
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from sluice.core.lifecycle.options import Options, PendingRule
    from sluice.core.lifecycle.record import Change, Workload
    from sluice.core.scheduling.scheduler import Refusal


class UnknownClass(ValueError):
    """An entry names a WorkloadPriorityClass that does not exist."""

    def __init__(self, number: int, wanted: str) -> None:
        super().__init__(f"entry {number}: {wanted}")
        self.number, self.wanted = number, wanted


def steps(
    waiting: Iterable[Workload], refusals: Mapping[str, Refusal], now: int
) -> Iterator[Change]:
    """One change for each workload whose time is up: that it is cancelled, or the next entry."""
    for workload in waiting:
        refusal = refusals.get(workload.id)
        due = list(_due(workload, refusal, now)) if refusal is not None else []
        if refusal is None or not due:
            continue
        number, entry = next((d for d in due if d[1].action is PendingAction.CANCEL), due[0])
        said = f"{entry.action} after {entry.after_seconds} s of waiting: {refusal.message}"
        if entry.action is PendingAction.CANCEL:
            yield lifecycle.cancel_pending(workload, said, now, Reason.PENDING_POLICY)
            continue
        asked = workload.priority if entry.priority is None else entry.priority
        raised = max(workload.priority, asked)
        if entry.action is PendingAction.ESCALATE:
            said = f"{said}; its priority is {raised} now ({entry.priority_class})"
        act = PendingPolicyAct(
            entry=number,
            action=entry.action.value,
            reason=refusal.reason.value,
            message=said,
            at=now,
            generation=workload.generation,
        )
        yield lifecycle.act_on_wait(workload, act, raised)


def escalating(options: Options, values: Mapping[str, int]) -> Options:
    """The options with the priorities that their entries rise to, by WorkloadPriorityClass.

    As that of the workload itself they are those of the time of submission. Raises UnknownClass.
    """
    resolved = []
    for number, entry in enumerate(options.pending_policy):
        wanted = entry.priority_class
        if wanted and wanted not in values:
            raise UnknownClass(number, wanted)
        resolved.append(replace(entry, priority=values[wanted]) if wanted else entry)
    return replace(options, pending_policy=tuple(resolved))


def allows_on_demand(workload: Workload) -> bool:
    """Whether its wish for spot was given up in this stay in its queue."""
    return any(
        act.action == PendingAction.ALLOW_ON_DEMAND and act.generation == workload.generation
        for act in workload.waits
    )


def _due(workload: Workload, refusal: Refusal, now: int) -> Iterator[tuple[int, PendingRule]]:
    since = queued_at(workload)
    acted = {act.entry for act in workload.waits if act.generation == workload.generation}
    for number, entry in enumerate(workload.options.pending_policy):
        waited = now - since >= 1000 * entry.after_seconds
        if waited and number not in acted and matches(entry.reason, refusal.reason):
            yield number, entry


def matches(pattern: str, reason: str) -> bool:
    """`CAPACITY:*` stands for every code of its class."""
    return pattern == reason or (
        pattern.endswith(":*") and reason.startswith(pattern.removesuffix("*"))
    )
