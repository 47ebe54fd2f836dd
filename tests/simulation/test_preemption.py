"""Classical preemption: who may be evicted, in which order, how few, and with which reason."""

from tests.simulation.builders import Json, cohort, preemption, queue, running, simulate, waiting

LOWER = preemption("LowerPriority")
RECLAIM_LOWER = preemption("LowerPriority", "LowerPriority")
RECLAIM_ANY = preemption("LowerPriority", "Any")
NEWER = 40 * 60  # later than every waiting workload was created


def borrow(threshold: int | None = None) -> Json:
    rules: Json = {"policy": "LowerPriority"}
    if threshold is not None:
        rules["maxPriorityThreshold"] = threshold
    return preemption("LowerPriority", "LowerPriority", rules)


def test_a_queue_that_never_preempts_waits() -> None:
    result = simulate(queue("q", cpu=2), running("r", "q", -9, cpu=2), waiting("in", "q", 9, cpu=1))

    assert result.preempted == {}
    assert result.pending == {"in"}


def test_the_lowest_priority_yields_first() -> None:
    result = simulate(
        queue("q", cpu=4, spec=LOWER),
        running("low", "q", -1, at=0, cpu=2),
        running("mid", "q", 0, at=9, cpu=2),
        waiting("in", "q", 1, cpu=2),
    )

    assert result.preempted == {"low": "InClusterQueue"}
    assert result.reasons == {"in": "PRIORITY:WaitingForPreempted"}


def test_among_equal_priorities_the_most_recent_reservation_yields_first() -> None:
    result = simulate(
        queue("q", cpu=4, spec=LOWER),
        running("early", "q", 0, at=1, cpu=2),
        running("late", "q", 0, at=2, cpu=2),
        waiting("in", "q", 1, cpu=2),
    )

    assert result.preempted == {"late": "InClusterQueue"}


def test_equal_priority_is_safe_under_lower_priority() -> None:
    result = simulate(
        queue("q", cpu=2, spec=LOWER),
        running("r", "q", 1, at=NEWER, cpu=2),
        waiting("in", "q", 1, cpu=2),
    )

    assert result.preempted == {}


def test_newer_work_of_equal_priority_yields_where_the_queue_says_so() -> None:
    newer_equal = preemption("LowerOrNewerEqualPriority")
    result = simulate(
        queue("q", cpu=4, spec=newer_equal),
        running("older", "q", 1, at=0, cpu=2),
        running("newer", "q", 1, at=NEWER, cpu=2),
        waiting("in", "q", 1, cpu=2),
    )
    older_only = simulate(
        queue("q", cpu=2, spec=newer_equal),
        running("older", "q", 1, at=0, cpu=2),
        waiting("in", "q", 1, cpu=2),
    )

    assert result.preempted == {"newer": "InClusterQueue"}
    assert older_only.preempted == {}


def test_nobody_is_evicted_when_all_victims_together_are_not_enough() -> None:
    result = simulate(
        queue("q", cpu=4, spec=LOWER),
        running("low", "q", -1, cpu=2),
        running("high", "q", 5, cpu=2),
        waiting("in", "q", 1, cpu=3),
    )

    assert result.preempted == {}


def test_the_fill_back_spares_whoever_still_fits() -> None:
    # Removed in order: one, two, three. Then, last excluded: two does not fit back, one does.
    result = simulate(
        queue("q", cpu=6, spec=LOWER),
        running("one", "q", -3, cpu=1),
        running("two", "q", -2, cpu=2),
        running("three", "q", -1, cpu=3),
        waiting("in", "q", 0, cpu=5),
    )

    assert result.preempted == {"two": "InClusterQueue", "three": "InClusterQueue"}


def test_a_victim_must_use_a_contested_flavor_and_resource() -> None:
    quotas = {"default": {"cpu": 4, "gpu": 2}}
    result = simulate(
        queue("q", None, quotas, spec=LOWER),
        running("cpu-only", "q", -5, cpu=1),
        running("gpu", "q", -1, gpu=2),
        waiting("in", "q", 0, cpu=1, gpu=1),
    )

    assert result.preempted == {"gpu": "InClusterQueue"}


