"""The pass: order, borrowing, reservations, held places, gates and caps."""

from __future__ import annotations

import random

import pytest
from sluice.core.config.model import (
    CheckState,
    Gate,
    LocalQueue,
    PodSetInfo,
    Preemption,
    StopPolicy,
)
from sluice.core.config.policy import Aging, Policy
from sluice.core.passes.admission_cycle import run_passes
from sluice.core.passes.scheduler_state import build_scheduler
from sluice.core.scheduling.scheduler import Scheduler
from sluice.core.values.reasons import Reason

from tests.unit.core.builders import (
    NOW_MS,
    RECLAIM_ANY,
    WITHIN_LOWER,
    a_cohort,
    a_queue,
    a_scheduler,
    a_workload,
    admitted,
    cores,
    group,
    preempted,
    quota,
    running,
)
from tests.unit.core.decisions import POLICIES, catalog, recorded


def test_one_pass_admits_every_head_that_fits_in_order_of_priority_then_age() -> None:
    scheduler = a_scheduler(a_queue("q", 3))
    scheduler.enqueue(a_workload("young", "q", queued=2))
    scheduler.enqueue(a_workload("old", "q", queued=1))
    scheduler.enqueue(a_workload("urgent", "q", queued=3, priority=5))
    scheduler.enqueue(a_workload("youngest", "q", queued=4))

    assert admitted(scheduler) == ["urgent", "old", "young"]
    assert scheduler.waiting_ids() == ["youngest"]


def test_sequence_then_id_decide_between_workloads_of_the_same_instant() -> None:
    scheduler = a_scheduler(a_queue("q", 9))
    for name, sequence in (("c", 1), ("b", 2), ("a", 2)):
        scheduler.enqueue(a_workload(name, "q", sequence=sequence))

    assert admitted(scheduler) == ["c", "a", "b"]


def test_across_queues_those_within_their_own_quota_go_before_those_that_borrow() -> None:
    scheduler = a_scheduler(a_queue("own", 4, cohort="c"), a_queue("borrower", 1, cohort="c"))
    scheduler.enqueue(a_workload("borrows", "borrower", 3, priority=9))
    scheduler.enqueue(a_workload("owns", "own", 4))

    assert admitted(scheduler) == ["owns"]


def test_best_effort_passes_by_a_head_that_does_not_fit_and_strict_does_not() -> None:
    for strict, expected in ((False, ["small"]), (True, [])):
        scheduler = a_scheduler(a_queue("q", 4, strict=strict))
        scheduler.hold(running(a_workload("running", "q", 2)))
        scheduler.enqueue(a_workload("large", "q", 4, queued=1))
        scheduler.enqueue(a_workload("small", "q", 1, queued=2))

        assert admitted(scheduler) == expected


def test_a_strict_queue_goes_on_once_its_head_fits() -> None:
    scheduler = a_scheduler(a_queue("q", 4, strict=True))
    scheduler.hold(running(a_workload("running", "q", 2)))
    scheduler.enqueue(a_workload("large", "q", 3, queued=1))
    scheduler.enqueue(a_workload("small", "q", 1, queued=2))
    assert admitted(scheduler) == []

    scheduler.release("running")

    assert admitted(scheduler) == ["large", "small"]


def test_a_parked_workload_is_admitted_after_a_release_that_makes_room() -> None:
    scheduler = a_scheduler(a_queue("a", 4, cohort="c"), a_queue("b", 4, cohort="c"))
    scheduler.hold(running(a_workload("first", "a", 4)))
    scheduler.hold(running(a_workload("second", "b", 3)))
    scheduler.enqueue(a_workload("waits", "a", 3))
    assert admitted(scheduler) == []
    assert not scheduler.has_candidates()

    scheduler.release("second")

    assert scheduler.has_candidates()
    assert admitted(scheduler) == ["waits"]


def test_room_that_a_blocked_head_could_not_reclaim_is_reserved_for_one_pass() -> None:
    scheduler = a_scheduler(a_queue("a", 2, cohort="c"), a_queue("b", 0, cohort="c"))
    scheduler.hold(running(a_workload("a-running", "a", 1)))
    scheduler.enqueue(a_workload("a-waiting", "a", 2, queued=1))
    scheduler.enqueue(a_workload("b-waiting", "b", 1, queued=2))

    assert admitted(scheduler) == []
    assert scheduler.has_candidates()
    assert scheduler.why("b-waiting").reason is Reason.BEHIND_HIGHER
    assert admitted(scheduler) == ["b-waiting"]
    assert not scheduler.has_candidates()


