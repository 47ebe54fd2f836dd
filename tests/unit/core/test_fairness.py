"""Dominant-resource shares, the tournament, and preemption for fairness."""

from __future__ import annotations

import pytest
from sluice.core.config.model import (
    FairPreemptionStrategy,
    FlavorQuotas,
    PodSetInfo,
    Preemption,
    ReclaimWithinCohort,
    ResourceGroup,
    ResourceQuota,
)
from sluice.core.config.policy import FairSharing, Policy
from sluice.core.scheduling.dominant_share import MAX_SHARE

from tests.unit.core.builders import (
    NOW_MS,
    RECLAIM_ANY,
    a_cohort,
    a_queue,
    a_scheduler,
    a_workload,
    admitted,
    preempted,
    quota,
    running,
)

FINAL = FairPreemptionStrategy.LESS_THAN_OR_EQUAL_TO_FINAL_SHARE
INITIAL = FairPreemptionStrategy.LESS_THAN_INITIAL_SHARE
FAIR = Policy(fair_sharing=FairSharing())
FAIR_SHARING = "InCohortFairSharing"


def cpu_and_gpu(cpu: int, gpu: int) -> tuple[ResourceGroup, ...]:
    quotas = {"cpu": ResourceQuota(cpu * 1000), "gpu": ResourceQuota(gpu)}
    return (ResourceGroup(("cpu", "gpu"), (FlavorQuotas("default", quotas),)),)


@pytest.mark.parametrize(
    ("cpu", "gpu", "weight_milli", "expected"),
    [
        (3, 7, 1000, (200, "gpu")),
        (3, 3, 1000, (100, "cpu")),
        (0, 7, 2000, (100, "gpu")),
        (0, 7, 500, (400, "gpu")),
        (0, 7, 0, (MAX_SHARE, "gpu")),
        (2, 5, 0, (0, "")),
    ],
)
def test_the_share_is_that_of_the_most_borrowed_resource(
    cpu: int, gpu: int, weight_milli: int, expected: tuple[int, str]
) -> None:
    scheduler = a_scheduler(
        a_queue("q", cohort="c", resource_groups=cpu_and_gpu(2, 5), fair_weight_milli=weight_milli),
        a_queue("lender", cohort="c", resource_groups=cpu_and_gpu(8, 5)),
    )
    pods = (PodSetInfo("main", 1, {"cpu": cpu * 1000, "gpu": gpu}),)
    scheduler.hold(running(a_workload("running", "q", pod_sets=pods)))

    assert scheduler.share("q") == expected


def test_the_share_is_taken_at_each_level_and_the_root_has_none() -> None:
    scheduler = a_scheduler(
        a_cohort("root", nominal=quota(50)),
        a_cohort("child", "root", quota(0)),
        a_queue("q", 0, cohort="child"),
        a_cohort("sibling", "root", quota(0)),
        a_queue("other", 0, cohort="sibling"),
    )
    scheduler.hold(running(a_workload("running", "q", 10)))

    assert scheduler.share("q") == (200, "cpu")
    assert scheduler.share("child") == (200, "cpu")
    assert scheduler.share("root") == scheduler.share("other") == (0, "")


def test_shares_round_up() -> None:
    scheduler = a_scheduler(a_queue("q", 0, cohort="c"), a_queue("lender", 3, cohort="c"))
    scheduler.hold(running(a_workload("running", "q", 1)))

    assert scheduler.share("q") == (334, "cpu")


def test_the_queue_with_the_smaller_share_afterwards_goes_first() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(100)),
        a_queue("b", 0, cohort="c"),
        a_queue("c1", 0, cohort="c"),
        policy=FAIR,
    )
    scheduler.hold(running(a_workload("b-running", "b", 10)))
    scheduler.enqueue(a_workload("b-50", "b", 50, queued=2))
    scheduler.enqueue(a_workload("c-75", "c1", 75, queued=1))

    assert admitted(scheduler) == ["b-50"]


