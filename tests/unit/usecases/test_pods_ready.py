"""waitForPodsReady: the workload, its queue or its policy say how long, and what comes after."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest
from sluice.core.config import kueue_objects, pods_ready, scheduling_policy
from sluice.core.config.document import DocumentError
from sluice.core.config.pods_ready import (
    ANNOTATION,
    PodsReadyRules,
    RequeuingTimestamp,
    WaitForPodsReady,
    rules,
)
from sluice.core.lifecycle.pods_ready import LEAST_MS, deadline, timeouts_in_row, too_late
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload
from sluice.core.lifecycle.run import Run
from sluice.core.lifecycle.runs import ordering_time
from sluice.ports import CatalogEdit

from tests.records import options_of
from tests.unit.submission.builders import a_job, accepted, errors
from tests.unit.submission.builders import a_workload as a_document
from tests.unit.usecases.plane import NAMESPACE, Plane, a_workload
from tests.unit.usecases.world import CLUSTER, ROOT, queue

SECOND = 1_000
MINUTE = 60 * SECOND
JOB = "w-w1-g0"


def a_policy(**spec: Any) -> dict[str, Any]:
    metadata = {"name": "all"}
    return {"apiVersion": "sluice.dev/v1", "kind": "SchedulingPolicy", "metadata": metadata,
            "spec": {"waitForPodsReady": spec}}  # fmt: skip


def a_queue(text: str) -> dict[str, Any]:
    document = queue("a", 2)
    return document | {"metadata": {"name": "a", "annotations": {ANNOTATION: text}}}


def stored(plane: Plane, kind: str, name: str, document: dict[str, Any]) -> None:
    version = plane.catalog.snapshot().version
    assert plane.catalog.edit(CatalogEdit(version, ((kind, name, document),), roots=(ROOT,)))


def starting(plane: Plane, **options: Any) -> None:
    """A workload whose pods do not become ready."""
    plane.dispatched()
    plane.workloads.write(replace(plane.record(), options=options_of(options)))
    unready(plane)


def unready(plane: Plane) -> None:
    key = "Job", NAMESPACE, JOB
    job = plane.kubernetes.objects[key]
    plane.kubernetes.objects[key] = {**job, "status": {**job.get("status", {}), "ready": 0}}


def late_after(plane: Plane) -> int:
    """Seconds until it goes back, at most an hour."""
    for seconds in range(0, 3_600, 30):
        plane.look()
        if plane.record().state is State.RECLAIMING:
            return seconds - 30  # the last time that it was not late
        plane.clock.pass_ms(30 * SECOND)
    return 3_600


def test_without_a_word_it_is_a_quarter_of_an_hour() -> None:
    plane = Plane()
    starting(plane)
    assert late_after(plane) == 900


def test_the_policy_says_it_for_the_installation_the_queue_before_it_the_workload_first() -> None:
    found = []
    for places in (("policy",), ("policy", "queue"), ("policy", "queue", "workload")):
        plane = Plane()
        if "policy" in places:
            stored(plane, "SchedulingPolicy", "all", a_policy(timeout="20m"))
        if "queue" in places:
            stored(plane, "ClusterQueue", "a", a_queue("5m"))
        own = {"wait_for_pods_ready": {"timeout_seconds": 120}} if "workload" in places else {}
        starting(plane, **own)
        found.append(late_after(plane))

    assert found == [1_200, 300, 120]


def test_each_field_is_looked_up_for_itself() -> None:
    own = WaitForPodsReady(timeout_seconds=60)
    queue_says = WaitForPodsReady(timeout_seconds=120, backoff_limit_count=0)
    policy = WaitForPodsReady(backoff_limit_count=7, timestamp=RequeuingTimestamp.CREATION)

    assert rules(own, queue_says, policy) == PodsReadyRules(
        timeout_ms=MINUTE, backoff_limit_count=0, timestamp=RequeuingTimestamp.CREATION
    )
    assert rules(None, None, None) == PodsReadyRules()


EVERYTHING = {
    "timeout": "10m",
    "recoveryTimeout": "90s",
    "blockAdmission": False,
    "requeuingStrategy": {
        "timestamp": "Creation",
        "backoffLimitCount": 4,
        "backoffBaseSeconds": 10,
        "backoffMaxSeconds": 100,
    },
}
READ = WaitForPodsReady(600, 90, RequeuingTimestamp.CREATION, 4, 10, 100)


def test_all_fields_of_kueue_are_read_in_each_of_the_three_places() -> None:
    text = json.dumps(EVERYTHING)
    policy = scheduling_policy.parse(a_policy(**EVERYTHING))
    objects = kueue_objects.parse_objects([a_queue(text)])
    job = a_job()
    job["metadata"]["annotations"] = {ANNOTATION: text}
    submitted = (
        accepted(a_document(waitForPodsReady=dict(EVERYTHING))),
        accepted(job),
    )

    assert policy.wait_for_pods_ready == READ
    assert objects.cluster_queues[0].wait_for_pods_ready == READ
    assert [each.options.wait_for_pods_ready for each in submitted] == [READ, READ]


def test_a_duration_alone_is_the_timeout() -> None:
    job = a_job()
    job["metadata"]["annotations"] = {ANNOTATION: "45m"}

    assert accepted(job).options.wait_for_pods_ready == WaitForPodsReady(timeout_seconds=2_700)


@pytest.mark.parametrize(
    ("said", "field"),
    [
        ({"enable": False}, "enable"),
        ({"blockAdmission": True}, "blockAdmission"),
        ({"timeout": "0s"}, "timeout"),
        ({"timeout": "300h"}, "timeout"),
        ({"recoveryTimeout": "soon"}, "recoveryTimeout"),
        ({"timeouts": "5m"}, "timeouts"),
        ({"requeuingStrategy": {"timestamp": "Later"}}, "requeuingStrategy.timestamp"),
        ({"requeuingStrategy": {"backoffLimitCount": -1}}, "requeuingStrategy.backoffLimitCount"),
        ({"requeuingStrategy": {"backoffBaseSeconds": 0}}, "requeuingStrategy.backoffBaseSeconds"),
    ],
)
def test_what_makes_no_sense_is_refused_at_its_place(said: dict[str, Any], field: str) -> None:
    assert f"spec.waitForPodsReady.{field}" in errors(a_document(waitForPodsReady=said))
    with pytest.raises(DocumentError) as raised:
        scheduling_policy.parse(a_policy(**said))
    assert [flaw.field for flaw in raised.value.flaws] == [f"spec.waitForPodsReady.{field}"]


@pytest.mark.parametrize("text", ["{", '{"timeout": "5m", "timeout": "6m"}', "later"])
def test_an_annotation_that_says_nothing_is_refused_at_its_name(text: str) -> None:
    job = a_job()
    job["metadata"]["annotations"] = {ANNOTATION: text}

    (field,) = errors(job)
    assert ANNOTATION in field
    with pytest.raises(DocumentError):
        kueue_objects.parse_objects([a_queue(text)])


def late(**fields: Any) -> Run:
    return Run(outcome="requeue", why="PodsReadyTimeout", **fields)


def moved(at: int, until: int) -> Run:
    return Run(outcome="migrate", dispatched_at=at, ended_at=until)


NOW = 1_800_000_000_000


def a_start(*runs: Run) -> Workload:
    return a_workload(state=State.DISPATCHED, dispatched_at=NOW, runs=runs)


def test_what_was_spent_before_a_drain_counts_and_the_drain_itself_does_not() -> None:
    rules_ = PodsReadyRules(timeout_ms=15 * MINUTE)
    drained = a_start(moved(NOW - 20 * MINUTE, NOW - 16 * MINUTE))

    assert deadline(drained, rules_) == NOW + 11 * MINUTE


def test_a_drain_shortly_before_the_end_leaves_time_for_another_machine() -> None:
    rules_ = PodsReadyRules(timeout_ms=15 * MINUTE)
    drained = a_start(moved(NOW - 16 * MINUTE, NOW - 2 * MINUTE))

    assert deadline(drained, rules_) == NOW + LEAST_MS
    assert deadline(drained, PodsReadyRules(timeout_ms=MINUTE)) == NOW + MINUTE


def test_a_move_of_what_ran_gives_the_whole_timeout() -> None:
    ran = replace(moved(NOW - 50 * MINUTE, NOW - MINUTE), started_at=NOW - 40 * MINUTE)

    assert deadline(a_start(ran), PodsReadyRules()) == NOW + 15 * MINUTE


@pytest.mark.parametrize(
    ("runs", "times"),
    [
        ((late(), late()), 2),
        ((late(), moved(1, 2), late()), 2),
        ((late(), Run(outcome="preempt"), Run(outcome="requeue"), late()), 2),
        ((late(), Run(outcome="preempt", started_at=5), late()), 1),
        ((late(), late(), Run(outcome="deactivate", why="PodsReadyTimeout")), 0),
        ((late(started_at=5), late()), 2),
    ],
    ids=["twice", "drained between", "yielded between", "ran between", "let in again", "lost pods"],
)
def test_who_was_late_is_counted_in_a_row(runs: tuple[Run, ...], times: int) -> None:
    assert timeouts_in_row(a_start(*runs)) == times


def test_the_back_off_has_the_base_and_the_most_that_were_set() -> None:
    ready = PodsReadyRules(backoff_base_ms=10 * SECOND, backoff_max_ms=25 * SECOND)
    waits = [
        too_late(a_start(*([late()] * n)), NOW, ready, "late").not_before - NOW for n in range(4)
    ]

    assert [wait // (10 * SECOND) for wait in waits[:2]] == [1, 2]
    assert all(25 <= wait / SECOND <= 30 for wait in waits[2:])


def test_two_gangs_that_were_late_together_do_not_come_back_together() -> None:
    ready = PodsReadyRules()
    backs = {too_late(replace(a_start(), id=f"w{n}"), NOW, ready, "late").not_before
             for n in range(20)}  # fmt: skip

    assert len(backs) == 20
    again = too_late(replace(a_start(), id="w1"), NOW, ready, "late").not_before
    assert again in backs, "the same workload, the same wait"


def test_who_was_late_too_often_is_held() -> None:
    ready = PodsReadyRules(backoff_limit_count=2)

    assert too_late(a_start(late()), NOW, ready, "late").kind is IntentKind.REQUEUE
    last = too_late(a_start(late(), late()), NOW, ready, "late")
    assert last.kind is IntentKind.DEACTIVATE
    assert "3 times in a row" in last.message
    assert "backoffLimitCount 2" in last.message


@pytest.mark.parametrize(("timestamp", "moves"), [("Eviction", True), ("Creation", False)])
def test_the_eviction_orders_it_in_its_queue_unless_its_creation_is_to(
    timestamp: str, moves: bool
) -> None:
    plane = Plane()
    stored(plane, "SchedulingPolicy", "all", a_policy(requeuingStrategy={"timestamp": timestamp}))
    starting(plane)
    late_after(plane)
    intent = plane.record().intent
    assert isinstance(intent, Intent)
    evicted_at = plane.clock.now()

    back = queued_again(plane)

    assert back.state is State.PENDING
    assert ordering_time(back) == (evicted_at if moves else back.created_at)
    assert back.runs[-1].why == "PodsReadyTimeout"


def queued_again(plane: Plane) -> Workload:
    plane.act()(CLUSTER, ["w1"])
    plane.look()
    plane.admit()(ROOT)
    return plane.record()


def test_the_message_names_the_timeout_and_the_pods_without_a_machine() -> None:
    plane = Plane()
    stored(plane, "ClusterQueue", "a", a_queue("5m"))
    starting(plane)
    for key, pod in list(plane.kubernetes.objects.items()):
        if key[0] == "Pod":
            spec = {name: value for name, value in pod["spec"].items() if name != "nodeName"}
            plane.kubernetes.objects[key] = {**pod, "spec": spec, "status": {"phase": "Pending"}}
    late_after(plane)

    intent = plane.record().intent
    assert isinstance(intent, Intent)
    assert "within 300 s" in intent.message
    assert f"{JOB}-" in intent.message


def test_a_pod_that_is_lost_later_is_waited_for_as_long_as_recovery_timeout_says() -> None:
    plane = Plane()
    starting(plane, wait_for_pods_ready={"recovery_timeout_seconds": 120})
    plane.workloads.write(replace(plane.record(), started_at=plane.clock.now()))
    for key, pod in list(plane.kubernetes.objects.items()):
        if key[0] == "Pod":
            at = stamp(plane.clock.now())
            conditions = [{"type": "Ready", "status": "False", "lastTransitionTime": at}]
            status = {"phase": "Running", "conditions": conditions}
            plane.kubernetes.objects[key] = {**pod, "status": status}

    assert late_after(plane) == 120
    intent = plane.record().intent
    assert isinstance(intent, Intent)
    assert "not ready again within 120 s" in intent.message


def test_without_a_recovery_timeout_a_workload_that_ran_is_never_late() -> None:
    plane = Plane()
    starting(plane)
    plane.workloads.write(replace(plane.record(), started_at=plane.clock.now()))

    assert late_after(plane) == 3_600


def stamp(at: int) -> str:
    return datetime.fromtimestamp(at / 1000, UTC).isoformat().replace("+00:00", "Z")


def test_the_rules_of_a_document_survive_their_record() -> None:
    assert pods_ready.UNSAID.over(None) == WaitForPodsReady()
    own = options_of({"wait_for_pods_ready": {"timestamp": "Creation", "timeout_seconds": 5}})
    assert own.wait_for_pods_ready == WaitForPodsReady(5, timestamp=RequeuingTimestamp.CREATION)
