"""Invariants I1 to I7 and I9 of the protocol, plus: an accepted cancel is never undone.

I11: no Job is claimed before the admission checks of its generation said Ready.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.model import quota
from tests.model.protocol import (
    HOLDS_QUOTA,
    MAY_RUN,
    NONE,
    TERMINAL,
    Intent,
    JobStatus,
    State,
)

if TYPE_CHECKING:
    from tests.model.configuration import Configuration
    from tests.model.protocol import Ledger, Workload


def workload_fault(workload: Workload) -> str | None:
    """I3, I6 and I11, which one workload alone can break."""
    running = sum(job is not None and job.status in MAY_RUN for job in workload.jobs)
    reserved = workload.reservation != NONE
    if running > 1:
        return "I3 two Jobs of one workload may run"
    if running and not reserved:
        return "I3 a Job may run without a reservation"
    if reserved and workload.reservation != workload.generation:
        return "I6 reservation of another generation"
    if workload.state in HOLDS_QUOTA and not reserved:
        return "I6 released before its time"
    if workload.state is State.PENDING and reserved:
        return "I6 PENDING holds a reservation"
    if workload.state is State.DISPATCHED and workload.generation not in workload.passed:
        return "I11 a Job was claimed before its checks said Ready"
    return None


def mark_fault(before: Workload, after: Workload) -> str | None:
    """I1 for everyone but admit, who alone writes the ledger."""
    if (before.reservation == NONE) is not (after.reservation == NONE):
        return "I1 a reservation came or went without the ledger"
    return step_fault(before, after) or workload_fault(after)


def step_fault(before: Workload, after: Workload) -> str | None:
    """I5 and I6 over one step, and that a cancel sticks."""
    if before.state in TERMINAL and after.state is not before.state:
        return f"I5 terminal state left: {before.state.name} to {after.state.name}"
    if after.generation < before.generation:
        return "I6 generation fell"
    if before.reservation != NONE and after.reservation == NONE:
        requeued = after.state is State.PENDING and after.generation > before.generation
        if not requeued and after.state not in TERMINAL:
            return "I6 released while it lives"
    if after.state is State.FINISHED is not before.state:
        job = after.jobs[after.generation]
        if job and job.uid == after.uid and job.status is JobStatus.FAILED:
            return "I4 ended by its own deletion"
    went_on = after.state not in {State.RECLAIMING, *TERMINAL} or after.intent is Intent.REQUEUE
    if before.intent is Intent.END and went_on:
        return "I4 an accepted cancel was undone"
    return None


def ledger_fault(
    configuration: Configuration, ledger: Ledger, reserved: tuple[bool, ...]
) -> str | None:
    """I1 and I9 for every ClusterQueue; `reserved` says which workloads hold a reservation."""
    expected = [0] * len(ledger.used)
    for spec, holds in zip(configuration.workloads, reserved, strict=True):
        expected[spec.queue] += holds
    if min(ledger.used) < 0:
        return f"I9 negative cell in {ledger.used}"
    if list(ledger.used) != expected:
        return f"I1 ledger {ledger.used} is not the sum of its reservations {tuple(expected)}"
    return None


def quota_fault(configuration: Configuration, before: Ledger, after: Ledger) -> str | None:
    """I2: what raises a cell keeps every node within the limits in force.

    Lowering is always allowed, because after a cut the tree may be in debt.
    """
    if all(new <= old for new, old in zip(after.used, before.used, strict=True)):
        return None
    overdrawn = quota.overdrawn(configuration.limits[after.limits], after.used)
    return f"I2 {overdrawn}" if overdrawn else None
