"""Classical preemption: who may be evicted, for what reason, and that no more are than needed."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sluice.core.config.model import (
    BorrowWithinCohort,
    Preemption,
    ReclaimWithinCohort,
    WithinClusterQueue,
)
from sluice.core.config.policy import Policy

from tests.unit.core.builders import (
    LOWER,
    NOW_MS,
    RECLAIM_ANY,
    RECLAIM_LOWER,
    WITHIN_LOWER,
    a_cohort,
    a_queue,
    a_scheduler,
    a_workload,
    preempted,
    quota,
    running,
)

IN_QUEUE = "InClusterQueue"
RECLAMATION = "InCohortReclamation"
WHILE_BORROWING = "InCohortReclaimWhileBorrowing"
BOTH_LOWER = Preemption(LOWER, ReclaimWithinCohort.LOWER_PRIORITY)
NEWER_TOO = Preemption(WithinClusterQueue.LOWER_OR_NEWER_EQUAL_PRIORITY)


def test_fill_back_spares_a_victim_that_turns_out_not_to_be_needed() -> None:
    scheduler = a_scheduler(a_queue("q", 6, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("low", "q", 1, priority=-1)))
    scheduler.hold(running(a_workload("mid", "q", 2)))
    scheduler.hold(running(a_workload("high", "q", 3, priority=1)))
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler) == {"mid": IN_QUEUE}


def test_the_most_recently_admitted_of_equal_priority_yields_first() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("old", "q", 2), since=10))
    scheduler.hold(running(a_workload("new", "q", 2), since=20))
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler) == {"new": IN_QUEUE}


@pytest.mark.parametrize(
    ("rules", "priority", "queued", "expected"),
    [
        (Preemption(), 9, 0, {}),
        (WITHIN_LOWER, 0, 0, {}),
        (NEWER_TOO, 0, 5, {"running": IN_QUEUE}),
        (NEWER_TOO, 0, 10, {}),
        (NEWER_TOO, -1, 5, {}),
        (NEWER_TOO, 1, 20, {"running": IN_QUEUE}),
    ],
)
def test_the_rule_within_a_queue_looks_at_priority_and_age(
    rules: Preemption, priority: int, queued: int, expected: dict[str, str]
) -> None:
    scheduler = a_scheduler(a_queue("q", 2, preemption=rules))
    scheduler.hold(running(a_workload("running", "q", 2, queued=10)))
    scheduler.enqueue(a_workload("in", "q", 2, priority=priority, queued=queued))

    assert preempted(scheduler) == expected


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        (Preemption(), {}),
        (RECLAIM_LOWER, {"low": RECLAMATION}),
        (RECLAIM_ANY, {"low": RECLAMATION}),
    ],
)
def test_own_quota_is_reclaimed_from_a_borrower(
    rules: Preemption, expected: dict[str, str]
) -> None:
    scheduler = a_scheduler(
        a_queue("lender", 4, cohort="c", preemption=rules), a_queue("borrower", 2, cohort="c")
    )
    scheduler.hold(running(a_workload("high", "borrower", 4, priority=5)))
    scheduler.hold(running(a_workload("low", "borrower", 2, priority=-5)))
    scheduler.enqueue(a_workload("in", "lender", 2))

    assert preempted(scheduler) == expected


def test_reclaiming_from_any_priority_stops_once_the_borrower_is_within_nominal() -> None:
    scheduler = a_scheduler(
        a_queue("lender", 4, cohort="c", preemption=RECLAIM_ANY),
        a_queue("borrower", 2, cohort="c"),
    )
    for number in range(3):
        scheduler.hold(running(a_workload(f"b{number}", "borrower", 2, priority=9), since=number))
    scheduler.enqueue(a_workload("in", "lender", 4))

    assert preempted(scheduler) == {"b2": RECLAMATION, "b1": RECLAMATION}


def test_reclamation_comes_before_victims_of_the_own_queue() -> None:
    scheduler = a_scheduler(
        a_queue("c1", 6, 6, cohort="c", preemption=BOTH_LOWER), a_queue("c2", 6, 6, cohort="c")
    )
    scheduler.hold(running(a_workload("c1-low", "c1", 3, priority=-1)))
    scheduler.hold(running(a_workload("c2-mid", "c2", 3)))
    scheduler.hold(running(a_workload("c2-high", "c2", 6, priority=1)))
    scheduler.enqueue(a_workload("in", "c1", 3, priority=1))

    assert preempted(scheduler) == {"c2-mid": RECLAMATION}


def test_nobody_is_evicted_for_a_request_that_would_end_up_borrowing() -> None:
    scheduler = a_scheduler(
        a_queue("c1", 6, 6, cohort="c", preemption=BOTH_LOWER), a_queue("c2", 6, 6, cohort="c")
    )
    scheduler.hold(running(a_workload("c1-high", "c1", 4, priority=1)))
    scheduler.hold(running(a_workload("c2-low-1", "c2", 4, priority=-1)))
    scheduler.hold(running(a_workload("c2-low-2", "c2", 4, priority=-1)))
    scheduler.enqueue(a_workload("in", "c1", 4, priority=1))

    assert preempted(scheduler) == {}


@pytest.mark.parametrize(
    ("holding", "in_priority", "in_cpu", "expected"),
    [
        (
            [("a-best-effort", -1, 10), ("b-best-effort", -1, 1)],
            0,
            10,
            {"a-best-effort": WHILE_BORROWING},
        ),
        ([("b-standard", 1, 10)], 2, 10, {}),
        ([("b-standard", 1, 13)], 2, 1, {"b-standard": RECLAMATION}),
    ],
)
def test_the_threshold_protects_only_while_the_preemptor_would_borrow(
    holding: list[tuple[str, int, int]], in_priority: int, in_cpu: int, expected: dict[str, str]
) -> None:
    rules = Preemption(
        reclaim_within_cohort=ReclaimWithinCohort.LOWER_PRIORITY,
        borrow_within_cohort=BorrowWithinCohort.LOWER_PRIORITY,
        max_priority_threshold=0,
    )
    scheduler = a_scheduler(
        a_queue("a-standard", 1, 12, cohort="c", preemption=rules),
        a_queue("b-standard", 1, 12, cohort="c", preemption=rules),
        a_queue("a-best-effort", 1, 12, cohort="c"),
        a_queue("b-best-effort", 0, 13, cohort="c"),
        a_queue("shared", 10, cohort="c"),
    )
    for name, priority, cpu in holding:
        scheduler.hold(running(a_workload(name, name, cpu, priority=priority)))
    scheduler.enqueue(a_workload("in", "a-standard", in_cpu, priority=in_priority))

    assert preempted(scheduler) == expected


def test_quota_that_is_nearer_is_reclaimed_whatever_the_priority() -> None:
    rules = Preemption(LOWER, ReclaimWithinCohort.ANY)
    scheduler = a_scheduler(
        a_cohort("root"),
        a_cohort("c", "root", quota(2)),
        a_queue("q", 0, cohort="c", preemption=rules),
        a_queue("q-borrowing", 0, cohort="root"),
    )
    scheduler.hold(running(a_workload("foreign", "q-borrowing", 1, priority=1)))
    scheduler.hold(running(a_workload("own-low", "q", 1, priority=-2)))
    scheduler.enqueue(a_workload("in", "q", 1))

    assert preempted(scheduler) == {"foreign": RECLAMATION}


def test_workloads_in_subtrees_within_their_quota_are_safe() -> None:
    scheduler = a_scheduler(
        a_cohort("root"),
        a_cohort("left", "root", quota(2)),
        a_cohort("right", "root", quota(4)),
        a_queue("preemptor", 0, cohort="left", preemption=RECLAIM_ANY),
        a_queue("sheltered", 0, cohort="right"),
        a_queue("exposed", 0, cohort="root"),
    )
    scheduler.hold(running(a_workload("sheltered", "sheltered", 4, priority=-9)))
    scheduler.hold(running(a_workload("exposed", "exposed", 2, priority=9)))
    scheduler.enqueue(a_workload("in", "preemptor", 2))

    assert preempted(scheduler) == {"exposed": RECLAMATION}


def test_two_preemptors_of_one_pass_do_not_share_a_victim() -> None:
    scheduler = a_scheduler(
        a_queue("a", 2, cohort="c", preemption=RECLAIM_ANY),
        a_queue("b", 2, cohort="c", preemption=RECLAIM_ANY),
        a_queue("borrower", 0, cohort="c"),
    )
    scheduler.hold(running(a_workload("first", "borrower", 2), since=1))
    scheduler.hold(running(a_workload("second", "borrower", 2), since=2))
    scheduler.enqueue(a_workload("in-a", "a", 2))
    scheduler.enqueue(a_workload("in-b", "b", 2))

    steps = scheduler.run_pass(NOW_MS).preemptions

    assert [(step.victim, step.by) for step in steps] == [("second", "in-a"), ("first", "in-b")]


def test_a_workload_is_not_evicted_before_its_minimum_run_time() -> None:
    policy = Policy(min_run_ms=60_000)
    scheduler = a_scheduler(a_queue("q", 2, preemption=WITHIN_LOWER), policy=policy)
    scheduler.hold(running(a_workload("young", "q", 2), since=0))
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler, 59_999) == {}
    assert scheduler.next_wakeup_ms() == 60_000
    assert preempted(scheduler, 60_000) == {"young": IN_QUEUE}


def test_a_clock_that_was_ahead_protects_nobody() -> None:
    scheduler = a_scheduler(a_queue("q", 1, preemption=WITHIN_LOWER))
    later = NOW_MS // 1000 + 5
    scheduler.hold(running(a_workload("low", "q", priority=-1), since=later))
    scheduler.enqueue(a_workload("high", "q"))

    assert preempted(scheduler) == {"low": "InClusterQueue"}


def test_a_workload_that_is_not_preemptible_is_never_evicted() -> None:
    scheduler = a_scheduler(a_queue("q", 2, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("firm", "q", 2, preemptible=False)))
    scheduler.enqueue(a_workload("in", "q", 2, priority=9))

    assert preempted(scheduler) == {}


def test_among_equals_the_one_that_would_lose_least_work_yields() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    saved = running(a_workload("saved", "q", 2), since=10)
    scheduler.hold(replace(saved, checkpoint_at_ms=90_000))
    scheduler.hold(running(a_workload("newer", "q", 2), since=50))
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler, 100_000) == {"saved": IN_QUEUE}


@pytest.mark.parametrize("weighed", [True, False])
def test_without_any_checkpoint_or_wish_the_newest_yields_however_large_it_is(
    weighed: bool,
) -> None:
    policy = Policy(prefer_least_lost_work=weighed)
    scheduler = a_scheduler(a_queue("q", 5, preemption=WITHIN_LOWER), policy=policy)
    scheduler.hold(running(a_workload("older", "q", 2), since=10))
    scheduler.hold(running(a_workload("newer", "q", 3), since=50))
    if not weighed:
        scheduler.checkpointed("older", 99_000)
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler, 100_000) == {"newer": IN_QUEUE}


def test_no_pass_evicts_what_it_has_admitted_itself() -> None:
    owner = a_queue("owner", 2, cohort="all", preemption=RECLAIM_ANY)
    scheduler = a_scheduler(owner, a_queue("guest", 0, cohort="all"))
    for name, queue in (("first", "owner"), ("second", "owner"), ("lent", "guest")):
        scheduler.enqueue(a_workload(name, queue, 1))

    plan = scheduler.run_pass(NOW_MS)

    assert [each.workload for each in plan.admissions] == ["first", "lent"]
    assert plan.preemptions == ()
    assert scheduler.has_candidates()
    assert preempted(scheduler) == {"lent": RECLAMATION}


def test_a_checkpoint_reported_later_counts_as_well() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("older", "q", 2), since=10))
    scheduler.hold(running(a_workload("newer", "q", 2), since=50))
    scheduler.checkpointed("older", 99_000)
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler, 100_000) == {"older": IN_QUEUE}


def test_an_evicted_workload_is_not_evicted_again_while_it_stops() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("victim", "q", 4)))
    scheduler.enqueue(a_workload("in", "q", 4, priority=1))

    assert preempted(scheduler) == {"victim": IN_QUEUE}
    assert preempted(scheduler) == {}


def test_a_holding_that_already_stops_counts_as_free_for_the_future() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    stopping = running(a_workload("stopping", "q", 2))
    scheduler.hold(replace(stopping, evicting=True))
    scheduler.hold(running(a_workload("stays", "q", 2)))
    scheduler.enqueue(a_workload("in", "q", 2, priority=1))

    assert preempted(scheduler) == {}
    scheduler.release("stopping")
    assert [each.workload for each in scheduler.run_pass(NOW_MS).admissions] == ["in"]


def test_partial_admission_prefers_evictions_to_fewer_pods() -> None:
    for count, expected in ((20, 20), (30, 20)):
        scheduler = a_scheduler(a_queue("q", 20, preemption=WITHIN_LOWER))
        scheduler.hold(running(a_workload("old", "q", 1, count=10, priority=-4)))
        scheduler.enqueue(a_workload("new", "q", 1, count=count, min_count=10, priority=4))

        assert preempted(scheduler) == {"old": IN_QUEUE}
        scheduler.release("old")
        (admission,) = scheduler.run_pass(NOW_MS).admissions
        assert admission.assignment.pod_sets[0].count == expected
