"""Which flavor a workload gets, and what the search does when none is free at once."""

from typing import Any

from tests.simulation.builders import (
    KUEUE,
    Json,
    cohort,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)


def fungibility(
    borrow: str = "MayStopSearch", preempt: str = "TryNextFlavor", preference: str | None = None
) -> Json:
    rules = {"whenCanBorrow": borrow, "whenCanPreempt": preempt}
    return {"flavorFungibility": rules | ({"preference": preference} if preference else {})}


def flavors(**quotas: Any) -> Json:
    return {flavor.replace("_", "-"): {"cpu": quota} for flavor, quota in quotas.items()}


def flavor(name: str, **spec: Any) -> Json:
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": name}, "spec": spec}


LOWER = preemption("LowerPriority")
TAINT = {"key": "spot", "value": "true", "effect": "NoSchedule"}


def test_flavors_are_tried_in_the_order_of_listing() -> None:
    result = simulate(queue("q", None, flavors(z=2, a=2)), waiting("w", "q", cpu=1))

    assert result.admitted == {"w": "z"}


def test_a_full_flavor_is_passed_over() -> None:
    result = simulate(
        queue("q", None, flavors(first=2, second=2)),
        running("r", "q", flavor="first", cpu=2),
        waiting("w", "q", cpu=1),
    )

    assert result.admitted == {"w": "second"}


def test_by_default_a_flavor_that_can_borrow_ends_the_search() -> None:
    result = simulate(
        queue("q", "team", flavors(first=1, second=5)),
        queue("lender", "team", flavors(first=5)),
        waiting("w", "q", cpu=3),
    )

    assert result.admitted == {"w": "first"}


def test_try_next_flavor_prefers_a_flavor_without_borrowing() -> None:
    result = simulate(
        queue("q", "team", flavors(first=1, second=5), spec=fungibility("TryNextFlavor")),
        queue("lender", "team", flavors(first=5)),
        waiting("w", "q", cpu=3),
    )

    assert result.admitted == {"w": "second"}


def test_try_next_flavor_falls_back_to_borrowing() -> None:
    result = simulate(
        queue("q", "team", flavors(first=1, second=2), spec=fungibility("TryNextFlavor")),
        queue("lender", "team", flavors(first=5)),
        waiting("w", "q", cpu=3),
    )

    assert result.admitted == {"w": "first"}


def test_by_default_a_free_flavor_comes_before_preemption_in_an_earlier_one() -> None:
    result = simulate(
        queue("q", None, flavors(first=2, second=2), spec=LOWER),
        running("low", "q", -1, flavor="first", cpu=2),
        waiting("w", "q", 1, cpu=2),
    )

    assert result.admitted == {"w": "second"}
    assert result.preempted == {}


def test_may_stop_search_preempts_in_the_first_flavor_that_allows_it() -> None:
    result = simulate(
        queue(
            "q", None, flavors(first=2, second=2),
            spec=LOWER | fungibility(preempt="MayStopSearch"),
        ),
        running("low", "q", -1, flavor="first", cpu=2),
        waiting("w", "q", 1, cpu=2),
    )  # fmt: skip

    assert result.preempted == {"low": "InClusterQueue"}


def test_a_flavor_without_victims_never_ends_the_search() -> None:
    result = simulate(
        queue(
            "q", None, flavors(first=2, second=2),
            spec=LOWER | fungibility(preempt="MayStopSearch"),
        ),
        running("high", "q", 5, flavor="first", cpu=2),
        waiting("w", "q", 1, cpu=2),
    )  # fmt: skip

    assert result.admitted == {"w": "second"}


def test_borrowing_is_preferred_over_preemption_by_default() -> None:
    result = _borrow_in_first_or_preempt_in_second("BorrowingOverPreemption")

    assert result.admitted == {"w": "first"}
    assert result.preempted == {}


def test_preemption_over_borrowing_preempts_to_stay_within_nominal() -> None:
    result = _borrow_in_first_or_preempt_in_second("PreemptionOverBorrowing")

    assert result.admitted == {}
    assert result.preempted == {"low": "InClusterQueue"}