def test_equal_queues_take_turns_whatever_the_order_of_arrival() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(6)),
        a_queue("a", 0, cohort="c"),
        a_queue("b", 0, cohort="c"),
        policy=FAIR,
    )
    for number in range(6):
        scheduler.enqueue(a_workload(f"a{number}", "a", queued=number))
        scheduler.enqueue(a_workload(f"b{number}", "b", queued=100 + number))

    assert admitted(scheduler) == ["a0", "b0", "a1", "b1", "a2", "b2"]


def test_weights_divide_the_cohort_in_proportion() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(9)),
        a_queue("double", 0, cohort="c", fair_weight_milli=2000),
        a_queue("single", 0, cohort="c"),
        a_queue("none", 0, cohort="c", fair_weight_milli=0),
        policy=FAIR,
    )
    for name in ("none", "single", "double"):
        for number in range(9):
            scheduler.enqueue(a_workload(f"{name}-{number}", name, queued=number))

    names = [name.split("-")[0] for name in admitted(scheduler)]

    assert {name: names.count(name) for name in names} == {"double": 6, "single": 3}


def test_a_head_that_can_never_fit_does_not_keep_its_queue_out_of_the_tournament() -> None:
    scheduler = a_scheduler(a_queue("a", 5, cohort="c"), a_queue("b", 5, cohort="c"), policy=FAIR)
    scheduler.enqueue(a_workload("impossible", "b", 18, priority=3))
    scheduler.enqueue(a_workload("owns", "b", 3))
    scheduler.enqueue(a_workload("first", "a", 2, priority=1))
    scheduler.enqueue(a_workload("borrows", "a", 6))

    assert admitted(scheduler) == ["first", "owns"]


def test_whoever_does_not_borrow_on_the_requested_flavors_goes_first() -> None:
    scheduler = a_scheduler(
        a_queue("owner", 2, cohort="c"),
        a_queue("borrower", 0, cohort="c", fair_weight_milli=1_000_000),
        a_queue("lender", 2, cohort="c"),
        policy=FAIR,
    )
    scheduler.enqueue(a_workload("owner-2", "owner", 2, queued=2))
    scheduler.enqueue(a_workload("borrower-3", "borrower", 3, queued=1, priority=9))

    assert admitted(scheduler) == ["owner-2"]


def test_a_cohort_competes_with_the_share_of_its_whole_subtree() -> None:
    scheduler = a_scheduler(
        a_cohort("root", nominal=quota(10)),
        a_cohort("big", "root"),
        a_cohort("small", "root"),
        a_queue("big-idle", 0, cohort="big"),
        a_queue("big-busy", 0, cohort="big"),
        a_queue("small-q", 0, cohort="small"),
        policy=FAIR,
    )
    scheduler.hold(running(a_workload("busy", "big-busy", 5)))
    scheduler.hold(running(a_workload("some", "small-q", 3)))
    scheduler.enqueue(a_workload("idle-2", "big-idle", 2, queued=1))
    scheduler.enqueue(a_workload("small-2", "small-q", 2, queued=2))

    assert admitted(scheduler) == ["small-2"]


def test_what_is_within_nominal_is_reclaimed_from_the_largest_borrower() -> None:
    scheduler = a_scheduler(
        a_queue("a", 3, cohort="c", preemption=RECLAIM_ANY),
        a_queue("b", 3, cohort="c"),
        a_queue("d", 3, cohort="c"),
        policy=FAIR,
    )
    for number in range(4):
        scheduler.hold(running(a_workload(f"b{number}", "b", 1, priority=9), since=number))
    for number in range(5):
        scheduler.hold(running(a_workload(f"d{number}", "d", 1, priority=9), since=number))
    scheduler.enqueue(a_workload("in", "a", 1))

    assert preempted(scheduler) == {"d4": "InCohortReclamation"}


def test_a_borrower_takes_from_one_who_borrows_more() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(6)),
        a_queue("poor", 0, cohort="c", preemption=RECLAIM_ANY),
        a_queue("rich", 0, cohort="c"),
        policy=FAIR,
    )
    for number in range(5):
        scheduler.hold(running(a_workload(f"rich{number}", "rich", 1), since=number))
    scheduler.hold(running(a_workload("poor0", "poor", 1)))
    scheduler.enqueue(a_workload("in", "poor", 1))

    assert preempted(scheduler) == {"rich4": FAIR_SHARING}


