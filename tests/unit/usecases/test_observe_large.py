"""An observer of a large cluster reads and writes what changed, and goes on where it stopped."""

from __future__ import annotations

import itertools
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.clusters.judged_fields import judged_fields
from sluice.core.clusters.watchlist import WALK_MS, Watchlist
from sluice.core.lifecycle.record import State
from sluice.errors import ClusterError
from sluice.usecases.running.cluster_events import SELECTOR
from sluice.usecases.running.observe import CHECK_MS

from tests.bench.generated_cluster import (
    CLUSTER,
    STARTED_MS,
    CountedNodes,
    GeneratedAPI,
    GeneratedTable,
    id_of,
    job,
    pod,
    record,
)
from tests.fakes import FakeKubernetes
from tests.memory_control_plane import MemoryControlPlane
from tests.unit.usecases.plane import NAMESPACE, Plane

JOBS, NODES = 1_200, 40
MINUTE = 60_000


def a_large_cluster() -> tuple[Any, GeneratedAPI, GeneratedTable, CountedNodes]:
    api, table, nodes = GeneratedAPI(JOBS, NODES), GeneratedTable(JOBS), CountedNodes()
    plane: Any = MemoryControlPlane()
    plane.clock.time = STARTED_MS + 600_000
    plane.workloads, plane.nodes = table.workloads(), nodes
    return plane, api, table, nodes


