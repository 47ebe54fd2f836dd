"""Fading usage: steps of any length agree, penalties are settled once, weights count."""

from __future__ import annotations

import math

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.config.model import LocalQueue
from sluice.core.config.policy import AdmissionFairSharing, Policy
from sluice.core.scheduling.past_usage import LocalQueueUsage, remaining

from tests.unit.core.builders import a_queue, a_scheduler, a_workload, admitted, running

SETTINGS = AdmissionFairSharing(half_life_ms=10_000, sampling_interval_ms=1_000)


def ledger(**weights: int) -> LocalQueueUsage:
    return LocalQueueUsage(SETTINGS, weights)


def test_constant_use_is_half_remembered_after_one_half_life() -> None:
    usage = ledger()
    usage.start("q", {"cpu": 8000}, 0, penalty=False)

    assert usage.consumed("q", 10_000)["cpu"] == pytest.approx(4000)
    assert usage.weighted("q", 10_000) == pytest.approx(4.0)


@given(st.lists(st.integers(1, 20_000), min_size=1, max_size=8), st.integers(0, 9_000))
def test_many_steps_equal_one(steps: list[int], used: int) -> None:
    often, once = ledger(), ledger()
    for each in (often, once):
        each.set_consumed("q", {"cpu": 5000.0}, 0)
        each.start("q", {"cpu": used}, 0, penalty=False)
    now = 0
    for step in steps:
        now += step
        often.consumed("q", now)

    assert often.consumed("q", now)["cpu"] == pytest.approx(once.consumed("q", now)["cpu"])


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(1, 10**9))
def test_fading_in_two_steps_is_fading_in_one(first: int, second: int, half_life: int) -> None:
    two = remaining(first, half_life) * remaining(second, half_life)

    assert two == pytest.approx(remaining(first + second, half_life))


def test_an_admission_counts_at_once_by_its_penalty_and_only_for_one_interval() -> None:
    usage = ledger()
    usage.start("q", {"cpu": 8000}, 0, penalty=True)
    penalty = 8 * (1 - remaining(1_000, 10_000))

    assert usage.weighted("q", 0) == pytest.approx(penalty)
    assert usage.weighted("q", 500) == pytest.approx(penalty)
    assert usage.weighted("q", 1_000) == pytest.approx(usage.consumed("q", 1_000)["cpu"] / 1000)


def test_a_penalty_is_dropped_with_its_workload() -> None:
    usage = ledger()
    usage.start("q", {"cpu": 8000}, 0, penalty=True)
    usage.stop("q", {"cpu": 8000}, 0, 0)

    assert usage.weighted("q", 0) == 0


def test_weights_divide_usage_and_weight_zero_comes_last() -> None:
    usage = ledger(double=2000, none=0)
    for name in ("plain", "double", "none"):
        usage.set_consumed(name, {"cpu": 8000.0}, 0)

    assert usage.weighted("plain", 0) == 8
    assert usage.weighted("double", 0) == 4
    assert usage.weighted("none", 0) == math.inf


def test_resources_are_weighted() -> None:
    settings = AdmissionFairSharing(10_000, resource_weights={"cpu": 0.5, "gpu": 10.0})
    usage = LocalQueueUsage(settings, {})
    usage.set_consumed("q", {"cpu": 8000.0, "gpu": 1.0}, 0)

    assert usage.weighted("q", 0) == 14


def test_the_less_active_local_queue_goes_first_only_where_the_queue_asks_for_it() -> None:
    for usage_based, expected in ((True, ["b"]), (False, ["a"])):
        scheduler = a_scheduler(
            a_queue("cq", 8, usage_based_admission=usage_based),
            LocalQueue("ns/a", "cq"),
            LocalQueue("ns/b", "cq"),
            policy=Policy(admission_fair_sharing=SETTINGS),
        )
        scheduler.set_local_queue_usage("ns/a", {"cpu": 8000.0}, 0)
        scheduler.set_local_queue_usage("ns/b", {"cpu": 2000.0}, 0)
        scheduler.enqueue(a_workload("a", "cq", 8, local_queue="ns/a", queued=0, priority=9))
        scheduler.enqueue(a_workload("b", "cq", 8, local_queue="ns/b", queued=1))

        assert admitted(scheduler, 0) == expected


def test_local_queues_alternate_within_one_pass() -> None:
    scheduler = a_scheduler(
        a_queue("cq", 4, usage_based_admission=True),
        LocalQueue("ns/a", "cq"),
        LocalQueue("ns/b", "cq"),
        policy=Policy(admission_fair_sharing=SETTINGS),
    )
    for name in "ab":
        for number in range(4):
            key = f"ns/{name}"
            queued = number + (10 if name == "b" else 0)
            scheduler.enqueue(a_workload(f"{name}{number}", "cq", local_queue=key, queued=queued))

    assert admitted(scheduler, 0) == ["a0", "b0", "a1", "b1"]


def test_running_work_is_remembered_until_it_stops() -> None:
    scheduler = a_scheduler(
        a_queue("cq", 8, usage_based_admission=True),
        LocalQueue("ns/a", "cq"),
        policy=Policy(admission_fair_sharing=SETTINGS),
    )
    scheduler.hold(running(a_workload("w", "cq", 4, local_queue="ns/a"), since=0))
    scheduler.release("w", 10_000)

    assert scheduler.consumed("ns/a", 20_000)["cpu"] == pytest.approx(1000)
