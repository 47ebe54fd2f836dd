"""The scheduling policy in force: `admit` shares, yields and waits as the applied objects say."""

from __future__ import annotations

import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle.record import Intent, IntentKind, PodSet, State, Workload
from sluice.core.lifecycle.run import Run
from sluice.core.lifecycle.transitions import claim, gone, reclaim, saved
from sluice.core.passes.recording import decide as replayed
from sluice.core.passes.recording import differences, plain_plan, read_recording, snapshot_digest
from sluice.ports import CatalogEdit

from tests.fakes import MemoryRecordings
from tests.unit.usecases.plane import Plane, a_workload
from tests.unit.usecases.world import ROOT, queue

RECLAIM = {"reclaimWithinCohort": "Any", "withinClusterQueue": "LowerPriority"}


def policy(**spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "sluice.dev/v1",
        "kind": "SchedulingPolicy",
        "metadata": {"name": "default"},
        "spec": spec,
    }


def local_queue(name: str, cq: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": name, "namespace": "team"},
        "spec": {"clusterQueue": cq, **spec},
    }


def a_plane(*queues: dict[str, Any], **spec: Any) -> Plane:
    """These queues, each with a LocalQueue of its own name, under a policy."""
    plane = Plane()
    names = [q["metadata"]["name"] for q in queues]
    edit(plane, queue("a", 0), *queues, *(local_queue(name, name) for name in names))
    edit(plane, policy(**spec))
    return plane


def edit(plane: Plane, *documents: dict[str, Any]) -> None:
    put = []
    for document in documents:
        kind, name = document["kind"], document["metadata"]["name"]
        put.append((kind, f"team/{name}" if kind == "LocalQueue" else name, document))
    version = plane.catalog.snapshot().version
    assert plane.catalog.edit(CatalogEdit(version, tuple(put), roots=(ROOT,)))


def backlog(plane: Plane, cq: str, count: int, **fields: Any) -> None:
    """So many workloads of one core wait in a queue."""
    for _ in range(count):
        plane.clock.pass_ms(1)
        name = f"{cq}{len(plane.workloads.rows):03d}"
        fields.setdefault("queue", f"team/{cq}")
        plane.put(a_workload(name, cq=cq, created_at=plane.clock.now(), **fields))


def holders(plane: Plane, cq: str) -> list[Workload]:
    return [w for w in plane.workloads.rows.values() if w.reservation and w.reservation.cq == cq]


def held(plane: Plane, *queues: str) -> tuple[int, ...]:
    return tuple(len(holders(plane, cq)) for cq in queues)


def refusal(plane: Plane, workload: str) -> list[Any]:
    """Code, message and position of the newest pass."""
    packed = plane.ledgers.newest_pass(ROOT)["refusals"]
    found: list[Any] = json.loads(zlib.decompress(packed))[workload]
    return found


def stop_yielding(plane: Plane, most: int = 1000) -> int:
    """The pods of those who yield are proven gone; how many there were."""
    leaving = [w for w in plane.workloads.rows.values() if w.state is State.RECLAIMING]
    changes = [gone(w) for w in leaving[:most] if not w.gone]
    assert all(plane.workloads.apply(changes))
    return len(changes)


def pool(*weights: tuple[str, str], size: int = 8) -> list[dict[str, Any]]:
    """Queues without quota of their own that borrow all from one that nobody uses."""
    weighted = [
        queue(name, 0, fairSharing={"weight": weight}, preemption=RECLAIM)
        for name, weight in weights
    ]
    return [*weighted, queue("pool", size)]


def test_shares_of_a_pool_follow_the_weights() -> None:
    plane = a_plane(*pool(("x", "3"), ("y", "1")), fairSharing={})
    backlog(plane, "y", 20)
    backlog(plane, "x", 20)

    plane.admit()(ROOT)

    assert held(plane, "x", "y") == (6, 2)


def test_without_a_policy_queues_take_turns_whatever_their_weights() -> None:
    plane = a_plane(*pool(("x", "3"), ("y", "1")))
    backlog(plane, "y", 20)
    backlog(plane, "x", 20)

    plane.admit()(ROOT)

    assert held(plane, "x", "y") == (4, 4)


