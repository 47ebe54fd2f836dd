"""Virtual time: when things happen, what a commit costs, when a run is over."""

import json
from collections.abc import Sequence
from typing import Any

import pytest
from sluice.simulation.engine import Simulation
from sluice.simulation.outcome import ProgressSample
from sluice.simulation.report import distribution, report, utilisation
from sluice.simulation.scenario import parse_scenario

from tests.simulation.builders import (
    FAIR,
    Json,
    Result,
    documents,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)

ONE = queue("q", cpu=1)


def lasting(name: str, queue: str, runtime: str, *args: int, **rest: Any) -> Json:
    return {**waiting(name, queue, *args, **rest), "runtime": runtime}


def times(result: Result, what: str) -> dict[str, float]:
    return {one["workload"]: one["at"] for one in result.report[what]}


def test_a_workload_runs_for_its_runtime_and_makes_room_for_the_next() -> None:
    result = simulate(
        ONE, lasting("a", "q", "90s", cpu=1), lasting("b", "q", "30s", cpu=1), passes=None
    )

    assert times(result, "admitted") == {"a": 0.0, "b": 90.0}
    assert times(result, "finished") == {"a": 90.0, "b": 120.0}
    assert result.report["virtualSeconds"] == 120.0
    assert result.report["summary"]["makespanSeconds"] == 120.0


def test_a_workload_without_runtime_runs_for_ever() -> None:
    result = simulate(ONE, waiting("a", "q", cpu=1), waiting("b", "q", cpu=1), passes=None)

    assert times(result, "finished") == {}
    assert result.pending == {"b"}
    assert result.report["virtualSeconds"] == 0.0


def test_nothing_is_admitted_before_it_arrives() -> None:
    result = simulate(ONE, {**waiting("a", "q", cpu=1), "arrivesAfter": "1m30s"}, passes=None)

    assert times(result, "admitted") == {"a": 90.0}
    assert result.report["summary"]["waitSeconds"]["all"]["max"] == 0.0


def test_a_commit_delays_the_start() -> None:
    result = simulate(ONE, lasting("a", "q", "1s", cpu=1), passes=None, latency=30)

    assert times(result, "admitted") == {"a": 0.03}
    assert times(result, "finished") == {"a": 1.03}


def test_what_is_given_back_during_a_commit_waits_for_the_next_pass() -> None:
    # a and b are admitted at 30 ms. b arrives while that commit is under way.
    result = simulate(
        queue("q", cpu=2),
        lasting("a", "q", "1s", cpu=1),
        {**lasting("b", "q", "1s", cpu=1), "arrivesAfter": "10ms"},
        passes=None,
        latency=30,
    )

    assert times(result, "admitted") == {"a": 0.03, "b": 0.06}


def test_roots_commit_independently() -> None:
    result = simulate(
        queue("p", cpu=1),
        queue("q", cpu=1),
        lasting("a", "p", "1s", cpu=1),
        {**lasting("b", "q", "1s", cpu=1), "arrivesAfter": "10ms"},
        passes=None,
        latency=30,
    )

    assert times(result, "admitted") == {"a": 0.03, "b": 0.04}


def test_a_pass_without_decisions_has_nothing_to_commit() -> None:
    # The arrival at 1000 ms finds no room; the finish at 1030 ms must not wait for that pass.
    result = simulate(
        ONE,
        lasting("a", "q", "1s", cpu=1),
        {**lasting("b", "q", "1s", cpu=1), "arrivesAfter": "1s"},
        passes=None,
        latency=30,
    )

    assert times(result, "admitted") == {"a": 0.03, "b": 1.06}


def test_as_many_passes_as_asked_for_are_no_loop() -> None:
    result = simulate(ONE, waiting("a", "q", cpu=1), passes=1001)

    assert result.report["passes"] == 1001
    assert result.order == ["a"]


def test_exactly_the_passes_asked_for_are_run() -> None:
    result = simulate(ONE, lasting("a", "q", "1s", cpu=1), waiting("b", "q", cpu=1), passes=1)

    assert result.report["passes"] == 1
    assert result.order == ["a"]
    assert times(result, "finished") == {}


