"""Partial admission: the largest size that fits, found in proportion to each pod set's slack."""

from tests.simulation.builders import Json, preemption, queue, running, simulate, waiting


def pods(name: str, count: int, minimum: int | None = None) -> Json:
    slack = {} if minimum is None else {"minCount": minimum}
    return {"name": name, "count": count, **slack, "requests": {"cpu": "1"}}


def test_the_full_size_is_tried_first() -> None:
    result = simulate(queue("q", cpu=10), waiting("w", "q", count=10, minCount=1, cpu=1))

    assert result.counts == {"w": [10]}


def test_a_workload_without_minimum_is_never_shrunk() -> None:
    result = simulate(queue("q", cpu=9), waiting("w", "q", count=10, cpu=1))

    assert result.counts == {}


def test_a_minimum_that_does_not_fit_waits() -> None:
    result = simulate(queue("q", cpu=9), waiting("w", "q", count=20, minCount=10, cpu=1))

    assert result.pending == {"w"}


def test_the_reason_is_about_the_least_size() -> None:
    # 20 never fit, but the 3 that suffice do once the others are over.
    shrinking = waiting("w", "q", count=20, minCount=3, cpu=1)
    result = simulate(queue("q", cpu=10), running("r", "q", cpu=8), shrinking)

    (why,) = result.report["pending"]
    assert why["reason"] == "QUOTA:NominalExceeded"
    assert why["message"].startswith(
        "3 cpu requested in flavor default, q uses 8 of 10; that is the"
    )


def test_slack_is_given_up_in_proportion_and_rounded_down() -> None:
    # 4 to 1 and 6 to 3 pods for 7 CPUs: i = 3 of 6 still leaves 3 + 5, i = 4 gives 2 + 4.
    result = simulate(
        queue("q", cpu=7), waiting("w", "q", pod_sets=[pods("a", 4, 1), pods("b", 6, 3)])
    )

    assert result.counts == {"w": [2, 4]}


def test_fixed_pod_sets_keep_their_count() -> None:
    result = simulate(
        queue("q", cpu=8), waiting("w", "q", pod_sets=[pods("head", 2), pods("tail", 10, 4)])
    )

    assert result.counts == {"w": [2, 6]}


def test_borrowed_quota_counts_as_room() -> None:
    result = simulate(
        queue("q", "team", cpu=(4, 3)),
        queue("lender", "team", cpu=10),
        waiting("w", "q", count=10, minCount=1, cpu=1),
    )

    assert result.counts == {"w": [7]}


def test_eviction_for_a_smaller_size_comes_before_a_still_smaller_one_without() -> None:
    # 2 of 10 are free; with both victims gone 8 fit, and 8 is what it takes.
    result = simulate(
        queue("q", cpu=10, spec=preemption("LowerPriority")),
        running("keep", "q", 5, cpu=2),
        running("x", "q", -1, cpu=3),
        running("y", "q", -1, at=9, cpu=3),
        waiting("w", "q", 1, count=12, minCount=1, cpu=1),
        passes=2,
    )

    assert result.preempted == {"x": "InClusterQueue", "y": "InClusterQueue"}
    assert result.counts == {"w": [8]}


def test_the_reduced_size_is_what_is_charged() -> None:
    result = simulate(queue("q", cpu=5), waiting("w", "q", count=9, minCount=2, cpu=2))

    assert result.counts == {"w": [2]}
    assert result.cpu("usage", "q") == ["4"]
    assert result.cpu("available", "q") == ["1"]