def test_a_latecomer_gets_its_weighted_share_by_preemption_and_then_there_is_peace() -> None:
    plane = a_plane(*pool(("x", "3"), ("y", "1")), fairSharing={})
    backlog(plane, "y", 20)
    plane.admit()(ROOT)
    assert held(plane, "x", "y") == (0, 8)

    backlog(plane, "x", 20)
    preempted = 0
    for _ in range(20):
        plane.clock.pass_ms(1000)
        preempted += plane.admit()(ROOT).preempted
        stop_yielding(plane, most=1)  # they take their time
    assert held(plane, "x", "y") == (6, 2)
    assert preempted == 6

    # Jobs come and go; the shares stay, and nobody is evicted any more.
    for turn in range(20):
        cq = "xy"[turn % 2]
        plane.workloads.write(replace(holders(plane, cq)[0], state=State.FINISHED))
        plane.clock.pass_ms(1000)
        assert plane.admit()(ROOT).preempted == 0
        assert held(plane, "x", "y") == (6, 2)


def big(cores: int) -> dict[str, Any]:
    return {"pod_sets": (PodSet("main", 1, {"cpu": cores * 1000}),)}


def test_what_others_stop_for_is_kept_from_newcomers_while_they_stop() -> None:
    plane = a_plane(*pool(("x", "1"), ("y", "1"), ("z", "1"), size=4), fairSharing={})
    backlog(plane, "y", 4)
    plane.admit()(ROOT)
    backlog(plane, "x", 1, **big(2))
    assert plane.admit()(ROOT).preempted == 2

    backlog(plane, "z", 1)  # its share would be smaller than that of x
    assert stop_yielding(plane, most=1) == 1
    plane.admit()(ROOT)
    assert held(plane, "x", "y", "z") == (0, 3, 0)
    assert refusal(plane, "x004")[0] == "PRIORITY:WaitingForPreempted"

    assert stop_yielding(plane) >= 1
    plane.admit()(ROOT)
    assert len(holders(plane, "x")) == 1
    assert sum(w.state is State.RECLAIMING for w in holders(plane, "y")) <= 1


def test_one_for_whom_others_stop_is_looked_at_however_many_line_up_before_it() -> None:
    plane = a_plane(queue("x", 2, preemption=RECLAIM))
    backlog(plane, "x", 2, priority=1)
    plane.admit()(ROOT)
    backlog(plane, "x", 1, priority=5, **big(2))
    assert plane.admit()(ROOT).preempted == 2
    plane.workloads.write(replace(plane.record("x002"), created_at=plane.clock.now() + 10**6))
    backlog(plane, "x", 30, priority=5, **big(1))

    stop_yielding(plane)
    replace(plane.admit(), heads=10)(ROOT)

    assert [w.id for w in holders(plane, "x")] == ["x002"]


def test_a_place_is_not_kept_before_one_that_could_evict_it_at_once() -> None:
    plane = a_plane(queue("x", 2, preemption=RECLAIM))
    backlog(plane, "x", 1, priority=1, **big(2))
    plane.admit()(ROOT)
    backlog(plane, "x", 1, priority=5, **big(2))
    assert plane.admit()(ROOT).preempted == 1
    backlog(plane, "x", 1, priority=9, **big(2))

    stop_yielding(plane)
    plane.admit()(ROOT)

    assert [w.id for w in holders(plane, "x")] == ["x002"]


def test_who_yielded_lately_does_not_evict_in_turn() -> None:
    plane = a_plane(queue("x", 1, preemption={"withinClusterQueue": "LowerOrNewerEqualPriority"}))
    backlog(plane, "x", 2)
    plane.admit()(ROOT)
    older, newer = plane.record("x000"), plane.record("x001")
    accounts = (Run(outcome="preempt", by=newer.id, ended_at=plane.clock.now()),)
    plane.workloads.write(replace(newer, state=State.ADMITTED, reservation=older.reservation,
                                  cluster=older.cluster))  # fmt: skip
    waiting = replace(older, state=State.PENDING, reservation=None, cluster="", runs=accounts)
    plane.workloads.write(waiting)

    assert plane.admit()(ROOT).preempted == 0
    plane.clock.pass_ms(10 * 60_000)
    assert plane.admit()(ROOT).preempted == 1


