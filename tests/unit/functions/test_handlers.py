"""Handlers answer batches in parts: only what failed comes again, and poison harms nobody else."""

from __future__ import annotations

import os
from dataclasses import replace
from typing import Any

import pytest
from sluice import bootstrap
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import Intent, IntentKind, State, after
from sluice.core.migrations.orphaned_archives import OLD_MS, StoredArchive
from sluice.core.values.identity import workload_id
from sluice.errors import ClusterError, ClusterForbidden, KeptConflicting
from sluice.usecases.admitting.submit import unauthorised
from sluice.usecases.running.remove_leftovers import LOOK_MS, LOOKS
from sluice.usecases.upkeep.relay import Relay

from functions import act, admit, observe, relay, submit, sweep
from tests.fakes import MemoryFaults, RecordedProvisions, RecordedTimeline
from tests.unit.functions.conftest import Context
from tests.unit.functions.events import sqs, stream
from tests.unit.usecases.plane import NAMESPACE, Plane, a_document, a_message, a_workload, admitted
from tests.unit.usecases.world import CLUSTER, ROOT


def failures(answer: Any) -> list[str]:
    return [each["itemIdentifier"] for each in answer["batchItemFailures"]]


@pytest.fixture
def plane(monkeypatch: pytest.MonkeyPatch) -> Plane:
    """A control plane in memory that every handler finds through bootstrap."""
    plane = Plane()
    relaying = Relay(
        kicks=plane.kicks,
        commands=plane.commands,
        provisions=RecordedProvisions(),
        timeline=RecordedTimeline(),
        bus=plane.timeline,
    )
    for name, use in {
        "submit": plane.submit(),
        "admit": plane.admit(),
        "act": plane.act(),
        "sweep": plane.sweep_use_case(),
        "remove_leftovers": plane.remove_leftovers_use_case(),
        "relay": relaying,
    }.items():
        monkeypatch.setattr(bootstrap, name, lambda use=use: use)
    return plane


def test_submit_records_good_and_bad_and_asks_for_nothing_again(
    plane: Plane, context: Context
) -> None:
    answer = submit.handler(sqs(a_document(), "{", queue="submissions"), context)

    assert failures(answer) == []
    states = sorted(record.state for record in plane.workloads.rows.values())
    assert states == [State.PENDING, State.REJECTED]


def test_submit_takes_the_senders_word_only_from_the_queue_of_events(
    plane: Plane, context: Context
) -> None:
    """Whatever the deployment is called."""
    envelope = {"source": "blue.pipeline", "detail-type": "x", "detail": a_document()}
    stranger = {"SenderId": "AROAEVENTS:bus"}

    submit.handler(sqs(envelope, queue=os.environ["SLUICE_EVENTS_QUEUE"], **stranger), context)
    assert plane.record(workload_id(NAMESPACE, "k1")).state is State.PENDING

    plane.workloads.rows.clear()
    submit.handler(sqs(envelope, queue="events-control-QueuesSubmissions-1", **stranger), context)
    (record,) = plane.workloads.rows.values()
    assert record.reason.code == "MISCONFIGURATION:PolicyDenied"


