"""What moves cost and save, how long a workload waited, and how often machines are lost."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sluice.core.accounting.recovery import recovery
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State, Workload
from sluice.core.lifecycle.run import Run
from sluice.core.lifecycle.runs import first_admitted_at, waited_ms
from sluice.core.migrations.losses import SPOT_PRIOR_MS, WINDOW_MS, Loss, mean_between_ms

HOUR = 3_600_000
START = 1_800_000_000_000


def a_run(generation: int, outcome: str, **more: Any) -> Run:
    """Admitted at hour `generation`, running 10 minutes later, ended an hour after that."""
    began = START + generation * 2 * HOUR
    times = {"admitted_at": began, "started_at": began + 600_000, "ended_at": began + HOUR}
    return Run(generation=generation, outcome=outcome, **times, **more)


def a_workload(*runs: Run, **fields: Any) -> Workload:
    made = Workload("w", "w", "team", "team/q", State.DISPATCHED, created_at=START - 1_000)
    return replace(made, runs=runs, **{"generation": len(runs), **fields})


def test_a_move_is_no_wait() -> None:
    moved = a_workload(a_run(0, "migrate"), admitted_at=START + HOUR)

    assert waited_ms(moved, START + 5 * HOUR) == 1_000
    assert first_admitted_at(moved) == START


def test_waiting_again_after_a_requeue_counts() -> None:
    back = a_workload(a_run(0, "requeue"), admitted_at=START + HOUR + 7_000)
    queued = replace(back, state=State.PENDING, admitted_at=0)

    assert waited_ms(back, START + 9 * HOUR) == 8_000
    assert waited_ms(queued, START + HOUR + 9_000) == 10_000


def test_the_wait_of_one_that_was_never_admitted_ends_with_it() -> None:
    cancelled = a_workload(state=State.CANCELLED, finished_at=START + 4_000, generation=0)

    assert waited_ms(cancelled, START + HOUR) == 5_000


def test_the_account_of_a_move_tells_seconds_and_dollars() -> None:
    stopped = START + HOUR - 5_000
    run = a_run(
        0, "migrate", stopped_at=stopped, lost_ms=60_000, usd_per_hour=1.0,
        on_demand_usd_per_hour=3.0,
    )  # fmt: skip
    ran_hours = (stopped - run.started_at) / HOUR

    found = recovery(a_workload(run, started_at=stopped + 12_000))

    assert (found.moves, found.lost_ms, found.standstill_ms) == (1, 60_000, 12_000)
    assert found.saved_usd == pytest.approx(2.0 * ran_hours)
    assert found.not_repeated_usd == pytest.approx(ran_hours - 60_000 / HOUR)


def test_what_nobody_knows_is_not_guessed() -> None:
    found = recovery(a_workload(a_run(0, "migrate"), a_run(1, "succeeded"), generation=1))

    assert (found.lost_ms, found.untold) == (0, 1)
    assert (found.saved_usd, found.not_repeated_usd) == (None, None)
    assert found.standstill_ms == HOUR + 600_000, "the last run's own start ends it"


def a_node(hours: float, capacity_type: str = "spot") -> InventoryRow:
    created = datetime.fromtimestamp(START / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
    seen = START + int(hours * HOUR)
    return InventoryRow(created=created, seen_at=seen, capacity_type=capacity_type)


def a_loss(at: int, *, noticed: bool) -> Loss:
    return Loss(f"i-{at}", at, "spot", noticed, "spot")


def mean(nodes: list[Any], losses: list[Loss], *, only_unnoticed: bool = False) -> float:
    now = START + 100 * HOUR
    return mean_between_ms(nodes, losses, "spot", now, only_unnoticed=only_unnoticed)


def test_before_any_observation_the_assumed_rate_holds() -> None:
    assert mean([], []) == SPOT_PRIOR_MS


def test_machine_time_without_a_loss_makes_losses_rarer() -> None:
    assert mean([a_node(76), a_node(50, "on-demand")], []) == SPOT_PRIOR_MS + 76 * HOUR


def test_only_losses_without_a_warning_count_against_dumps_that_fit_the_notice() -> None:
    losses = [a_loss(START + n, noticed=n != 2) for n in range(1, 5)]

    assert mean([a_node(76)], losses) == 100 * HOUR / 5
    assert mean([a_node(76)], losses, only_unnoticed=True) == 100 * HOUR / 2


def test_what_is_older_than_the_window_is_forgotten() -> None:
    old = a_loss(START + 100 * HOUR - WINDOW_MS - 1, noticed=True)

    assert mean([], [old]) == SPOT_PRIOR_MS
