"""Histories: whatever happens, quota holds, nothing is lost, and everybody gets their turn."""

import json
from collections import Counter
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sluice.core.config.model import Assignment, PodSetAssignment, QueueingStrategy
from sluice.core.config.policy import Aging, Policy
from sluice.simulation.engine import Simulation
from sluice.simulation.job import Job
from sluice.simulation.outcome import SimulationResult
from sluice.simulation.report import report
from sluice.simulation.scenario import Scenario, parse_scenario

from tests.simulation.arithmetic import Tree, charge, usage_over_time
from tests.simulation.builders import (
    FAIR,
    START,
    Json,
    cohort,
    documents,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)

THOUSAND = settings(max_examples=1000, deadline=None, suppress_health_check=[HealthCheck.too_slow])
HISTORIES = settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.too_slow])
LIMIT = st.none() | st.integers(0, 4)
LATENCY = st.sampled_from([0, 30, 250])


@st.composite
def trees(draw: st.DrawFn) -> list[Json]:
    """Cohorts up to three levels deep with two to four queues."""
    cohorts = draw(st.integers(0, 3))
    parts = []
    for number in range(cohorts):
        parent = draw(st.sampled_from([f"c{i}" for i in range(number)])) if number else None
        limits = (draw(LIMIT), draw(LIMIT)) if parent else (None, None)
        quota = (draw(st.integers(0, 4)), *limits)
        parts.append(cohort(f"c{number}", parent, cpu=quota, gpu=draw(st.integers(0, 2))))
    for number in range(draw(st.integers(2, 4))):
        above = draw(st.sampled_from([f"c{i}" for i in range(cohorts)])) if cohorts else None
        nominal, borrowing, lending = draw(st.integers(0, 6)), draw(LIMIT), draw(LIMIT)
        lending = None if lending is None else min(lending, nominal)
        quota = (nominal, borrowing, lending) if above else (nominal, None, None)
        rules = preemption(
            draw(st.sampled_from(["Never", "LowerPriority", "LowerOrNewerEqualPriority"])),
            draw(st.sampled_from(["Never", "LowerPriority", "Any"])),
        )
        strategy = {"queueingStrategy": draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))}
        parts.append(
            queue(
                f"q{number}", above, cpu=quota, gpu=draw(st.integers(0, 2)), spec=rules | strategy
            )
        )
    return parts


@st.composite
def work(draw: st.DrawFn, queues: list[str], most: int = 14) -> list[Json]:
    """Workloads that arrive within 3 seconds and run for up to 2."""
    found = []
    for number in range(draw(st.integers(1, most))):
        count = draw(st.integers(1, 3))
        smallest = draw(st.none() | st.integers(1, count))
        sizes: dict[str, Any] = {"count": count} | ({"minCount": smallest} if smallest else {})
        requests: dict[str, Any] = {"cpu": draw(st.integers(1, 4))}
        if draw(st.booleans()):
            requests["gpu"] = 1
        times = {
            "arrivesAfter": f"{draw(st.integers(0, 30)) * 100}ms",
            "runtime": f"{draw(st.integers(0, 20)) * 100}ms",
        }
        name, where = f"w{number}", draw(st.sampled_from(queues))
        one = waiting(name, where, draw(st.integers(-2, 2)), at=number, **sizes, **requests)
        found.append(one | times)
    return found


@st.composite
def histories(draw: st.DrawFn) -> list[Json]:
    parts = draw(trees())
    queues = [part["metadata"]["name"] for part in parts if part["kind"] == "ClusterQueue"]
    spec = draw(st.sampled_from([{}, FAIR]))
    return documents(*parts, *draw(work(queues)), passes=None, **spec)


def run(case: list[Json], latency_ms: int) -> tuple[Scenario, SimulationResult]:
    scenario = parse_scenario(case, "history")
    return scenario, Simulation(scenario, commit_latency_ms=latency_ms).run()


