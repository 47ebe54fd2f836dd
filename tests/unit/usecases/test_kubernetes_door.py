"""What users create in a cluster themselves: the same intake, and one object for all its runs."""

from __future__ import annotations

import copy
import json
import zlib
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.intake.kubernetes_door import document_of
from sluice.core.lifecycle import in_place
from sluice.core.lifecycle.record import Intent, IntentKind, PodSet, State, Workload
from sluice.core.lifecycle.transitions import cancel_pending, lose, reclaim
from sluice.core.values.identity import workload_id
from sluice.core.values.plain import to_plain
from sluice.ports import CatalogEdit, LedgerState, StreamRecord
from sluice.usecases.admitting.submit import Message
from sluice.usecases.fleet import beat

from tests.unit.usecases.plane import NAMESPACE, SENDER, Plane, admitted
from tests.unit.usecases.world import CLUSTER, ROOT

JOB: dict[str, Any] = {
    "apiVersion": "batch/v1",
    "kind": "Job",
    "metadata": {
        "name": "train",
        "namespace": NAMESPACE,
        "creationTimestamp": "2027-01-15T08:00:00Z",
        "labels": {"kueue.x-k8s.io/queue-name": "research"},
        "annotations": {"sluice.dev/user": "alice"},
    },
    "spec": {
        "suspend": True,
        "selector": {"matchLabels": {"batch.kubernetes.io/controller-uid": "u"}},
        "parallelism": 1,
        "template": {
            "metadata": {"labels": {"batch.kubernetes.io/controller-uid": "u", "app": "x"}},
            "spec": {
                "restartPolicy": "Never",
                "containers": [
                    {
                        "name": "main",
                        "image": "docker.io/library/train:1",
                        "resources": {"requests": {"cpu": "1"}},
                    }
                ],
            },
        },
    },
    "status": {"conditions": [{"type": "Suspended", "status": "True"}]},
}


def a_job(name: str = "train", **metadata: Any) -> dict[str, Any]:
    job = copy.deepcopy(JOB)
    job["metadata"] |= {"name": name, **metadata}
    return job


def at_the_door(plane: Plane, *jobs: dict[str, Any]) -> list[dict[str, Any]]:
    made = [each for job in jobs if isinstance(each := plane.kubernetes.create(job), dict)]
    plane.observe().door.look(CLUSTER, plane.kubernetes)
    return made


def record_of(plane: Plane, job: dict[str, Any]) -> Workload:
    return plane.record(workload_id(NAMESPACE, job["metadata"]["uid"]))


def run(plane: Plane, job: dict[str, Any]) -> Workload:
    plane.admit()(ROOT)
    plane.act()(CLUSTER, [record_of(plane, job).id])
    return record_of(plane, job)


def events(plane: Plane, job: dict[str, Any]) -> list[str]:
    uid = job["metadata"]["uid"]
    return [
        each["reason"]
        for (kind, _, _), each in plane.kubernetes.objects.items()
        if kind == "Event" and each["involvedObject"]["uid"] == uid
    ]


def now(plane: Plane, job: dict[str, Any]) -> dict[str, Any]:
    found = plane.kubernetes.get("Job", NAMESPACE, job["metadata"]["name"])
    assert found is not None
    return found


def test_a_job_at_the_door_is_submitted_once_for_its_tenant_and_its_user() -> None:
    plane = Plane()

    (job,) = at_the_door(plane, a_job())
    plane.observe().door.look(CLUSTER, plane.kubernetes)

    record = record_of(plane, job)
    assert (record.state, record.tenant, record.submitted_by) == (State.PENDING, "blue", "alice")
    assert (record.name, record.queue, record.kind) == ("train", f"{NAMESPACE}/research", "Job")
    assert record.object is not None
    assert record.object.cluster == CLUSTER
    assert len(plane.workloads.rows) == 1
    assert events(plane, job) == ["Queued"]


def test_what_the_intake_refuses_stays_suspended_and_says_why() -> None:
    plane = Plane()
    wrong = a_job(labels={"kueue.x-k8s.io/queue-name": "unknown"})

    (job,) = at_the_door(plane, wrong)

    assert record_of(plane, job).state is State.REJECTED
    assert events(plane, job) == ["Refused"]
    assert now(plane, job)["spec"]["suspend"] is True


def test_a_job_of_a_namespace_without_a_tenant_is_refused() -> None:
    plane = Plane()

    (job,) = at_the_door(plane, a_job(namespace="nobodys"))

    (record,) = plane.workloads.rows.values()
    assert record.state is State.REJECTED
    assert "no Tenant grants the namespace nobodys" in record.reason.message
    assert events(plane, job) == ["Refused"]


