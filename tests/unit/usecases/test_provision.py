"""What `provision` and `act` make of a cluster: plans, commands, limits, and work sent back."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.clusters.capacity import MANAGER
from sluice.core.clusters.fallback import PATIENCE_MS
from sluice.core.clusters.quarantine import Cause, Offering
from sluice.core.lifecycle.record import IntentKind, State
from sluice.core.values.reasons import Reason
from sluice.errors import ClusterError
from sluice.ports import CatalogEdit
from sluice.usecases.capacity.provision import Provisioned
from sluice.usecases.capacity.steer_pools import SteerPools

from tests.unit.capacity.builders import a_claim, a_node_pool, a_refusal
from tests.unit.usecases.plane import NAMESPACE, Plane, a_workload
from tests.unit.usecases.world import CLUSTER, ROOT


@pytest.fixture
def plane() -> Plane:
    """One pool for the flavor `spot`, as the configuration of Plane has it."""
    plane = Plane()
    plane.kubernetes.create(a_node_pool("spot"))
    return plane


def look(plane: Plane) -> Provisioned:
    return plane.provision()(CLUSTER)


def steer(plane: Plane) -> int:
    return SteerPools(plane.kubernetes, plane.pools)(CLUSTER)  # type: ignore[arg-type]


def pool(plane: Plane, name: str = "spot") -> dict[str, Any]:
    found = plane.kubernetes.get("NodePool", "", name)
    assert found is not None
    return found


def refuse(plane: Plane) -> None:
    """EC2 sells no spot machine: Karpenter deletes its NodeClaim and leaves an event."""
    plane.kubernetes.create(a_refusal("spot", plane.clock.now()))


def without_node(plane: Plane, workload: str = "w1") -> None:
    """The workload's pod finds no machine."""
    key = ("Pod", NAMESPACE, f"w-{workload}-g0-pod")
    pod = plane.kubernetes.objects[key]
    plane.kubernetes.objects[key] = {
        **pod,
        "spec": {name: each for name, each in pod["spec"].items() if name != "nodeName"},
        "status": {"phase": "Pending"},
    }


def test_a_plan_becomes_a_command_and_the_command_a_limit(plane: Plane) -> None:
    assert look(plane).changed == 1
    assert plane.commands.steered == [CLUSTER]

    assert steer(plane) == 1

    assert int(pool(plane)["spec"]["limits"]["cpu"]) >= 2
    assert pool(plane)["metadata"]["managedFields"][0]["manager"] == MANAGER
    assert look(plane).changed == 0, "what is as planned is not written again"
    assert plane.commands.steered == [CLUSTER]


def test_pools_without_our_label_are_neither_planned_nor_touched(plane: Plane) -> None:
    other = a_node_pool("other")
    other["metadata"]["labels"] = {}
    plane.kubernetes.create(other)

    look(plane)
    steer(plane)

    assert [each.pool for each in plane.pools.plans(CLUSTER)] == ["spot"]
    assert "limits" not in pool(plane, "other")["spec"]


def test_a_pool_that_is_gone_is_not_made_again(plane: Plane) -> None:
    look(plane)
    del plane.kubernetes.objects["NodePool", "", "spot"]

    assert steer(plane) == 0
    assert plane.kubernetes.get("NodePool", "", "spot") is None


def test_a_refused_purchase_closes_the_pool_for_a_while(plane: Plane) -> None:
    refuse(plane)

    done = look(plane)

    (ban,) = plane.offerings.banned(CLUSTER)
    assert (ban.offering, ban.cause) == (Offering(pool="spot"), Cause.SOLD_OUT)
    assert (done.closed, done.barred) == (("spot",), (ban,))
    (made,) = plane.pools.plans(CLUSTER)
    assert made.limit == 0
    assert look(plane).barred == (), "the same event teaches once"
    plane.clock.pass_ms(ban.until - plane.clock.now())
    assert look(plane).closed == ()


def test_work_that_waits_in_vain_goes_back_and_says_why(plane: Plane) -> None:
    plane.dispatched()
    without_node(plane)
    refuse(plane)

    assert look(plane).requeued == (), "it has waited for a moment only"
    plane.clock.pass_ms(PATIENCE_MS + 1)
    assert look(plane).requeued == ("w1",)

    workload = plane.record()
    assert workload.state is State.RECLAIMING
    assert workload.intent is not None
    assert workload.intent.kind is IntentKind.REQUEUE
    assert workload.intent.reason == Reason.INSUFFICIENT_INSTANCE
    assert look(plane).requeued == ()


@pytest.mark.parametrize(("requeues", "seconds"), [(0, 0), (1, 60), (2, 120), (9, 3600)])
def test_who_goes_back_again_and_again_waits_longer_each_time(
    plane: Plane, requeues: int, seconds: int
) -> None:
    workload = plane.dispatched()
    plane.workloads.rows["w1"] = replace(workload, requeues=requeues)
    without_node(plane)
    refuse(plane)
    look(plane)
    plane.clock.pass_ms(PATIENCE_MS + 1)

    look(plane)

    intent = plane.record().intent
    assert intent is not None
    assert intent.not_before == plane.clock.now() + 1_000 * seconds


@pytest.mark.parametrize("saved_by", ["a machine on its way", "a node", "its start"])
def test_nobody_is_sent_back_for_whom_there_is_hope(plane: Plane, saved_by: str) -> None:
    plane.dispatched()
    if saved_by == "a machine on its way":
        claim = a_claim("spot", "True", at=plane.clock.now() - 1)
        plane.kubernetes.create(claim)
    if saved_by != "a node":
        without_node(plane)
    if saved_by == "its start":
        plane.look()
    plane.clock.pass_ms(PATIENCE_MS + 1)
    refuse(plane)

    done = look(plane)

    assert done.closed == ("spot",)
    assert done.requeued == ()


def test_admission_waits_while_a_flavor_is_sold_out_and_goes_on_afterwards(plane: Plane) -> None:
    refuse(plane)
    look(plane)
    plane.put(a_workload())

    plane.admit()(ROOT)
    assert plane.record().state is State.PENDING
    told = json.loads(zlib.decompress(plane.ledgers.newest_pass(ROOT)["refusals"]))
    code, message, _ = told["w1"]
    assert code == Reason.INSUFFICIENT_INSTANCE
    assert "NodePool spot" in message

    plane.clock.pass_ms(10 * 60_000)
    look(plane)
    plane.admit()(ROOT)
    assert plane.record().state is State.ADMITTED


def test_a_cluster_may_take_its_pools_back(plane: Plane) -> None:
    look(plane)
    steer(plane)
    spec = {"spec": {"managePools": False}}
    version = plane.catalog.snapshot().version
    assert plane.catalog.edit(CatalogEdit(version, (("Cluster", CLUSTER, spec),)))

    assert look(plane).changed == 1
    steer(plane)

    assert "limits" not in pool(plane)["spec"]


def test_a_cluster_without_karpenter_has_nothing_to_plan(plane: Plane) -> None:
    class Bare:
        def cluster(self, name: str) -> Bare:
            assert name
            return self

        def list(self, kind: str, **_: Any) -> Any:
            raise ClusterError(f"no {kind} here", 404)

    assert plane.provision(Bare())(CLUSTER) == Provisioned(CLUSTER, without_karpenter=True)
