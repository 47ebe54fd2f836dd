"""A workload's own `budget.maxCostUSD`: what it has cost so far, and whether that is too much.

Counted like the budgets of queues: the price of its share of the flavor, as it was known when the
quota was given, for as long as it holds that quota. Runs that gave it back keep their cost.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.lifecycle.record import Intent, IntentKind
from sluice.core.lifecycle.record_entries import OWN_BUDGET
from sluice.core.lifecycle.runs import accrued
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload

CENT = 10_000  # micro-dollars
MICRO = 1_000_000


def limit_microusd(workload: Workload) -> int | None:
    cents = workload.options.max_cost_cents
    return None if cents is None else CENT * cents


def cost_microusd(workload: Workload, now: int) -> int:
    """Of all runs, the present one included."""
    return sum(run.microusd for run in workload.runs) + sum(
        accrued(workload, charge, now) for charge in workload.charges if charge.budget == OWN_BUDGET
    )


def overspent(workload: Workload, now: int) -> Intent | None:
    """How to end a workload that has cost as much as it may."""
    most = limit_microusd(workload)
    if most is None or (cost := cost_microusd(workload, now)) < most:
        return None
    message = f"it has cost ${cost / MICRO:.2f} of at most ${most / MICRO:.2f} (budget.maxCostUSD)"
    return Intent(IntentKind.FAIL, Reason.COST_LIMIT, message)