def _borrow_in_first_or_preempt_in_second(preference: str) -> Any:
    both = fungibility("TryNextFlavor", "TryNextFlavor", preference)
    return simulate(
        queue("q", "team", flavors(first=0, second=2), spec=LOWER | both),
        queue("lender", "team", flavors(first=5)),
        running("low", "q", -1, flavor="second", cpu=2),
        waiting("w", "q", 1, cpu=2),
    )


def test_all_resources_of_a_group_get_the_same_flavor() -> None:
    group: dict[str, Json] = {
        "first": {"cpu": 8, "memory": "1Gi"},
        "second": {"cpu": 8, "memory": "8Gi"},
    }
    result = simulate(queue("q", None, group), waiting("w", "q", cpu=1, memory="2Gi"))

    assert result.admitted == {"w": "second"}


def test_groups_choose_their_flavors_independently() -> None:
    result = simulate(
        queue("q", None, flavors(small=1, large=8), {"a100": {"gpu": 2}}),
        waiting("w", "q", cpu=4, gpu=1),
    )

    assert result.admitted == {"w": [{"cpu": "large", "gpu": "a100"}]}


def test_a_pod_set_sees_what_the_one_before_it_took() -> None:
    pod_sets = [
        {"name": "driver", "count": 1, "requests": {"cpu": "3"}},
        {"name": "worker", "count": 3, "requests": {"cpu": "1"}},
    ]
    result = simulate(
        queue("q", None, flavors(first=4, second=4)), waiting("w", "q", pod_sets=pod_sets)
    )

    assert result.admitted == {"w": [{"cpu": "first"}, {"cpu": "second"}]}


def test_either_all_pod_sets_run_or_none() -> None:
    pod_sets = [
        {"name": "driver", "count": 1, "requests": {"cpu": "3"}},
        {"name": "worker", "count": 6, "requests": {"cpu": "1"}},
    ]
    result = simulate(
        queue("q", None, flavors(first=4, second=4)), waiting("w", "q", pod_sets=pod_sets)
    )

    assert result.admitted == {}
    assert result.node("q")["usage"] == {"first": {"cpu": "0"}, "second": {"cpu": "0"}}


def test_a_tainted_flavor_is_passed_over() -> None:
    result = simulate(
        flavor("spot", nodeTaints=[TAINT]),
        queue("q", None, flavors(spot=4, on_demand=4)),
        waiting("w", "q", cpu=1),
    )

    assert result.admitted == {"w": "on-demand"}


def test_a_flavor_may_bring_the_toleration_of_its_own_taint() -> None:
    toleration = {"key": "spot", "operator": "Exists"}
    result = simulate(
        flavor("spot", nodeTaints=[TAINT], tolerations=[toleration]),
        queue("q", None, flavors(spot=4, on_demand=4)),
        waiting("w", "q", cpu=1),
    )

    assert result.admitted == {"w": "spot"}


def test_no_flavor_that_suits_is_a_misconfiguration() -> None:
    result = simulate(
        flavor("spot", nodeTaints=[TAINT]),
        queue("q", None, flavors(spot=4)),
        waiting("w", "q", cpu=1),
    )

    assert result.reasons == {"w": "MISCONFIGURATION:NoMatchingFlavor"}


def test_reclaim_in_one_flavor_is_better_than_preemption_in_another() -> None:
    # first: own lower priority would have to go; second: lent quota comes back.
    result = simulate(
        queue("q", "team", flavors(first=2, second=2), spec=preemption("LowerPriority", "Any")),
        queue("borrower", "team", flavors(first=0, second=0)),
        running("own", "q", -1, flavor="first", cpu=2),
        running("lent", "borrower", 5, flavor="second", cpu=2),
        waiting("w", "q", 1, cpu=2),
    )

    assert result.preempted == {"lent": "InCohortReclamation"}


def two_pod_sets(**cpu: int) -> Json:
    return {
        "pod_sets": [
            {"name": name, "count": 1, "requests": {"cpu": str(amount)}}
            for name, amount in cpu.items()
        ]
    }


def test_the_scan_goes_on_after_the_last_tried_flavor_in_the_next_pass() -> None:
    # a takes first, which leaves nothing for b; beginning after first, a takes second.
    parts = [
        queue("q", None, flavors(first=6, second=4)),
        waiting("w", "q", **two_pod_sets(a=4, b=6)),
    ]

    one_pass = simulate(*parts)
    to_the_end = simulate(*parts, passes=None)

    assert one_pass.admitted == {}
    assert to_the_end.admitted == {"w": [{"cpu": "second"}, {"cpu": "first"}]}


