"""The quota tree: what a queue may still take, what it could ever take, and admission by that."""

import pytest

from tests.simulation.builders import cohort, preemption, queue, running, simulate, waiting


def test_a_queue_without_cohort_has_its_nominal_quota_and_nothing_else() -> None:
    result = simulate(queue("alone", cpu=10), running("r", "alone", cpu=4))

    assert result.cpu("available", "alone") == ["6"]
    assert result.cpu("potential", "alone") == ["10"]


def test_a_cohort_lends_its_own_quota_to_every_member() -> None:
    result = simulate(cohort("team", cpu=10), queue("a", "team", cpu=5), queue("b", "team", cpu=0))

    assert result.cpu("available", "a", "b", "team") == ["15", "15", "15"]


def test_a_borrowing_limit_of_zero_stops_at_nominal() -> None:
    result = simulate(
        queue("a", "team", cpu=(5, 0)),
        queue("b", "team", cpu=5),
        waiting("six", "a", cpu=6),
        waiting("five", "b", cpu=5),
    )

    assert result.cpu("potential", "a") == ["5"]
    assert result.admitted == {"five": "default"}
    assert result.pending == {"six"}


def test_a_lending_limit_of_zero_keeps_everything_at_home() -> None:
    result = simulate(
        queue("miser", "team", cpu=(10, None, 0)),
        queue("poor", "team", cpu=0),
        waiting("one", "poor", cpu=1),
    )

    assert result.cpu("available", "miser", "poor") == ["10", "0"]
    assert result.pending == {"one"}


def test_a_lender_may_use_its_unlent_quota_and_take_back_what_is_free_of_the_rest() -> None:
    # lender 10, lends 4; the borrower holds all 4, so the lender has its private 6 left.
    result = simulate(
        queue("lender", "team", cpu=(10, None, 4)),
        queue("borrower", "team", cpu=0),
        running("r", "borrower", cpu=4),
        waiting("six", "lender", cpu=6),
        waiting("one", "lender", at=1, cpu=1),
    )

    assert result.admitted == {"six": "default"}
    assert result.pending == {"one"}


def test_usage_within_the_unlent_quota_costs_the_cohort_nothing() -> None:
    # Of 10 the lender keeps 6; using 5 of those leaves all 4 lendable.
    result = simulate(
        cohort("team", cpu=0),
        queue("lender", "team", cpu=(10, None, 4)),
        queue("borrower", "team", cpu=0),
        running("r", "lender", cpu=5),
    )

    assert result.cpu("available", "lender", "borrower") == ["5", "4"]
    assert result.cpu("usage", "team") == ["0"]


def test_a_cohort_without_definition_has_neither_quota_nor_limits() -> None:
    result = simulate(queue("a", "named", cpu=3), queue("b", "named", cpu=4))

    assert result.cpu("potential", "a", "b") == ["7", "7"]
    assert [one["name"] for one in result.report["cohorts"]] == ["named"]


def test_the_borrowing_limit_of_a_cohort_binds_all_of_its_members_together() -> None:
    # left may borrow 2 from the root: its queues share 10 + 2.
    parts = [
        cohort("root", cpu=100),
        cohort("left", "root", cpu=(0, 2)),
        queue("a", "left", cpu=5),
        queue("b", "left", cpu=5),
        running("r", "a", cpu=9),
    ]

    result = simulate(*parts, waiting("three", "b", cpu=3), waiting("one", "b", at=1, cpu=1))

    assert result.cpu("potential", "a", "b") == ["12", "12"]
    assert result.admitted == {"three": "default"}
    assert result.pending == {"one"}


def test_borrowing_goes_through_three_levels_and_is_clamped_at_each() -> None:
    # outer lends 3 of its 8 and grants the middle 5 more than its own: min(5, 8) reach the leaf.
    result = simulate(
        cohort("root"),
        cohort("middle", "root", cpu=(0, 5)),
        cohort("inner", "middle"),
        queue("leaf", "inner", cpu=1),
        queue("outer", "root", cpu=8),
    )

    assert result.cpu("potential", "leaf") == ["6"]
    assert result.cpu("available", "leaf") == ["6"]


def test_a_quota_cut_leaves_running_work_alone_and_reports_zero() -> None:
    result = simulate(queue("cut", cpu=2), running("r", "cut", cpu=5), waiting("w", "cut", cpu=1))

    assert result.cpu("available", "cut") == ["0"]
    assert result.cpu("usage", "cut") == ["5"]
    assert result.preempted == {}
    assert result.pending == {"w"}


