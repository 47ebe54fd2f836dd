"""A budget is one more resource: committed with the quota, settled with it, durable in between."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.job_assessment import assess_job
from sluice.core.config.budget import HOUR_MS
from sluice.core.config.pods_ready import PodsReadyRules
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.lifecycle.transitions import claim, finish, reclaim
from sluice.ports import CatalogEdit
from sluice.usecases.fleet import beat
from sluice.usecases.steering.own_objects import flaws_of

from tests.unit.usecases.plane import Plane, a_workload
from tests.unit.usecases.test_clusters import asked, flavor, machine
from tests.unit.usecases.world import CLUSTER, ROOT, queue

DOLLAR = 1_000_000


def budget(**spec: Any) -> dict[str, Any]:
    wanted = {"clusterQueue": "a", "limitUSD": 1, "window": "24h", **spec}
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "Budget",
        "metadata": {"name": "monthly"},
        "spec": {key: value for key, value in wanted.items() if value is not None},
    }


def a_plane(usd_per_cpu_hour: str | None = "0.5", **spec: Any) -> Plane:
    """Ten cores at half a dollar each, for one dollar a day."""
    plane = Plane()
    stated = {"sluice.dev/usd-per-cpu-hour": usd_per_cpu_hour} if usd_per_cpu_hour else {}
    put = (
        ("ResourceFlavor", "spot", flavor("spot", **stated)),
        ("ClusterQueue", "a", queue("a", 10)),
        ("Budget", "monthly", budget(**spec)),
    )
    assert plane.catalog.edit(CatalogEdit(1, put, roots=(ROOT,)))
    return plane


def submit(plane: Plane, *names: str, **fields: Any) -> None:
    for number, name in enumerate(names):
        plane.put(a_workload(name, created_at=plane.clock.now() + number, **fields))
    plane.admit()(ROOT)


def running(plane: Plane) -> list[str]:
    return sorted(w.id for w in plane.workloads.rows.values() if w.state is not State.PENDING)


def spent(plane: Plane) -> int:
    (windows,) = plane.ledgers.read(ROOT).spent.values() or ({},)
    return sum(windows.values())


def why(plane: Plane, workload_id: str) -> tuple[str, str]:
    refusals = json.loads(zlib.decompress(plane.ledgers.newest_pass(ROOT)["refusals"]))
    return refusals[workload_id][0], refusals[workload_id][1]


def test_the_expected_cost_is_committed_with_the_quota_until_the_limit_is_reached() -> None:
    plane = a_plane()

    submit(plane, "a", "b", "c")

    assert running(plane) == ["a", "b"], "an hour each is assumed, at half a dollar"
    assert spent(plane) == DOLLAR
    code, message = why(plane, "c")
    assert code == "QUOTA:BudgetExhausted"
    assert message.startswith(
        "expected to cost $0.50, budget monthly has spent or committed $1.00 of $1.00 in this "
        "window, which ends at 2027-01-16T00:00:00Z"
    )


def test_what_ended_sooner_gives_the_rest_back_for_others() -> None:
    plane = a_plane()
    submit(plane, "a", "b", "c")
    for name in "ab":
        plane.clock.pass_ms(HOUR_MS // 4)
        started = plane.record(name)
        assert plane.workloads.apply([claim(started, f"u-{name}", plane.clock.now())]) == [True]
        ended = finish(plane.record(name), JobResult(succeeded=True), plane.clock.now())
        assert plane.workloads.apply([ended]) == [True]

    plane.admit()(ROOT)

    assert plane.record("c").state is State.ADMITTED
    assert spent(plane) == (125_000 + 250_000) + 500_000
    assert plane.record("a").charges == ()


def test_a_longer_run_than_was_assumed_counts_as_it_runs() -> None:
    plane = a_plane(limitUSD=2)
    submit(plane, "a")
    plane.clock.pass_ms(4 * HOUR_MS)

    submit(plane, "b")

    assert plane.record("b").state is State.PENDING
    assert "$2.00 of $2.00" in why(plane, "b")[1]


def test_the_longest_run_that_the_workload_states_is_what_it_is_expected_to_cost() -> None:
    plane = a_plane()
    half_an_hour = {"deadlines": {"max_runtime_seconds": 1800}}

    submit(plane, "a", "b", "c", "d", "e", options=half_an_hour)

    assert running(plane) == ["a", "b", "c", "d"]


def test_the_next_window_begins_with_nothing_spent() -> None:
    plane = a_plane()
    submit(plane, "a", "b", "c")
    plane.clock.pass_ms(24 * HOUR_MS)

    plane.admit()(ROOT)

    assert plane.record("c").state is State.ADMITTED


def test_a_stopped_run_is_charged_for_its_time_and_charged_again_when_it_returns() -> None:
    plane = a_plane()
    submit(plane, "a")
    plane.clock.pass_ms(HOUR_MS // 2)
    preempted = reclaim(plane.record("a"), Intent(IntentKind.REQUEUE, "X"))
    assert plane.workloads.apply([preempted]) == [True]
    plane.workloads.write(replace(plane.record("a"), gone=True))

    plane.admit()(ROOT)
    assert spent(plane) == 250_000
    plane.admit()(ROOT)

    assert plane.record("a").state is State.ADMITTED
    assert spent(plane) == 250_000 + 500_000


def test_a_budget_of_a_local_queue_leaves_its_neighbours_alone() -> None:
    plane = a_plane(clusterQueue=None, localQueue="team/research")

    submit(plane, "a", "b", "c")
    submit(plane, "x", "y", "z", queue="team/other")

    assert running(plane) == ["a", "b", "x", "y", "z"]


def test_without_a_price_nothing_is_admitted_and_the_reason_says_what_to_state() -> None:
    plane = a_plane(None)

    submit(plane, "a")

    assert plane.record("a").state is State.PENDING
    code, message = asked(plane, "a")
    assert code == "MISCONFIGURATION:PriceUnknown"
    assert "state it as annotation sluice.dev/usd-per-cpu-hour" in message

    inventory = [InventoryRow("i-1", seen_at=plane.clock.now(), **machine(0.4))]
    plane.nodes.put_many(CLUSTER, inventory)
    plane.clock.pass_ms(60_001)
    plane.admit()(ROOT)
    assert plane.record("a").charges[0].microusd == 100_000, "a quarter of the machine"


def test_a_lost_race_charges_nobody() -> None:
    plane = a_plane()
    submit(plane, "a")
    before = plane.ledgers.read(ROOT)
    beat(plane.nodes, CLUSTER, plane.clock.now())

    plane.admit()(ROOT)

    assert plane.ledgers.read(ROOT) == before


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({"limitUSD": 0}, "spec.limitUSD"),
        ({"window": "1m"}, "spec.window"),
        ({"window": None}, "spec.window"),
        ({"localQueue": "team/x"}, "spec.clusterQueue"),
        ({"clusterQueue": None, "localQueue": "x"}, "spec.localQueue"),
        ({"assumedRuntime": "0s"}, "spec.assumedRuntime"),
        ({"start": "yesterday"}, "spec.start"),
        ({"limit": 5}, "spec.limit"),
    ],
)
def test_a_budget_that_means_nothing_is_refused(spec: dict[str, Any], field: str) -> None:
    assert [flaw.field for flaw in flaws_of("Budget monthly", budget(**spec))] == [field]


def a_limited_run(plane: Plane, cents: int) -> None:
    """`a` costs half a dollar an hour, holds its quota, and was dispatched."""
    submit(plane, "a", options={"max_cost_cents": cents})
    claimed = claim(plane.record("a"), "u-a", plane.clock.now())
    assert plane.workloads.apply([claimed]) == [True]


def judged(plane: Plane) -> list[Intent]:
    workload = plane.record("a")
    job = {"kind": "Job", "metadata": {"uid": workload.uid}, "spec": {}}
    seen = ClusterState(jobs={("a", workload.generation): job})
    changes = assess_job(workload, seen, plane.clock.now(), PodsReadyRules(1 << 40))
    return [change.set["intent"] for change in changes]


def without_a_budget() -> Plane:
    plane = a_plane()
    gone = (("Budget", "monthly"),)
    edit = CatalogEdit(plane.catalog.snapshot().version, remove=gone, roots=(ROOT,))
    assert plane.catalog.edit(edit)
    return plane


def test_a_workload_that_has_cost_as_much_as_it_may_is_stopped_and_has_failed() -> None:
    plane = without_a_budget()
    a_limited_run(plane, cents=100)

    plane.clock.pass_ms(2 * HOUR_MS - 1000)
    assert judged(plane) == []
    plane.clock.pass_ms(1000)

    (intent,) = judged(plane)
    assert (intent.kind, intent.reason) == (IntentKind.FAIL, "QUOTA:CostLimit")
    assert intent.message == "it has cost $1.00 of at most $1.00 (budget.maxCostUSD)"
    assert plane.workloads.apply([reclaim(plane.record("a"), intent)]) == [True]
    plane.workloads.write(replace(plane.record("a"), gone=True))
    plane.admit()(ROOT)
    ended = plane.record("a")
    assert (ended.state, ended.result.reason) == (State.FINISHED, "QUOTA:CostLimit")


def test_what_earlier_runs_have_cost_counts_too_and_the_time_between_them_does_not() -> None:
    plane = without_a_budget()
    a_limited_run(plane, cents=100)
    plane.clock.pass_ms(HOUR_MS)
    preempted = reclaim(plane.record("a"), Intent(IntentKind.REQUEUE, "X"))
    assert plane.workloads.apply([preempted]) == [True]
    plane.workloads.write(replace(plane.record("a"), gone=True))
    plane.admit()(ROOT)
    plane.clock.pass_ms(5 * HOUR_MS)

    plane.admit()(ROOT)
    again = claim(plane.record("a"), "u-b", plane.clock.now())
    assert plane.workloads.apply([again]) == [True]

    assert plane.record("a").runs[0].microusd == DOLLAR // 2
    plane.clock.pass_ms(HOUR_MS - 1000)
    assert judged(plane) == []
    plane.clock.pass_ms(1000)
    assert [intent.kind for intent in judged(plane)] == [IntentKind.FAIL]


def test_its_own_budget_leaves_the_accounts_of_queues_as_they_are() -> None:
    plane = a_plane()

    submit(plane, "a", options={"max_cost_cents": 1})

    assert plane.record("a").state is State.ADMITTED
    assert {c.budget: c.microusd for c in plane.record("a").charges} == {
        "": 0,
        "monthly": DOLLAR // 2,
    }
    assert spent(plane) == DOLLAR // 2


def test_who_limits_its_cost_waits_until_a_price_is_known() -> None:
    plane = Plane()

    submit(plane, "a", options={"max_cost_cents": 100})

    assert asked(plane, "a")[0] == "MISCONFIGURATION:PriceUnknown"
