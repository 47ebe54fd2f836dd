"""Who is looked at first, who blocks whom, and what is held back for whom."""

from typing import Any

import pytest

from tests.simulation.builders import (
    cohort,
    local_queue,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)

STRICT = {"queueingStrategy": "StrictFIFO"}


def test_higher_priority_goes_before_older_work_of_one_queue() -> None:
    result = simulate(
        queue("a", cpu=1), waiting("old", "a", 0, cpu=1), waiting("vip", "a", 5, at=9, cpu=1)
    )

    assert result.order == ["vip"]


def test_equal_priority_is_served_in_order_of_creation() -> None:
    result = simulate(
        queue("a", cpu=1), waiting("second", "a", at=5, cpu=1), waiting("first", "a", at=1, cpu=1)
    )

    assert result.order == ["first"]


def test_the_order_of_listing_breaks_ties() -> None:
    result = simulate(queue("a", cpu=1), waiting("z", "a", cpu=1), waiting("b", "a", cpu=1))

    assert result.order == ["z"]


def test_best_effort_lets_smaller_work_pass_a_head_that_does_not_fit() -> None:
    result = simulate(
        queue("a", cpu=2), waiting("big", "a", cpu=3), waiting("small", "a", at=1, cpu=2)
    )

    assert result.order == ["small"]


def test_strict_fifo_is_blocked_by_its_head() -> None:
    result = simulate(
        queue("a", cpu=2, spec=STRICT),
        running("r", "a", cpu=1),
        waiting("big", "a", cpu=2),
        waiting("small", "a", at=1, cpu=1),
    )

    assert result.order == []
    assert result.pending == {"big", "small"}


def test_strict_fifo_goes_on_behind_a_head_that_was_admitted() -> None:
    result = simulate(
        queue("a", cpu=3, spec=STRICT),
        waiting("one", "a", cpu=1),
        waiting("two", "a", at=1, cpu=2),
        waiting("three", "a", at=2, cpu=1),
        passes=None,
    )

    assert result.order == ["one", "two"]
    assert result.pending == {"three"}


def test_work_within_nominal_quota_goes_before_work_that_borrows() -> None:
    # 10 in all: b's older workload would borrow 5; a's fits its nominal quota and goes first.
    result = simulate(
        queue("a", "team", cpu=5),
        queue("b", "team", cpu=5),
        waiting("borrows", "b", 9, cpu=10),
        waiting("own", "a", 0, at=9, cpu=5),
    )

    assert result.order == ["own"]


def test_among_borrowers_priority_decides_then_age() -> None:
    parts = [cohort("team", cpu=5), queue("a", "team", cpu=0), queue("b", "team", cpu=0)]

    by_priority = simulate(
        *parts, waiting("old", "a", 0, cpu=5), waiting("vip", "b", 1, at=9, cpu=5)
    )
    by_age = simulate(*parts, waiting("young", "a", 0, at=9, cpu=5), waiting("old", "b", 0, cpu=5))

    assert by_priority.order == ["vip"]
    assert by_age.order == ["old"]


def test_less_distant_borrowing_goes_first_in_a_tree() -> None:
    # near fits into the quota of its own cohort, far has to reach up to the root.
    result = simulate(
        cohort("root", cpu=5),
        cohort("left", "root", cpu=5),
        queue("near", "left", cpu=0),
        queue("far", "root", cpu=0),
        waiting("far-10", "far", 9, cpu=10),
        waiting("near-5", "near", 0, at=9, cpu=5),
    )

    assert result.order == ["near-5"]


def test_what_a_head_without_victims_holds_back_is_its_unused_nominal_quota() -> None:
    # a (nominal 6, runs 2) waits for 5 without victims: 4 of the 7 free are held, b may take 3.
    parts = [
        queue("a", "team", cpu=6, spec=preemption("LowerPriority")),
        queue("b", "team", cpu=3),
        running("r", "a", 9, cpu=2),
        running("s", "b", 9, cpu=3),
        waiting("five", "a", 0, cpu=5),
    ]

    result = simulate(*parts, waiting("one", "b", at=9, cpu=1))

    assert result.order == []
    assert result.pending == {"five", "one"}


def test_nothing_is_held_back_where_reclaim_is_certain() -> None:
    result = simulate(
        queue("a", "team", cpu=6, spec=preemption("LowerPriority", "Any")),
        queue("b", "team", cpu=3),
        running("r", "a", 9, cpu=2),
        running("s", "b", 9, cpu=3),
        waiting("five", "a", 0, cpu=5),
        waiting("one", "b", at=9, cpu=1),
    )

    assert result.order == ["one"]


def test_held_queues_admit_nothing_and_keep_what_runs() -> None:
    result = simulate(
        queue("a", cpu=5, spec={"stopPolicy": "Hold"}),
        running("r", "a", cpu=1),
        waiting("w", "a", cpu=1),
    )

    assert result.reasons == {"w": "HELD:QueueCordoned"}
    assert result.cpu("usage", "a") == ["1"]


def test_drained_queues_evict_what_runs() -> None:
    result = simulate(
        queue("a", cpu=5, spec={"stopPolicy": "HoldAndDrain"}),
        running("r", "a", cpu=1),
        waiting("w", "a", cpu=1),
    )

    assert result.cpu("usage", "a") == ["0"]
    assert result.order == []


