"""What tenants see of the fleet: the pools and machines that their queues may use."""

from __future__ import annotations

from typing import Any

from sluice.core.clusters.capacity import PoolPlan
from sluice.core.clusters.quarantine import Ban, Cause, Offering
from sluice.core.lifecycle.inventory_row import InventoryRow

from tests.unit.api.control_plane import ADMIN, RED, ControlPlane


def a_plane() -> ControlPlane:
    plane = ControlPlane()
    now = plane.clock.now()
    plans = [PoolPlan("own", ("spot",), ("spot",)), PoolPlan("theirs", ("h100",), ("on-demand",))]
    plane.pools.put("batch-1", plans)
    rows = [
        InventoryRow(f"i-{pool}", pool, nodepool=pool, capacity_type=kind,
                     ready=True, price=0.5, seen_at=now)
        for pool, kind in (("own", "spot"), ("theirs", "on-demand"))
    ]  # fmt: skip
    plane.nodes.put_many("batch-1", rows)
    return plane


def pools(answer: Any) -> list[str]:
    return [item["nodepool"] for item in answer[1]["items"]]


def test_a_tenant_sees_the_pools_of_its_flavors_and_an_administrator_all() -> None:
    plane = a_plane()

    assert pools(plane.call("GET", "/capacity", RED)) == ["own"]
    assert pools(plane.call("GET", "/capacity", ADMIN)) == ["own", "theirs"]


def test_a_tenants_status_counts_the_machines_that_it_may_use() -> None:
    plane = a_plane()

    own = plane.call("GET", "/status", RED)[1]["machines"]
    whole = plane.call("GET", "/status", ADMIN)[1]["machines"]

    assert (own["nodes"], own["usdPerHour"]) == (1, 0.5)
    assert (whole["nodes"], whole["usdPerHour"]) == (2, 1.0)


def test_a_tenant_does_not_see_what_is_barred_in_pools_of_others() -> None:
    plane = a_plane()
    until = plane.clock.now() + 60_000
    for pool in ("own", "theirs"):
        offering = Offering("m5.large", "us-east-1a", "spot", pool)
        plane.offerings.ban("batch-1", Ban(offering, Cause.LOST, until - 1, until))

    barred = plane.call("GET", "/capacity", RED)[1]["quarantine"]

    assert [each["nodepool"] for each in barred] == ["own"]