def test_the_same_object_runs_once_it_is_admitted() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())

    record = run(plane, job)

    assert (record.state, record.uid) == (State.DISPATCHED, job["metadata"]["uid"])
    started = now(plane, job)
    assert started["spec"]["suspend"] is False
    template = started["spec"]["template"]
    assert template["spec"]["nodeSelector"] == {"karpenter.sh/nodepool": "spot"}
    assert template["metadata"]["labels"]["sluice.dev/workload"] == record.id
    assert template["metadata"]["labels"]["app"] == "x"
    assert plane.kubernetes.running() == [record.id]
    assert [key for key in plane.kubernetes.objects if key[0] == "Job"] == [
        ("Job", NAMESPACE, "train")
    ]
    assert events(plane, job) == ["Queued", "Started"]


def test_preemption_suspends_the_object_and_a_later_admission_starts_it_again() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    record = run(plane, job)
    preempted = Intent(IntentKind.PREEMPT, "PRIORITY:Preempted", "by another one")
    assert plane.workloads.apply([reclaim(record, preempted)]) == [True]

    plane.act()(CLUSTER, [record.id])
    plane.act()(CLUSTER, [record.id])

    assert plane.record(record.id).gone
    assert plane.kubernetes.running() == []
    assert now(plane, job)["spec"]["suspend"] is True
    plane.admit()(ROOT)  # gives the quota back
    again = run(plane, job)
    assert (again.state, again.generation) == (State.DISPATCHED, 1)
    assert now(plane, job)["metadata"]["uid"] == job["metadata"]["uid"]
    assert now(plane, job)["spec"]["template"]["metadata"]["labels"]["sluice.dev/generation"] == "1"
    assert plane.kubernetes.running() == [record.id]
    assert "Preempted" in events(plane, job)


def test_what_still_runs_in_a_cluster_that_was_given_up_is_stopped_before_it_runs_again() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    record = run(plane, job)
    given_up = Intent(IntentKind.REQUEUE, "RECOVERY:ClusterLost", "gone for good")
    assert plane.workloads.apply([lose(record, given_up)]) == [True]
    plane.admit()(ROOT)  # gives the quota back; nobody has told the cluster
    assert plane.kubernetes.running() == [record.id]

    again = run(plane, job)

    assert (again.state, again.generation) == (State.DISPATCHED, 1)
    assert plane.kubernetes.running() == [record.id]
    assert plane.kubernetes.started == ["train", "train"]


def test_a_late_start_of_a_stopped_generation_changes_nothing() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    record = run(plane, job)
    requeued = Intent(IntentKind.REQUEUE, "RECOVERY:JobLost", "again")
    plane.workloads.apply([reclaim(record, requeued)])
    plane.act()(CLUSTER, [record.id])
    stopped = now(plane, job)

    assert in_place.start(stopped, record.generation) is None
    assert in_place.prepare(stopped, stopped, record.generation) is None


def test_no_generation_is_proven_to_have_stopped_before_its_controller_says_so() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    run(plane, job)
    started = now(plane, job)
    unseen = started | {"status": {}}
    stopped = copy.deepcopy(started) | {"status": {"startTime": "now"}}
    stopped["metadata"]["annotations"][in_place.STOPPED] = "0"

    assert in_place.stop(unseen, 0) is in_place.Stopping.WAIT
    assert in_place.stop(stopped, 0) is in_place.Stopping.WAIT
    stopped["status"]["conditions"] = [{"type": "Suspended", "status": "True"}]
    assert in_place.stop(stopped, 0) is in_place.Stopping.PROVEN


@pytest.mark.parametrize("admitted", [False, True])
def test_deleting_the_object_cancels_its_workload(admitted: bool) -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    if admitted:
        run(plane, job)
    plane.kubernetes.delete("Job", NAMESPACE, "train")

    plane.observe().door.follow(CLUSTER, plane.kubernetes, [("DELETED", job)])
    plane.act()(CLUSTER, [record_of(plane, job).id])
    plane.admit()(ROOT)

    record = record_of(plane, job)
    assert record.state is State.CANCELLED
    assert record.reason.message == in_place.DELETED
    assert not any(plane.ledgers.read(ROOT).usage.values())


def test_an_object_that_was_deleted_unseen_is_found_missing_when_it_is_to_run() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    plane.kubernetes.delete("Job", NAMESPACE, "train")

    run(plane, job)
    plane.act()(CLUSTER, [record_of(plane, job).id])
    plane.admit()(ROOT)

    assert record_of(plane, job).state is State.CANCELLED