def test_whoever_was_overtaken_comes_before_those_who_stood_behind_others() -> None:
    scheduler = a_scheduler(a_queue("a", 5, cohort="c"), a_queue("b", 1, cohort="c"))
    scheduler.enqueue(a_workload("shrinks", "a", 3, count=2, min_count=1, priority=3))
    scheduler.enqueue(a_workload("owns", "b", priority=3))
    scheduler.enqueue(a_workload("behind", "b", 3, priority=-1))

    assert admitted(scheduler) == ["owns"]  # one core of the six that `shrinks` asked for
    assert scheduler.has_candidates()
    assert admitted(scheduler) == ["shrinks"]  # three, and two are left


def test_what_a_parked_head_leaves_goes_by_order_and_not_to_the_next_of_its_queue() -> None:
    scheduler = a_scheduler(
        a_queue("a", 2, cohort="c"), a_queue("b", 0, cohort="c"), a_queue("lends", 1, cohort="c")
    )
    scheduler.hold(running(a_workload("running", "a", 2)))
    scheduler.enqueue(a_workload("large", "a", 2, priority=1))
    scheduler.enqueue(a_workload("next", "a", priority=-1))
    scheduler.enqueue(a_workload("other", "b"))

    assert admitted(scheduler) == []
    assert scheduler.has_candidates()
    assert admitted(scheduler) == ["other"]


def test_a_head_that_was_overtaken_beside_a_strict_one_makes_way_for_the_next_of_its_queue() -> (
    None
):
    scheduler = a_scheduler(
        a_queue("strict", 3, cohort="c", strict=True),
        a_queue("own", 3, cohort="c"),
        a_queue("other", 0, cohort="c"),
        a_queue("lends", 2, cohort="c"),
    )
    scheduler.hold(running(a_workload("running", "strict", 3)))
    scheduler.hold(running(a_workload("lent", "own", 2)))
    scheduler.enqueue(a_workload("blocked", "strict", 5, priority=5))
    scheduler.enqueue(a_workload("faster", "other", 2, priority=9))
    scheduler.enqueue(a_workload("slower", "own", 2, priority=3))
    scheduler.enqueue(a_workload("small", "own", 1))

    assert admitted(scheduler) == ["faster"]
    assert admitted(scheduler) == ["small"]


def test_a_strict_head_that_stays_keeps_room_from_those_behind_it_only() -> None:
    scheduler = a_scheduler(
        a_queue("strict", 2, cohort="c", strict=True),
        a_queue("own", 2, cohort="c"),
        a_queue("lends", 2, cohort="c"),
    )
    for name, cpu in (("strict", 2), ("own", 1), ("lends", 2)):
        scheduler.hold(running(a_workload(f"in-{name}", name, cpu)))
    scheduler.enqueue(a_workload("blocked", "strict", 2, priority=5))
    scheduler.enqueue(a_workload("parked", "own", 2, priority=1))
    scheduler.enqueue(a_workload("within-quota", "own", 1))

    assert admitted(scheduler) == ["within-quota"]


def test_a_smaller_size_may_pass_a_strict_head_after_another_admission() -> None:
    scheduler = a_scheduler(
        a_queue("strict", 4, 0, cohort="c", strict=True),
        a_queue("shrinks", 1, cohort="c"),
        a_queue("borrows", 0, cohort="c"),
        a_queue("lends", 3, cohort="c"),
    )
    scheduler.hold(running(a_workload("running", "strict", 3)))
    scheduler.hold(running(a_workload("lent", "lends", 3)))
    scheduler.enqueue(a_workload("blocked", "strict", 3, priority=5))
    scheduler.enqueue(a_workload("two", "shrinks", 1, count=2, min_count=1, priority=3))
    scheduler.enqueue(a_workload("one", "borrows", 1))

    assert admitted(scheduler) == ["one"]
    assert scheduler.has_candidates()
    assert admitted(scheduler) == ["two"]
    assert not scheduler.has_candidates()


