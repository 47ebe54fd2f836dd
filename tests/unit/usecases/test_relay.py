"""The stream becomes kicks, commands and lines; decisions are made elsewhere."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sluice.core import workload as lifecycle
from sluice.core.workload import Intent, IntentKind, State, Workload
from sluice.usecases.relay import Changed, Relay

from tests.fakes import RecordedCommands, RecordedKicks, RecordedProvisions, RecordedTimeline
from tests.unit.usecases.plane import a_workload, admitted
from tests.unit.usecases.world import CLUSTER, ROOT

NOW = 1_800_000_000_000


class Relayed:
    """What came of some changes."""

    def __init__(self, *changes: tuple[Workload | None, Workload]) -> None:
        kicks, self.commands, timeline = RecordedKicks(), RecordedCommands(), RecordedTimeline()
        bus, self.provisions = RecordedTimeline(), RecordedProvisions()
        Relay(kicks, self.commands, self.provisions, timeline, bus)(
            [Changed(*pair, NOW) for pair in changes]
        )
        self.kicks, self.sent = kicks.roots, self.commands.sent
        self.told = [line.what for line in timeline.lines]
        assert [line.what for line in bus.lines] == self.told


PENDING, ADMITTED = a_workload(), admitted()
DISPATCHED = admitted(state=State.DISPATCHED, uid="u")
RECLAIMING = replace(
    DISPATCHED, state=State.RECLAIMING, intent=Intent(IntentKind.REQUEUE, "X", "why")
)
MIGRATING = replace(RECLAIMING, intent=Intent(IntentKind.MIGRATE, "X"))
GONE = replace(RECLAIMING, gone=True)
FINISHED = replace(DISPATCHED, state=State.FINISHED, result={"succeeded": True})
RELEASED = replace(FINISHED, reservation=None)
HELD = replace(PENDING, held=True)
BLOCKED = replace(PENDING, blocked=True)
AGAIN = replace(a_workload(generation=1), reason={"code": "X", "message": "why"})

CASES = [
    ("submitted", None, PENDING, [ROOT], False, ["Submitted"]),
    ("submitted on hold", None, HELD, [], False, ["Submitted"]),
    ("rejected", None, replace(PENDING, state=State.REJECTED), [], False, ["Rejected"]),
    ("admitted", PENDING, ADMITTED, [], True, ["Admitted"]),
    ("still admitted", ADMITTED, replace(ADMITTED, labels={"a": "b"}), [], False, []),
    ("claimed", ADMITTED, DISPATCHED, [], False, ["Dispatched"]),
    ("running", DISPATCHED, replace(DISPATCHED, started_at=5), [], False, ["Running"]),
    ("reclaimed", DISPATCHED, RECLAIMING, [], True, ["Requeueing"]),
    ("gone", RECLAIMING, GONE, [ROOT], False, ["Stopped"]),
    ("requeued", GONE, AGAIN, [ROOT], False, ["Requeued", "QuotaReleased"]),
    ("finished", DISPATCHED, FINISHED, [ROOT], False, ["Succeeded"]),
    ("released", FINISHED, RELEASED, [], False, ["QuotaReleased"]),
    ("held", PENDING, HELD, [], False, ["Held"]),
    ("let go", HELD, PENDING, [ROOT], False, ["Released"]),
    ("waits for others", None, BLOCKED, [ROOT], False, ["Submitted"]),
    ("let in", BLOCKED, PENDING, [ROOT], False, ["Unblocked"]),
    ("never ran", PENDING, replace(PENDING, state=State.CANCELLED), [ROOT], False, ["Cancelled"]),
    ("moved up", PENDING, replace(PENDING, priority=5), [], False, ["Reprioritized"]),
    ("nothing new", DISPATCHED, replace(DISPATCHED, ready_pods=1), [], False, []),
    ("source is fenced", MIGRATING, replace(MIGRATING, gone=True), [], True, []),
]


@pytest.mark.parametrize(
    ("what", "before", "now", "kicks", "commanded", "told"), CASES, ids=[c[0] for c in CASES]
)
def test_a_change_asks_for_what_it_needs_and_no_more(
    what: str,
    before: Workload | None,
    now: Workload,
    kicks: list[str],
    commanded: bool,
    told: list[str],
) -> None:
    relayed = Relayed((before, now))

    assert relayed.kicks == kicks, what
    assert relayed.sent == ([(CLUSTER, ["w1"])] if commanded else [])
    assert relayed.told == told


def test_commands_are_grouped_by_cluster() -> None:
    elsewhere = admitted("w3", cluster="batch-2")

    relayed = Relayed(
        (PENDING, ADMITTED), (a_workload("w2"), admitted("w2")), (a_workload("w3"), elsewhere)
    )

    assert relayed.sent == [(CLUSTER, ["w1", "w2"]), ("batch-2", ["w3"])]


def test_a_repeated_change_makes_equal_lines() -> None:
    timeline = RecordedTimeline()
    relay = Relay(
        RecordedKicks(), RecordedCommands(), RecordedProvisions(), timeline, RecordedTimeline()
    )

    for now in (NOW, NOW + 5_000):
        relay([Changed(None, PENDING, now), Changed(PENDING, ADMITTED, now)])

    assert timeline.lines[:2] == timeline.lines[2:]


def test_every_transition_of_the_life_is_told() -> None:
    life = [a_workload()]

    def then(change: lifecycle.Change) -> None:
        life.append(lifecycle.after(change))

    reservation = ADMITTED.reservation
    assert reservation is not None
    then(lifecycle.admit(life[-1], reservation, ROOT, NOW))
    then(lifecycle.claim(life[-1], "u", NOW))
    then(lifecycle.start(life[-1], NOW))
    then(lifecycle.reclaim(life[-1], Intent(IntentKind.CANCEL, "CANCELLED:User", "enough")))
    then(lifecycle.gone(life[-1]))
    then(lifecycle.release(life[-1], NOW))

    relayed = Relayed(*zip([None, *life], life, strict=False))

    assert relayed.told == [
        "Submitted", "Admitted", "Dispatched", "Running", "Cancelling", "Stopped",
        "Cancelled", "QuotaReleased",
    ]  # fmt: skip


def test_provision_is_asked_when_the_ledger_has_grown_on_a_cluster() -> None:
    assert Relayed((PENDING, ADMITTED)).provisions.asked == [CLUSTER]
    assert Relayed((PENDING, ADMITTED), (PENDING, ADMITTED)).provisions.asked == [CLUSTER]
    assert Relayed((ADMITTED, DISPATCHED), (DISPATCHED, FINISHED)).provisions.asked == []