@pytest.mark.slow
@THOUSAND
@given(histories(), LATENCY)
def test_every_history_keeps_what_we_promise(case: list[Json], latency: int) -> None:
    # A run that never comes to rest raises: nobody evicts anybody in circles.
    scenario, outcome = run(case, latency)
    tree = Tree.of(scenario.objects)

    quota_is_never_exceeded(tree, outcome)
    nothing_is_lost(scenario, outcome)
    whoever_could_run_did(scenario, tree, outcome)
    evictions_are_bounded(scenario, outcome)


def quota_is_never_exceeded(tree: Tree, outcome: SimulationResult) -> None:
    """At no node and no time."""
    for instant, used in usage_over_time(outcome):
        assert tree.exceeded(used) == [], f"at {instant} ms"


def nothing_is_lost(scenario: Scenario, outcome: SimulationResult) -> None:
    """Everybody has finished or waits, and every admission ended in a finish or an eviction."""
    finished = [job.workload.id for job, _ in outcome.finished]
    pending = [job.workload.id for job, _ in outcome.pending]
    assert sorted(finished + pending) == sorted(job.workload.id for job in scenario.jobs)
    assert len(outcome.admitted) == len(finished) + len(outcome.preempted)


def whoever_could_run_did(scenario: Scenario, tree: Tree, outcome: SimulationResult) -> None:
    """All runtimes are finite, so the tree is empty at the end.

    Whoever still waits is too large for it even at the smallest size, or stands in a strict queue
    behind somebody who is.
    """
    queues = {one.name: one for one in scenario.objects.cluster_queues}
    for name in {job.workload.cluster_queue for job, _ in outcome.pending}:
        waiting_here = [job for job, _ in outcome.pending if job.workload.cluster_queue == name]
        fitting = [job.workload.id for job in waiting_here if fits(tree, job)]
        if queues[name].queueing_strategy is QueueingStrategy.BEST_EFFORT_FIFO:
            assert fitting == []
        else:
            assert len(fitting) < len(waiting_here)


def evictions_are_bounded(scenario: Scenario, outcome: SimulationResult) -> None:
    """Nobody is evicted more often than others can arrive or come back to do it."""
    times = Counter(one.step.victim for one in outcome.preempted)
    assert max(times.values(), default=0) < 3 * len(scenario.jobs)


@HISTORIES
@given(histories(), LATENCY)
def test_equal_input_gives_equal_bytes(case: list[Json], latency: int) -> None:
    first, second = (json.dumps(report(*run(case, latency))) for _ in range(2))

    assert first == second


def fits(tree: Tree, job: Job) -> bool:
    """Whether a job's smallest size fits into the empty tree."""
    workload = job.workload
    assigned = tuple(
        PodSetAssignment(
            pods.name, pods.min_count or pods.count, dict.fromkeys(pods.requests, "default")
        )
        for pods in workload.pod_sets
    )
    cells = charge(workload, Assignment(assigned))
    return all(amount <= tree.potential(workload.cluster_queue, c) for c, amount in cells.items())


@HISTORIES
@given(
    st.integers(1, 12),
    st.lists(st.tuples(st.integers(-3, 3), st.integers(1, 4)), max_size=8),
    st.tuples(st.integers(-3, 3), st.integers(1, 12)),
)
def test_victims_are_lower_enough_and_not_one_too_many(
    quota: int, holders: list[tuple[int, int]], newcomer: tuple[int, int]
) -> None:
    priority, request = newcomer
    held = [running(f"r{i}", "q", level, at=i, cpu=size) for i, (level, size) in enumerate(holders)]

    result = simulate(
        queue("q", cpu=quota, spec=preemption("LowerPriority")),
        *held,
        waiting("in", "q", priority, cpu=request),
    )

    by_name = {f"r{i}": one for i, one in enumerate(holders)}
    used = sum(size for _, size in holders)
    lower = sum(size for level, size in holders if level < priority)
    victims = [by_name[name] for name in result.preempted]
    freed = sum(size for _, size in victims)
    assert all(level < priority for level, _ in victims)
    if victims:
        assert used - freed + request <= quota
        assert all(used - freed + size + request > quota for _, size in victims)
    else:
        fits_at_once = used + request <= quota
        assert fits_at_once or used - lower + request > quota
        assert result.order == (["in"] if fits_at_once else [])


