"""`deadlines.maxPending`: how long a workload may wait."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.runs import queued_at
from sluice.core.passes.cycle_plan import LedgerStep
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload


def deadline_ms(workload: Workload) -> int | None:
    """When it has waited as long as it may, since its submission or since it ran last."""
    seconds = workload.options.deadlines.max_pending_seconds
    if seconds is None:
        return None
    return queued_at(workload) + int(1000 * seconds)


def is_late(workload: Workload, now: int) -> bool:
    deadline = deadline_ms(workload)
    return deadline is not None and deadline < now


def expire(workload: Workload, now: int) -> LedgerStep:
    seconds = workload.options.deadlines.max_pending_seconds
    message = f"it waited longer than its deadlines.maxPending of {seconds} s"
    change = lifecycle.cancel_pending(workload, message, now, Reason.DEADLINE_PASSED)
    return LedgerStep(change, workload.cq, {})
