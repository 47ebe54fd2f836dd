"""Dollar budgets: charged at admission, settled when work stops, renewed by time."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.config.budget import Budget
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import LocalQueue, ResourceFlavor
from sluice.core.config.policy import Policy
from sluice.core.scheduling.scheduler import Scheduler
from sluice.core.values.reasons import Reason

from tests.unit.core.builders import HOUR_MS, a_queue, a_workload, admitted, group, quota

DOLLAR = 1_000_000
DAY_MS = 24 * HOUR_MS
PRICED: dict[str, Any] = {
    "cost_microusd_per_hour": {"default": 4 * DOLLAR},
    "max_runtime_ms": HOUR_MS,
}


def a_scheduler_with(budget: Budget) -> Scheduler:
    catalog = QueueCatalog(
        flavors=[ResourceFlavor("default")],
        cluster_queues=[a_queue("q", 99)],
        local_queues=[LocalQueue("ns/l", "q")],
        budgets=[budget],
    )
    return Scheduler(catalog, "q", Policy())


def enqueue(scheduler: Scheduler, *names: str, **fields: Any) -> None:
    for name in names:
        scheduler.enqueue(a_workload(name, "q", local_queue="ns/l", **{**PRICED, **fields}))


@pytest.mark.parametrize("queue", [{"cluster_queue": "q"}, {"local_queue": "ns/l"}])
def test_what_would_exceed_the_budget_waits_and_says_why(queue: dict[str, Any]) -> None:
    scheduler = a_scheduler_with(Budget("daily", 10 * DOLLAR, DAY_MS, **queue))
    enqueue(scheduler, "a", "b", "c")

    assert admitted(scheduler, 0) == ["a", "b"]
    assert scheduler.spent("daily", 0) == 8 * DOLLAR
    refusal = scheduler.why("c")
    assert refusal.reason is Reason.BUDGET_EXHAUSTED
    assert "$4.00" in refusal.message
    assert "$8.00 of $10.00" in refusal.message


def test_work_that_ends_early_gives_back_what_it_did_not_cost() -> None:
    scheduler = a_scheduler_with(Budget("daily", 10 * DOLLAR, DAY_MS, cluster_queue="q"))
    enqueue(scheduler, "a", "b", "c")
    admitted(scheduler, 0)
    scheduler.release("a", HOUR_MS // 2)

    assert scheduler.spent("daily", HOUR_MS // 2) == 6 * DOLLAR
    assert admitted(scheduler, HOUR_MS // 2) == ["c"]


def test_the_next_window_starts_afresh_and_wakes_those_who_wait() -> None:
    budget = Budget("daily", 4 * DOLLAR, DAY_MS, cluster_queue="q", starts_ms=HOUR_MS)
    scheduler = a_scheduler_with(budget)
    enqueue(scheduler, "a", "b")
    assert admitted(scheduler, 2 * HOUR_MS) == ["a"]

    assert scheduler.next_wakeup_ms() == HOUR_MS + DAY_MS
    assert admitted(scheduler, HOUR_MS + DAY_MS) == ["b"]


def test_earlier_spending_is_known_after_a_restart() -> None:
    scheduler = a_scheduler_with(Budget("daily", 10 * DOLLAR, DAY_MS, cluster_queue="q"))
    scheduler.set_spent("daily", 7 * DOLLAR, 0)
    enqueue(scheduler, "a")

    assert admitted(scheduler, 0) == []


def test_free_work_and_other_queues_are_not_bound() -> None:
    scheduler = a_scheduler_with(Budget("daily", 0, DAY_MS, local_queue="ns/other"))
    enqueue(scheduler, "other-queue")
    free = a_scheduler_with(Budget("daily", 0, DAY_MS, cluster_queue="q"))
    enqueue(free, "free", cost_microusd_per_hour={})

    assert admitted(scheduler, 0) == ["other-queue"]
    assert admitted(free, 0) == ["free"]


def test_without_a_maximum_run_time_the_budget_assumes_one() -> None:
    budget = Budget("b", 10 * DOLLAR, DAY_MS, cluster_queue="q", assumed_run_ms=3 * HOUR_MS)
    scheduler = a_scheduler_with(budget)
    enqueue(scheduler, "long", max_runtime_ms=None)

    assert admitted(scheduler, 0) == []


def test_a_budget_that_cannot_pay_one_flavor_is_spent_on_a_cheaper_one() -> None:
    flavors = ("on-demand", "spot")
    catalog = QueueCatalog(
        flavors=[ResourceFlavor(name) for name in flavors],
        cluster_queues=[
            a_queue("q", resource_groups=(group(on_demand=quota(9), spot=quota(1)),)),
        ],
        budgets=[Budget("daily", 5 * DOLLAR, DAY_MS, cluster_queue="q")],
    )
    scheduler = Scheduler(catalog, "q", Policy())
    prices = {"on-demand": 4 * DOLLAR, "spot": 1 * DOLLAR}
    for name in ("a", "b", "c"):
        fields = PRICED | {"cost_microusd_per_hour": prices}
        scheduler.enqueue(a_workload(name, "q", **fields))

    plan = scheduler.run_pass(0)

    # The second on-demand would come to $8; spot brings it to $5, and then nothing is left.
    assert [
        (each.workload, each.assignment.pod_sets[0].flavors["cpu"]) for each in plan.admissions
    ] == [("a", "on-demand"), ("b", "spot")]
    assert scheduler.spent("daily", 0) == 5 * DOLLAR
    assert scheduler.why("c").reason is Reason.BUDGET_EXHAUSTED
    assert scheduler.next_wakeup_ms() == DAY_MS


def test_an_expected_cost_is_rounded_up_so_that_nothing_is_free() -> None:
    budget = Budget("b", limit_microusd=1, window_ms=HOUR_MS, cluster_queue="q")
    short = a_workload("w", "q", max_runtime_ms=1)

    assert budget.expected(short, per_hour=1) == 1
    assert budget.expected(short, per_hour=0) == 0
