"""Dominant-resource fair sharing: shares, the order of admission, and preemption by share."""

from typing import Any

import pytest

from tests.simulation.builders import (
    FAIR,
    Json,
    cohort,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)

BIG = 2**63 - 1
RECLAIM = preemption("LowerPriority", "Any")


def weighted(weight: str, **rest: Any) -> Json:
    return {"fairSharing": {"weight": weight}, **rest}


@pytest.mark.parametrize(
    ("weight", "share"), [("1", 250), ("2", 125), ("0.5", 500), ("3", 84), ("0", BIG)]
)
def test_the_share_is_the_borrowed_part_of_what_the_cohort_can_lend(
    weight: str, share: int
) -> None:
    # 5 borrowed of 20: ratio 250, divided by the weight and rounded up.
    result = simulate(
        queue("q", "team", cpu=10, spec=weighted(weight)),
        queue("lender", "team", cpu=10),
        running("r", "q", cpu=15),
        **FAIR,
    )

    assert result.share("q") == (share, "cpu")
    assert result.share("lender") == (0, "")


def test_work_within_nominal_has_no_share() -> None:
    result = simulate(
        queue("q", "team", cpu=10), queue("p", "team", cpu=10), running("r", "q", cpu=10), **FAIR
    )

    assert result.share("q") == (0, "")


def test_a_queue_without_cohort_and_the_root_have_no_share() -> None:
    result = simulate(
        queue("alone", cpu=1), cohort("root", cpu=5), queue("q", "root", cpu=0),
        running("over", "alone", cpu=9), running("r", "q", cpu=5), **FAIR,
    )  # fmt: skip

    assert result.share("alone") == (0, "")
    assert result.share("root") == (0, "")
    assert result.share("q") == (1000, "cpu")


def test_ties_between_resources_name_the_first_of_the_alphabet() -> None:
    quotas = {"default": {"gpu": 10, "cpu": 10}}
    result = simulate(
        queue("q", "team", {"default": {"gpu": 0, "cpu": 0}}),
        queue("lender", "team", quotas),
        running("r", "q", gpu=4, cpu=4),
        **FAIR,
    )

    assert result.share("q") == (400, "cpu")


def test_quota_that_is_not_lent_does_not_count_as_lendable() -> None:
    # 4 of the lender's 10 are lendable: borrowing 2 is half of what there is.
    result = simulate(
        queue("q", "team", cpu=0),
        queue("lender", "team", cpu=(10, None, 4)),
        running("r", "q", cpu=2),
        **FAIR,
    )

    assert result.share("q") == (500, "cpu")


def test_shares_are_rounded_up() -> None:
    result = simulate(
        queue("q", "team", cpu=0),
        queue("lender", "team", cpu=3),
        running("r", "q", cpu=1),
        **FAIR,
    )

    assert result.share("q") == (334, "cpu")


def test_the_share_after_admission_decides_even_against_priority() -> None:
    result = simulate(
        cohort("team", cpu=10),
        queue("a", "team", cpu=0),
        queue("b", "team", cpu=0),
        running("r", "a", cpu=4),
        waiting("vip", "a", 9, cpu=3),
        waiting("low", "b", 0, at=9, cpu=6),
        **FAIR,
    )

    assert result.order == ["low"]
    assert result.pending == {"vip"}


def test_at_equal_shares_priority_decides_then_age() -> None:
    parts = [cohort("team", cpu=5), queue("a", "team", cpu=0), queue("b", "team", cpu=0)]

    by_priority = simulate(
        *parts, waiting("old", "a", 0, cpu=4), waiting("vip", "b", 9, at=9, cpu=4), **FAIR
    )
    by_age = simulate(
        *parts, waiting("new", "a", 0, at=9, cpu=4), waiting("old", "b", cpu=4), **FAIR
    )

    assert by_priority.order == ["vip"]
    assert by_age.order == ["old"]