def test_a_reservation_does_not_bind_the_queue_it_was_made_for() -> None:
    scheduler = a_scheduler(a_queue("a", 2, cohort="c"), a_queue("b", 0, cohort="c"))
    scheduler.hold(running(a_workload("a-running", "a", 1)))
    scheduler.enqueue(a_workload("a-large", "a", 2, queued=1))
    scheduler.enqueue(a_workload("a-small", "a", 1, queued=2))

    assert admitted(scheduler) == ["a-small"]


def test_what_can_always_be_reclaimed_is_lent_at_once() -> None:
    scheduler = a_scheduler(
        a_queue("a", 2, cohort="c", preemption=RECLAIM_ANY), a_queue("b", 0, cohort="c")
    )
    scheduler.hold(running(a_workload("a-running", "a", 1)))
    scheduler.enqueue(a_workload("a-waiting", "a", 2, queued=1))
    scheduler.enqueue(a_workload("b-waiting", "b", 1, queued=2))

    assert admitted(scheduler) == ["b-waiting"]


def test_whom_a_pass_admitted_itself_no_better_holder_stops_for() -> None:
    scheduler = a_scheduler(
        a_queue("own", 4, cohort="c", preemption=RECLAIM_ANY),
        a_queue("borrows", 2, cohort="c", preemption=WITHIN_LOWER),
    )
    scheduler.hold(running(a_workload("high", "borrows", 3, priority=1)))
    scheduler.enqueue(a_workload("first", "own", 2, queued=1))
    scheduler.enqueue(a_workload("second", "own", 1, queued=2))
    scheduler.enqueue(a_workload("low", "borrows", 1))

    plan = scheduler.run_pass(NOW_MS)
    assert [one.workload for one in plan.admissions] == ["first", "low"]
    assert not plan.preemptions
    assert preempted(scheduler) == {"low": "InCohortReclamation"}


def test_what_a_victim_leaves_beyond_its_preemptor_is_for_whoever_is_first_then() -> None:
    scheduler = a_scheduler(
        a_queue("a", 4, cohort="c", preemption=WITHIN_LOWER), a_queue("b", 0, cohort="c")
    )
    scheduler.hold(running(a_workload("victim", "a", 4, priority=-1)))
    scheduler.enqueue(a_workload("preemptor", "a", 2, priority=5))
    scheduler.enqueue(a_workload("next", "a", 2, priority=-1))
    scheduler.enqueue(a_workload("other", "b", 2))
    assert preempted(scheduler) == {"victim": "InClusterQueue"}
    assert not scheduler.has_candidates()

    scheduler.release("victim")

    assert admitted(scheduler) == ["preemptor", "other"]


def test_the_place_of_a_preemptor_is_held_until_its_victim_is_gone() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("victim", "q", 4)))
    scheduler.enqueue(a_workload("important", "q", 3, priority=1))
    plan = scheduler.run_pass(NOW_MS)
    assert [(step.victim, step.by) for step in plan.preemptions] == [("victim", "important")]
    assert scheduler.why("important").reason is Reason.WAITING_FOR_PREEMPTED

    scheduler.enqueue(a_workload("thief", "q", 2, priority=9))
    assert admitted(scheduler) == []
    scheduler.release("victim")

    assert admitted(scheduler) == ["important"]
    assert scheduler.waiting_ids() == ["thief"]


def test_a_workload_that_fits_only_once_victims_are_gone_waits_for_them() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("victim", "q", 4)))
    scheduler.enqueue(a_workload("important", "q", 2, priority=1))
    scheduler.enqueue(a_workload("other", "q", 2, queued=1))

    plan = scheduler.run_pass(NOW_MS)

    assert (len(plan.admissions), len(plan.preemptions)) == (0, 1)
    assert cores(scheduler.usage("q")) == 4
    scheduler.release("victim")
    assert admitted(scheduler) == ["important", "other"]


def test_withdrawing_a_preemptor_frees_the_place_that_was_held_for_it() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("victim", "q", 4)))
    scheduler.enqueue(a_workload("important", "q", 4, priority=1))
    scheduler.run_pass(NOW_MS)
    scheduler.enqueue(a_workload("next", "q", 4))
    scheduler.remove("important")
    scheduler.release("victim")

    assert admitted(scheduler) == ["next"]


