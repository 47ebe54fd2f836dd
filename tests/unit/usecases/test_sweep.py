"""`sweep` kicks what events were lost for, and finds every ledger that lies."""

from __future__ import annotations

from dataclasses import replace

from sluice.core.lifecycle.record import State
from sluice.ports import LedgerState

from tests.fakes import MemoryWorkloads
from tests.unit.usecases.plane import Plane, a_workload, admitted
from tests.unit.usecases.world import CLUSTER, ROOT


def test_a_quiet_deployment_is_left_in_peace() -> None:
    plane = Plane()
    plane.put(admitted())

    swept = plane.sweep_use_case()()

    assert (swept.kicked, swept.drift) == ((), {})
    assert plane.kicks.roots == []


def test_a_root_with_pending_work_is_kicked() -> None:
    plane = Plane()
    plane.put(a_workload())

    assert plane.sweep_use_case()().kicked == (ROOT,)
    assert plane.kicks.roots == [ROOT]


def test_a_root_with_quota_to_release_is_kicked() -> None:
    plane = Plane()
    plane.put(admitted(state=State.FINISHED))

    swept = plane.sweep_use_case()()

    assert swept.kicked == (ROOT,)
    assert swept.drift == {}, "what waits for its release still holds its quota"


def test_held_work_is_not_kicked() -> None:
    plane = Plane()
    plane.put(a_workload(held=True))

    assert plane.sweep_use_case()().kicked == ()


def test_a_lost_kick_costs_one_sweep() -> None:
    plane = Plane()
    plane.put(a_workload())
    plane.sweep_use_case()()

    plane.admit()(plane.kicks.roots.pop())

    assert plane.record().state is State.ADMITTED


def test_quota_in_the_ledger_that_nobody_holds_is_drift() -> None:
    plane = Plane()
    plane.ledgers.ledgers[ROOT] = LedgerState(ROOT, 1, 0, {"a": {"spot|cpu": 500}})

    assert plane.sweep_use_case()().drift == {ROOT: {"a|spot|cpu": 500}}


def test_quota_that_is_held_without_the_ledger_is_drift() -> None:
    plane = Plane()
    plane.workloads.write(admitted())

    assert plane.sweep_use_case()().drift == {ROOT: {"a|spot|cpu": -1000}}


def test_a_reservation_in_another_queue_than_charged_is_drift_in_both() -> None:
    plane = Plane()
    workload = plane.put(admitted())
    assert workload.reservation is not None
    plane.workloads.write(replace(workload, reservation=replace(workload.reservation, cq="b")))

    assert plane.sweep_use_case()().drift == {ROOT: {"a|spot|cpu": 1000, "b|spot|cpu": -1000}}


def test_a_ledger_that_moved_meanwhile_is_not_judged() -> None:
    plane = Plane()
    plane.workloads.write(admitted())

    class Busy(MemoryWorkloads):
        """Somebody commits while the sweep reads the records."""

        def active(self, cluster: str, root: str | None = None) -> list[str]:
            before = plane.ledgers.read(ROOT)
            plane.ledgers.ledgers[ROOT] = replace(before, version=before.version + 1)
            return super().active(cluster, root)

    busy = Busy(plane.workloads.rows)
    swept = replace(plane.sweep_use_case(), workloads=busy)()

    assert busy.active(CLUSTER) == ["w1"]
    assert swept.drift == {}