def test_who_does_not_borrow_goes_first_whatever_the_priority() -> None:
    result = simulate(
        cohort("team", cpu=2),
        queue("a", "team", cpu=0),
        queue("b", "team", cpu=5),
        waiting("borrows", "a", 9, cpu=3),
        waiting("own", "b", 0, at=9, cpu=5),
        **FAIR,
    )

    assert result.order == ["own"]


def test_weights_shift_the_order() -> None:
    # a would reach 600 / 3 = 200, b 400.
    result = simulate(
        cohort("team", cpu=10),
        queue("a", "team", cpu=0, spec=weighted("3")),
        queue("b", "team", cpu=0),
        waiting("a-6", "a", at=9, cpu=6),
        waiting("b-5", "b", cpu=5),
        **FAIR,
    )

    assert result.order == ["a-6"]


def test_a_borrower_of_weight_zero_comes_last() -> None:
    result = simulate(
        cohort("team", cpu=10),
        queue("zero", "team", cpu=0, spec=weighted("0")),
        queue("one", "team", cpu=0),
        waiting("first", "zero", 9, cpu=1),
        waiting("last", "one", 0, at=9, cpu=10),
        **FAIR,
    )

    assert result.order == ["last"]


def test_the_tournament_compares_cohorts_before_their_queues() -> None:
    # left as a whole already borrows 6; right borrows nothing: right's queue wins, although the
    # share of its workload inside right is the larger one.
    result = simulate(
        cohort("root", cpu=20),
        cohort("left", "root"),
        cohort("right", "root"),
        queue("l1", "left", cpu=0),
        queue("l2", "left", cpu=0),
        queue("r1", "right", cpu=0),
        running("six", "l1", cpu=12),
        waiting("l2-1", "l2", cpu=5),
        waiting("r1-5", "r1", at=9, cpu=6),
        **FAIR,
    )

    assert result.order == ["r1-5"]


def test_a_preemptor_within_nominal_reclaims_whatever_the_shares() -> None:
    result = simulate(
        queue("a", "team", cpu=3, spec=RECLAIM),
        queue("b", "team", cpu=3, spec=RECLAIM),
        running("b1", "b", at=1, cpu=3),
        running("b2", "b", at=2, cpu=3),
        waiting("in", "a", cpu=3),
        **FAIR,
    )

    assert result.preempted == {"b2": "InCohortReclamation"}


def test_a_borrower_with_the_smaller_share_preempts_one_with_the_larger() -> None:
    # 9 shared CPUs, all with b. With in, a has 3 of 9; without its newest, b has 6 of 9.
    result = simulate(
        cohort("team", cpu=9),
        queue("a", "team", cpu=0, spec=RECLAIM),
        queue("b", "team", cpu=0, spec=RECLAIM),
        running("b1", "b", at=1, cpu=3),
        running("b2", "b", at=2, cpu=3),
        running("b3", "b", at=3, cpu=3),
        waiting("in", "a", cpu=3),
        **FAIR,
    )

    assert result.preempted == {"b3": "InCohortFairSharing"}


def test_equal_final_shares_still_allow_the_first_strategy() -> None:
    # a ends with 3 of 6, b with 3 of 6.
    result = simulate(
        cohort("team", cpu=6),
        queue("a", "team", cpu=0, spec=RECLAIM),
        queue("b", "team", cpu=0, spec=RECLAIM),
        running("b1", "b", at=1, cpu=3),
        running("b2", "b", at=2, cpu=3),
        waiting("in", "a", cpu=3),
        **FAIR,
    )

    assert result.preempted == {"b2": "InCohortFairSharing"}


def test_a_preemptor_that_would_overtake_its_victim_waits() -> None:
    # a has 3 of 6 and would get 5, more than b's 3: neither strategy allows it.
    result = simulate(
        cohort("team", cpu=6),
        queue("a", "team", cpu=0, spec=RECLAIM),
        queue("b", "team", cpu=0, spec=RECLAIM),
        running("a1", "a", 9, cpu=3),
        running("b1", "b", cpu=3),
        waiting("in", "a", cpu=2),
        **FAIR,
    )

    assert result.preempted == {}


