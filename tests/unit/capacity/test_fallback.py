"""From spot to on-demand: by the queue's order, by what is sold out, by what was lost, by wish."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.clusters.capacity import Closure
from sluice.core.clusters.fallback import (
    RECLAIMS,
    Market,
    choose,
    flavor_instead,
    kinds_of,
    reclaims,
)
from sluice.core.clusters.fleet import Site
from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import PodSetAssignment, ResourceFlavor
from sluice.core.config.policy import Policy
from sluice.core.lifecycle.record import PodSet, Reservation, State, Workload
from sluice.core.lifecycle.run import Run
from sluice.core.passes.admission_cycle import decide
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan
from sluice.core.values.reasons import Reason

from tests.records import options_of
from tests.unit.capacity.builders import NOW
from tests.unit.core.builders import a_queue, group, quota

QUEUE = replace(
    a_queue("research", 0), resource_groups=(group(spot=quota(64), on_demand=quota(32)),)
)
FLAVORS = [
    ResourceFlavor(name, {"karpenter.sh/capacity-type": name}) for name in ("spot", "on-demand")
]
KINDS = kinds_of({flavor.name: flavor for flavor in FLAVORS}, {})
SOLD_OUT = Closure(Reason.INSUFFICIENT_INSTANCE, "no m5 left", NOW + 60_000)
LOST = Run(outcome="migrate", why="spot")


def work(name: str = "w", cpu: int = 8, *, lost: int = 0, **options: Any) -> Workload:
    return Workload(
        name,
        name,
        "team",
        "team/research",
        State.PENDING,
        cq="research",
        pod_sets=(PodSet("main", 1, {"cpu": cpu * 1000}),),
        options=options_of(options),
        runs=(LOST,) * lost,
    )


def market(closed: Mapping[str, Mapping[str, Closure]] | None = None) -> Market:
    return Market({"batch-1": ()}, KINDS, closed or {})


def flavors_for(workload: Workload, closed: Any = None) -> tuple[str, ...] | None:
    return choose(workload, QUEUE, market(closed), {}).flavors


def cycle(*waiting: Workload, **fields: Any) -> CyclePlan:
    catalog = QueueCatalog(flavors=FLAVORS, cluster_queues=[QUEUE])
    known = fields.pop("market", market())
    sites = [Site(name, frozenset(KINDS)) for name in known.offers]
    gathered = CycleInput("research", {}, (), waiting, (), known, sites, NOW)
    return decide(catalog, gathered, Policy())


def where(made: CyclePlan) -> dict[str, str]:
    return {
        step.change.before.id: step.change.set["reservation"].pod_sets[0].flavors["cpu"]
        for step in made.admitted
    }


def test_without_trouble_the_queue_decides() -> None:
    assert flavors_for(work()) is None
    assert where(cycle(work())) == {"w": "spot"}


def test_a_sold_out_flavor_is_passed_over() -> None:
    made = cycle(work(), market=market({"batch-1": {"spot": SOLD_OUT}}))

    assert where(made) == {"w": "on-demand"}


def test_who_finds_everything_sold_out_waits_with_the_reason() -> None:
    closed = {"batch-1": {"spot": SOLD_OUT, "on-demand": SOLD_OUT}}
    made = cycle(work(), market=market(closed))

    assert made.admitted == ()
    assert made.refusals["w"].reason is Reason.INSUFFICIENT_INSTANCE
    assert "no m5 left" in made.refusals["w"].message


def test_machines_that_are_there_already_are_still_given_out_once() -> None:
    room = replace(SOLD_OUT, room=16_000)
    closed = {"batch-1": {"spot": room, "on-demand": SOLD_OUT}}

    made = cycle(*(work(name) for name in "abc"), market=market(closed))

    assert where(made) == {"a": "spot", "b": "spot"}
    assert made.refusals["c"].reason is Reason.INSUFFICIENT_INSTANCE


def test_another_cluster_that_can_buy_is_chosen() -> None:
    two = Market({"a": (), "b": ()}, KINDS, {"a": {"spot": SOLD_OUT}})

    (step,) = cycle(work(), market=two).admitted

    assert step.change.set["reservation"].cluster == "b"
    assert where(cycle(work(), market=two)) == {"w": "spot"}


def test_after_some_reclaims_on_demand_comes_first_and_spot_second() -> None:
    assert flavors_for(work(lost=RECLAIMS - 1)) is None
    assert flavors_for(work(lost=RECLAIMS)) == ("on-demand", "spot")
    assert where(cycle(work(lost=RECLAIMS))) == {"w": "on-demand"}
    assert where(cycle(work(cpu=40, lost=RECLAIMS))) == {"w": "spot"}, "on-demand has too little"


def test_a_workload_may_say_how_many_reclaims_it_bears() -> None:
    patient = work(lost=5, recovery={"on_demand_after": 9})

    assert flavors_for(patient) is None
    assert flavors_for(work(lost=1, recovery={"on_demand_after": 1})) == ("on-demand", "spot")


def held(lost: int, flavor: str = "spot", **options: Any) -> Workload:
    assigned = (PodSetAssignment("main", 1, {"cpu": flavor}),)
    reservation = Reservation(0, "research", "batch-1", NOW, assigned)
    return replace(work(lost=lost, **options), reservation=reservation)


@pytest.mark.parametrize(
    ("workload", "shut", "leaves"),
    [
        (held(RECLAIMS - 1), (), True),
        (held(RECLAIMS - 2), (), False),
        (held(RECLAIMS - 1, "on-demand"), (), False),
        (held(RECLAIMS - 1), ("on-demand",), False),
        (held(RECLAIMS - 1, capacity="spot"), (), False),
        (held(0, recovery={"on_demand_after": 1}), (), True),
    ],
)
def test_one_loss_too_many_sends_work_back_only_where_it_gains_by_that(
    workload: Workload, shut: tuple[str, ...], *, leaves: bool
) -> None:
    closed = {"batch-1": dict.fromkeys(shut, SOLD_OUT)}

    assert (flavor_instead(workload, QUEUE, market(closed)) == "on-demand") is leaves


def test_moves_that_users_asked_for_are_no_reclaims() -> None:
    wished = (Run(outcome="migrate", why="request"), Run(outcome="requeue"), LOST)

    assert reclaims(replace(work(), runs=wished)) == 1


@pytest.mark.parametrize("wish", ["spot", "on-demand"])
def test_the_capacity_that_was_asked_for_is_the_only_one_taken(wish: str) -> None:
    other = {"spot": "on-demand", "on-demand": "spot"}[wish]

    assert flavors_for(work(capacity=wish, lost=99)) == (wish,)
    gate = choose(work(capacity=wish), QUEUE, market({"batch-1": {wish: SOLD_OUT}}), {}).gate
    assert gate is not None
    assert gate.code == Reason.INSUFFICIENT_INSTANCE
    assert other not in gate.message


def test_a_queue_without_such_machines_says_so() -> None:
    spot_only = replace(QUEUE, resource_groups=(group(spot=quota(64)),))
    gate = choose(work(capacity="on-demand"), spot_only, market(), {}).gate

    assert gate is not None
    assert gate.code == Reason.NO_MATCHING_FLAVOR


def test_flavors_of_which_nothing_is_known_are_taken_at_their_word() -> None:
    assert choose(work(capacity="on-demand"), QUEUE, Market({"c": ()}), {}).flavors is None


HOUR = 3_600_000
RACE = {"deadlines": {"finish_within_seconds": 36_000, "expected_runtime_seconds": 14_400}}


@pytest.mark.parametrize(
    ("hours_passed", "tried"),
    [
        (0, ("spot",)),  # ahead: it waits for spot, whatever on-demand has
        (1, None),  # behind: the queue's own order
        (6, ("on-demand", "spot")),  # the last chance
    ],
)
def test_a_deadline_decides_what_is_tried(hours_passed: int, tried: tuple[str, ...] | None) -> None:
    racing = replace(work(checkpoint={"mode": "application"}, **RACE), created_at=NOW)
    then = replace(market(), now=NOW + hours_passed * HOUR)

    assert choose(racing, QUEUE, then, {}).flavors == tried


def test_who_is_ahead_of_its_deadline_waits_while_spot_is_sold_out() -> None:
    racing = replace(work(checkpoint={"mode": "application"}, **RACE), created_at=NOW)
    now = replace(market({"batch-1": {"spot": SOLD_OUT}}), now=NOW)

    gate = choose(racing, QUEUE, now, {}).gate

    assert gate is not None
    assert gate.code == Reason.INSUFFICIENT_INSTANCE


@given(
    lost=st.integers(0, 5),
    capacity=st.sampled_from(["", "spot", "on-demand"]),
    spot=st.booleans(),
    on_demand=st.booleans(),
)
def test_the_choice_is_deterministic_and_never_takes_what_is_shut(
    lost: int, capacity: str, *, spot: bool, on_demand: bool
) -> None:
    shut = {n: SOLD_OUT for n, closed in (("spot", spot), ("on-demand", on_demand)) if closed}
    workload = work(lost=lost, **({"capacity": capacity} if capacity else {}))

    choice = choose(workload, QUEUE, market({"batch-1": shut}), {})

    assert choice == choose(workload, QUEUE, market({"batch-1": shut}), {})
    taken = choice.flavors if choice.flavors is not None else ("spot", "on-demand")
    assert choice.gate is not None or (taken and not set(taken) & set(shut))
    assert not capacity or choice.gate is not None or taken == (capacity,)


def test_room_on_machines_that_are_there_is_counted_machine_by_machine() -> None:
    rests = replace(SOLD_OUT, room=16_000, machines=(7_000, 7_000, 2_000))
    closed = {"batch-1": {"spot": rests, "on-demand": SOLD_OUT}}

    made = cycle(work("a"), market=market(closed))

    assert made.admitted == (), "8 CPUs fit no machine, though 16 are free in sum"
    assert made.refusals["a"].reason is Reason.INSUFFICIENT_INSTANCE