def test_a_second_pass_waits_for_something_to_happen() -> None:
    result = simulate(ONE, lasting("a", "q", "5s", cpu=1), waiting("b", "q", cpu=1), passes=2)

    assert result.report["passes"] == 2
    assert times(result, "admitted") == {"a": 0.0, "b": 5.0}


def test_passes_that_can_see_nothing_new_are_run_all_the_same() -> None:
    assert simulate(ONE, passes=7).report["passes"] == 7


def test_what_was_evicted_in_the_last_pass_is_not_pending() -> None:
    parts = [
        queue("q", cpu=1, spec=preemption("LowerPriority")),
        running("low", "q", -1, cpu=1),
        waiting("in", "q", cpu=1),
    ]

    once, twice = simulate(*parts, passes=1), simulate(*parts, passes=2)

    assert (once.pending, once.cpu("usage", "q")) == ({"in"}, ["0"])
    assert (twice.pending, twice.cpu("usage", "q")) == ({"low"}, ["1"])


def test_an_evicted_workload_starts_again_from_the_beginning() -> None:
    result = simulate(
        queue("q", cpu=1, spec=preemption("LowerPriority")),
        lasting("low", "q", "10s", -1, cpu=1),
        {**lasting("in", "q", "1s", 0, cpu=1), "arrivesAfter": "9s"},
        passes=None,
    )

    assert times(result, "finished") == {"in": 10.0, "low": 20.0}
    assert result.order == ["low", "in", "low"]


def test_a_victim_that_finishes_during_the_commit_was_not_preempted() -> None:
    result = simulate(
        queue("q", cpu=1, spec=preemption("LowerPriority")),
        {**running("low", "q", -1, cpu=1), "runtime": "1h0.01s"},
        lasting("in", "q", "1s", 0, cpu=1),
        passes=None,
        latency=30,
    )

    assert result.preempted == {}
    assert times(result, "finished") == {"low": 0.01, "in": 1.06}


def test_a_holder_ends_a_runtime_after_it_got_its_quota() -> None:
    # It holds since one hour before the start.
    result = simulate(ONE, {**running("r", "q", cpu=1), "runtime": "1h30s"}, passes=None)

    assert times(result, "finished") == {"r": 30.0}
    assert result.order == []


def test_a_holder_that_should_be_long_over_gets_its_runtime_from_the_start() -> None:
    result = simulate(ONE, {**running("r", "q", cpu=1), "runtime": "90s"}, passes=None)

    assert times(result, "finished") == {"r": 90.0}


def test_until_cuts_the_run_off() -> None:
    result = simulate(
        ONE,
        lasting("a", "q", "10s", cpu=1),
        lasting("b", "q", "10s", cpu=1),
        passes=None,
        until=5_000,
    )

    assert result.report["virtualSeconds"] == 5.0
    assert result.pending == {"b"}
    assert result.report["summary"]["utilisation"] == {"cpu": 1.0}


def test_what_is_being_committed_when_the_run_is_cut_off_waits_and_says_until_when() -> None:
    result = simulate(ONE, waiting("w", "q", cpu=1), passes=None, latency=5_000, until=3_000)

    assert result.admitted == {}
    assert result.pending == {"w"}
    assert result.report["pending"][0]["message"] == (
        "its place is held; its admission comes into force at 5 s"
    )


def test_a_watcher_sees_who_waits_for_a_commit() -> None:
    moments: list[ProgressSample] = []
    scenario = parse_scenario(documents(ONE, waiting("w", "q", cpu=1), passes=None), "x")

    Simulation(scenario, watch=moments.append, commit_latency_ms=5_000).run()

    assert {(one.at_ms, one.pending) for one in moments} == {(0, 1), (5_000, 0)}


def test_an_idle_cohort_has_what_its_queues_lend() -> None:
    result = simulate(queue("a", "co", cpu=4), queue("b", "co", cpu=(6, None, 1)))

    (cohort,) = result.report["cohorts"]
    assert cohort["available"] == cohort["potential"] == {"default": {"cpu": "5"}}
    assert cohort["usage"] == {"default": {"cpu": "0"}}


