"""What becomes of a workload that waits longer than its `pendingPolicy` likes."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle.happenings import happenings
from sluice.core.lifecycle.pending_policy import matches
from sluice.core.lifecycle.record import State
from sluice.ports import CatalogEdit, StreamRecord
from sluice.usecases.upkeep.relay import wants_kick

from tests.unit.usecases.plane import Plane, a_workload
from tests.unit.usecases.test_clusters import flavor
from tests.unit.usecases.world import ROOT, queue

MINUTE = 60_000


def entry(action: str, reason: str = "QUOTA:*", after: int = 60) -> dict[str, Any]:
    return {"reason": reason, "after_seconds": after, "action": action}


def waits(plane: Plane, *policy: dict[str, Any], **options: Any) -> None:
    """`w1` waits behind `first`, which holds all that the queue has."""
    plane.put(a_workload("first", created_at=plane.clock.now() - 1))
    plane.put(a_workload("second", created_at=plane.clock.now() - 1))
    plane.put(
        a_workload(
            "w1",
            created_at=plane.clock.now(),
            options={"pending_policy": list(policy), **options},
        )
    )
    plane.admit()(ROOT)
    assert plane.record().state is State.PENDING


def later(plane: Plane, milliseconds: int = MINUTE) -> None:
    plane.clock.pass_ms(milliseconds)
    plane.admit()(ROOT)


def test_who_may_not_wait_longer_is_cancelled_and_says_for_what_it_waited() -> None:
    plane = Plane()
    waits(plane, entry("Notify"), entry("Cancel"))

    later(plane, MINUTE - 1)
    assert plane.record().state is State.PENDING
    later(plane, 1)
    later(plane, MINUTE + 1)  # a pass looks again at those it has parked once a minute

    ended = plane.record()
    assert (ended.state, ended.reason.code) == (State.CANCELLED, "CANCELLED:PendingPolicy")
    assert ended.reason.message.startswith("Cancel after 60 s of waiting: ")
    assert ended.waits == ()


def test_who_wants_to_know_is_told_once() -> None:
    plane = Plane()
    waits(plane, entry("Notify"))
    before = plane.record()

    for _ in range(3):
        later(plane, MINUTE + 1)

    after = plane.record()
    assert after.state is State.PENDING
    (line,) = happenings(before, after, plane.clock.now())
    assert line.what == "WaitedTooLong:0"
    assert line.message.startswith("Notify after 60 s of waiting: ")
    assert line.detail["reason"]["code"].startswith("QUOTA:")
    assert list(happenings(after, after, plane.clock.now())) == []


def test_another_reason_does_not_count() -> None:
    plane = Plane()
    waits(plane, entry("Cancel", "CAPACITY:*"))

    later(plane, 10 * MINUTE)

    assert plane.record().state is State.PENDING


def test_who_waits_too_long_rises_to_the_class_that_it_named() -> None:
    plane = Plane()
    waits(plane, entry("Escalate") | {"priority_class": "urgent", "priority": 500})
    later(plane, MINUTE + 1)  # a pass looks again at those it has parked once a minute

    risen = plane.record()
    assert (risen.state, risen.priority) == (State.PENDING, 500)
    assert risen.waits[0].message.endswith("its priority is 500 now (urgent)")
    assert wants_kick(StreamRecord(replace(risen, waits=()), risen, 0)), "it may fit now"
    later(plane, MINUTE + 1)
    assert len(plane.record().waits) == 1, "once in each stay"


def test_nobody_falls_by_escalating() -> None:
    plane = Plane()
    waits(plane, entry("Escalate") | {"priority_class": "low", "priority": -5})

    later(plane)

    assert plane.record().priority == 0


def test_a_wish_for_spot_is_given_up_after_a_while() -> None:
    plane = Plane()
    on_demand = queue("a", 2)
    on_demand["spec"]["resourceGroups"][0]["flavors"][0]["name"] = "steady"
    steady = flavor("steady")
    steady["spec"]["nodeLabels"] = {"karpenter.sh/capacity-type": "on-demand"}
    put = (("ResourceFlavor", "steady", steady), ("ClusterQueue", "a", on_demand))
    assert plane.catalog.edit(CatalogEdit(1, put, roots=(ROOT,)))
    policy = [entry("AllowOnDemand", "MISCONFIGURATION:NoMatchingFlavor")]
    plane.put(
        a_workload(
            created_at=plane.clock.now(), options={"pending_policy": policy, "capacity": "spot"}
        )
    )
    plane.admit()(ROOT)
    assert plane.record().state is State.PENDING

    later(plane, MINUTE + 1)
    assert plane.record().state is State.PENDING
    later(plane, MINUTE + 1)

    admitted = plane.record()
    assert admitted.state is State.ADMITTED
    assert admitted.reservation is not None
    assert admitted.reservation.pod_sets[0].flavors["cpu"] == "steady"


@pytest.mark.parametrize(
    ("pattern", "reason", "is_meant"),
    [
        ("QUOTA:*", "QUOTA:UserCap", True),
        ("QUOTA:UserCap", "QUOTA:UserCap", True),
        ("QUOTA:User", "QUOTA:UserCap", False),
        ("CAPACITY:*", "QUOTA:UserCap", False),
    ],
)
def test_a_class_stands_for_its_codes(pattern: str, reason: str, *, is_meant: bool) -> None:
    assert matches(pattern, reason) is is_meant