def test_stopped_queues_admit_nothing_and_drained_ones_evict() -> None:
    for policy, evicted in ((StopPolicy.HOLD, []), (StopPolicy.HOLD_AND_DRAIN, ["running"])):
        scheduler = a_scheduler(a_queue("q", 4, stop_policy=policy))
        scheduler.hold(running(a_workload("running", "q", 1)))
        scheduler.enqueue(a_workload("waits", "q", 1))

        plan = scheduler.run_pass(NOW_MS)

        assert plan.admissions == ()
        assert [step.victim for step in plan.preemptions] == evicted
        assert scheduler.why("waits").reason is Reason.QUEUE_CORDONED


def test_a_stopped_local_queue_holds_back_its_own_workloads_only() -> None:
    scheduler = a_scheduler(
        a_queue("q", 4),
        LocalQueue("team/stopped", "q", stop_policy=StopPolicy.HOLD_AND_DRAIN),
        LocalQueue("team/open", "q"),
    )
    scheduler.hold(running(a_workload("drained", "q", 1, local_queue="team/stopped")))
    scheduler.enqueue(a_workload("held", "q", 1, local_queue="team/stopped"))
    scheduler.enqueue(a_workload("free", "q", 1, local_queue="team/open"))

    plan = scheduler.run_pass(NOW_MS)

    assert [each.workload for each in plan.admissions] == ["free"]
    assert [step.victim for step in plan.preemptions] == ["drained"]
    assert scheduler.why("held").reason is Reason.QUEUE_CORDONED


def test_a_cohort_cycle_stops_its_members_and_nobody_else() -> None:
    scheduler = a_scheduler(
        a_cohort("x", "y"), a_cohort("y", "x"), a_queue("in-cycle", 4, cohort="x"), root="x"
    )
    scheduler.enqueue(a_workload("stuck", "in-cycle"))

    assert admitted(scheduler) == []
    assert scheduler.why("stuck").reason is Reason.QUEUE_INACTIVE


def test_without_a_namespace_selector_no_namespace_is_admitted() -> None:
    scheduler = a_scheduler(a_queue("q", 4, namespace_selector=None))
    scheduler.enqueue(a_workload("stuck", "q"))

    assert admitted(scheduler) == []
    assert scheduler.why("stuck").reason is Reason.QUEUE_INACTIVE


def test_a_request_for_an_undeclared_resource_blocks_unless_it_is_ignored() -> None:
    pods = (PodSetInfo("main", 1, {"cpu": 1000, "gpu": 1}),)
    for ignore, expected in ((False, []), (True, ["w"])):
        scheduler = a_scheduler(a_queue("q", 4), policy=Policy(ignore_undeclared=ignore))
        scheduler.enqueue(a_workload("w", "q", pod_sets=pods))

        assert admitted(scheduler) == expected
    blocked = a_scheduler(a_queue("q", 4))
    blocked.enqueue(a_workload("w", "q", pod_sets=pods))
    assert blocked.why("w").reason is Reason.NO_QUOTA_FOR_RESOURCE


def test_a_gate_keeps_a_workload_out_until_it_opens() -> None:
    scheduler = a_scheduler(a_queue("q", 4))
    gate = Gate(Reason.BACKOFF_UNTIL, "tried again after a pause", until_ms=NOW_MS + 5)
    scheduler.enqueue(a_workload("later", "q", gate=gate))
    dependent = Gate(Reason.WAITING_FOR_DEPENDENCY, "waits for prepare")
    scheduler.enqueue(a_workload("dependent", "q", gate=dependent))

    assert admitted(scheduler, NOW_MS) == []
    assert scheduler.next_wakeup_ms() == NOW_MS + 5
    assert admitted(scheduler, NOW_MS + 5) == ["later"]
    assert scheduler.why("dependent").reason is Reason.WAITING_FOR_DEPENDENCY


@pytest.mark.parametrize("state", [CheckState.RETRY, CheckState.REJECTED])
def test_a_failed_admission_check_keeps_a_workload_out(state: CheckState) -> None:
    scheduler = a_scheduler(a_queue("q", 4, admission_checks={"budget": ()}))
    scheduler.enqueue(a_workload("w", "q", checks={"budget": state}))

    assert admitted(scheduler) == []
    assert scheduler.why("w").reason is Reason.ADMISSION_CHECK