@HISTORIES
@given(
    st.lists(st.tuples(st.integers(1, 6), st.integers(1, 4)), min_size=1, max_size=5),
    st.integers(1, 6),
)
def test_no_more_is_reclaimed_than_the_reclaimer_needs(
    borrowers: list[tuple[int, int]], request: int
) -> None:
    # Each borrower's queue is one job large; whatever it holds beyond is lent by the reclaimer.
    extra = sum(size for _, size in borrowers)
    held = [
        running(f"r{i}", f"b{i}", level, at=i, cpu=size)
        for i, (level, size) in enumerate(borrowers)
    ]
    others = [queue(f"b{i}", "team", cpu=0) for i in range(len(borrowers))]
    nominal = max(extra, request)

    result = simulate(
        queue("mine", "team", cpu=nominal, spec=preemption("Never", "Any")),
        *others,
        *held,
        waiting("in", "mine", 0, cpu=request),
    )

    freed = [borrowers[int(name[1:])][1] for name in result.preempted]
    short = max(0, extra + request - nominal)
    assert sum(freed) >= short
    assert all(sum(freed) - size < short for size in freed)
    assert set(result.preempted.values()) <= {"InCohortReclamation"}


@settings(max_examples=40, deadline=None)
@given(
    st.lists(st.sampled_from(["0.5", "1", "2", "3"]), min_size=2, max_size=4), st.integers(4, 12)
)
def test_fair_sharing_converges_to_the_weights(weights: list[str], capacity: int) -> None:
    # One queue holds everything; all have more than enough to do, and nobody ever finishes.
    rules = preemption("Never", "Any")
    queues = [
        queue(f"q{i}", "team", cpu=0, spec=rules | {"fairSharing": {"weight": weight}})
        for i, weight in enumerate(weights)
    ]
    hog = [running(f"r{i}", "q0", at=i, cpu=1) for i in range(capacity)]
    jobs = [
        waiting(f"w{number}-{i}", f"q{i}", at=number, cpu=1)
        for number in range(capacity)
        for i in range(len(weights))
    ]

    result = simulate(cohort("team", cpu=capacity), *queues, *hog, *jobs, passes=None, **FAIR)

    held = [int(used) for used in result.cpu("usage", *(f"q{i}" for i in range(len(weights))))]
    assert sum(held) == capacity
    # Nobody could gain by one more job without overtaking whoever would lose it.
    for i, gains in enumerate(weights):
        for j, loses in enumerate(weights):
            assert (held[i] + 1) / float(gains) >= (held[j] - 1) / float(loses)


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 3), st.integers(10, 40), LATENCY)
def test_nothing_starves_under_aging(priority: int, stream: int, latency: int) -> None:
    # A stream of small urgent jobs keeps the queue busy; the big one needs all of it at once.
    small = [
        waiting(f"s{number:02d}", "q", priority, cpu=1)
        | {
            "arrivesAfter": f"{number * 100}ms",
            "createdAt": f"2026-01-01T01:00:{number // 10:02d}.{number % 10}Z",
            "runtime": "250ms",
        }
        for number in range(stream)
    ]
    big = waiting("big", "q", 0, cpu=2) | {"createdAt": START, "runtime": "100ms"}
    scenario = parse_scenario(documents(queue("q", cpu=2), *small, big, passes=None), "stream")
    aging = Policy(aging=Aging(interval_ms=200, reserve_after_ms=200))

    outcome = Simulation(replace(scenario, policy=aging), commit_latency_ms=latency).run()

    # After 200 ms for each level and the run of those before it, it is the big one's turn.
    wait_ms = outcome.waits_ms["big"]
    assert wait_ms <= 200 * priority + 2 * (250 + 2 * latency)