def test_a_cancelled_job_stays_suspended_for_its_owner_to_see() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    record = run(plane, job)
    plane.workloads.apply([reclaim(record, Intent(IntentKind.CANCEL, "CANCELLED:User", "enough"))])

    plane.act()(CLUSTER, [record.id])
    plane.act()(CLUSTER, [record.id])
    plane.admit()(ROOT)
    plane.look()

    assert record_of(plane, job).state is State.CANCELLED
    assert now(plane, job)["spec"]["suspend"] is True
    assert "Cancelled" in events(plane, job)


def test_who_is_cancelled_while_it_waits_is_told_so_on_its_object() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    before = record_of(plane, job)
    assert plane.workloads.apply([cancel_pending(before, "enough", plane.clock.now())]) == [True]

    plane.relay_use_case()([StreamRecord(before, record_of(plane, job), plane.clock.now())])
    for cluster, ids in plane.commands.sent:
        plane.act()(cluster, ids)

    assert events(plane, job) == ["Queued", "Cancelled"]
    assert now(plane, job)["spec"]["suspend"] is True


def test_its_own_end_is_seen_and_its_object_is_nobodys_to_delete() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    record = run(plane, job)
    plane.kubernetes.finish(NAMESPACE, "train")

    plane.look()
    plane.look()

    assert plane.record(record.id).state is State.FINISHED
    assert now(plane, job)
    assert cancel_pending(record, "", 0).guard.holds(plane.record(record.id)) is False


def test_a_dump_needs_another_object_and_is_refused_at_the_door() -> None:
    plane = Plane()

    (job,) = at_the_door(plane, a_job(annotations={"sluice.dev/checkpoint": "kubelet"}))

    record = record_of(plane, job)
    assert record.state is State.REJECTED
    assert record.errors[0].field == "metadata.annotations[sluice.dev/checkpoint]"


def test_it_runs_only_in_the_cluster_in_which_it_stands() -> None:
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    first_by_name = ("Cluster", "a-1", {"spec": {}})
    assert plane.catalog.edit(CatalogEdit(1, (first_by_name,), roots=(ROOT,)))
    beat(plane.nodes, "a-1", plane.clock.now())

    run(plane, job)

    assert record_of(plane, job).cluster == CLUSTER


def test_by_every_door_the_same_job_gets_the_same_record_reasons_and_runs() -> None:
    """The command sends messages, so its door is the one of SQS."""
    plane = Plane()
    (job,) = at_the_door(plane, a_job())
    plain = document_of(a_job(annotations={}))  # as its user has written it
    envelope = {
        "source": "blue.pipeline",
        "detail-type": "Sluice Workload Submission",
        "detail": plain,
    }
    created = record_of(plane, job).created_at
    plane.submit()(
        [
            Message("by-message", SENDER, created, json.dumps(plain)),
            Message("by-event", "", created, json.dumps(envelope), from_bus=True),
        ]
    )
    ids = [record_of(plane, job).id]
    ids += [workload_id(NAMESPACE, key) for key in ("by-message", "by-event")]
    own = {"id", "digest", "submitted_by", "object", "shape_hash"}

    told = [to_plain(plane.record(each)) for each in ids]
    first, second, third = [{k: v for k, v in each.items() if k not in own} for each in told]
    assert first == second == third
    held = plane.put(admitted("holder"))
    full = PodSet("main", 1, {"cpu": 2000})
    plane.workloads.write(replace(held, pod_sets=(full,)))
    plane.ledgers.ledgers[ROOT] = LedgerState(ROOT, 9, 0, {"a": {"spot|cpu": 2000}})
    plane.admit()(ROOT)
    refusals = json.loads(zlib.decompress(plane.ledgers.newest_pass(ROOT)["refusals"]))
    assert set(refusals) <= set(ids)  # who is equal to another is told with it
    assert len({tuple(refusal[:2]) for refusal in refusals.values()}) == 1

    plane.ledgers.ledgers[ROOT] = LedgerState(ROOT, 10, 0, {})
    for _ in range(4):  # there is room for two at once
        plane.admit()(ROOT)
        plane.act()(CLUSTER, ids)
        for _ in range(2):  # the first look finds the machine, the second one its share of it
            plane.look()
        for each in map(plane.record, ids):
            if each.state is State.DISPATCHED:
                name = each.object.name if each.object else f"w-{each.id}-g0"
                plane.kubernetes.finish(NAMESPACE, name)
        plane.look()
    assert {plane.record(each).state for each in ids} == {State.FINISHED}
    runs = [replace(plane.record(each).runs[-1], node="", instance="") for each in ids]
    assert runs[0] == runs[1] == runs[2]