def test_a_request_above_potential_says_that_it_can_never_fit() -> None:
    result = simulate(
        queue("a", "team", cpu=(5, 2)), queue("b", "team", cpu=5), waiting("w", "a", cpu=8)
    )

    assert result.reasons == {"w": "QUOTA:ExceedsMaximum"}


def test_each_pair_of_flavor_and_resource_counts_by_itself() -> None:
    result = simulate(
        queue("a", None, {"default": {"cpu": 4, "memory": "4Gi"}}),
        running("r", "a", cpu=1, memory="4Gi"),
        waiting("w", "a", cpu=1, memory="1"),
    )

    assert result.node("a")["available"] == {"default": {"cpu": "3", "memory": "0"}}
    assert result.pending == {"w"}


@pytest.mark.parametrize(
    ("resource", "quota", "text"),
    [("cpu", "1500m", "1500m"), ("cpu", "2000", "2k"), ("memory", "2048Mi", "2Gi"),
     ("memory", "1000", "1k"), ("nvidia.com/gpu", "8", "8")],
)  # fmt: skip
def test_quantities_print_in_canonical_form(resource: str, quota: str, text: str) -> None:
    result = simulate(queue("a", None, {"default": {resource: quota}}))

    assert result.node("a")["available"] == {"default": {resource: text}}


def test_pods_are_a_resource_where_the_queue_covers_them() -> None:
    result = simulate(
        queue("a", None, {"default": {"cpu": 100, "pods": 3}}),
        waiting("two", "a", count=2, cpu=1),
        waiting("three", "a", at=1, count=2, cpu=1),
    )

    assert set(result.admitted) == {"two"}
    assert result.node("a")["usage"]["default"]["pods"] == "2"
    assert result.pending == {"three"}


def test_a_request_for_an_undeclared_resource_blocks_the_workload() -> None:
    result = simulate(queue("a", cpu=4), waiting("w", "a", **{"cpu": 1, "example.com/fpga": 1}))

    assert result.reasons == {"w": "MISCONFIGURATION:NoQuotaForResource"}


def test_a_cycle_of_cohorts_stops_admission_for_every_member() -> None:
    result = simulate(
        cohort("x", "y", cpu=10),
        cohort("y", "x"),
        queue("a", "x", cpu=5),
        queue("fine", cpu=5),
        waiting("stuck", "a", cpu=1),
        waiting("free", "fine", cpu=1),
    )

    assert result.admitted == {"free": "default"}
    assert result.reasons == {"stuck": "MISCONFIGURATION:QueueInactive"}


def test_a_queue_with_a_null_namespace_selector_admits_nobody() -> None:
    result = simulate(
        queue("closed", cpu=5, spec={"namespaceSelector": None}), waiting("w", "closed", cpu=1)
    )

    assert result.pending == {"w"}


def test_a_request_of_zero_fits_where_the_queue_is_beyond_its_quota() -> None:
    # As after a quota cut: Kueue counts what is available there as 0, not as less.
    over = running("over", "q", memory=4)
    result = simulate(queue("q", cpu=2, memory=3), over, waiting("w", "q", cpu=1, memory=0))

    assert result.admitted == {"w": "default"}


def test_a_request_of_zero_beside_one_that_borrows_is_not_given_up_early() -> None:
    result = simulate(
        queue("q", "co", spec=preemption(reclaim="Any"), cpu=0, memory=3),
        queue("lender", "co", cpu=2, memory=0),
        running("over", "q", memory=4),
        waiting("w", "q", cpu=1, memory=0),
    )

    assert result.admitted == {"w": "default"}


def test_a_request_of_zero_evicts_nobody() -> None:
    # q is beyond its borrowing limit of 3; nothing that others give back would change that.
    rules = preemption(reclaim="Any")
    result = simulate(
        queue("q", "co", spec=rules, memory=(0, 3)),
        queue("p", "co", memory=0),
        queue("lender", "co", memory=10),
        running("over", "q", memory=4),
        waiting("w", "q", memory=0),
        waiting("other", "p", memory=1),
        passes=None,
    )

    assert result.preempted == {}
    assert result.admitted.keys() == {"w", "other"}