def test_a_drained_queue_is_emptied_even_if_nobody_waits() -> None:
    plane = a_plane(queue("x", 2))
    backlog(plane, "x", 2)
    plane.admit()(ROOT)

    edit(plane, local_queue("x", "x", stopPolicy="HoldAndDrain"))
    outcome = plane.admit()(ROOT)

    assert outcome.preempted == 2
    assert {w.state for w in holders(plane, "x")} == {State.RECLAIMING}


def test_who_was_preempted_goes_on_from_the_newest_checkpoint_and_not_from_where_it_began() -> None:
    plane = a_plane(queue("x", 1, preemption=RECLAIM))
    backlog(plane, "x", 1, restore_from="s3://kept/0", resume_from="s3://kept/0")
    plane.admit()(ROOT)
    assert plane.workloads.apply([claim(plane.record("x000"), "uid", plane.clock.now())])
    running = plane.record("x000")
    assert plane.workloads.apply([saved(running, plane.clock.now(), "s3://kept/1")]) == [True]
    assert plane.record("x000").restore_from == "s3://kept/0", "what the present run began with"

    backlog(plane, "x", 1, priority=5)
    plane.admit()(ROOT)
    stop_yielding(plane)
    plane.admit()(ROOT)

    assert plane.record("x000").generation == 1
    assert plane.record("x000").restore_from == "s3://kept/1"


def test_quota_that_moves_with_a_migration_is_not_taken_for_quota_that_comes_back() -> None:
    plane = a_plane(queue("x", 1, preemption=RECLAIM))
    backlog(plane, "x", 1)
    plane.admit()(ROOT)
    (mover,) = holders(plane, "x")
    moving = Intent(IntentKind.MIGRATE, "RECOVERY:WaitingForReplacement")
    assert plane.workloads.apply([reclaim(mover, moving)]) == [True]
    backlog(plane, "x", 1, priority=5)

    outcome = plane.admit()(ROOT)

    assert (outcome.admitted, outcome.preempted) == (0, 0)
    assert refusal(plane, "x001")[0] == "QUOTA:CohortExhausted"


BY_USAGE = {"admissionScope": {"admissionMode": "UsageBasedAdmissionFairSharing"}}
PAST: dict[str, Any] = {
    "admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "5m"}
}
HOUR = 3_600_000


def two_teams(**spec: Any) -> Plane:
    """ClusterQueue x with two cores, and LocalQueues u and v that lead there."""
    plane = a_plane(queue("x", 2, **BY_USAGE), **spec)
    edit(plane, local_queue("u", "x"), local_queue("v", "x"))
    return plane


def finish(plane: Plane, *names: str) -> None:
    for name in names:
        plane.workloads.write(replace(plane.record(name), state=State.FINISHED))


def running(plane: Plane) -> list[str]:
    return [w.queue for w in holders(plane, "x")]


def test_who_used_less_goes_first_from_one_pass_to_the_next() -> None:
    plane = two_teams(**PAST)
    backlog(plane, "x", 2, queue="team/u")
    plane.admit()(ROOT)
    plane.clock.pass_ms(HOUR)
    backlog(plane, "x", 4, queue="team/u")
    backlog(plane, "x", 4, queue="team/v")

    finish(plane, *(w.id for w in holders(plane, "x")))
    plane.admit()(ROOT)

    # One half-life at two cores is an average of one core for u.
    assert running(plane) == ["team/v", "team/v"]
    past = plane.ledgers.read(ROOT).past
    assert past is not None
    assert past["team/u"].consumed["cpu"] == pytest.approx(1000, rel=1e-4)
    assert past["team/u"].in_use == {}
    assert past["team/v"].in_use == {"cpu": 2000}