def test_who_stood_back_for_room_that_was_reserved_earlier_is_looked_at_again() -> None:
    # m2 becomes the head of c only after m4 and m5, when m7 has already reserved what m7 cannot
    # use yet. In the next pass m2, which stays within its own quota, goes before m7.
    flavors = ("f1", "f2")
    result = simulate(
        queue("a", "team", {"f1": {"cpu": 3}, "f2": {"cpu": 0}}),
        queue("b", "team", {"f1": {"cpu": 0}, "f2": {"cpu": 3}}, spec=STRICT),
        queue("c", "team", {"f1": {"cpu": (5, None, 2)}, "f2": {"cpu": (3, None, 1)}}),
        running("r1", "b", flavor="f1", at=1, cpu=2),
        running("r2", "a", flavor="f1", at=2, cpu=2),
        running("r3", "c", flavor="f1", at=3, cpu=1),
        running("r4", "b", flavor="f2", at=4, cpu=1),
        waiting("m2", "c", -1, at=2, cpu=2),
        waiting("m3", "b", 0, at=3, cpu=2),
        waiting("m4", "c", 2, at=4, cpu=1),
        waiting("m5", "c", 1, at=5, cpu=1),
        waiting("m7", "b", 0, at=7, cpu=2),
        passes=None,
    )

    assert result.admitted["m2"] in flavors
    assert result.pending == {"m7"}


def capped(key: str, cluster_queue: str, most: int) -> dict[str, Any]:
    """A LocalQueue that may run so many workloads at once."""
    queue_ = local_queue(key, cluster_queue)
    queue_["metadata"]["annotations"] = {"sluice.dev/max-running": str(most)}
    return queue_


@pytest.mark.parametrize("stop_policy", ["Hold", "HoldAndDrain"])
def test_a_stopped_local_queue_does_not_stop_its_strict_cluster_queue(stop_policy: str) -> None:
    result = simulate(
        queue("team", cpu=4, spec=STRICT),
        local_queue("default/held", "team", stopPolicy=stop_policy),
        local_queue("default/open", "team"),
        waiting("a", "default/held", 5, cpu=1),
        waiting("b", "default/open", at=1, cpu=1),
        waiting("c", "default/held", 5, at=2, cpu=2),
        waiting("d", "default/open", at=3, cpu=1),
        passes=None,
    )

    assert result.order == ["b", "d"]
    assert result.reasons == dict.fromkeys(("a", "c"), "HELD:QueueCordoned")


def test_a_local_queue_at_its_cap_does_not_stop_its_strict_cluster_queue() -> None:
    result = simulate(
        queue("team", cpu=4, spec=STRICT),
        capped("default/one", "team", 1),
        local_queue("default/open", "team"),
        waiting("a", "default/one", cpu=1),
        waiting("b", "default/one", at=1, cpu=1),
        waiting("c", "default/open", at=2, cpu=1),
        passes=None,
    )

    assert result.order == ["a", "c"]
    assert result.pending == {"b"}


def test_work_of_a_local_queue_takes_its_old_place_once_the_cap_allows_it() -> None:
    result = simulate(
        queue("team", cpu=2, spec=STRICT),
        capped("default/one", "team", 1),
        local_queue("default/open", "team"),
        waiting("a", "default/one", cpu=1, runtime="10s"),
        waiting("b", "default/one", at=1, cpu=1, runtime="10s"),
        waiting("c", "default/open", at=2, cpu=1, runtime="30s"),
        waiting("d", "default/open", at=3, cpu=1, runtime="30s"),
        passes=None,
    )

    assert result.order == ["a", "c", "b", "d"]


def test_nobody_overtakes_a_strict_head_whose_cap_is_free_again() -> None:
    result = simulate(
        queue("team", cpu=10, spec=STRICT),
        capped("default/one", "team", 1),
        local_queue("default/open", "team"),
        waiting("a1", "default/one", cpu=4, runtime="60s"),
        waiting("b1", "default/open", at=1, cpu=4, runtime="100s"),
        waiting("a2", "default/one", at=2, cpu=8, runtime="10s"),
        waiting("b2", "default/open", at=3, cpu=2, runtime="100s"),
        waiting("b3", "default/open", at=4, cpu=4, runtime="10s"),
        passes=None,
    )

    # At 60 s 4 are free again: enough for b3, but a2 is first in line.
    assert result.order == ["a1", "b1", "b2", "a2", "b3"]


def test_a_user_at_the_cap_does_not_stop_other_users_of_a_strict_queue() -> None:
    team = queue("team", cpu=4, spec=STRICT)
    team["metadata"]["annotations"] = {"sluice.dev/max-running-per-user": "1"}
    result = simulate(
        team,
        {**waiting("a", "team", cpu=1), "user": "ann"},
        {**waiting("b", "team", at=1, cpu=1), "user": "ann"},
        {**waiting("c", "team", at=2, cpu=1), "user": "bob"},
        passes=None,
    )

    assert result.order == ["a", "c"]


def test_the_cap_of_a_strict_cluster_queue_stops_it() -> None:
    team = queue("team", cpu=4, spec=STRICT)
    team["metadata"]["annotations"] = {"sluice.dev/max-running": "1"}
    result = simulate(
        team,
        local_queue("default/held", "team", stopPolicy="Hold"),
        waiting("held", "default/held", 9, cpu=1),
        waiting("a", "team", cpu=1),
        waiting("b", "team", at=1, cpu=1),
        passes=None,
    )

    assert result.order == ["a"]


def test_a_strict_head_without_room_still_stops_what_stands_behind_it() -> None:
    result = simulate(
        queue("team", cpu=2, spec=STRICT),
        local_queue("default/held", "team", stopPolicy="Hold"),
        local_queue("default/open", "team"),
        waiting("held", "default/held", 9, cpu=1),
        running("r", "team", cpu=1),
        waiting("big", "default/open", at=1, cpu=2),
        waiting("small", "default/open", at=2, cpu=1),
        passes=None,
    )

    assert result.order == []