def test_reclaim_takes_back_what_others_borrow_until_it_fits() -> None:
    result = simulate(
        queue("c1", "team", cpu=6, spec=RECLAIM_LOWER),
        queue("c2", "team", cpu=6),
        running("first", "c2", 0, at=1, cpu=3),
        running("second", "c2", 0, at=2, cpu=3),
        running("third", "c2", 0, at=3, cpu=3),
        waiting("in", "c1", 1, cpu=6),
    )

    assert result.preempted == {"third": "InCohortReclamation"}


def test_work_within_the_nominal_quota_of_its_queue_cannot_be_reclaimed() -> None:
    result = simulate(
        queue("c1", "team", cpu=6, spec=RECLAIM_ANY),
        queue("c2", "team", cpu=6),
        running("own", "c1", 9, cpu=2),
        running("within", "c2", -5, cpu=6),
        waiting("in", "c1", 1, cpu=5),
    )

    assert result.preempted == {}


def test_reclaim_from_lower_priorities_spares_equal_and_higher_ones() -> None:
    parts = [
        queue("c1", "team", cpu=6, spec=RECLAIM_LOWER),
        queue("c2", "team", cpu=6),
        running("equal", "c2", 1, cpu=6),
        running("higher", "c2", 2, cpu=6),
    ]

    result = simulate(*parts, waiting("in", "c1", 1, cpu=6))

    assert result.preempted == {}


def test_reclaim_from_any_takes_higher_priorities_too() -> None:
    result = simulate(
        queue("c1", "team", cpu=6, spec=RECLAIM_ANY),
        queue("c2", "team", cpu=6),
        running("vip", "c2", 100, cpu=12),
        waiting("in", "c1", 0, cpu=1),
    )

    assert result.preempted == {"vip": "InCohortReclamation"}


def test_the_other_queue_is_left_alone_once_it_is_back_within_nominal() -> None:
    # c2 (9 of 6) may lose low, which brings it to 5; then c3 (9 of 6) has to give.
    result = simulate(
        queue("c1", "team", cpu=6, spec=RECLAIM_ANY),
        queue("c2", "team", cpu=6),
        queue("c3", "team", cpu=6),
        running("c2-low", "c2", -9, cpu=4),
        running("c2-next", "c2", -8, cpu=5),
        running("c3-low", "c3", 5, cpu=2),
        running("c3-high", "c3", 6, cpu=7),
        waiting("in", "c1", 0, cpu=6),
    )

    assert result.preempted == {"c2-low": "InCohortReclamation", "c3-low": "InCohortReclamation"}


def test_own_lower_priority_is_evicted_when_nobody_borrows() -> None:
    result = simulate(
        queue("c1", "team", cpu=6, spec=RECLAIM_LOWER),
        queue("c2", "team", cpu=6),
        running("own", "c1", -1, cpu=6),
        running("other", "c2", -2, cpu=6),
        waiting("in", "c1", 1, cpu=3),
    )

    assert result.preempted == {"own": "InClusterQueue"}


def test_a_queue_may_end_up_borrowing_when_it_evicts_only_its_own() -> None:
    result = simulate(
        queue("c1", "team", cpu=6, spec=LOWER),
        queue("c2", "team", cpu=6),
        running("keeps", "c1", 5, cpu=4),
        running("yields", "c1", -1, cpu=8),
        waiting("in", "c1", 1, cpu=6),
    )

    assert result.preempted == {"yields": "InClusterQueue"}


def test_a_request_above_nominal_evicts_nobody_unless_it_may_borrow_while_preempting() -> None:
    # Kueue searches for victims only for what nominal quota could hold, or a cohort's own.
    result = simulate(
        queue("c1", "team", cpu=6, spec=LOWER),
        queue("c2", "team", cpu=6),
        running("own", "c1", -1, cpu=12),
        waiting("in", "c1", 1, cpu=7),
    )

    assert result.preempted == {}


def test_without_borrow_within_cohort_a_reclaimer_must_end_within_nominal() -> None:
    result = simulate(
        queue("c1", "team", cpu=4, spec=RECLAIM_LOWER),
        queue("c2", "team", cpu=4),
        queue("c3", "team", cpu=4),
        running("borrower", "c2", -1, cpu=12),
        waiting("five", "c1", 1, cpu=5),
    )

    assert result.preempted == {}