def test_what_runs_undisturbed_is_read_again_once_in_five_minutes() -> None:
    plane, api, table, _ = a_large_cluster()
    observe = plane.observe_use_case(clusters=api)
    view = observe.reconcile(CLUSTER, api.cluster())
    assert len(view.watchlist.settled) == JOBS
    before = table.calls["BatchGetItem"], table.units["read"]

    for _ in range(WALK_MS // CHECK_MS):
        plane.clock.pass_ms(CHECK_MS)
        observe.check(CLUSTER, api.cluster(), view)

    index = -(-JOBS * 100 // 8192) * WALK_MS // CHECK_MS
    read = table.units["read"] - before[1] - index
    assert JOBS <= read <= 1.1 * JOBS
    assert len(view.watchlist.settled) == JOBS


def test_rows_of_machines_are_written_when_they_change() -> None:
    plane, api, _, nodes = a_large_cluster()
    observe = plane.observe_use_case(clusters=api)
    view = observe.reconcile(CLUSTER, api.cluster())
    assert nodes.units["write"] == NODES + 3  # counted, totals, heartbeat
    nodes.units.clear()

    for _ in range(6):
        plane.clock.pass_ms(CHECK_MS)
        observe.check(CLUSTER, api.cluster(), view)

    assert nodes.units["write"] == 0
    plane.clock.pass_ms(CHECK_MS)
    observe.check(CLUSTER, api.cluster(), view)
    assert nodes.units["write"] == 1, "that all of them were counted"


def test_a_machine_that_is_gone_is_so_at_the_next_count_and_its_row_expires() -> None:
    plane, api, _, nodes = a_large_cluster()
    observe = plane.observe_use_case(clusters=api)
    view = observe.reconcile(CLUSTER, api.cluster())
    api.nodes -= 1
    plane.clock.pass_ms(CHECK_MS)

    observe.check(CLUSTER, api.cluster(), view)

    row = nodes.rows[CLUSTER][f"i-{NODES - 1:017d}"]
    assert not row.present
    assert row.seen_at == STARTED_MS + 600_000
    assert row.expires > plane.clock.now() // 1000
    assert [group.count for group in nodes.sums[CLUSTER].groups] == [NODES - 1]


@dataclass
class Watched(FakeKubernetes):
    """Its watches last until the run is over; the events of each run are given beforehand."""

    lists: int = 0
    versions: list[str] = field(default_factory=list)
    told: list[tuple[str, Any]] = field(default_factory=list)
    gone: bool = False
    over: threading.Event = field(default_factory=threading.Event)
    clock: Any = None
    until: int = 0

    def list(self, kind: str, **options: Any) -> Any:
        self.lists += kind == "Job" and options["selector"] == SELECTOR
        return super().list(kind, **options)[0], "17"

    def watch(
        self, kind: str, *, selector: str, version: str, **_: Any
    ) -> Iterator[tuple[str, Any]]:
        if kind != "Job" or selector != SELECTOR:
            self.over.wait(10)
            return
        self.versions.append(version)
        if self.gone and len(self.versions) > 1:
            self.gone = False
            raise ClusterError("too old resource version", 410)
        yield from self.told
        self.clock.time = self.until
        self.over.set()

    def cluster(self, name: str) -> Watched:
        assert name
        return self


def a_watched_plane() -> tuple[Plane, Watched, Any]:
    plane = Plane()
    plane.dispatched()
    cluster = Watched(
        objects=plane.kubernetes.objects, numbers=itertools.count(100), clock=plane.clock
    )
    return plane, cluster, plane.observe(cluster)


def run(plane: Plane, cluster: Watched, observe: Any) -> None:
    cluster.until = plane.clock.now() + MINUTE
    cluster.over.clear()
    observe("batch-1", owner="me", until=cluster.until)


def bookmark(version: str) -> tuple[str, Any]:
    return "BOOKMARK", {"metadata": {"resourceVersion": version}}


def test_the_next_run_goes_on_from_the_last_event_without_listing_again() -> None:
    plane, cluster, observe = a_watched_plane()
    cluster.told = [bookmark("42")]
    run(plane, cluster, observe)
    lists = cluster.lists
    plane.kubernetes.finish(NAMESPACE, "w-w1-g0")
    cluster.told = [("MODIFIED", plane.kubernetes.objects["Job", NAMESPACE, "w-w1-g0"])]

    run(plane, cluster, observe)

    assert cluster.versions == ["17", "42"]
    assert cluster.lists == lists
    assert plane.record().state is State.FINISHED


def test_a_version_that_the_api_server_has_forgotten_is_listed_again_in_the_same_run() -> None:
    plane, cluster, observe = a_watched_plane()
    run(plane, cluster, observe)
    plane.kubernetes.finish(NAMESPACE, "w-w1-g0")
    lists, cluster.gone = cluster.lists, True

    run(plane, cluster, observe)

    assert cluster.lists > lists
    assert plane.record().state is State.FINISHED
    assert observe.problems.take() == []


def test_a_job_that_vanished_unseen_is_found_by_its_turn() -> None:
    plane = Plane()
    started = plane.dispatched()
    plane.workloads.rows["w1"] = replace(started, started_at=plane.clock.now())
    observe = plane.observe()
    view = observe.reconcile("batch-1", plane.kubernetes)
    for key in [key for key in plane.kubernetes.objects if key[0] in ("Job", "Pod")]:
        # As if the events had been lost on their way to the record.
        view.state.update(key[0], "DELETED", plane.kubernetes.objects.pop(key))

    plane.clock.pass_ms(CHECK_MS)
    observe.check("batch-1", plane.kubernetes, view)

    assert plane.record().state is State.RECLAIMING


def test_judged_fields_leave_a_fifth_and_change_nothing_when_applied_again() -> None:
    for kind, whole in (("Pod", pod(7, 5)), ("Job", job(7))):
        kept = judged_fields(kind, whole)

        assert judged_fields(kind, kept) == kept
        assert len(repr(kept)) < len(repr(whole)) / 3
        assert kept["metadata"]["labels"]["sluice.dev/workload"] == id_of(7)


def test_ended_jobs_are_forgotten_but_for_where_they_lie() -> None:
    state = ClusterState()
    state.update("Job", "ADDED", judged_fields("Job", job(1)))
    state.update("Pod", "ADDED", judged_fields("Pod", pod(1, 1)))
    key = (id_of(1), 0)

    state.forget(key)

    assert (len(state.jobs), state.pods, state.requested, state.placed) == (0, {}, {}, {})
    assert state.update("Job", "MODIFIED", judged_fields("Job", job(1))) is None
    assert state.ended[key].name == f"w-{id_of(1)}-g0"
    state.update("Job", "DELETED", judged_fields("Job", job(1)))
    assert not state.ended


@pytest.mark.parametrize("fields", [{"started_at": 0}, {"state": State.RECLAIMING}, {"uid": "x"}])
def test_what_time_can_change_stays_open(fields: dict[str, Any]) -> None:
    state, watchlist = ClusterState(), Watchlist()
    state.update("Job", "ADDED", judged_fields("Job", job(1)))
    workload = replace(record(1), **fields)

    watchlist.note([workload.id], [workload], CLUSTER, state, {})

    assert list(watchlist.open) == [workload.id]
    assert not watchlist.settled
