"""Where the time of a workload went and what it cost: parts add up to the whole, in any window."""

from __future__ import annotations

import itertools
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.accounting.costs import Bill, requested
from sluice.core.accounting.usage_intervals import IntervalKind, loss_is_unknown, usage_intervals
from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle.record import (
    Intent,
    IntentKind,
    PodSet,
    Reservation,
    State,
    Workload,
    after,
)
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.lifecycle.run import MachineShare, Run
from sluice.core.lifecycle.runs import present_run
from sluice.core.lifecycle.transitions import release

from tests.records import options_of

HOUR = 3_600_000
START = 1_800_000_000_000
PODS = (PodSet("main", 2, {"cpu": 500, "memory": 2**30}), PodSet("extra", 1, {"nvidia.com/gpu": 1}))
PRICES = {"usd_per_hour": 1.0, "on_demand_usd_per_hour": 3.0, "capacity": "spot"}


def a_run(generation: int, *times: int, outcome: str = "succeeded", **more: Any) -> Run:
    """`times`: admitted, bound, started, ended; minutes after the submission."""
    names = ("admitted_at", "bound_at", "started_at", "ended_at")
    at = {name: START + 60_000 * time for name, time in zip(names, times, strict=True)}
    return Run(generation=generation, outcome=outcome, **at, **more)


def ended(*runs: Run, succeeded: bool = True, **fields: Any) -> Workload:
    return Workload(
        "w", "w", "team", "team/q", State.FINISHED, created_at=START, runs=runs, pod_sets=PODS,
        generation=len(runs) - 1, finished_at=runs[-1].ended_at,
        result=JobResult(succeeded=succeeded), **fields,
    )  # fmt: skip


def minutes(workload: Workload, now: int = START + 1_000 * HOUR) -> dict[str, float]:
    found: dict[str, float] = {}
    for each in usage_intervals(workload, now):
        found[each.kind.value] = found.get(each.kind.value, 0) + each.ms / 60_000
    return found


def bill(workload: Workload, now: int = START + 1_000 * HOUR) -> Bill:
    made = Bill()
    for each in usage_intervals(workload, now):
        if each.run:
            made.add(each, workload)
    return made


def test_a_run_waits_is_placed_starts_and_works() -> None:
    assert minutes(ended(a_run(0, 5, 7, 8, 68))) == {
        "waiting": 5, "placing": 2, "starting": 1, "useful": 60,
    }  # fmt: skip


def test_a_move_is_neither_waiting_nor_work_and_what_was_lost_is_done_again() -> None:
    lost = {"stopped_at": START + 60 * 60_000, "lost_ms": 20 * 60_000, "interrupted_at": 1}
    moved = a_run(0, 0, 5, 10, 62, outcome="migrate", **lost)

    assert minutes(ended(moved, a_run(1, 62, 63, 65, 100))) == {
        "placing": 5, "starting": 5, "useful": 30 + 35, "redone": 20, "moving": 5,
    }  # fmt: skip


def test_what_a_workload_did_before_it_was_preempted_is_done_again() -> None:
    runs = a_run(0, 0, 0, 0, 30, outcome="preempt"), a_run(1, 40, 40, 40, 50)

    assert minutes(ended(*runs)) == {"redone": 30, "waiting": 10, "useful": 10}


def test_what_an_application_has_saved_nobody_else_knows() -> None:
    runs = a_run(0, 0, 0, 0, 30, outcome="preempt"), a_run(1, 30, 30, 30, 50)
    workload = ended(*runs, options=options_of({"checkpoint": {"mode": "application"}}))

    assert minutes(workload) == {"useful": 50}
    assert [loss_is_unknown(workload, run) for run in runs] == [True, False]


def test_the_work_of_a_failure_is_not_called_useful() -> None:
    assert minutes(ended(a_run(0, 0, 0, 0, 30), succeeded=False)) == {"failed": 30}


def test_a_job_that_nobody_saw_run_ran_since_it_had_its_machine() -> None:
    seen_late = replace(a_run(0, 1, 2, 0, 9), started_at=0)

    assert minutes(ended(seen_late)) == {"waiting": 1, "placing": 1, "useful": 7}


def test_one_that_runs_is_told_until_now() -> None:
    assigned = tuple(PodSetAssignment(s.name, 1, {"cpu": "spot"}) for s in PODS)
    workload = Workload(
        "w", "w", "team", "team/q", State.DISPATCHED, created_at=START, pod_sets=PODS,
        admitted_at=START, dispatched_at=START, started_at=START + 60_000,
        machine=MachineShare(bound_at=START + 30_000, **PRICES),
        reservation=Reservation(0, "cq", "c", START, assigned),
    )  # fmt: skip

    assert minutes(workload, START + 120_000) == {"placing": 0.5, "starting": 0.5, "useful": 1}
    assert requested(workload, present_run(workload))["cpu"] == 500, "it was cut down to one pod"
    assert present_run(workload).flavor == "spot"


def test_money_and_resources_go_to_the_part_that_they_were_spent_on() -> None:
    lost = {"lost_ms": HOUR, "interrupted_at": 1, "stopped_at": START + 3 * HOUR} | PRICES
    moved = a_run(0, 0, 0, 0, 180, outcome="migrate", **lost)
    made = bill(ended(moved, a_run(1, 180, 180, 240, 300, usd_per_hour=2.0, capacity="spot")))

    assert {kind.value: part.usd for kind, part in made.parts.items()} == {
        "useful": pytest.approx(2.0 + 2.0), "failed": 0, "redone": pytest.approx(1.0),
        "starting": pytest.approx(2.0),
    }  # fmt: skip
    assert made.total.usd == pytest.approx(7.0)
    assert made.total.resources["cpu"] == 1_000 * 5 * HOUR
    assert made.total.resources["nvidia.com/gpu"] == 5 * HOUR
    assert made.saved_usd == pytest.approx(2.0 * 3)
    assert made.unknown_saving.ms == 2 * HOUR, "no price on demand of the second run"