def test_who_lost_the_race_for_a_flavor_tries_the_next_before_evicting_in_the_first() -> None:
    # Both want the cohort's first CPUs; the loser could evict low there, or take second.
    parts = [
        cohort("team", None, flavors(first=3)),
        queue("winner", "team", flavors(first=0)),
        queue(
            "loser", "team", flavors(first=3, second=3),
            spec=LOWER | fungibility("MayStopSearch", "MayStopSearch"),
        ),
        running("low", "loser", -1, flavor="first", cpu=3),
        waiting("vip", "winner", 9, cpu=3),
        waiting("w", "loser", 0, cpu=3),
    ]  # fmt: skip

    result = simulate(*parts, passes=2)

    assert result.admitted == {"vip": "first", "w": "second"}
    assert result.preempted == {}


def test_a_scan_that_leads_nowhere_ends() -> None:
    # Each pod set has flavors left to try when the other one fails, whatever is tried.
    quotas = flavors(a=3, b=3, c=3)
    result = simulate(
        queue("q", None, quotas),
        waiting("w", "q", **two_pod_sets(x=2, y=2, z=2, v=2)),
        waiting("small", "q", at=9, cpu=1),
        passes=None,
    )

    assert result.pending == {"w"}
    assert result.admitted == {"small": "a"}


def test_victims_that_another_head_took_are_replaced_within_the_nominated_flavor() -> None:
    # Both heads would evict b1 from first, and nobody else there is of lower priority. The second
    # head waits, although it could evict b2 from second.
    rules = preemption("Never", "LowerPriority") | fungibility("MayStopSearch", "MayStopSearch")
    result = simulate(
        queue("x", "team", flavors(first=2, second=2), spec=rules),
        queue("y", "team", flavors(first=2, second=2), spec=rules),
        queue("b", "team", flavors(first=0, second=0)),
        running("high", "b", 9, flavor="first", at=1, cpu=2),
        running("b1", "b", flavor="first", at=1, cpu=2),
        running("b2", "b", flavor="second", at=2, cpu=4),
        waiting("wx", "x", 1, cpu=2),
        waiting("wy", "y", 1, at=9, cpu=2),
    )

    assert result.preempted == {"b1": "InCohortReclamation"}


def test_a_search_that_resumed_in_vain_begins_with_the_first_flavor_once_more() -> None:
    # w nominates all four pods in first and loses the race; second has no room, first has for one.
    result = simulate(
        cohort("team", None, flavors(first=4)),
        queue("winner", "team", flavors(first=0)),
        queue("loser", "team", flavors(first=0, second=0)),
        waiting("vip", "winner", 9, cpu=3),
        waiting("w", "loser", 0, count=4, minCount=1, cpu=1),
        passes=None,
    )

    assert result.counts == {"vip": [1], "w": [1]}


def test_a_flavor_is_as_good_as_its_worst_resource_whatever_the_preference() -> None:
    # gpu fits by borrowing, cpu only after an eviction within nominal quota.
    rules = fungibility("TryNextFlavor", "TryNextFlavor", "PreemptionOverBorrowing")
    result = simulate(
        queue("q", "team", {"f": {"cpu": 4, "gpu": 3}}, spec=LOWER | rules),
        queue("lender", "team", {"f": {"cpu": 4, "gpu": 5}}),
        running("low", "q", -1, flavor="f", cpu=4),
        running("r", "lender", flavor="f", cpu=4),
        waiting("w", "q", cpu=2, gpu=5),
    )

    assert result.preempted == {"low": "InClusterQueue"}


def test_who_stands_back_for_a_reservation_tries_the_next_flavor() -> None:
    # head keeps the cohort's free first CPU for itself, in vain for now; w takes second instead.
    result = simulate(
        cohort("team", None, flavors(first=1)),
        queue("a", "team", flavors(first=2), spec={"queueingStrategy": "StrictFIFO"}),
        queue("b", "team", flavors(first=0, second=1)),
        running("r", "a", 9, flavor="first", cpu=2),
        waiting("head", "a", 5, cpu=2),
        waiting("w", "b", cpu=1),
        passes=None,
    )

    assert result.admitted == {"w": "second"}
    assert result.pending == {"head"}