def test_borrow_within_cohort_evicts_lower_priorities_to_borrow() -> None:
    result = simulate(
        queue("c1", "team", cpu=4, spec=borrow()),
        queue("c2", "team", cpu=4),
        queue("c3", "team", cpu=4),
        running("borrower", "c2", 0, cpu=12),
        waiting("five", "c1", 1, cpu=5),
    )

    assert result.preempted == {"borrower": "InCohortReclaimWhileBorrowing"}


def test_a_victim_at_the_threshold_may_be_evicted_while_borrowing() -> None:
    parts = [
        queue("c2", "team", cpu=4),
        queue("c3", "team", cpu=4),
        running("borrower", "c2", 3, cpu=12),
        waiting("five", "c1", 9, cpu=5),
    ]

    at = simulate(queue("c1", "team", cpu=4, spec=borrow(3)), *parts)
    above = simulate(queue("c1", "team", cpu=4, spec=borrow(2)), *parts)

    assert at.preempted == {"borrower": "InCohortReclaimWhileBorrowing"}
    assert above.preempted == {}


def test_borrowing_while_preempting_spares_equal_priority_whatever_the_threshold() -> None:
    result = simulate(
        queue("c1", "team", cpu=4, spec=borrow(100)),
        queue("c2", "team", cpu=4),
        queue("c3", "team", cpu=4),
        running("borrower", "c2", 1, cpu=12),
        waiting("five", "c1", 1, cpu=5),
    )

    assert result.preempted == {}


def test_victims_in_other_queues_go_before_own_ones() -> None:
    result = simulate(
        queue("c1", "team", cpu=6, spec=RECLAIM_LOWER),
        queue("c2", "team", cpu=2),
        running("own", "c1", -5, cpu=3),
        running("other", "c2", 0, cpu=5),
        waiting("in", "c1", 1, cpu=3),
    )

    assert result.preempted == {"other": "InCohortReclamation"}


def test_reclaim_reaches_through_the_tree() -> None:
    result = simulate(
        cohort("root"),
        cohort("left", "root"),
        cohort("right", "root"),
        queue("mine", "left", cpu=4, spec=RECLAIM_ANY),
        queue("theirs", "right", cpu=4),
        running("borrower", "theirs", 5, at=1, cpu=4),
        running("borrowed", "theirs", 5, at=2, cpu=4),
        waiting("in", "mine", 0, cpu=4),
    )

    assert result.preempted == {"borrowed": "InCohortReclamation"}


def test_a_cohort_within_its_quota_shields_its_queues() -> None:
    # theirs borrows, but only inside right, which stays within its own 8.
    result = simulate(
        cohort("root", cpu=2),
        cohort("left", "root"),
        cohort("right", "root", cpu=4),
        queue("mine", "left", cpu=4, spec=RECLAIM_ANY),
        queue("theirs", "right", cpu=4),
        running("inside", "theirs", 0, cpu=8),
        running("own", "mine", 9, cpu=5),
        waiting("in", "mine", 0, cpu=2),
    )

    assert result.preempted == {}


def test_the_preemptor_gets_what_its_victim_gave_back() -> None:
    result = simulate(
        queue("q", cpu=4, spec=LOWER),
        running("low", "q", -1, cpu=4),
        waiting("in", "q", 1, cpu=4),
        passes=2,
    )

    assert result.preempted == {"low": "InClusterQueue"}
    assert result.order == ["in"]
    assert result.pending == {"low"}


def test_nobody_steals_what_was_given_back_for_a_preemptor() -> None:
    # thief, of another queue, would fit into the 4 CPUs while they are being given back.
    result = simulate(
        queue("q", "team", cpu=4, spec=RECLAIM_LOWER),
        queue("p", "team", cpu=0),
        running("low", "p", -1, cpu=4),
        waiting("in", "q", 1, cpu=4),
        {**waiting("thief", "p", 9, cpu=4), "arrivesAfter": "10ms"},
        passes=None,
        latency=30,
    )

    assert result.order == ["in"]
    assert result.pending == {"low", "thief"}


