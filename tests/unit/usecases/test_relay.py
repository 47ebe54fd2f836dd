"""The stream becomes kicks, commands and lines; decisions are made elsewhere."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.adapters.sqs_queues import SQSKicks
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.happenings import in_order, story
from sluice.core.lifecycle.record import Change, Intent, IntentKind, State, Workload, after
from sluice.core.lifecycle.record_entries import JobResult, StatusReason
from sluice.ports import News, StreamRecord
from sluice.usecases.upkeep.relay import Relay

from functions import admit
from tests.fakes import RecordedCommands, RecordedKicks, RecordedProvisions, RecordedTimeline
from tests.unit.usecases.plane import Plane, a_workload, admitted
from tests.unit.usecases.world import CLUSTER, ROOT

NOW = 1_800_000_000_000


class Relayed:
    """What came of some changes."""

    def __init__(self, *changes: tuple[Workload | None, Workload]) -> None:
        kicks, self.commands, timeline = RecordedKicks(), RecordedCommands(), RecordedTimeline()
        bus, self.provisions = RecordedTimeline(), RecordedProvisions()
        Relay(
            kicks=kicks,
            commands=self.commands,
            provisions=self.provisions,
            timeline=timeline,
            bus=bus,
        )([StreamRecord(*pair, NOW) for pair in changes])
        self.kicks, self.sent = kicks.roots, self.commands.sent
        self.told = [line.what for line in bus.lines]
        self.published, self.written, self.rows = bus, timeline, timeline.rows


PENDING, ADMITTED = a_workload(), admitted()
DISPATCHED = admitted(state=State.DISPATCHED, uid="u")
RECLAIMING = replace(
    DISPATCHED, state=State.RECLAIMING, intent=Intent(IntentKind.REQUEUE, "X", "why")
)
MIGRATING = replace(RECLAIMING, intent=Intent(IntentKind.MIGRATE, "X"))
GONE = replace(RECLAIMING, gone=True)
FINISHED = replace(DISPATCHED, state=State.FINISHED, result=JobResult(succeeded=True))
RELEASED = replace(FINISHED, reservation=None)
HELD = replace(PENDING, held=True)
BLOCKED = replace(PENDING, blocked=True)
AGAIN = replace(a_workload(generation=1), reason=StatusReason("X", "why"))

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
    ("nothing new", DISPATCHED, replace(DISPATCHED, steady=True), [], False, []),
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
    bus = RecordedTimeline()
    relay = Relay(
        kicks=RecordedKicks(),
        commands=RecordedCommands(),
        provisions=RecordedProvisions(),
        timeline=RecordedTimeline(),
        bus=bus,
    )

    for now in (NOW, NOW + 5_000):
        relay([StreamRecord(None, PENDING, now), StreamRecord(PENDING, ADMITTED, now)])

    assert bus.lines[:2] == bus.lines[2:]


def test_every_transition_of_the_life_is_told() -> None:
    life = [a_workload()]

    def then(change: Change) -> None:
        life.append(after(change))

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


SUCCESS = JobResult(succeeded=True, reason="CompletionsReached", message="as expected")


def lived(*turns: str) -> list[Workload]:
    """All versions of a record; a turn is a transition of the protocol, a second after the last."""
    life, now = [a_workload(created_at=NOW)], NOW

    def change(turn: str, workload: Workload) -> Change:
        reservation = replace(ADMITTED.reservation, generation=workload.generation)  # type: ignore[type-var]
        match turn:
            case "admit":
                return lifecycle.admit(workload, reservation, ROOT, now)
            case "claim":
                return lifecycle.claim(workload, f"u{workload.generation}", now)
            case "start":
                return lifecycle.start(workload, now)
            case "finish":
                return lifecycle.finish(workload, SUCCESS, now)
            case "gone":
                return lifecycle.gone(workload)
            case "release":
                return lifecycle.release(workload, now)
            case "move":
                return lifecycle.migrate(workload, "s3://saved", now)
        return lifecycle.reclaim(workload, Intent(IntentKind(turn), "X", "why"))

    for turn in turns:
        now += 1000
        life.append(after(change(turn, life[-1])))
    return life


RAN = ("admit", "claim", "start")
STOPPED = ("gone", "release")


@pytest.mark.parametrize(
    ("rows", "turns"),
    [
        (0, ()),
        (0, (*RAN, "finish")),
        (1, (*RAN, "finish", "release")),
        (3, (*RAN, "cancel", *STOPPED)),
        (3, (*RAN, "fail", *STOPPED)),
        (3, (*RAN, "requeue", *STOPPED)),
        (4, (*RAN, "preempt", *STOPPED, *RAN, "finish", "release")),
        (3, (*RAN, "migrate", "gone", "move", "claim", "start", "finish", "release")),
        (3, ("admit", "requeue", *STOPPED)),
    ],
    ids=lambda each: "-".join(each) if isinstance(each, tuple) else str(each),
)
def test_what_is_written_and_what_the_record_tells_is_all_that_was_published(
    rows: int, turns: tuple[str, ...]
) -> None:
    life = lived(*turns)
    relayed = Relayed(*zip([None, *life], life, strict=False))

    told = story(relayed.written.of("w1"), life[-1])

    assert told == relayed.published.of("w1")
    assert relayed.written.rows == rows


def test_a_corrected_submission_does_not_hide_that_it_was_refused() -> None:
    waiting = a_workload(blocked=True, created_at=NOW)
    refused = after(lifecycle.reject_pending(waiting, "X", "spec", "no such", NOW + 1))
    corrected = a_workload(created_at=NOW + 2)
    relayed = Relayed((None, waiting), (waiting, refused), (refused, corrected))

    told = [line["what"] for line in story(relayed.written.of("w1"), corrected)]

    assert sorted(told) == ["Rejected", "Submitted", "Submitted"]


def test_provision_is_asked_when_the_ledger_has_grown_on_a_cluster() -> None:
    assert Relayed((PENDING, ADMITTED)).provisions.asked == [CLUSTER]
    assert Relayed((PENDING, ADMITTED), (PENDING, ADMITTED)).provisions.asked == [CLUSTER]
    assert Relayed((ADMITTED, DISPATCHED), (DISPATCHED, FINISHED)).provisions.asked == []


def test_a_checkpoint_stands_before_the_stop_of_the_same_second() -> None:
    stopped = {"at": 10_000, "generation": 0, "what": "Stopped"}
    saved = {"at": 10_400, "generation": 0, "what": "CheckpointCompleted"}
    later = {"at": 11_000, "generation": 1, "what": "Admitted"}

    assert in_order([later, stopped, saved]) == [saved, stopped, later]


def test_a_kick_names_the_queues_and_namespaces_that_it_is_about() -> None:
    kicks = RecordedKicks()
    relay = replace(Plane().relay_use_case(), kicks=kicks)
    new = (a_workload("x"), a_workload("y", cq="b", namespace="other"))

    relay([StreamRecord(None, each, 1) for each in new])

    assert kicks.news == [{ROOT: News(frozenset({"a", "b"}), frozenset({"team", "other"}))}]


@pytest.mark.parametrize("queues", [1, 200])
def test_a_kick_with_too_many_names_has_none(queues: int) -> None:
    sent: list[dict[str, str]] = []

    class SQS:
        def send_message_batch(self, QueueUrl: str, Entries: Any) -> dict[str, Any]:  # noqa: N803, AWS's names
            assert QueueUrl
            sent.extend(Entries)
            return {}

    news = News(frozenset(f"q{number}" for number in range(queues)), frozenset({"team"}))
    SQSKicks(SQS(), "url").kick([ROOT, "whole"], {ROOT: news})  # type: ignore[arg-type]

    named, whole = (json.loads(each["MessageBody"]) for each in sent)
    assert whole == {"root": "whole"}
    assert ("queues" in named) is (queues == 1)
    assert admit.news_in(sent[0]["MessageBody"]) == (news if queues == 1 else None)
    assert admit.news_in("{") is None
