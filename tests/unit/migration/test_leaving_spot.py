"""After too many lost spot machines a workload is not moved, but admitted anew elsewhere."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.accounting.recovery import interruptions, recovery
from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.fallback import RECLAIMS, reclaims
from sluice.core.intake.replacement import PLACEHOLDER
from sluice.core.lifecycle.options import RecoveryPolicy
from sluice.core.lifecycle.record import State
from sluice.ports import CatalogEdit
from sluice.usecases.migrations.placeholders import REQUEUED_MS

from tests.unit.migration.town import Town
from tests.unit.usecases.world import CLUSTER, ROOT, queue

ONCE = RecoveryPolicy(on_demand_after=1)


def with_on_demand(town: Town, cores: int = 40) -> None:
    """Queue `a` gets on-demand machines as its second flavor; the pools say which is which."""
    flavor: dict[str, Any] = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "on-demand"},
        "spec": {"nodeLabels": {"karpenter.sh/nodepool": "on-demand"}},
    }
    changed = queue("a", 40)
    (group,) = changed["spec"]["resourceGroups"]
    (spot,) = group["flavors"]
    quota = [{"name": "cpu", "nominalQuota": str(cores)}]
    group["flavors"] = [spot, {"name": "on-demand", "resources": quota}]
    put = (("ResourceFlavor", "on-demand", flavor), ("ClusterQueue", "a", changed))
    version = town.catalog.snapshot().version
    assert town.catalog.edit(CatalogEdit(version, put, roots=(ROOT,)))
    kinds = ("spot", "on-demand")
    town.pools.put(CLUSTER, [PoolPlan(kind, (kind,), (kind,)) for kind in kinds])


def test_the_last_bearable_loss_ends_on_an_on_demand_machine(town: Town) -> None:
    with_on_demand(town)
    node = town.runs("w")
    town.clock.pass_ms(60_000)

    for number in range(1, RECLAIMS + 1):
        town.hear(town.notice(node))
        kind = "on-demand" if number == RECLAIMS else "spot"
        assert ordered(town) == [{"karpenter.sh/nodepool": kind}], "at once, and of its next kind"
        town.kubernetes.provide()
        town.obey("w")  # the source stops as soon as the replacement is there
        if number == RECLAIMS:
            break
        assert town.row("w").generation == number
        assert flavor_of(town) == "spot"
        town.observe()
        (pod,) = town.kubernetes.list("Pod", selector="sluice.dev/workload=w")[0]
        node = pod["spec"]["nodeName"]

    leaving = town.row("w")
    assert (leaving.state, leaving.gone, leaving.steady) == (State.RECLAIMING, True, True)
    for _ in range(3):
        town.observe()
        assert ordered(town), "its machine is kept until it may use it"
        town.admit()
    town.check()

    assert town.row("w").state is State.ADMITTED
    assert town.row("w").generation == RECLAIMS
    assert flavor_of(town) == "on-demand"

    town.obey("w")
    town.kubernetes.provide()
    town.observe()
    assert ordered(town) == []
    row = town.row("w")
    assert row.runs[-1].outcome == "requeue"
    assert interruptions(row) == reclaims(row) == RECLAIMS
    told = recovery(row)
    assert (told.moves, told.untold) == (RECLAIMS, RECLAIMS)
    assert told.standstill_ms >= row.started_at - row.runs[-1].stopped_at
    lines = [line["what"] for line in town.timeline.of("w")]
    assert lines.count("Resumed") == RECLAIMS


def ordered(town: Town) -> list[dict[str, str]]:
    """What kind of node each placeholder orders."""
    found, _ = town.kubernetes.list("Pod", selector=PLACEHOLDER)
    return [pod["spec"]["nodeSelector"] for pod in found]


def test_no_machine_is_bought_for_who_has_to_wait_for_quota(town: Town) -> None:
    with_on_demand(town, cores=0)
    node = town.runs("w")
    row = replace(town.row("w"), options=replace(town.row("w").options, recovery=ONCE))
    town.workloads.write(row)

    town.hear(town.notice(node))
    town.kubernetes.provide()
    town.obey("w")

    assert ordered(town) == []
    assert town.row("w").state is State.RECLAIMING
    assert town.kubernetes.running() == ["w"], "it works as long as it may"


@pytest.mark.parametrize("later_ms", [REQUEUED_MS - 20_000, REQUEUED_MS])
def test_a_machine_that_its_owner_does_not_get_is_given_back(town: Town, later_ms: int) -> None:
    with_on_demand(town)
    node = town.runs("w")
    row = replace(town.row("w"), options=replace(town.row("w").options, recovery=ONCE))
    town.workloads.write(row)
    town.hear(town.notice(node))
    town.kubernetes.provide()
    town.obey("w")
    town.admit()  # gives its spot quota back
    waiting = replace(town.row("w"), state=State.PENDING, reservation=None, held=True)
    town.workloads.write(waiting)

    town.clock.pass_ms(later_ms)
    town.observe()

    assert bool(ordered(town)) is (later_ms < REQUEUED_MS)


def flavor_of(town: Town) -> str:
    reservation = town.row("w").reservation
    assert reservation is not None
    return reservation.pod_sets[0].flavors["cpu"]