def test_utilisation_counts_useful_work_only() -> None:
    # low's first 9 of 20 seconds were for nothing: (1 + 10) of 20.
    result = simulate(
        queue("q", cpu=1, spec=preemption("LowerPriority")),
        lasting("low", "q", "10s", -1, cpu=1),
        {**lasting("in", "q", "1s", 0, cpu=1), "arrivesAfter": "9s"},
        passes=None,
    )

    assert result.report["summary"]["utilisation"] == {"cpu": 0.55}


def test_utilisation_of_partially_admitted_work_counts_its_pods() -> None:
    result = simulate(
        queue("q", cpu=10),
        {**waiting("w", "q", count=8, minCount=1, cpu=2), "runtime": "5s"},
        passes=None,
    )

    assert result.report["summary"]["utilisation"] == {"cpu": 1.0}


@pytest.mark.parametrize(
    ("useful", "capacity", "makespan", "share"),
    [(0, 0, 10, 0.0), (5, 10, 0, 0.0), (5_000, 1_000, 10, 0.5), (1, 3, 1, 0.3333)],
)
def test_utilisation_is_work_over_capacity_and_time(
    useful: int, capacity: int, makespan: int, share: float
) -> None:
    assert utilisation(useful, capacity, makespan) == share


@pytest.mark.parametrize(
    ("waits", "p50", "p90", "p99", "mean"),
    [([], 0, 0, 0, 0), ([7], 7, 7, 7, 7), (range(1, 101), 50, 90, 99, 50.5), ([3, 1], 1, 3, 3, 2)],
)
def test_percentiles_are_of_the_nearest_rank(
    waits: Sequence[int], p50: float, p90: float, p99: float, mean: float
) -> None:
    found = distribution(1000 * wait for wait in waits)

    assert [found[key] for key in ("p50", "p90", "p99", "mean")] == [p50, p90, p99, mean]


def test_the_peak_counts_all_who_wait_at_once() -> None:
    result = simulate(ONE, *(lasting(f"w{i}", "q", "1s", cpu=1) for i in range(5)), passes=None)

    assert result.report["summary"]["peakPending"] == 5


def test_equal_input_gives_equal_bytes() -> None:
    parts = [
        queue("a", "team", cpu=3, spec=preemption("LowerPriority", "Any")),
        queue("b", "team", cpu=3, spec=preemption("LowerPriority", "Any")),
        *(lasting(f"a{i}", "a", f"{1 + i % 3}s", i % 4, at=i, cpu=1 + i % 3) for i in range(20)),
        *(lasting(f"b{i}", "b", f"{1 + i % 5}s", i % 3, at=i, cpu=1 + i % 2) for i in range(20)),
    ]

    first, second = (simulate(*parts, passes=None, latency=30, **FAIR).report for _ in range(2))

    assert json.dumps(first) == json.dumps(second)
    assert len(first["finished"]) == 40


def test_a_watcher_sees_time_go_by() -> None:
    moments: list[ProgressSample] = []
    scenario = parse_scenario(
        documents(ONE, *(lasting(f"w{i}", "q", "1s", cpu=1) for i in range(3)), passes=None), "x"
    )

    Simulation(scenario, watch=moments.append).run()

    assert [(one.at_ms, one.admissions, one.pending) for one in moments[:3]] == [
        (0, 1, 2),
        (1000, 2, 1),
        (2000, 3, 0),
    ]


def test_only_the_core_is_measured() -> None:
    readings: list[float] = []

    def clock() -> float:
        readings.append(float(len(readings)))
        return readings[-1]

    scenario = parse_scenario(documents(ONE, waiting("w", "q", cpu=1)), "x")
    result = report(scenario, Simulation(scenario, cpu_clock=clock).run())

    # Each pair of readings is one second; the set-up is one pair, each pass another.
    assert result["summary"]["decisionCpuSeconds"] == len(readings) / 2
    assert len(readings) == 2 * (1 + result["passes"])