def test_long_ago_counts_less_and_less_until_it_is_forgotten() -> None:
    plane = two_teams(**PAST)
    backlog(plane, "x", 1, queue="team/u")
    plane.admit()(ROOT)
    plane.clock.pass_ms(HOUR)
    finish(plane, "x000")
    plane.admit()(ROOT)
    first = plane.ledgers.read(ROOT).past

    plane.clock.pass_ms(100 * HOUR)
    backlog(plane, "x", 1, queue="team/v")
    plane.admit()(ROOT)

    assert first is not None
    assert set(first) == {"team/u"}
    assert set(plane.ledgers.read(ROOT).past or ()) == {"team/v"}


def test_admissions_of_the_pass_before_count_by_their_penalty_at_once() -> None:
    plane = two_teams(**PAST)
    backlog(plane, "x", 2, queue="team/u")
    backlog(plane, "x", 1, queue="team/v")
    edit(plane, queue("x", 1, **BY_USAGE))
    plane.admit()(ROOT)
    assert running(plane) == ["team/u"]

    edit(plane, queue("x", 2, **BY_USAGE))
    plane.admit()(ROOT)

    assert running(plane) == ["team/u", "team/v"]


def test_counting_begins_with_those_who_run_when_the_policy_is_applied() -> None:
    plane = two_teams()
    backlog(plane, "x", 1, queue="team/u")
    plane.admit()(ROOT)
    assert plane.ledgers.read(ROOT).past is None

    edit(plane, policy(**PAST))
    backlog(plane, "x", 1, queue="team/v")
    plane.admit()(ROOT)
    past = plane.ledgers.read(ROOT).past
    assert past is not None
    assert past["team/u"].in_use == {"cpu": 1000}

    edit(plane, policy())
    finish(plane, "x000")
    plane.admit()(ROOT)
    assert plane.ledgers.read(ROOT).past is None


def test_a_team_behind_a_deep_backlog_of_another_is_seen() -> None:
    plane = two_teams(**PAST)
    backlog(plane, "x", 2, queue="team/u")
    plane.admit()(ROOT)
    plane.clock.pass_ms(HOUR)
    backlog(plane, "x", 30, queue="team/u")
    backlog(plane, "x", 1, queue="team/v")

    finish(plane, "x000", "x001")
    replace(plane.admit(), heads=10)(ROOT)

    assert sorted(running(plane)) == ["team/u", "team/v"]


def test_waiting_long_enough_overtakes_priority_even_from_behind_a_deep_backlog() -> None:
    plane = a_plane(queue("x", 1), aging={"interval": "10m"})
    backlog(plane, "x", 1, priority=0)
    plane.clock.pass_ms(101 * 600_000)
    backlog(plane, "x", 30, priority=100)

    replace(plane.admit(), heads=10)(ROOT)

    assert [w.id for w in holders(plane, "x")] == ["x000"]


def test_without_aging_priority_always_goes_first() -> None:
    plane = a_plane(queue("x", 1))
    backlog(plane, "x", 1, priority=0)
    plane.clock.pass_ms(101 * 600_000)
    backlog(plane, "x", 1, priority=100)

    plane.admit()(ROOT)

    assert [w.id for w in holders(plane, "x")] == ["x001"]


def test_who_waited_longer_than_its_deadline_is_cancelled_and_says_why() -> None:
    plane = a_plane(queue("x", 1))
    backlog(plane, "x", 1)
    plane.admit()(ROOT)
    backlog(plane, "x", 1, options={"deadlines": {"max_pending_seconds": 60}})
    plane.clock.pass_ms(60_000)
    plane.admit()(ROOT)
    assert plane.record("x001").state is State.PENDING

    plane.clock.pass_ms(1)
    finish(plane, "x000")
    plane.admit()(ROOT)

    late = plane.record("x001")
    assert (late.state, late.reason.code) == (
        State.CANCELLED,
        "MISCONFIGURATION:DeadlinePassed",
    )
    assert plane.ledgers.read(ROOT).usage == {}
    batches = list(plane.ledgers.batches(ROOT))
    assert batches[-1]["expired"] == [["x001", 0, "x", {}]]