def test_a_deadline_that_has_passed_is_said_and_never_admitted() -> None:
    scheduler = a_scheduler(a_queue("q", 1))
    scheduler.enqueue(a_workload("late", "q", queued=1, deadline_ms=NOW_MS - 1))
    scheduler.enqueue(a_workload("punctual", "q", queued=2, deadline_ms=NOW_MS))

    assert admitted(scheduler) == ["punctual"]
    assert scheduler.why("late").reason is Reason.DEADLINE_PASSED


def test_a_preemptor_whose_victims_stop_too_late_leaves_its_place_to_others() -> None:
    scheduler = a_scheduler(a_queue("q", 4, preemption=WITHIN_LOWER))
    scheduler.hold(running(a_workload("victim", "q", 4)))
    scheduler.enqueue(a_workload("urgent", "q", 4, priority=5, deadline_ms=NOW_MS))
    scheduler.enqueue(a_workload("patient", "q", 4))
    assert scheduler.run_pass(NOW_MS).preemptions
    scheduler.release("victim")

    assert admitted(scheduler, NOW_MS + 1) == ["patient"]
    assert scheduler.why("urgent").reason is Reason.DEADLINE_PASSED


def test_caps_limit_what_runs_at_once_per_queue_local_queue_and_user() -> None:
    cases = (
        (a_queue("q", 9, max_running=2), None, Reason.CONCURRENCY_CAP),
        (a_queue("q", 9, max_running_per_user=2), None, Reason.USER_CAP),
        (a_queue("q", 9), LocalQueue("n/l", "q", max_running=2), Reason.CONCURRENCY_CAP),
    )
    for queue, local, reason in cases:
        scheduler = a_scheduler(*(each for each in (queue, local) if each is not None))
        for number in range(3):
            scheduler.enqueue(a_workload(f"w{number}", "q", user="ada", local_queue="n/l"))

        assert admitted(scheduler) == ["w0", "w1"]
        assert scheduler.why("w2").reason is reason
        scheduler.release("w0")
        assert admitted(scheduler) == ["w2"]


def test_another_user_is_not_bound_by_the_cap_of_the_first() -> None:
    scheduler = a_scheduler(a_queue("q", 9, max_running_per_user=1))
    scheduler.enqueue(a_workload("ada-1", "q", user="ada", queued=1))
    scheduler.enqueue(a_workload("ada-2", "q", user="ada", queued=2))
    scheduler.enqueue(a_workload("bob-1", "q", user="bob", queued=3))

    assert admitted(scheduler) == ["ada-1", "bob-1"]


def test_aging_lets_a_large_old_workload_keep_what_becomes_free() -> None:
    aging = Aging(interval_ms=1000, reserve_after_ms=10_000)
    scheduler = a_scheduler(a_queue("q", 4), policy=Policy(aging=aging))
    for number in range(4):
        scheduler.hold(running(a_workload(f"small-{number}", "q", 1)))
    scheduler.enqueue(a_workload("large", "q", 4, queued=0))
    for number in range(4):
        scheduler.release(f"small-{number}")
        scheduler.enqueue(a_workload(f"new-{number}", "q", 1, queued=20 + number))
        expected = ["large"] if number == 3 else []
        assert admitted(scheduler, 30_000 + number) == expected


def test_aging_keeps_the_flavor_free_that_lacks_least() -> None:
    aging = Aging(interval_ms=1000, reserve_after_ms=10_000)
    flavors = (group(one=quota(4), two=quota(4)),)
    scheduler = a_scheduler(a_queue("q", resource_groups=flavors), policy=Policy(aging=aging))
    for number in range(8):
        flavor = "one" if number < 4 else "two"
        scheduler.hold(running(a_workload(f"small-{number}", "q", 1), flavor=flavor))
    scheduler.enqueue(a_workload("large", "q", 4, queued=0))

    # Only work of the second flavor ever ends, and somebody small always wants what it leaves.
    order: list[str] = []
    for number in range(4, 8):
        scheduler.release(f"small-{number}")
        scheduler.enqueue(a_workload(f"new-{number}", "q", 1, queued=20 + number))
        order += admitted(scheduler, 30_000 + number)

    assert order == ["large"]


