"""`sluice status`, `top` and `shares`: one screen, and the numbers that a pass goes by."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.run import Run

from tests.unit.api.control_plane import ADMIN, BLUE, COMPANY, RED, ControlPlane, native
from tests.unit.cli.terminal import Terminal

HOUR = 3_600_000
SPOT = {"usd_per_hour": 1.5, "capacity": "spot"}
POLICY = {
    "apiVersion": "sluice.dev/v1",
    "kind": "SchedulingPolicy",
    "metadata": {"name": "fair"},
    "spec": {"fairSharing": {}, "admissionFairSharing": {"usageHalfLifeTime": "1h"}},
}


def a_busy_morning() -> tuple[Terminal, list[str]]:
    """96 cores: 48 on spot, 16 on demand, 32 unpriced; one waits; one has ended, one has moved."""
    terminal = Terminal()
    plane = terminal.plane
    done = plane.send(native("done", 8))
    plane.run(done, **SPOT)
    plane.finish(done)
    plane.clock.pass_ms(HOUR)
    ids = [done]
    for name, cpu in (("a", 48), ("b", 16), ("c", 32), ("d", 32)):
        ids.append(plane.send(native(name, cpu)))
    plane.run(ids[1], **SPOT)
    plane.run(ids[2], usd_per_hour=2.0, capacity="on-demand")
    plane.run(ids[3])
    now = plane.clock.now()
    runs = [Run(outcome="migrate", ended_at=at, lost_ms=60_000) for at in (now - 30 * HOUR, now)]
    record = plane.workloads.rows[ids[1]]
    plane.workloads.rows[ids[1]] = replace(record, runs=tuple(runs), generation=2)
    plane.clock.pass_ms(120_000)
    return terminal, ids


def asked(terminal: Terminal, verb: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(terminal(verb, "-o", "json").stdout)
    return answer


def test_one_screen_tells_states_waits_money_and_recoveries() -> None:
    terminal, ids = a_busy_morning()

    found = asked(terminal, "status")

    assert found["states"] == {"PENDING": 1, "RUNNING": 3}
    assert found["ended24h"] == {"SUCCEEDED": 1}
    assert [(each["class"], each["count"]) for each in found["pending"]] == [("QUOTA", 1)]
    assert found["oldestPending"]["id"] == ids[4]
    assert found["oldestPending"]["seconds"] == pytest.approx(120)
    assert found["oldestPending"]["reason"]["code"] == found["pending"][0]["code"]
    assert found["workloads"] == {
        "count": 3,
        "usdPerHour": pytest.approx(3.5),
        "unpriced": 1,
        "spotShare": pytest.approx(48 / 64),
    }
    assert found["recoveries24h"] == {"count": 1, "lostWorkSeconds": 60.0, "lossesUntold": 0}


def test_people_read_it_as_lines() -> None:
    terminal, ids = a_busy_morning()

    text = terminal("status").stdout

    assert "1 PENDING · 3 RUNNING" in text
    assert f"{ids[4]} d for 2m: QUOTA:" in text
    assert "3 on clusters · $3.50/h · 75 % of their CPU on spot · 1 without a price" in text
    assert "1 in 24 h, 1m of work done again" in text


def test_machines_that_are_gone_are_not_counted() -> None:
    terminal = Terminal()
    now = terminal.plane.clock.now()
    row = InventoryRow(node="n", capacity_type="spot", ready=True, price=0.5)
    seen = {"i-1": now, "i-2": now - HOUR}
    rows = [replace(row, instance=name, seen_at=at) for name, at in seen.items()]
    unpriced = InventoryRow("i-3", "m", seen_at=now, capacity_type="on-demand")
    terminal.plane.nodes.put_many("batch-1", [*rows, unpriced])

    assert asked(terminal, "status")["machines"] == {
        "nodes": 2, "ready": 1, "spot": 1, "usdPerHour": 0.5, "unpriced": 1,
    }  # fmt: skip


def test_each_sees_the_state_of_its_own_namespaces() -> None:
    terminal, _ = a_busy_morning()
    terminal.signer = BLUE

    assert asked(terminal, "status")["states"] == {}
    assert "no workload waits or runs" in terminal("status").stdout


def test_top_looks_again_until_it_is_interrupted() -> None:
    terminal, _ = a_busy_morning()
    looked: list[int] = []

    def interrupt() -> None:
        looked.append(terminal.plane.clock.now())
        if len(looked) > 1:
            raise KeyboardInterrupt

    terminal.sleeping = interrupt
    result = terminal("top", "-w")

    assert result.exit_code != 0
    assert result.stdout.count("1 PENDING · 3 RUNNING") == 2
    assert looked[1] - looked[0] == 5_000


def fair() -> Terminal:
    """Red borrows 16 of blue's 32 cores and has used 80 for an hour of half-life."""
    terminal = Terminal(ControlPlane((*COMPANY, POLICY)))
    plane = terminal.plane
    plane.run(plane.send(native("big", 80)))
    plane.clock.pass_ms(HOUR)
    return terminal


def test_shares_are_those_that_a_pass_goes_by() -> None:
    terminal = fair()
    terminal.signer = ADMIN

    found = asked(terminal, "shares")
    nodes = {each["name"]: each for each in found["items"]}
    users = {each["name"]: each for each in found["localQueues"]}

    assert list(nodes) == ["company", "blue-cq", "red-cq"]
    assert nodes["red-cq"]["borrowed"] == {"cpu": "16"}
    assert (nodes["red-cq"]["share"], nodes["red-cq"]["resource"]) == (167, "cpu"), "16 of 96"
    assert (nodes["blue-cq"]["share"], nodes["blue-cq"]["parent"]) == (0, "company")
    assert users["red/batch"]["consumed"] == {"cpu": "40"}, "half of what it has used for an hour"
    assert users["red/batch"]["score"] == pytest.approx(40, rel=0.01)
    assert users["red/batch"]["inUse"] == {"cpu": "80"}
    assert users["blue/batch"]["score"] == 0


def test_a_tenant_sees_its_queues_and_the_cohorts_above_them() -> None:
    terminal = fair()
    terminal.signer = RED

    found = asked(terminal, "shares")
    text = terminal("shares").stdout

    assert [each["name"] for each in found["items"]] == ["company", "red-cq"]
    assert [each["name"] for each in found["localQueues"]] == ["red/batch"]
    assert "  red-cq" in text
    assert "cpu=16" in text


def test_shares_say_when_nothing_goes_by_them() -> None:
    result = Terminal()("shares")

    assert result.exit_code == 0
    assert "fair sharing is off" in result.stderr
    assert "past usage is not recorded" in result.stderr