def test_after_a_run_the_time_to_wait_begins_again() -> None:
    plane = a_plane(queue("x", 1))
    backlog(plane, "x", 1, options={"deadlines": {"max_pending_seconds": 60}})
    plane.clock.pass_ms(600_000)
    runs = (Run(outcome="requeue", ended_at=plane.clock.now() - 60_000),)
    plane.workloads.write(replace(plane.record("x000"), generation=1, runs=runs))

    assert plane.admit()(ROOT).admitted == 1


def test_caps_count_who_runs_already() -> None:
    caps = {"sluice.dev/max-running-per-user": "1"}
    capped = queue("x", 9)
    capped["metadata"]["annotations"] = caps
    plane = a_plane(capped)
    team = local_queue("x", "x")
    team["metadata"]["annotations"] = {"sluice.dev/max-running": "2"}
    edit(plane, team)
    backlog(plane, "x", 1, submitted_by="ann")
    plane.admit()(ROOT)

    backlog(plane, "x", 2, submitted_by="ann")
    backlog(plane, "x", 1, submitted_by="bob")
    backlog(plane, "x", 1, submitted_by="cid")
    plane.admit()(ROOT)

    assert [w.submitted_by for w in holders(plane, "x")] == ["ann", "bob"]
    assert refusal(plane, "x001")[0] == "QUOTA:UserCap"
    assert refusal(plane, "x004")[0] == "QUOTA:ConcurrencyCap"


def test_nobody_is_preempted_before_the_minimum_run_time_of_the_policy_or_its_own() -> None:
    plane = a_plane(queue("x", 2, preemption=RECLAIM), minRuntime="5m")
    backlog(plane, "x", 1)
    backlog(plane, "x", 1, options={"min_runtime_ms": 600_000})
    plane.admit()(ROOT)
    backlog(plane, "x", 2, priority=5)

    assert plane.admit()(ROOT).preempted == 0
    plane.clock.pass_ms(300_000)
    assert plane.admit()(ROOT).preempted == 1
    plane.clock.pass_ms(300_000)
    assert plane.admit()(ROOT).preempted == 1


def test_what_a_deciding_pass_saw_is_recorded_and_named_in_its_audit() -> None:
    plane = a_plane(queue("x", 200, preemption=RECLAIM), fairSharing={}, **PAST)
    backlog(plane, "x", 150)
    kept = MemoryRecordings()

    outcome = replace(plane.admit(), recordings=kept, heads=200)(ROOT)

    assert (outcome.admitted, outcome.unrecorded) == (150, 0)
    ((root, version), text), *others = kept.texts.items()
    assert (root, others) == (ROOT, [])
    batches = list(plane.ledgers.batches(ROOT))
    assert {batch["pass"]["version"] for batch in batches} == {version} == {batches[0]["version"]}
    recording = read_recording(json.loads(text))
    assert recording.plan["admitted"][0]["step"] == batches[0]["admitted"][0]
    assert snapshot_digest(recording.snapshot) == batches[0]["pass"]["digest"]
    assert list(differences(recording.plan, plain_plan(replayed(recording.snapshot)))) == []


def test_a_pass_that_only_releases_or_a_policy_that_says_so_leaves_no_recording() -> None:
    plane = a_plane(queue("x", 1))
    kept = MemoryRecordings()
    admit = replace(plane.admit(), recordings=kept)
    backlog(plane, "x", 1)
    admit(ROOT)
    assert len(kept.texts) == 1

    finish(plane, "x000")
    admit(ROOT)
    edit(plane, policy(recordPasses=False))
    backlog(plane, "x", 1)
    assert admit(ROOT).admitted == 1

    assert len(kept.texts) == 1
    assert "pass" not in list(plane.ledgers.batches(ROOT))[-1]


def test_what_cannot_be_recorded_is_decided_all_the_same() -> None:
    class Full:
        def put(self, root: str, version: int, text: str) -> None:
            raise OSError(f"no room for {root} {version} {len(text)}")

        def get(self, root: str, version: int) -> str | None:
            raise NotImplementedError(root, version)

    plane = a_plane(queue("x", 1))
    backlog(plane, "x", 1)

    outcome = replace(plane.admit(), recordings=Full())(ROOT)

    assert (outcome.admitted, outcome.unrecorded) == (1, 1)