@pytest.mark.parametrize("preemption", [RECLAIM_ANY, Preemption()])
def test_aging_serves_a_workload_that_has_to_borrow(preemption: Preemption) -> None:
    aging = Aging(interval_ms=1000, reserve_after_ms=10_000)
    scheduler = a_scheduler(
        a_queue("q", 0, cohort="c", preemption=preemption),
        a_queue("other", 0, cohort="c"),
        a_cohort("c", nominal=quota(4)),
        policy=Policy(aging=aging),
    )
    for number in range(4):
        scheduler.hold(running(a_workload(f"small-{number}", "other", 1)))
    scheduler.enqueue(a_workload("large", "q", 4, queued=0))
    for number in range(4):
        scheduler.release(f"small-{number}")
        scheduler.enqueue(a_workload(f"new-{number}", "other", 1, queued=20 + number))
        expected = ["large"] if number == 3 else []
        assert admitted(scheduler, 30_000 + number) == expected


def test_what_can_never_fit_keeps_nothing_free() -> None:
    aging = Aging(interval_ms=1000, reserve_after_ms=10_000)
    scheduler = a_scheduler(a_queue("q", 4), policy=Policy(aging=aging))
    scheduler.enqueue(a_workload("too-large", "q", 5, queued=0))
    scheduler.enqueue(a_workload("small", "q", 1, queued=20))

    assert admitted(scheduler, 30_000) == ["small"]


def test_aging_lifts_an_old_workload_above_younger_ones_of_higher_priority() -> None:
    scheduler = a_scheduler(a_queue("q", 1), policy=Policy(aging=Aging(interval_ms=1000)))
    scheduler.enqueue(a_workload("old", "q", queued=0, priority=0))
    scheduler.enqueue(a_workload("young", "q", queued=11, priority=10))

    assert admitted(scheduler) == ["old"]


def test_a_limit_on_heads_ends_a_pass_early_and_asks_for_another() -> None:
    scheduler = a_scheduler(a_queue("q", 9), policy=Policy(heads_per_pass=2))
    for number in range(3):
        scheduler.enqueue(a_workload(f"w{number}", "q"))

    assert admitted(scheduler) == ["w0", "w1"]
    assert scheduler.has_candidates()
    assert admitted(scheduler) == ["w2"]


def test_enqueueing_an_id_again_replaces_the_waiting_workload() -> None:
    scheduler = a_scheduler(a_queue("q", 1))
    scheduler.enqueue(a_workload("w", "q", 5))
    scheduler.enqueue(a_workload("w", "q", 1))

    assert admitted(scheduler) == ["w"]
    assert scheduler.waiting() == 0


def test_a_removed_workload_is_never_admitted() -> None:
    scheduler = a_scheduler(a_queue("q", 1))
    scheduler.enqueue(a_workload("gone", "q", queued=1))
    scheduler.enqueue(a_workload("next", "q", queued=2))
    scheduler.remove("gone")

    assert admitted(scheduler) == ["next"]


def test_a_copy_answers_what_if_and_leaves_the_original_alone() -> None:
    scheduler = a_scheduler(a_queue("q", 2))
    scheduler.hold(running(a_workload("running", "q", 2)))
    scheduler.enqueue(a_workload("waits", "q", 2))
    what_if = scheduler.copy()
    what_if.release("running")

    assert admitted(what_if) == ["waits"]
    assert admitted(scheduler) == []
    assert cores(scheduler.usage("q")) == 2


def test_a_rebuilt_scheduler_makes_the_same_plan_as_one_that_lived_on() -> None:
    def build() -> Scheduler:
        return a_scheduler(a_queue("a", 3, cohort="c"), a_queue("b", 3, cohort="c"))

    lived = build()
    for number in range(4):
        lived.enqueue(a_workload(f"a{number}", "a", 2, queued=number))
        lived.enqueue(a_workload(f"b{number}", "b", 1, queued=number))
    first = lived.run_pass(NOW_MS)
    lived.release(first.admissions[0].workload)

    rebuilt = build()
    for number in range(4):
        for name, cpu in ((f"a{number}", 2), (f"b{number}", 1)):
            workload = a_workload(name, name[0], cpu, queued=number)
            done = [each.workload for each in first.admissions]
            if name not in done:
                rebuilt.enqueue(workload)
            elif name != done[0]:
                rebuilt.hold(running(workload))

    assert lived.run_pass(NOW_MS).admissions == rebuilt.run_pass(NOW_MS).admissions