def test_nobody_takes_from_an_equal() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(6)),
        a_queue("a", 0, cohort="c", preemption=RECLAIM_ANY),
        a_queue("b", 0, cohort="c", preemption=RECLAIM_ANY),
        policy=FAIR,
    )
    for number in range(3):
        scheduler.hold(running(a_workload(f"a{number}", "a", 1), since=number))
        scheduler.hold(running(a_workload(f"b{number}", "b", 1), since=number))
    scheduler.enqueue(a_workload("more-a", "a", 1))
    scheduler.enqueue(a_workload("more-b", "b", 1))

    assert preempted(scheduler) == {}


@pytest.mark.parametrize(
    ("strategies", "expected"),
    [
        ((FINAL,), {}),
        ((FINAL, INITIAL), {"large": FAIR_SHARING}),
        ((INITIAL,), {"large": FAIR_SHARING}),
    ],
)
def test_a_large_victim_falls_to_the_second_rule_only(
    strategies: tuple[FairPreemptionStrategy, ...], expected: dict[str, str]
) -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(10)),
        a_queue("poor", 0, cohort="c", preemption=RECLAIM_ANY),
        a_queue("rich", 0, cohort="c"),
        policy=Policy(fair_sharing=FairSharing(strategies)),
    )
    scheduler.hold(running(a_workload("large", "rich", 10)))
    scheduler.enqueue(a_workload("in", "poor", 4))

    assert preempted(scheduler) == expected


def test_only_lower_priorities_yield_where_the_rule_says_so() -> None:
    rules = Preemption(reclaim_within_cohort=ReclaimWithinCohort.LOWER_PRIORITY)
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(4)),
        a_queue("poor", 0, cohort="c", preemption=rules),
        a_queue("rich", 0, cohort="c"),
        policy=FAIR,
    )
    scheduler.hold(running(a_workload("high", "rich", 1, priority=5), since=9))
    for number in range(3):
        scheduler.hold(running(a_workload(f"equal{number}", "rich", 1), since=number))
    scheduler.enqueue(a_workload("in", "poor", 1, priority=1))

    assert preempted(scheduler) == {"equal2": FAIR_SHARING}


def test_a_weightless_borrower_yields_to_any_other() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(4)),
        a_queue("normal", 0, cohort="c", preemption=RECLAIM_ANY),
        a_queue("weightless", 0, cohort="c", fair_weight_milli=0),
        policy=FAIR,
    )
    scheduler.hold(running(a_workload("normal0", "normal", 3)))
    scheduler.hold(running(a_workload("weightless0", "weightless", 1)))
    scheduler.enqueue(a_workload("in", "normal", 1))

    assert preempted(scheduler) == {"weightless0": FAIR_SHARING}


def test_fair_sharing_converges_to_equal_shares_and_comes_to_rest() -> None:
    queues = [a_queue(name, 0, cohort="c", preemption=RECLAIM_ANY) for name in "abd"]
    scheduler = a_scheduler(a_cohort("c", nominal=quota(12)), *queues, policy=FAIR)
    workloads = {
        f"{name}{number}": a_workload(f"{name}{number}", name, 1, queued=number)
        for name in "abd"
        for number in range(12)
    }
    for name in "abd":  # one queue after the other arrives and finds everything taken
        for number in range(12):
            scheduler.enqueue(workloads[f"{name}{number}"])
        for _ in range(60):
            plan = scheduler.run_pass(NOW_MS)
            if not plan.admissions and not plan.preemptions:
                break
            for step in plan.preemptions:
                scheduler.release(step.victim)
                scheduler.enqueue(workloads[step.victim])

    assert [scheduler.usage(name)["default", "cpu"] for name in "abd"] == [4000, 4000, 4000]
    assert not scheduler.has_candidates()