def test_submit_gives_back_only_the_message_that_could_not_be_recorded(
    plane: Plane, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    create = plane.workloads.create

    def broken(workload: Any) -> Any:
        if workload.id == workload_id(NAMESPACE, "k2"):
            raise ConnectionError("away")
        return create(workload)

    monkeypatch.setattr(plane.workloads, "create", broken)

    answer = submit.handler(sqs(*(a_document(f"k{n}") for n in (1, 2, 3))), context)

    assert failures(answer) == ["m1"]


def test_admit_runs_one_cycle_for_all_kicks_of_a_root(plane: Plane, context: Context) -> None:
    plane.put(a_workload())
    kicks = sqs({"root": ROOT}, {"root": ROOT}, queue="kicks.fifo", MessageGroupId=ROOT)

    assert failures(admit.handler(kicks, context)) == []

    assert plane.record().state is State.ADMITTED
    assert len(list(plane.ledgers.batches(ROOT))) == 1


def test_what_a_function_may_not_do_is_noted_with_what_it_worked_on(
    plane: Plane, context: Context, monkeypatch: pytest.MonkeyPatch, faults: MemoryFaults
) -> None:
    def forbidden(_cluster: str, _ids: list[str]) -> None:
        raise ClusterForbidden('cannot create resource "jobs"', 403)

    monkeypatch.setattr(bootstrap, "act", lambda: forbidden)
    command = {"cluster": CLUSTER, "workloads": ["w1"]}

    assert failures(act.handler(sqs(command, queue="commands"), context)) == ["m0"]
    (fault,) = faults.noted()
    assert (fault.function, fault.subject) == ("act", CLUSTER)
    assert fault.message == 'cannot create resource "jobs"'


def test_a_pass_that_lost_every_race_is_kicked_anew_instead_of_blocking_its_root(
    plane: Plane, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    use = plane.admit()

    def losing(root: str, **_: int) -> Any:
        if root == "busy":
            raise KeptConflicting("lost every race")
        return use(root)

    monkeypatch.setattr(bootstrap, "admit", lambda: losing)
    monkeypatch.setattr(bootstrap, "kicks", lambda: plane.kicks)
    kicks = sqs({}, {}, {}, queue="kicks.fifo")
    for record, root in zip(kicks["Records"], ("busy", ROOT, "busy"), strict=True):
        record["attributes"]["MessageGroupId"] = root

    assert failures(admit.handler(kicks, context)) == []
    assert plane.kicks.roots == ["busy"]


def test_admit_gives_back_all_kicks_of_the_root_that_failed_and_no_other(
    plane: Plane,
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    kicks = sqs({}, {}, {}, queue="kicks.fifo")
    for record, root in zip(kicks["Records"], ("bad", ROOT, "bad"), strict=True):
        record["attributes"]["MessageGroupId"] = root
    plane.put(a_workload())
    use = plane.admit()

    def sometimes(root: str, **_: int) -> Any:
        if root == "bad":
            raise RuntimeError("a bug")
        return use(root)

    monkeypatch.setattr(bootstrap, "admit", lambda: sometimes)

    assert failures(admit.handler(kicks, context)) == ["m0", "m2"]
    assert plane.record().state is State.ADMITTED
    assert [(record.levelname, record.__dict__["root"]) for record in caplog.records] == [
        ("ERROR", "bad")
    ]


@pytest.mark.parametrize("poison", ["{", "[]", "{}", '{"cluster": "batch-1"}', "null"])
def test_act_isolates_a_poisoned_command(plane: Plane, context: Context, poison: str) -> None:
    plane.put(admitted())

    answer = act.handler(sqs(poison, {"cluster": CLUSTER, "workloads": ["w1"]}), context)

    assert failures(answer) == ["m0"]
    assert plane.record().state is State.DISPATCHED


def test_act_carries_out_all_commands_of_a_cluster_together(
    plane: Plane, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []
    monkeypatch.setattr(bootstrap, "act", lambda: lambda _, ids: asked.append(ids))
    commands = [{"cluster": CLUSTER, "workloads": ids} for ids in (["w1", "w2"], ["w3"])]

    assert failures(act.handler(sqs(*commands), context)) == []

    assert asked == [["w1", "w2", "w3"]]


def test_act_gives_back_only_the_command_that_fails_by_itself(
    plane: Plane, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    plane.put(admitted("w1"))
    plane.put(admitted("w3"))
    use = plane.act()

    def choking(cluster: str, ids: list[str]) -> None:
        if "w2" in ids:
            raise RuntimeError("a bug")
        use(cluster, ids)

    monkeypatch.setattr(bootstrap, "act", lambda: choking)
    commands = [{"cluster": CLUSTER, "workloads": [name]} for name in ("w1", "w2", "w3")]

    assert failures(act.handler(sqs(*commands), context)) == ["m1"]

    assert plane.record("w1").state is State.DISPATCHED
    assert plane.record("w3").state is State.DISPATCHED


@pytest.mark.parametrize(("status", "attempts"), [(0, 1), (403, 3)], ids=["silent", "refuses"])
def test_act_waits_only_once_for_a_cluster_that_does_not_answer(
    status: int, attempts: int, context: Context, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[list[str]] = []

    def failing(_cluster: str, ids: list[str]) -> None:
        asked.append(ids)
        raise ClusterError("no", status)

    monkeypatch.setattr(bootstrap, "act", lambda: failing)
    commands = [{"cluster": CLUSTER, "workloads": [name]} for name in ("w1", "w2")]

    assert failures(act.handler(sqs(*commands), context)) == ["m0", "m1"]
    assert len(asked) == attempts


def test_act_keeps_the_commands_of_a_cluster_that_does_not_answer(
    plane: Plane,
    context: Context,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    plane.put(admitted())
    use = plane.act()

    def sometimes(cluster: str, ids: list[str]) -> None:
        if cluster == "away":
            raise ClusterError("https://away does not answer")
        use(cluster, ids)

    monkeypatch.setattr(bootstrap, "act", lambda: sometimes)
    commands = sqs(
        {"cluster": "away", "workloads": ["w9"]}, {"cluster": CLUSTER, "workloads": ["w1"]}
    )

    assert failures(act.handler(commands, context)) == ["m0"]
    assert plane.record().state is State.DISPATCHED
    (error,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert error.__dict__["cluster"] == "away"
    assert "does not answer" in str(error.exc_info)


def test_relay_turns_stream_records_into_kicks_and_commands(plane: Plane, context: Context) -> None:
    new, placed = a_workload(), admitted("w2")

    relay.handler(stream((None, new), (a_workload("w2"), placed), (new, None)), context)

    assert plane.kicks.roots == [ROOT]
    assert plane.commands.sent == [(CLUSTER, ["w2"])]
    assert [line.what for line in plane.timeline.lines] == ["Submitted", "Admitted"]


def test_a_quota_is_given_back_after_the_proof_of_the_same_second(
    plane: Plane, context: Context
) -> None:
    second = 1_800_000_000_000  # as far as the stream tells
    leaving = admitted(
        state=State.RECLAIMING,
        uid="u",
        gone=True,
        intent=Intent(IntentKind.REQUEUE, "CAPACITY:InsufficientInstance"),
    )
    released = after(lifecycle.release(leaving, second + 900))

    relay.handler(stream((leaving, released)), context)

    told = {line.what: line.at for line in plane.timeline.lines}
    assert told == {"Requeued": second + 900, "QuotaReleased": second + 900}


def test_relay_understands_the_record_of_an_unknown_sender(plane: Plane, context: Context) -> None:
    nobody = unauthorised(a_message("{", sender="stranger"), 1_800_000_000_000, task=False)

    relay.handler(stream((None, nobody), (None, a_workload())), context)

    assert [line.what for line in plane.timeline.lines] == ["Rejected", "Submitted"]
    assert plane.kicks.roots == [ROOT]


@pytest.mark.parametrize(
    "image",
    [{}, {"id": {"S": "x"}}, {"id": {"S": "x"}, "state": {"S": "UNHEARD-OF"}}, {"id": {"X": "x"}}],
    ids=str,
)
def test_relay_passes_over_a_record_that_it_does_not_understand(
    plane: Plane, context: Context, image: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    changes = stream((None, a_workload("w1")), (None, a_workload("w2")), (None, a_workload("w3")))
    changes["Records"][1]["dynamodb"]["NewImage"] = image

    relay.handler(changes, context)

    assert [line.workload.id for line in plane.timeline.lines] == ["w1", "w3"]
    (error,) = (record for record in caplog.records if record.levelname == "ERROR")
    assert error.__dict__["event_id"] == "e1"


def test_sweep_cries_out_when_a_ledger_lies(
    plane: Plane, context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    sweep.handler({}, context)
    assert not caplog.records

    plane.workloads.write(replace(admitted(), id="w2"))
    sweep.handler({}, context)

    (error,) = caplog.records
    assert error.levelname == "ERROR"
    assert error.__dict__["drift"] == {ROOT: {"a|spot|cpu": -1000}}


def test_sweep_tells_which_archives_it_removed(
    plane: Plane, context: Context, caplog: pytest.LogCaptureFixture
) -> None:
    gone = f"{LOOKS[plane.clock.now() // LOOK_MS % len(LOOKS)]}gone"
    uri = f"s3://b/checkpoints/{gone}/0/move-0/p.tar"
    plane.archives.bucket.append(StoredArchive(uri, gone, 0, plane.clock.now() - OLD_MS - 1))

    with caplog.at_level("INFO"):
        sweep.handler({}, context)

    assert plane.archives.removed == [uri]
    assert [record.__dict__["archives"] for record in caplog.records] == [[uri]]


def test_observe_notes_what_went_wrong_beside_its_observation(
    plane: Plane, context: Context, monkeypatch: pytest.MonkeyPatch, faults: MemoryFaults
) -> None:
    watching = plane.observe()
    watching.problems.report(ClusterForbidden('cannot watch resource "pods"', 403))
    monkeypatch.setattr(bootstrap, "observe", lambda: watching)
    monkeypatch.setattr(bootstrap, "clock", lambda: plane.clock)

    observe.handler({"cluster": CLUSTER}, context)

    (fault,) = faults.noted()
    assert (fault.function, fault.subject) == ("observe", CLUSTER)
    assert fault.message == 'cannot watch resource "pods"'
    assert not watching.problems.take()
