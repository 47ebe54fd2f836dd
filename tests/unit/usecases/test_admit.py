"""`admit` is the only writer of ledgers: it loses races politely and writes down what it did."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, State
from sluice.errors import KeptConflicting
from sluice.ports import CatalogEdit, Commit, Committed, LedgerState
from sluice.usecases.admitting.admit import ATTEMPTS

from tests.fakes import MemoryLedgers, RejectingLedgers
from tests.unit.usecases.plane import Plane, a_workload, admitted
from tests.unit.usecases.world import ROOT, queue

ONE_CORE = {"spot|cpu": 1000}


def test_quota_is_given_in_order_until_it_is_used_up() -> None:
    plane = Plane()
    for number, name in enumerate(("late", "b", "a")):
        plane.put(a_workload(name, created_at=10 - number))

    outcome = plane.admit()(ROOT)

    assert (outcome.admitted, outcome.waiting, outcome.conflicts) == (2, 1, 0)
    states = {name: record.state for name, record in plane.workloads.rows.items()}
    assert states == {"a": State.ADMITTED, "b": State.ADMITTED, "late": State.PENDING}
    assert plane.ledgers.read(ROOT).usage == {"a": {"spot|cpu": 2000}}


def test_nobody_starts_whom_the_same_cycle_would_stop_again() -> None:
    plane = Plane()
    owner = queue("a", 2, preemption={"reclaimWithinCohort": "Any"})
    put = (("ClusterQueue", "a", owner), ("ClusterQueue", "guest", queue("guest", 0)))
    assert plane.catalog.edit(CatalogEdit(1, put, roots=(ROOT,)))
    for name, cq in (("first", "a"), ("second", "a"), ("lent", "guest")):
        plane.put(a_workload(name, cq=cq))

    outcome = plane.admit()(ROOT)

    assert (outcome.admitted, outcome.preempted) == (2, 0)
    states = {name: record.state for name, record in plane.workloads.rows.items()}
    wanted = {"first": State.ADMITTED, "second": State.ADMITTED, "lent": State.PENDING}
    assert states == wanted
    assert plane.ledgers.read(ROOT).usage == {"a": {"spot|cpu": 2000}}


def test_an_admission_is_written_into_the_audit() -> None:
    plane = Plane()
    plane.put(a_workload("x"))

    plane.admit()(ROOT)

    (batch,) = plane.ledgers.batches(ROOT)
    assert batch["version"] == 1
    assert batch["at"] == plane.clock.now()
    assert batch["admitted"] == [["x", 0, "a", ONE_CORE]]
    assert "released" not in batch


def test_a_release_is_written_into_the_audit_and_makes_room_in_the_same_pass() -> None:
    plane = Plane()
    plane.put(admitted("x", state=State.FINISHED))
    plane.put(admitted("y"))
    plane.put(a_workload("z"))

    outcome = plane.admit()(ROOT)

    assert (outcome.released, outcome.admitted) == (1, 1)
    (batch,) = plane.ledgers.batches(ROOT)
    assert batch["released"] == [["x", 0, "a", {"spot|cpu": -1000}]]
    assert batch["admitted"] == [["z", 0, "a", ONE_CORE]]
    assert plane.record("x").reservation is None
    assert plane.record("z").state is State.ADMITTED


def test_quota_that_comes_back_is_given_at_once_to_those_who_were_refused_before() -> None:
    plane = Plane()
    for number in range(6):
        plane.put(a_workload(f"w{number}"))
    assert plane.admit()(ROOT).admitted == 2

    for done in (("w0",), ("w1", "w2"), ("w3", "w4")):
        for name in done:
            plane.workloads.write(replace(plane.record(name), state=State.FINISHED))
        outcome = plane.admit()(ROOT)
        assert outcome.released == len(done)
        assert outcome.admitted == min(len(done), outcome.waiting + outcome.admitted)

    assert plane.ledgers.read(ROOT).usage == {"a": ONE_CORE}


@pytest.mark.parametrize(("waiting", "cycles"), [(2, 1), (3, 2)])
def test_a_second_look_is_only_for_those_who_were_left_out(waiting: int, cycles: int) -> None:
    plane = Plane()
    for number in range(waiting):
        plane.put(a_workload(f"w{number}"))
    counting = CountingReads(plane.workloads, plane.catalog)

    assert plane.admit(counting)(ROOT).admitted == 2

    assert counting.reads == {"ledger": cycles, "pass": 1}


def test_the_newest_pass_says_why_somebody_waits() -> None:
    plane = Plane()
    for name in "abc":
        plane.put(a_workload(name))

    plane.admit()(ROOT)

    newest = plane.ledgers.newest_pass(ROOT)
    refusals = json.loads(zlib.decompress(newest["refusals"]))
    assert set(refusals) == {"c"}
    code, message, ahead = refusals["c"]
    assert code == "QUOTA:CohortExhausted"
    assert message
    assert ahead == 0


def test_nothing_to_do_writes_no_batch() -> None:
    plane = Plane()

    outcome = plane.admit()(ROOT)

    assert outcome.version == 0
    assert list(plane.ledgers.batches(ROOT)) == []


def test_a_root_that_nobody_configured_is_nobodys_business() -> None:
    plane = Plane()

    assert plane.admit()("unknown").admitted == 0
    assert plane.ledgers.newest_pass("unknown") == {}


def test_losing_every_race_hands_the_kick_back() -> None:
    plane = Plane()
    plane.put(a_workload())
    losing = RejectingLedgers(plane.workloads, plane.catalog)

    with pytest.raises(KeptConflicting, match=f"{ROOT}: {ATTEMPTS} commits"):
        plane.admit(losing)(ROOT)

    assert plane.record().state is State.PENDING


@dataclass
class CountingReads(MemoryLedgers):
    reads: Counter[str] = field(default_factory=Counter)

    def read(self, root: str) -> LedgerState:
        self.reads["ledger"] += 1
        return super().read(root)

    def commit(self, commit: Commit) -> Committed:
        self.reads["ledger"] -= 1  # the fake's own reading
        return super().commit(commit)

    def newest_pass(self, root: str) -> Mapping[str, Any]:
        self.reads["pass"] += 1
        return super().newest_pass(root)


class Contended(MemoryLedgers):
    """Something happens just before the first commits."""

    def __init__(self, plane: Plane, *before: Any) -> None:
        super().__init__(plane.workloads, plane.catalog)
        self.before = list(before)
        self.commits = 0

    def commit(self, commit: Commit) -> Committed:
        self.commits += 1
        if self.before:
            self.before.pop(0)()
        return super().commit(commit)


def test_a_workload_that_is_cancelled_meanwhile_costs_one_more_look_and_no_quota() -> None:
    plane = Plane()
    for name in "ab":
        plane.put(a_workload(name))

    def cancel() -> None:
        plane.workloads.apply([lifecycle.cancel_pending(plane.record("a"), "enough", 1)])

    ledgers = Contended(plane, cancel)
    outcome = plane.admit(ledgers)(ROOT)

    assert (outcome.admitted, outcome.conflicts, ledgers.commits) == (1, 1, 2)
    assert plane.record("a").state is State.CANCELLED
    assert ledgers.read(ROOT).usage == {"a": ONE_CORE}


def test_limits_that_shrink_meanwhile_are_obeyed() -> None:
    plane = Plane()
    for name in "ab":
        plane.put(a_workload(name))

    def shrink() -> None:
        put = (("ClusterQueue", "a", queue("a", 1)),)
        assert plane.catalog.edit(CatalogEdit(1, put, roots=(ROOT,)))

    outcome = plane.admit(Contended(plane, shrink))(ROOT)

    assert (outcome.admitted, outcome.conflicts) == (1, 1)


def test_an_intent_that_changes_meanwhile_is_not_lost() -> None:
    plane = Plane()
    requeue = Intent(IntentKind.REQUEUE, "X")
    reclaimed = plane.put(admitted(state=State.RECLAIMING, uid="u", intent=requeue, gone=True))

    def cancel() -> None:
        stronger = Intent(IntentKind.CANCEL, "CANCELLED:User")
        assert plane.workloads.apply([lifecycle.change_intent(reclaimed, stronger)]) == [True]

    contended = Contended(plane, cancel)
    contended.ledgers = plane.ledgers.ledgers
    plane.admit(contended)(ROOT)

    assert plane.record().state is State.CANCELLED
    assert contended.read(ROOT).usage == {}


def test_a_workload_in_back_off_waits_for_its_time() -> None:
    plane = Plane()
    plane.put(a_workload(not_before=plane.clock.now() + 1))
    assert plane.admit()(ROOT).admitted == 0

    plane.clock.pass_ms(1)

    assert plane.admit()(ROOT).admitted == 1


def test_more_work_than_one_transaction_holds_is_admitted_in_several() -> None:
    plane = Plane()
    put = (("ClusterQueue", "a", queue("a", 1000)),)
    assert plane.catalog.edit(CatalogEdit(1, put, roots=(ROOT,)))
    for number in range(150):
        plane.put(a_workload(f"w{number}"))

    outcome = plane.admit()(ROOT)

    assert outcome.admitted == 150
    lines = [batch["admitted"] for batch in plane.ledgers.batches(ROOT)]
    assert max(map(len, lines)) <= 97
    assert sorted(line[0] for rows in lines for line in rows) == sorted(plane.workloads.rows)


def test_a_pass_that_runs_out_of_time_kicks_itself() -> None:
    plane = Plane()
    for name in "ab":
        plane.put(a_workload(name))
    slow = replace(plane.admit(), budget_ms=-1, heads=1)

    assert slow(ROOT).admitted == 1
    assert plane.kicks.roots == [ROOT]
