"""What workloads cost is what their pods had of the machines: the bill of a simulated market.

Every machine is paid for from its launch to its end. Of that, workloads pay the shares of their
pods, from the time when each is bound to the time when it ends; the rest is the time in which a
machine starts, and what of it is idle.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from random import Random
from typing import Any

import pytest
from sluice.core.accounting.costs import Bill
from sluice.core.accounting.machines import ended_share, pod_shares, running_share
from sluice.core.accounting.usage_intervals import usage_intervals
from sluice.core.config.model import PodSetAssignment
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.inventory_row import InventoryRow
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
from sluice.core.lifecycle.run import NO_MACHINE as NOTHING

START, SECOND, HOUR = 1_800_000_000_000, 1_000, 3_600_000
TYPES = {"small": (4, 0.2), "large": (64, 2.5), "huge": (192, 9.0)}


def stamp(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Machine:
    """`used`: CPUs, from when, to when."""

    name: str
    cpus: int
    price: float
    launched_at: int
    ready_at: int
    used: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def ended_at(self) -> int:
        return max(end for _, _, end in self.used) + 30 * SECOND

    def free(self, begin: int, end: int) -> int:
        return self.cpus - sum(n for n, b, e in self.used if b < end and begin < e)

    def row(self) -> InventoryRow:
        return InventoryRow(
            capacity_type="spot",
            price=self.price,
            on_demand_price=self.price * 3,
            allocatable={"cpu": str(self.cpus)},
        )


@dataclass
class Market:
    """Machines that are launched when nothing fits, each late in its own way."""

    dice: Random
    machines: list[Machine] = field(default_factory=list)

    def bind(self, cpus: int, asked_at: int, until: int) -> tuple[Machine, int]:
        """Where a pod runs, and from when."""
        for machine in self.machines:
            at = max(asked_at, machine.ready_at)
            alive = machine.launched_at <= asked_at < machine.ended_at
            if alive and at < until and machine.free(at, until) >= cpus:
                machine.used.append((cpus, at, until))
                return machine, at
        kind = self.dice.choice([k for k, (most, _) in TYPES.items() if most >= cpus])
        most, price = TYPES[kind]
        ready = asked_at + SECOND * self.dice.randint(20, 400)
        made = Machine(f"node-{len(self.machines)}", most, price, asked_at, ready)
        made.used.append((cpus, ready, max(until, ready)))
        self.machines.append(made)
        return made, ready

    @property
    def inventory(self) -> dict[str, InventoryRow]:
        return {machine.name: machine.row() for machine in self.machines}

    def bill(self) -> tuple[float, float, float]:
        """Dollars: of all machines, of their starting, of what nobody had of them."""
        total = sum(m.price * (m.ended_at - m.launched_at) for m in self.machines)
        starting = sum(m.price * (m.ready_at - m.launched_at) for m in self.machines)
        had = sum(
            m.price * n / m.cpus * (end - begin) for m in self.machines for n, begin, end in m.used
        )
        return total / HOUR, starting / HOUR, (total - starting - had) / HOUR


def pod(cpus: int, node: str, bound_at: int, ended_at: int = 0) -> dict[str, Any]:
    condition = {"type": "PodScheduled", "status": "True", "lastTransitionTime": stamp(bound_at)}
    status: dict[str, Any] = {"phase": "Running", "conditions": [condition]}
    if ended_at:
        status["phase"] = "Succeeded"
        ended = {"terminated": {"exitCode": 0, "finishedAt": stamp(ended_at)}}
        status["containerStatuses"] = [{"name": "main", "state": ended}]
    resources = {"requests": {"cpu": str(cpus)}}
    return {
        "spec": {"nodeName": node, "containers": [{"name": "main", "resources": resources}]},
        "status": status,
    }


class Life:
    """One workload: runs that end well, are preempted, or move."""

    def __init__(self, dice: Random, market: Market, number: int) -> None:
        self.dice, self.market = dice, market
        sets = [
            PodSet(f"s{n}", dice.randint(1, 3), {"cpu": 1000 * dice.choice([1, 2, 4, 48, 150])})
            for n in range(dice.randint(1, 3))
        ]
        self.now = START + SECOND * dice.randint(0, 7200)
        self.workload = Workload(
            f"w{number}", f"w{number}", "team", "team/q", State.PENDING, cq="cq",
            created_at=self.now, pod_sets=tuple(sets),
        )  # fmt: skip

    def live(self) -> Workload:
        for _ in range(self.dice.randint(0, 2)):
            self.run(self.dice.choice(["preempt", "migrate"]))
        self.run("finish")
        return self.workload

    def change(self, change: Any) -> None:
        self.workload = after(change)

    def run(self, end: str) -> None:
        if self.workload.state is State.PENDING:
            sets = self.workload.pod_sets
            assigned = tuple(PodSetAssignment(s.name, s.count, {"cpu": "spot"}) for s in sets)
            held = Reservation(self.workload.generation, "cq", "c", self.now, assigned)
            self.change(lifecycle.admit(self.workload, held, "root", self.now))
        self.change(lifecycle.claim(self.workload, f"u{self.now}", self.now))
        pods = [s.requests["cpu"] // 1000 for s in self.workload.pod_sets for _ in range(s.count)]
        until = self.now + SECOND * self.dice.randint(500, 4000)
        early = end == "finish"
        ends = [until - SECOND * self.dice.randint(0, 90 * early) for _ in pods]
        bound = [self.market.bind(n, self.now, e) for n, e in zip(pods, ends, strict=True)]
        started = max(at for _, at in bound)
        seen = [pod(n, m.name, at) for n, (m, at) in zip(pods, bound, strict=True)]
        shares = pod_shares(seen, self.market.inventory)
        noted = running_share(shares, self.workload.machine)
        self.change(lifecycle.noting(lifecycle.start(self.workload, started), noted))
        if end == "finish":
            over = [pod(n, m.name, at, e) for n, (m, at), e in zip(pods, bound, ends, strict=True)]
            shares = pod_shares(over, self.market.inventory)
            machine = ended_share(shares, self.workload.machine, len(pods), max(ends))
            done = lifecycle.finish(self.workload, JobResult(succeeded=True), max(ends), machine)
            self.change(done)
            return
        kind = IntentKind.PREEMPT if end == "preempt" else IntentKind.MIGRATE
        self.change(lifecycle.reclaim(self.workload, Intent(kind, "why")))
        self.change(lifecycle.gone(self.workload))
        self.now = until
        if end == "preempt":
            self.change(lifecycle.release(self.workload, until))
            self.now += SECOND * self.dice.randint(1, 600)
        else:
            self.change(lifecycle.migrate(self.workload, "s3://kept", until))


def cost(workload: Workload) -> float:
    bill = Bill()
    for interval in usage_intervals(workload, START + 100 * HOUR):
        bill.add(interval, workload)
    assert bill.unpriced.ms == 0
    return bill.total.usd


@pytest.mark.parametrize("seed", range(20))
def test_machines_cost_what_workloads_pay_and_what_starts_and_idles(seed: int) -> None:
    dice = Random(seed)
    market = Market(dice)
    lives = [Life(dice, market, number) for number in range(15)]
    paid = sum(cost(life.live()) for life in sorted(lives, key=lambda life: life.now))

    total, starting, idle = market.bill()

    assert idle > 0
    assert paid + starting + idle == pytest.approx(total, rel=1e-6)


def test_a_late_machine_costs_from_when_its_pod_is_there() -> None:
    """Three small pods run for an hour, and a large one for its last six minutes."""
    early, late = START, START + 54 * 60 * SECOND
    rows = {
        "small": Machine("small", 4, 0.2, 0, 0).row(),
        "huge": Machine("h", 150, 9.0, 0, 0).row(),
    }
    pods = [pod(1, "small", early), pod(1, "small", early), pod(1, "small", early)]
    share = running_share(pod_shares([*pods, pod(150, "huge", late)], rows), NOTHING)

    assert share.usd_per_hour == pytest.approx(9.15)
    hours = (START + HOUR - share.bound_at) / HOUR
    assert share.usd_per_hour * hours == pytest.approx(0.15 + 0.9, rel=1e-4)


def test_pods_that_follow_one_another_are_not_paid_for_together() -> None:
    """Ten pods of a minute, one after the other, on one machine; nobody saw them all ready."""
    rows = {"small": Machine("small", 4, 0.24, 0, 0).row()}
    minute = 60 * SECOND
    pods = [pod(4, "small", START + n * minute, START + (n + 1) * minute) for n in range(10)]

    share = ended_share(pod_shares(pods, rows), NOTHING, 1, START + 10 * minute)

    assert share.bound_at == START
    assert share.usd_per_hour == pytest.approx(0.24)


def test_what_was_noted_stands_where_a_pod_is_gone() -> None:
    rows = {"small": Machine("small", 4, 0.2, 0, 0).row()}
    noted = running_share(
        pod_shares([pod(1, "small", START), pod(2, "small", START)], rows), NOTHING
    )
    left = [pod(1, "small", START, START + HOUR)]

    assert ended_share(pod_shares(left, rows), noted, 2, START + HOUR) == noted
    assert ended_share(pod_shares(left, {}), noted, 1, START + HOUR) == noted
