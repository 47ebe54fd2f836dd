"""After too many lost spot machines a workload is not moved, but admitted anew elsewhere."""

from __future__ import annotations

from typing import Any

from sluice.core.capacity import PoolPlan
from sluice.core.fallback import RECLAIMS, reclaims
from sluice.core.recovery import interruptions, recovery
from sluice.core.workload import State
from sluice.ports import CatalogEdit

from tests.unit.migration.town import Town
from tests.unit.usecases.world import CLUSTER, ROOT, queue


def with_on_demand(town: Town) -> None:
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
    group["flavors"] = [spot, {**spot, "name": "on-demand"}]
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
        town.kubernetes.provide()
        town.clock.pass_ms(120_000)
        town.obey("w")
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
        town.admit()
    town.check()

    assert town.row("w").state is State.ADMITTED
    assert town.row("w").generation == RECLAIMS
    assert flavor_of(town) == "on-demand"

    town.obey("w")
    town.kubernetes.provide()
    town.observe()
    row = town.row("w")
    assert row.runs[-1]["outcome"] == "requeue"
    assert interruptions(row) == reclaims(row) == RECLAIMS
    told = recovery(row)
    assert (told.moves, told.untold) == (RECLAIMS, RECLAIMS)
    assert told.standstill_ms >= row.started_at - row.runs[-1]["stopped_at"]
    lines = [line["what"] for line in town.timeline.of("w")]
    assert lines.count("Resumed") == RECLAIMS


def flavor_of(town: Town) -> str:
    reservation = town.row("w").reservation
    assert reservation is not None
    return reservation.pod_sets[0].flavors["cpu"]