def test_the_initial_share_is_the_second_strategy() -> None:
    # One workload of 8 of 10. With in, a has 5 < 8, b's initial share, but more than its final 0.
    parts = [
        cohort("team", cpu=10),
        queue("a", "team", cpu=0, spec=RECLAIM),
        queue("b", "team", cpu=0, spec=RECLAIM),
        running("big", "b", cpu=8),
        waiting("in", "a", cpu=5),
    ]

    both = simulate(*parts, **FAIR)
    final = simulate(*parts, fairSharing={"preemptionStrategies": ["LessThanOrEqualToFinalShare"]})
    initial = simulate(*parts, fairSharing={"preemptionStrategies": ["LessThanInitialShare"]})

    assert both.preempted == {"big": "InCohortFairSharing"}
    assert final.preempted == {}
    assert initial.preempted == {"big": "InCohortFairSharing"}


def test_the_largest_borrower_loses_first() -> None:
    result = simulate(
        cohort("team", cpu=12),
        queue("a", "team", cpu=0, spec=RECLAIM),
        queue("b", "team", cpu=0, spec=RECLAIM),
        queue("c", "team", cpu=0, spec=RECLAIM),
        running("b1", "b", -9, cpu=4),
        running("c1", "c", 9, at=1, cpu=4),
        running("c2", "c", 9, at=2, cpu=4),
        waiting("in", "a", cpu=2),
        **FAIR,
    )

    assert result.preempted == {"c2": "InCohortFairSharing"}


def test_lower_priority_of_the_own_queue_is_evicted_whatever_the_shares() -> None:
    result = simulate(
        cohort("team", cpu=4),
        queue("a", "team", cpu=0, spec=preemption("LowerPriority")),
        queue("b", "team", cpu=0),
        running("own", "a", -1, cpu=4),
        waiting("in", "a", 1, cpu=4),
        **FAIR,
    )

    assert result.preempted == {}


def test_who_has_just_lost_work_competes_with_its_smaller_share() -> None:
    spec = preemption("Never", "Any")
    queues = [queue(name, "team", cpu=0, gpu=0, spec=spec) for name in ("h", "v", "w", "x")]

    result = simulate(
        cohort("team", cpu=10, gpu=10),
        *queues,
        running("hog", "h", gpu=9),
        running("v1", "v", at=1, cpu=3),
        running("v2", "v", at=2, cpu=3),
        running("w1", "w", at=3, cpu=4),
        waiting("in", "x", cpu=3),
        waiting("of-v", "v", gpu=1),
        waiting("of-w", "w", gpu=1),
        **FAIR,
    )

    assert result.preempted == {"v2": "InCohortFairSharing"}
    assert result.order == ["of-v"]  # 300 against 400; before its loss it had 600


def test_at_equal_shares_other_queues_yield_before_the_preemptors_own() -> None:
    # Both queues have a share of 333. The own queue's victim first would lower the share of `a`,
    # so that it took another one of `b`, too; the larger one of `b` alone is enough.
    result = simulate(
        cohort("co", cpu=6),
        queue("a", "co", cpu=3, spec=RECLAIM),
        queue("b", "co", cpu=0, spec=weighted("2")),
        running("a-low", "a", -1, at=2400, cpu=2),
        running("b-big", "b", at=1800, cpu=5),
        running("b-small", "b", at=600, cpu=1),
        waiting("in", "a", cpu=4),
        **FAIR,
    )

    assert result.preempted == {"b-big": "InCohortFairSharing"}


def test_the_own_queue_yields_where_its_share_is_the_highest() -> None:
    result = simulate(
        cohort("co", cpu=6),
        queue("a", "co", cpu=0, spec=RECLAIM),
        queue("b", "co", cpu=0),
        running("a-low", "a", -1, at=2400, cpu=4),
        running("b-one", "b", at=1800, cpu=2),
        waiting("in", "a", cpu=2),
        **FAIR,
    )

    assert result.preempted == {"a-low": "InClusterQueue"}