def test_reasons_tell_the_arithmetic_and_who_is_ahead() -> None:
    scheduler = a_scheduler(
        a_queue("alpha", 50, 50, cohort="eng"), a_queue("beta", 50, 10, cohort="eng")
    )
    scheduler.hold(running(a_workload("running", "beta", 55)))
    scheduler.enqueue(a_workload("first", "beta", 6, queued=1))
    scheduler.enqueue(a_workload("second", "beta", 6, queued=2))
    scheduler.enqueue(a_workload("huge", "beta", 61, queued=3))

    refusals = scheduler.run_pass(NOW_MS, explain=True).refusals
    second = scheduler.why("second")

    assert refusals["first"].reason is Reason.BORROW_LIMIT
    assert "6 cpu requested in flavor default" in refusals["first"].message
    assert "beta uses 55 of 50 (may borrow 10)" in refusals["first"].message
    assert "5 available" in refusals["first"].message
    assert (second.position, "first first" in second.message) == (1, True)
    assert refusals["huge"].reason is Reason.EXCEEDS_MAXIMUM
    assert "at most 60 can ever be used" in refusals["huge"].message


def test_reasons_distinguish_an_empty_cohort_from_an_own_limit() -> None:
    scheduler = a_scheduler(
        a_cohort("c", nominal=quota(0)), a_queue("a", 2, cohort="c"), a_queue("b", 2, cohort="c")
    )
    scheduler.hold(running(a_workload("running", "a", 3)))
    scheduler.enqueue(a_workload("waits", "b", 2))
    alone = a_scheduler(a_queue("alone", 2))
    alone.hold(running(a_workload("running", "alone", 1)))
    alone.enqueue(a_workload("waits", "alone", 2))

    assert scheduler.run_pass(0, explain=True).refusals["waits"].reason is Reason.COHORT_EXHAUSTED
    assert alone.run_pass(0, explain=True).refusals["waits"].reason is Reason.NOMINAL_EXCEEDED


def test_nobody_goes_first_while_the_next_pass_has_yet_to_look() -> None:
    scheduler = a_scheduler(a_queue("q", 9), policy=Policy(heads_per_pass=1))
    scheduler.enqueue(a_workload("first", "q"))
    scheduler.enqueue(a_workload("second", "q", 2))

    assert admitted(scheduler) == ["first"]
    assert scheduler.why("second").reason is Reason.PENDING_EVALUATION


def test_once_nothing_more_can_be_decided_what_is_kept_free_is_for_those_ahead() -> None:
    scheduler = a_scheduler(
        a_queue("strict", 2, cohort="c", strict=True), a_queue("b", 0, cohort="c")
    )
    scheduler.hold(running(a_workload("running", "strict", 1)))
    scheduler.enqueue(a_workload("blocked", "strict", 2))
    scheduler.enqueue(a_workload("kept-out", "b"))

    assert admitted(scheduler) == []
    assert not scheduler.has_candidates()
    refusal = scheduler.why("kept-out")
    assert refusal.reason is Reason.BEHIND_HIGHER
    assert "ahead in the cohort" in refusal.message


def test_once_a_cycle_is_over_nobody_waits_for_another_pass() -> None:
    over = 0
    for seed in range(40):
        dice = random.Random(seed)
        queues = catalog(dice)
        seen = recorded(dice, queues)
        scheduler = build_scheduler(queues, seen, seen.usage, dice.choice(POLICIES))

        reasons = {refusal.reason for refusal in run_passes(scheduler, seen.now).refusals.values()}

        if not scheduler.has_candidates():
            over += 1
            assert Reason.PENDING_EVALUATION not in reasons
    assert over > 20


def test_every_reason_has_an_action_and_a_sentence() -> None:
    assert all(reason.action and reason.sentence.endswith(".") for reason in Reason)


def test_small_work_overtakes_a_large_one_until_that_has_waited_long_enough() -> None:
    policy = Policy(aging=Aging(interval_ms=1_000, reserve_after_ms=5_000))
    scheduler = a_scheduler(a_queue("q", 4), policy=policy)
    scheduler.hold(running(a_workload("busy", "q", 2)))
    scheduler.enqueue(a_workload("large", "q", 4, queued=10))
    scheduler.enqueue(a_workload("early", "q", 1, queued=11))
    early = scheduler.run_pass(14_999).admissions
    scheduler.enqueue(a_workload("late", "q", 1, queued=12))
    late = scheduler.run_pass(15_000).admissions

    assert [each.workload for each in (*early, *late)] == ["early"]
