"""NodePools follow the ledger, are closed where nothing can be bought, and keep what runs."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sluice.core.clusters.capacity import (
    MASS_RECOVERY,
    CapacityView,
    Pool,
    PoolPlan,
    closed_flavors,
    limit_for,
    pack,
    plan,
    read_pool,
    size,
)
from sluice.core.clusters.launches import lessons
from sluice.core.clusters.quarantine import Ban, Cause, Offering
from sluice.core.config.model import PodSetAssignment, ResourceFlavor
from sluice.core.lifecycle.record import Intent, IntentKind, PodSet, Reservation, State, Workload
from sluice.core.values.reasons import Reason

from tests.unit.capacity.builders import MINUTE, NAMED, NOW, a_claim, a_node_pool, a_refusal
from tests.unit.core.builders import a_queue, group, quota

FLAVORS = {
    name: ResourceFlavor(name, {"sluice.dev/flavor": name}) for name in ("spot", "on-demand")
}
POOL_BAN = Ban(Offering(pool="spot"), Cause.SOLD_OUT, NOW, NOW + 5 * MINUTE, message="no m5")


def a_holder(cpu: int, flavor: str = "spot", state: State = State.DISPATCHED) -> Workload:
    moving = Intent(IntentKind.MIGRATE, "x") if state is State.RECLAIMING else None
    assigned = (PodSetAssignment("main", 1, {"cpu": flavor}),)
    return Workload(
        f"w{cpu}",
        "w",
        "team",
        "team/q",
        state,
        cq="research",
        pod_sets=(PodSet("main", 1, {"cpu": cpu * 1000}),),
        reservation=Reservation(0, "research", "batch-1", NOW, assigned),
        intent=moving,
        dispatched_at=NOW,
    )


def sight(*pools: Pool, nominal: int = 64, **fields: Any) -> CapacityView:
    given: dict[str, Any] = {
        "flavors": FLAVORS,
        "queues": (a_queue("research", resource_groups=(group(spot=quota(nominal)),)),),
        "cohorts": (),
        "workloads": (),
        "waiting": (),
        "bans": (),
        "waiting_pods": 0,
        "now": NOW,
    }
    return CapacityView(pools=pools, **(given | fields))


def spot(**fields: Any) -> Pool:
    return read_pool(a_node_pool(**fields), [])


def the_plan(*pools: Pool, **fields: Any) -> PoolPlan:
    (made,) = plan(sight(*(pools or (spot(),)), **fields))
    return made


def test_a_pool_has_room_for_its_quota_and_no_more() -> None:
    small, large = the_plan(nominal=8), the_plan(nominal=64)

    assert small.limit is not None
    assert large.limit is not None
    assert 8_000 <= small.limit < large.limit < 4 * 64_000
    assert (large.flavors, large.capacity_types) == (("spot",), ("spot",))


def test_a_pool_whose_flavor_has_no_quota_is_left_alone() -> None:
    made = the_plan(read_pool(a_node_pool("other"), []))

    assert (made.limit, made.weight, made.frozen) == (None, None, False)
    assert "spec" not in made.document()


def test_a_move_needs_both_places_at_once() -> None:
    staying = the_plan(workloads=[a_holder(32)])
    moving = the_plan(workloads=[a_holder(32, state=State.RECLAIMING)])

    assert (staying.demand, moving.demand) == (32_000, 64_000)


def a_waiting(cpu: int, cq: str = "research") -> Workload:
    return Workload(
        f"p{cpu}",
        "",
        "",
        "",
        State.PENDING,
        cq=cq,
        pod_sets=(PodSet("main", 1, {"cpu": cpu * 1000}),),
    )


def test_what_waits_counts_as_far_as_quota_can_admit_it() -> None:
    crowd = [a_waiting(300), a_waiting(301), a_waiting(302)]

    within = the_plan(nominal=600, waiting=crowd).limit
    beyond = the_plan(nominal=600, waiting=[*crowd, a_waiting(10_000)]).limit

    assert within is not None
    assert within > (the_plan(nominal=600).limit or 0), "it is made room for before its admission"
    assert within == beyond, "pending demand alone buys nothing"


def test_a_pool_that_is_sold_out_is_closed_at_what_runs_there() -> None:
    made = the_plan(spot(running=36), bans=[POOL_BAN], workloads=[a_holder(32)])

    assert made.limit == 36_000
    assert made.frozen, "nothing that cannot be bought again is taken away"
    assert made.closed is not None
    assert (made.closed.reason, made.closed.until, made.closed.room) == (
        Reason.INSUFFICIENT_INSTANCE,
        POOL_BAN.until,
        4_000,
    )
    assert "no m5" in made.closed.message
    assert the_plan(spot(running=36), bans=[POOL_BAN], now=POOL_BAN.until).closed is None


def test_machines_are_left_in_peace_while_many_recover() -> None:
    moving = [a_holder(n, state=State.RECLAIMING) for n in range(1, MASS_RECOVERY + 1)]

    assert the_plan(workloads=moving).frozen
    assert not the_plan(workloads=moving[1:]).frozen


def test_too_many_pods_without_nodes_stop_admission_and_not_the_buying() -> None:
    made = the_plan(waiting_pods=11, most_waiting_pods=10)

    assert made.closed is not None
    assert made.closed.reason is Reason.WAITING_FOR_NODE
    assert made.limit == the_plan().limit
    assert the_plan(waiting_pods=10, most_waiting_pods=10).closed is None


def test_a_flavor_is_shut_only_when_every_pool_that_serves_it_is() -> None:
    one, two = a_node_pool("one"), a_node_pool("two")
    for each in (one, two):
        each["spec"]["template"]["metadata"]["labels"] = {"sluice.dev/flavor": "spot"}
    pools = [read_pool(each, []) for each in (one, two)]
    bans = [Ban(Offering(pool=name), Cause.SOLD_OUT, NOW, NOW + 9) for name in ("one", "two")]

    assert closed_flavors(plan(sight(*pools, bans=bans[:1])), NOW) == {}
    assert list(closed_flavors(plan(sight(*pools, bans=bans)), NOW)) == ["spot"]
    assert closed_flavors(plan(sight(*pools, bans=bans)), NOW + 9) == {}


def test_the_cheaper_pool_of_a_flavor_is_tried_first() -> None:
    cheap, sure = a_node_pool("cheap", "spot"), a_node_pool("sure", "on-demand")
    for each in (cheap, sure):
        each["spec"]["template"]["metadata"]["labels"] = {"sluice.dev/flavor": "spot"}
    made = plan(sight(*(read_pool(each, []) for each in (cheap, sure))))

    assert [each.weight for each in made] == sorted(
        (each.weight for each in made if each.weight), reverse=True
    )
    assert the_plan().weight is None, "there is nothing to choose"


def owned(manager: str, operation: str, **spec: Any) -> dict[str, Any]:
    document = a_node_pool(**spec)
    fields = {"f:spec": {"f:limits": {"f:cpu": {}}}}
    document["metadata"]["managedFields"] = [
        {"manager": manager, "operation": operation, "fieldsV1": fields}
    ]
    return document


def test_a_limit_that_somebody_else_has_set_stays_theirs() -> None:
    pool = read_pool(owned("argocd", "Apply", limits={"cpu": "100"}), [])
    made = the_plan(pool)

    assert (made.limit, made.theirs) == (None, ("limits",))
    assert not made.differs(pool)


def test_what_is_as_planned_is_not_written_again() -> None:
    document = owned("sluice", "Apply", limits={"cpu": "1"})
    made = the_plan(read_pool(document, []))
    assert made.differs(read_pool(document, []))

    document["spec"]["limits"] = made.document()["spec"]["limits"]

    assert not made.differs(read_pool(document, []))


def test_a_cluster_that_manages_its_own_pools_gets_everything_back() -> None:
    pool = read_pool(owned("sluice", "Apply", limits={"cpu": "96"}), [])
    made = the_plan(pool, managed=False)

    assert made.differs(pool)
    assert "spec" not in made.document()
    assert not made.differs(spot()), "once given back, there is nothing to write"


def test_a_pool_that_is_not_ready_says_why() -> None:
    document = a_node_pool()
    document["status"]["conditions"] = [
        {"type": "Ready", "status": "False", "message": "NodeClass default not found"}
    ]
    made = the_plan(read_pool(document, []))

    assert made.closed is not None
    assert made.closed.reason is Reason.NODE_CLASS_NOT_READY
    assert "default not found" in made.closed.message


@pytest.mark.parametrize(
    ("labels", "serves"),
    [
        ({"sluice.dev/flavor": "spot"}, True),
        ({"sluice.dev/flavor": "on-demand"}, False),
        ({"karpenter.sh/nodepool": "spot"}, True),
        ({"karpenter.sh/capacity-type": "on-demand"}, False),
        ({"karpenter.k8s.aws/instance-family": "m5"}, True),
        ({"team": "blue"}, False),
        ({}, True),
    ],
)
def test_a_pool_serves_the_flavors_whose_labels_its_nodes_can_have(
    labels: dict[str, str], *, serves: bool
) -> None:
    assert spot().serves(labels) is serves


def test_size_is_that_of_the_scarcest_resource() -> None:
    assert size({"cpu": 4000, "memory": 2**30}) == 4000
    assert size({"cpu": 1000, "memory": 64 * 2**30}) == 8000
    assert size({"cpu": 1000, "nvidia.com/gpu": 2}) == 48_000


HOLDERS = st.lists(
    st.builds(a_holder, st.integers(1, 400), st.sampled_from(("spot", "on-demand"))), max_size=6
)


@given(
    running=st.integers(0, 500),
    nominal=st.integers(0, 2000),
    workloads=HOLDERS,
    sold_out=st.booleans(),
    waiting=st.lists(st.builds(a_waiting, st.integers(1, 500)), max_size=4),
)
def test_a_limit_is_never_below_what_runs_and_the_same_sight_gives_the_same_plan(
    running: int,
    nominal: int,
    workloads: list[Workload],
    *,
    sold_out: bool,
    waiting: list[Workload],
) -> None:
    fields: dict[str, Any] = {
        "nominal": nominal,
        "workloads": workloads,
        "waiting": waiting,
        "bans": [POOL_BAN] if sold_out else [],
    }
    made = the_plan(spot(running=running), **fields)

    assert made == the_plan(spot(running=running), **fields)
    if made.limit is not None:
        assert made.limit >= running * 1000
        assert sold_out or made.limit >= made.demand
        assert not sold_out or made.limit == running * 1000


@given(demand=st.integers(0, 10**7), more=st.integers(0, 10**6), running=st.integers(0, 10**7))
def test_more_demand_never_means_a_smaller_pool(demand: int, more: int, running: int) -> None:
    assert limit_for(demand, running) <= limit_for(demand + more, running)


# What refused purchases teach.


def learn(pool: dict[str, Any], *events: dict[str, Any], claims: Any = (), **known: Any) -> Any:
    return lessons([read_pool(pool, claims)], events, known.get("before", {}), NOW)


def test_a_refused_purchase_bars_the_pool_and_what_it_names() -> None:
    (offering, pool) = learn(
        a_node_pool(), a_refusal("spot", message=NAMED.format("m5.large", "us-east-1a"))
    )

    assert offering.offering == Offering("m5.large", "us-east-1a", "spot")
    assert (pool.offering, pool.cause) == (Offering(pool="spot"), Cause.SOLD_OUT)


def test_the_same_event_is_no_second_lesson_and_a_later_one_is() -> None:
    first = learn(a_node_pool(), a_refusal("spot"))
    before = {ban.offering: ban for ban in first}

    assert learn(a_node_pool(), a_refusal("spot"), before=before) == []
    (again,) = learn(a_node_pool(), a_refusal("spot", first[0].until + 1), before=before)
    assert again.strikes == 2


def test_a_pool_that_could_buy_since_then_is_open() -> None:
    claims = [a_claim("spot", "True", at=NOW + 1)]

    assert learn(a_node_pool(), a_refusal("spot"), claims=claims) == []


def test_claims_that_cannot_be_launched_bar_their_pool_by_the_kind_of_error() -> None:
    throttled = a_claim("spot", "Unknown", message="creating fleet, RequestLimitExceeded: no")
    fresh = a_claim("spot", "Unknown", message="object is awaiting reconciliation")

    (ban,) = learn(a_node_pool(), claims=[throttled])
    assert ban.cause is Cause.THROTTLED
    assert learn(a_node_pool(), claims=[fresh]) == []


def test_events_of_other_pools_are_left_alone() -> None:
    assert learn(a_node_pool(), a_refusal("spot-large"), a_refusal("else")) == []


@pytest.mark.parametrize(
    ("pods", "cpu", "rests", "left"),
    [
        (1, 120, [95, 95, 95, 95, 98], None),  # 478 CPUs in sum
        (1, 95, [95, 98], (98, 0)),
        (3, 40, [95, 50], (15, 10)),
        (3, 48, [95, 50], None),
        (1, 1, [], None),
    ],
)
def test_a_sum_of_small_rests_is_no_room(
    pods: int, cpu: int, rests: list[int], left: tuple[int, ...] | None
) -> None:
    workload = replace(a_waiting(cpu), pod_sets=(PodSet("main", pods, {"cpu": 1000 * cpu}),))

    found = pack(workload, [1000 * rest for rest in rests])

    assert found == (left and tuple(1000 * each for each in left))


def test_a_closed_pool_knows_the_rests_of_its_machines() -> None:
    made = the_plan(spot(running=300), bans=[POOL_BAN], free={"spot": [4_000, 95_000]})

    assert made.closed is not None
    assert made.closed.machines == made.closed.rests() == (95_000, 4_000)
    assert closed_flavors([made], NOW)["spot"].rests() == (95_000, 4_000)
    unknown = the_plan(spot(running=36), bans=[POOL_BAN], workloads=[a_holder(32)]).closed
    assert unknown is not None
    assert unknown.rests() == (4_000,), "a plan from before counts as one machine"