def test_three_workloads_do_not_evict_each_other_in_a_circle() -> None:
    # By shares, old yields to other and other to new; by age, new yields to old. Nobody may evict
    # somebody that it made room for, so that the run ends and all of them finish.
    newer_equal = preemption("LowerOrNewerEqualPriority", "Any")
    strict = newer_equal | {"queueingStrategy": "StrictFIFO"}
    quotas = {"default": {"cpu": 6, "gpu": 2}}

    def job(name: str, queue: str, priority: int, times: tuple[int, int], **sizes: int) -> Json:
        arrives, runtime = (f"{ms}ms" for ms in times)
        age = int(name[1:])
        one = waiting(name, queue, priority, at=age, **sizes)
        return one | {"arrivesAfter": arrives, "runtime": runtime}

    result = simulate(
        cohort("c0", None, {"default": {"cpu": 3, "gpu": 0}}),
        cohort("c1", "c0", {"default": {"cpu": 3, "gpu": 2}}),
        queue("q0", "c1", quotas, spec=strict),
        queue("q1", "c0", {"default": {"cpu": 3, "gpu": 0}}, spec=preemption("Never", "Any")),
        job("w1", "q0", -2, (1300, 1200), count=3, cpu=3, gpu=1),
        job("w4", "q1", -1, (0, 1900), count=2, minCount=1, cpu=3, gpu=1),
        job("w5", "q0", 0, (3000, 200), cpu=2),
        job("w6", "q0", 1, (2700, 300), count=2, cpu=3),
        job("w7", "q0", -2, (2200, 2000), count=2, cpu=1),
        job("w8", "q1", 0, (1800, 800), count=2, cpu=2),
        job("w9", "q0", -2, (2600, 1500), count=3, cpu=3, gpu=1),
        job("w11", "q1", 0, (2300, 1000), count=2, cpu=1, gpu=1),
        passes=None,
        fairSharing={},
    )

    assert len(result.report["finished"]) == 8


def test_room_that_victims_have_not_left_is_given_to_nobody_else_yet() -> None:
    # All three fit alone. vip evicts low, first takes the 2 that are free, and other would fit into
    # what low leaves.
    parts = [
        cohort("team", cpu=2),
        queue("a", "team", cpu=8, spec=LOWER),
        queue("b", "team", cpu=0),
        queue("c", "team", cpu=0),
        running("low", "a", -1, cpu=8),
        waiting("vip", "a", 9, cpu=4),
        waiting("first", "b", 5, cpu=2),
        waiting("other", "c", cpu=2),
    ]

    one_pass = simulate(*parts)
    to_the_end = simulate(*parts, passes=2)

    assert one_pass.preempted == {"low": "InClusterQueue"}
    assert set(one_pass.admitted) == {"first"}
    assert one_pass.reasons == dict.fromkeys(["vip", "other"], "PRIORITY:WaitingForPreempted")
    assert set(to_the_end.admitted) == {"first", "vip", "other"}


def test_a_request_of_nothing_is_no_borrowing() -> None:
    # q borrows a gpu already; what asks for none of it reclaims the cpu of q's own quota.
    result = simulate(
        queue("q", "team", cpu=2, gpu=0, spec=preemption("Never", "Any")),
        queue("lender", "team", cpu=0, gpu=1),
        running("mine", "q", at=1, gpu=1),
        running("theirs", "lender", at=2, cpu=2),
        waiting("in", "q", cpu=2, gpu=0),
    )

    assert result.preempted == {"theirs": "InCohortReclamation"}


def test_a_blocked_head_keeps_no_more_than_it_asks_for() -> None:
    owner = queue("a", "team", cpu=4, memory=10, spec=preemption("Never", "LowerPriority"))
    guests = [queue(name, "team", cpu=0, memory=0) for name in ("b", "c")]

    result = simulate(
        owner,
        *guests,
        running("urgent", "b", 9, cpu=2),
        waiting("blocked", "a", cpu=4, memory=1),
        waiting("modest", "c", at=1, memory=9),
    )

    assert result.order == ["modest"]
