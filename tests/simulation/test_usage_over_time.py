"""Admission fair sharing: past usage of LocalQueues orders their workloads."""

import pytest

from tests.simulation.builders import (
    FAIR,
    Json,
    cohort,
    local_queue,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)

BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}


def settings(half_life: str = "10s", sampling: str = "1s") -> Json:
    return {
        "admissionFairSharing": {"usageHalfLifeTime": half_life, "usageSamplingInterval": sampling}
    }


def consumed(**cpu: int) -> Json:
    return {
        "localQueueUsage": [
            {"localQueue": f"ns/{name}", "consumed": {"cpu": str(amount)}}
            for name, amount in cpu.items()
        ]
    }


def two_queues(cpu: int, weight_a: str = "1", spec: Json | None = None) -> list[Json]:
    return [
        queue("q", cpu=cpu, spec=BY_USAGE if spec is None else spec),
        local_queue("ns/a", "q", fairSharing={"weight": weight_a}),
        local_queue("ns/b", "q"),
    ]


def test_less_consumption_goes_before_priority() -> None:
    result = simulate(
        *two_queues(8),
        waiting("vip", "ns/a", 100, cpu=8),
        waiting("low", "ns/b", 0, at=9, cpu=8),
        **settings(),
        **consumed(a=3, b=2),
    )

    assert result.order == ["low"]


def test_within_one_local_queue_priority_decides() -> None:
    result = simulate(
        *two_queues(8),
        waiting("old", "ns/a", 0, cpu=8),
        waiting("vip", "ns/a", 1, at=9, cpu=8),
        **settings(),
    )

    assert result.order == ["vip"]


def test_consumption_is_divided_by_the_weight() -> None:
    result = simulate(
        *two_queues(8, weight_a="4"),
        waiting("a", "ns/a", at=9, cpu=8),
        waiting("b", "ns/b", cpu=8),
        **settings(),
        **consumed(a=8, b=3),
    )

    assert result.order == ["a"]


def test_an_admission_is_charged_at_once() -> None:
    # a's two are older; after one of them the entry penalty puts b's first.
    result = simulate(
        *two_queues(4),
        waiting("a1", "ns/a", at=1, cpu=1),
        waiting("a2", "ns/a", at=2, cpu=1),
        waiting("b1", "ns/b", at=3, cpu=1),
        waiting("b2", "ns/b", at=4, cpu=1),
        **settings(),
    )

    assert result.order == ["a1", "b1", "a2", "b2"]


def test_queues_that_do_not_ask_for_it_keep_their_order() -> None:
    result = simulate(
        *two_queues(8, spec={}),
        waiting("a", "ns/a", cpu=8),
        waiting("b", "ns/b", at=9, cpu=8),
        **settings(),
        **consumed(a=99),
    )

    assert result.order == ["a"]


def test_a_half_life_of_zero_forgets_everything() -> None:
    result = simulate(
        *two_queues(8),
        waiting("a", "ns/a", cpu=8),
        waiting("b", "ns/b", at=9, cpu=8),
        **settings(half_life="0s"),
        **consumed(a=99, b=1),
    )

    assert result.order == ["a"]


@pytest.mark.parametrize(("seconds", "first"), [(20, "b"), (60, "a")])
def test_consumption_fades_by_half_in_each_half_life(seconds: int, first: str) -> None:
    # a consumed 8 and b, weight 1/4, 1 (counts 4). b's running 1 CPU keeps b at 4 while a halves
    # every 30 s: after 20 s a is still above, after 60 s below.
    result = simulate(
        queue("q", cpu=2, spec=BY_USAGE),
        local_queue("ns/a", "q"),
        local_queue("ns/b", "q", fairSharing={"weight": "0.25"}),
        {**waiting("run", "ns/b", cpu=1)},
        local_queue("ns/c", "q"),
        {**waiting("hog", "ns/c", at=1, cpu=1), "runtime": f"{seconds}s"},
        {**waiting("a", "ns/a", at=9, cpu=1), "arrivesAfter": f"{seconds - 1}s"},
        {**waiting("b", "ns/b", at=8, cpu=1), "arrivesAfter": f"{seconds - 1}s"},
        passes=None,
        **settings(half_life="30s"),
        **consumed(a=8, b=1),
    )

    assert result.order[2] == first


@pytest.mark.parametrize("fair", [{}, FAIR])
def test_the_busier_local_queue_loses_first_even_beside_candidates_of_other_queues(
    fair: Json,
) -> None:
    # The other queue's work could go too, but its queue has the smaller share, and classically a
    # queue that borrows evicts nobody elsewhere. Of its own, the busier LocalQueue's goes, although
    # the other one has the lower priority and was admitted later.
    result = simulate(
        cohort("team", cpu=2),
        queue("mine", "team", cpu=1, spec=BY_USAGE | preemption("LowerPriority", "Any")),
        queue("theirs", "team", cpu=0, spec={"fairSharing": {"weight": "10"}}),
        local_queue("ns/a", "mine"),
        local_queue("ns/b", "mine"),
        running("borrowed", "theirs", at=9, cpu=1),
        running("busy-work", "ns/a", at=1, cpu=1),
        running("calm-work", "ns/b", -1, at=2, cpu=1),
        waiting("in", "ns/b", 5, cpu=1),
        **settings("1h", "1m"),
        **consumed(a=9, b=0),
        **fair,
    )

    assert result.preempted == {"busy-work": "InClusterQueue"}
