"""A thousand gangs on a hundred nodes: no deadlock, no partial gang, and no time lost."""

from __future__ import annotations

from tests.bench.bench_gangs import JOBS, bound_seconds, measure


def test_a_thousand_gangs_take_the_time_of_their_waves() -> None:
    summary = measure()

    assert (summary["workloads"], summary["admissions"], summary["preemptions"]) == (JOBS, JOBS, 0)
    assert bound_seconds() <= summary["makespanSeconds"] < 1.01 * bound_seconds()