def test_what_has_no_price_is_told_and_costs_nothing() -> None:
    made = bill(ended(a_run(0, 0, 0, 0, 60)))

    assert (made.total.usd, made.unpriced.ms, made.unpriced.resources["cpu"]) == (
        0, HOUR, 1_000 * HOUR,
    )  # fmt: skip


@st.composite
def histories(draw: st.DrawFn) -> Workload:
    """Records as true and as broken as they come: moments in any order, and missing."""
    moment = st.integers(-5, 100).map(lambda minute: START + minute * 60_000)
    maybe = st.one_of(st.just(0), moment)
    outcomes = st.sampled_from(["migrate", "preempt", "requeue", "fail", "cancel", "succeeded"])
    optional = {
        "stopped_at": maybe, "bound_at": maybe, "lost_ms": st.integers(0, 2 * HOUR),
        "usd_per_hour": st.floats(0, 100), "on_demand_usd_per_hour": st.floats(0, 100),
        "capacity": st.sampled_from(["spot", "on-demand"]), "interrupted_at": moment,
        "counts": st.fixed_dictionaries({"main": st.integers(1, 2)}),
    }  # fmt: skip
    run = st.fixed_dictionaries(
        {"admitted_at": moment, "started_at": maybe, "ended_at": moment, "outcome": outcomes},
        optional=optional,
    )
    runs = [Run(generation=n, **one) for n, one in enumerate(draw(st.lists(run, max_size=4)))]
    noted = {"bound_at": maybe, "usd_per_hour": st.floats(0, 9)}
    running = draw(st.booleans())
    return Workload(
        "w", "w", "team", "team/q", State.DISPATCHED if running else State.FINISHED,
        generation=len(runs), created_at=START, runs=tuple(runs), pod_sets=PODS,
        admitted_at=draw(maybe), started_at=draw(maybe), finished_at=0 if running else draw(moment),
        machine=MachineShare(**draw(st.fixed_dictionaries({}, optional=noted))),
        options=options_of(
            {"checkpoint": {"mode": draw(st.sampled_from(["none", "application"]))}}
        ),
        result=JobResult(succeeded=draw(st.booleans())),
    )  # fmt: skip


@given(workload=histories(), cuts=st.lists(st.integers(-10, 130), min_size=1, max_size=3))
def test_stretches_leave_no_gap_and_windows_add_up_to_the_whole(
    workload: Workload, cuts: list[int]
) -> None:
    now = START + 120 * 60_000
    found = usage_intervals(workload, now)
    end = max(workload.finished_at or now, workload.created_at)

    assert sum(each.ms for each in found) == end - workload.created_at
    assert all(a.end == b.begin for a, b in itertools.pairwise(found))

    whole, split = Bill(), Bill()
    edges = [0, *sorted(START + cut * 60_000 for cut in cuts), 2 * START]
    for each in found:
        if not each.run:
            continue
        whole.add(each, workload)
        for since, until in itertools.pairwise(edges):
            if (part := each.within(since, until)).ms:
                split.add(part, workload)
    assert (whole.parts, whole.unpriced, whole.saved) == (split.parts, split.unpriced, split.saved)


@given(workload=histories())
def test_the_parts_of_a_bill_are_the_time_that_runs_had_machines(workload: Workload) -> None:
    found = [each for each in usage_intervals(workload, START + 120 * 60_000) if each.run]
    made = bill(workload, START + 120 * 60_000)
    runs = [each.run for each in found if each.run is not None]
    prices = [round((run.usd_per_hour or 0.0) * 10**9) for run in runs]
    cores = [requested(workload, run)["cpu"] for run in runs]

    assert made.total.ms == sum(each.ms for each in found)
    assert made.total.money == sum(p * each.ms for p, each in zip(prices, found, strict=True))
    assert made.total.resources.get("cpu", 0) == sum(
        n * each.ms for n, each in zip(cores, found, strict=True)
    )
    assert made.unpriced.ms == sum(
        each.ms for each in found if each.run and each.run.usd_per_hour is None
    )
    assert IntervalKind.WAITING not in {each.kind for each in found}


@pytest.mark.parametrize(
    ("kind", "saved_after", "told"),
    [
        (IntentKind.PREEMPT, 40, {"lost_ms": 20 * 60_000}),
        (IntentKind.PREEMPT, -10, {}),
        (IntentKind.CANCEL, 40, {}),
    ],
)
def test_who_gives_way_and_comes_back_loses_what_it_did_since_its_checkpoint(
    kind: IntentKind, saved_after: int, told: dict[str, int]
) -> None:
    minute = 60_000
    assigned = tuple(PodSetAssignment(s.name, s.count, {"cpu": "spot"}) for s in PODS)
    stopped = Workload(
        "w", "w", "team", "team/q", State.RECLAIMING, created_at=START, pod_sets=PODS,
        admitted_at=START, started_at=START + minute, gone=True, intent=Intent(kind, "why"),
        checkpoint_at=START + (1 + saved_after) * minute, resume_from="s3://kept",
        reservation=Reservation(0, "cq", "c", START, assigned),
    )  # fmt: skip

    back = after(release(stopped, START + 61 * minute))
    (run,) = back.runs

    assert run.lost_ms == told.get("lost_ms")
    if told:
        assert minutes(back, START + 70 * minute) == {
            "placing": 1, "useful": 40, "redone": 20, "waiting": 9,
        }  # fmt: skip
