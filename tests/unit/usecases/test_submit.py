"""Every message becomes a record: PENDING, or REJECTED with advice; neighbours do not matter."""

from __future__ import annotations

import hashlib
import json
from dataclasses import replace
from typing import Any

import pytest
from sluice.core.lifecycle.record import State, Workload
from sluice.core.values.identity import workload_id
from sluice.ports import CatalogEdit, Created
from sluice.usecases.admitting.submit import MESSAGE_MS, Judged, Message, Submit

from tests.fakes import MemoryWorkloads
from tests.unit.usecases.plane import (
    NAMESPACE,
    TENANT,
    Plane,
    a_document,
    a_message,
    a_workload,
)
from tests.unit.usecases.world import CEDANA, CLUSTER, ROOT


def a_plain_job(**pod: Any) -> dict[str, Any]:
    container = {
        "name": "main",
        "image": "python:3.11",
        "resources": {"requests": {"cpu": "1"}},
    }
    spec = {"restartPolicy": "Never", "containers": [container], **pod}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": "plain",
            "namespace": NAMESPACE,
            "labels": {"kueue.x-k8s.io/queue-name": "research"},
        },
        "spec": {"template": {"spec": spec}},
    }


def rows(plane: Plane) -> list[Workload]:
    return list(plane.workloads.rows.values())


def test_a_good_document_becomes_a_pending_record_with_its_manifest() -> None:
    plane = Plane()
    document = a_document()

    outcome = plane.submit()([a_message(document)])

    assert (outcome.accepted, outcome.rejected, outcome.failed) == (1, 0, ())
    (record,) = rows(plane)
    assert record.id == workload_id(NAMESPACE, "k1")
    assert (record.state, record.cq, record.root, record.tenant) == (
        State.PENDING, "a", ROOT, "blue",
    )  # fmt: skip
    assert record.pod_sets[0].requests == {"cpu": 1000}
    assert plane.manifests.rows == {record.manifest_key: document}


def test_d1_a_message_that_cannot_be_judged_comes_again_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding D1: one document took the batch of all tenants with it, ten times."""
    plane, judge = Plane(), Submit.judge

    def fails(submit: Submit, message: Message, *known: Any) -> list[Judged]:
        if message.id == "m-bad":
            raise ZeroDivisionError
        return judge(submit, message, *known)

    monkeypatch.setattr(Submit, "judge", fails)
    bad = replace(a_message(a_document(key="bad")), id="m-bad")

    outcome = plane.submit()([bad, a_message(a_document())])

    assert [each.message_id for each in outcome.failed] == ["m-bad"]
    assert [row.state for row in rows(plane)] == [State.PENDING]


def test_d2_a_message_that_takes_too_long_is_rejected_and_its_neighbours_are_judged() -> None:
    plane = Plane()
    submit = plane.submit()
    fetch = plane.manifests.fetch

    def slow(reference: str, sha256: str) -> bytes:
        plane.clock.pass_ms(MESSAGE_MS + 1)
        return fetch(reference, sha256)

    plane.manifests.fetch = slow  # type: ignore[method-assign]
    items = [{"manifestRef": f"s3://bucket/{n}", "sha256": "0" * 64} for n in range(9)]

    outcome = submit([a_message({"kind": "List", "items": items}), a_message(a_document())])

    assert (outcome.accepted, outcome.rejected, outcome.failed) == (1, 9, ())


def test_d3_a_record_that_no_transaction_could_take_with_others_is_rejected() -> None:
    """Finding D3: eleven records of 380 KB stopped the admission of all tenants."""
    plane = Plane()
    document = a_document()
    document["metadata"]["labels"] = {f"l{n}": "x" * 63 for n in range(900)}

    outcome = plane.submit()([a_message(document)])

    assert (outcome.accepted, outcome.rejected) == (0, 1)
    (record,) = rows(plane)
    assert "shorten the labels" in record.reason.message


def test_cedana_is_accepted_as_soon_as_a_cluster_has_it() -> None:
    plane = Plane()
    before = plane.catalog.snapshot().version
    known = ("Cluster", CLUSTER, {"spec": {"cedana": CEDANA}})
    assert plane.catalog.edit(CatalogEdit(before, (known,)))

    outcome = plane.submit()([a_message(a_document(checkpoint={"mode": "cedana"}))])

    assert (outcome.accepted, outcome.rejected) == (1, 0)


def test_a_kind_of_an_add_on_is_accepted_as_soon_as_a_cluster_has_it() -> None:
    plane = Plane()
    container = {
        "name": "pytorch",
        "image": "train:1",
        "resources": {"requests": {"cpu": "1"}},
    }
    worker = {"template": {"spec": {"containers": [container]}}}
    job = {
        "apiVersion": "kubeflow.org/v1",
        "kind": "PyTorchJob",
        "spec": {"pytorchReplicaSpecs": {"Worker": worker}},
    }
    document = a_document(job=job)
    for written in ("image", "command", "resources"):
        del document["spec"][written]

    plane.submit()([a_message(document, "before")])
    known = ("Cluster", CLUSTER, {"spec": {"kinds": ["PyTorchJob"]}})
    assert plane.catalog.edit(CatalogEdit(plane.catalog.snapshot().version, (known,)))
    document["metadata"]["idempotencyKey"] = "after"
    plane.submit()([a_message(document, "after")])

    refused, taken = sorted(rows(plane), key=lambda row: row.state is State.PENDING)
    assert "no cluster runs a PyTorchJob" in refused.reason.message
    assert refused.reason.message.endswith("accepted: Job, JobSet")
    assert (taken.state, taken.kind) == (State.PENDING, "PyTorchJob")


ACCEPTABLE_PLAIN = a_plain_job()
BAD: list[tuple[str, Any, str, str]] = [
    ("malformed JSON", "{", "MISCONFIGURATION:SchemaInvalid", "JSON"),
    ("no object", "[]", "MISCONFIGURATION:SchemaInvalid", "must be a JSON object"),
    ("null", "null", "MISCONFIGURATION:SchemaInvalid", "must be a JSON object"),
    ("empty object", {}, "MISCONFIGURATION:SchemaInvalid", "kind: is missing"),
    ("deep nesting", "[" * 100_000, "MISCONFIGURATION:SchemaInvalid", "nested"),
    ("a number that is none", '{"kind": NaN}', "MISCONFIGURATION:SchemaInvalid", "NaN"),
    ("unknown field", a_document(qeueu=1), "MISCONFIGURATION:SchemaInvalid", "spec.qeueu"),
    ("unknown queue", a_document(queue="x"), "MISCONFIGURATION:UnknownQueue", "research"),
    (
        "unknown priority",
        a_document(priority="urgent"),
        "MISCONFIGURATION:SchemaInvalid",
        "spec.priority: WorkloadPriorityClass urgent does not exist",
    ),
    (
        "cedana where nobody has it",
        a_document(checkpoint={"mode": "cedana"}),
        "MISCONFIGURATION:SchemaInvalid",
        "spec.checkpoint.mode: no Cluster has Cedana configured",
    ),
    (
        "impossible size",
        a_document(resources={"cpu": 3}),
        "QUOTA:ExceedsMaximum",
        "can never have more than 2",
    ),
    (
        "a resource without quota",
        a_document(resources={"cpu": 1, "gpu": 1}),
        "QUOTA:ExceedsMaximum",
        "no quota for nvidia.com/gpu",
    ),
    (
        "a product beyond all bounds",
        a_document(parallelism=2**31, resources={"gpu": 2**33}),
        "MISCONFIGURATION:SchemaInvalid",
        "spec.",
    ),
    (
        "host path",
        a_plain_job(volumes=[{"name": "h", "hostPath": {"path": "/"}}]),
        "MISCONFIGURATION:PolicyDenied",
        "hostPath",
    ),
    (
        "host network",
        a_plain_job(hostNetwork=True),
        "MISCONFIGURATION:PolicyDenied",
        "hostNetwork",
    ),
    (
        "service account",
        a_plain_job(serviceAccountName="admin"),
        "MISCONFIGURATION:SchemaInvalid",
        "serviceAccountName",
    ),
    (
        "foreign registry",
        a_document(image="evil.example/x"),
        "MISCONFIGURATION:PolicyDenied",
        "spec.image",
    ),
    (
        "foreign namespace",
        a_document() | {"metadata": {"name": "x", "namespace": "kube-system"}},
        "MISCONFIGURATION:PolicyDenied",
        "metadata.namespace: tenant blue may use only team",
    ),
    (
        "a mebibyte",
        a_document(padding="x" * 1_048_000),
        "MISCONFIGURATION:SchemaInvalid",
        "spec.padding",
    ),
    (
        "more than a mebibyte",
        a_document(padding="x" * 1_049_000),
        "MISCONFIGURATION:SchemaInvalid",
        "store the document in S3",
    ),
    (
        "an idempotency key with a path",
        a_document("../../x"),
        "MISCONFIGURATION:SchemaInvalid",
        "metadata.idempotencyKey",
    ),
    (
        "an unknown reference",
        {"manifestRef": "s3://manifests/x.json", "sha256": "0" * 64},
        "MISCONFIGURATION:SchemaInvalid",
        "manifestRef: cannot read",
    ),
    (
        "a reference to a bucket of others",
        {"manifestRef": "s3://secrets/x.json", "sha256": "0" * 64},
        "MISCONFIGURATION:SchemaInvalid",
        "may not refer to s3://secrets",
    ),
]


@pytest.mark.parametrize(("what", "body", "code", "advice"), BAD, ids=[b[0] for b in BAD])
def test_a_bad_message_is_a_rejected_record_and_its_neighbours_are_fine(
    what: str, body: Any, code: str, advice: str
) -> None:
    plane = Plane()
    before, after = a_document("before"), a_document("after")

    outcome = plane.submit()(
        [a_message(before, "m0"), a_message(body, "m1"), a_message(after, "m2")]
    )

    assert (outcome.accepted, outcome.rejected, outcome.failed) == (2, 1, ()), what
    (record,) = (row for row in rows(plane) if row.state is State.REJECTED)
    assert record.reason.code == code
    assert advice in record.reason.message
    assert record.errors
    assert record.finished_at == plane.clock.now()
    assert len(plane.manifests.rows) == 2
    for key in ("before", "after"):
        assert plane.record(workload_id(NAMESPACE, key)).state is State.PENDING


def test_the_plain_job_of_the_table_is_acceptable_without_its_flaw() -> None:
    assert Plane().submit()([a_message(ACCEPTABLE_PLAIN)]).accepted == 1


def test_a_rejected_submission_shows_all_its_errors() -> None:
    plane = Plane()

    plane.submit()([a_message(a_document(resources={"cpu": "x"}, command="true", extra=1))])

    (record,) = rows(plane)
    fields = [error.field for error in record.errors]
    assert {"spec.resources.cpu", "spec.command", "spec.extra"} <= set(fields)
    assert f"(and {len(fields) - 1} more)" in record.reason.message


@pytest.mark.parametrize("sender", ["AROAOTHER:AROATEAM", "AROAOTHER:admin", "", "AROATEA"])
def test_an_unknown_sender_is_told_so_and_nothing_of_the_body_is_kept(sender: str) -> None:
    plane = Plane()

    outcome = plane.submit()([a_message(a_document(), sender=sender)])

    assert (outcome.accepted, outcome.rejected) == (0, 1)
    (record,) = rows(plane)
    assert record.reason.code == "MISCONFIGURATION:PolicyDenied"
    assert (record.name, record.namespace, record.queue) == ("", "", "/-")
    assert plane.manifests.rows == {}


def test_the_same_message_again_is_a_success_and_changes_nothing() -> None:
    plane = Plane()
    plane.submit()([a_message(a_document())])
    before = rows(plane)
    plane.clock.pass_ms(700_000)

    outcome = plane.submit()([a_message(a_document()), a_message(a_document(), "m2")])

    assert (outcome.accepted, outcome.rejected, outcome.failed) == (2, 0, ())
    assert rows(plane) == before


def test_a_key_that_is_used_again_for_another_body_is_a_visible_conflict() -> None:
    plane = Plane()
    plane.submit()([a_message(a_document())])
    (first,) = rows(plane)
    other = a_message(a_document(command=["false"]), "m2")

    for _ in range(2):  # the message may come twice
        outcome = plane.submit()([other])
        assert (outcome.accepted, outcome.rejected) == (0, 1)

    assert plane.record(first.id) == first
    (conflict,) = (row for row in rows(plane) if row.id != first.id)
    assert conflict.state is State.REJECTED
    assert conflict.reason.code == "MISCONFIGURATION:KeyReused"
    assert first.id in conflict.reason.message


def test_of_two_bodies_under_one_key_in_one_batch_one_wins() -> None:
    plane = Plane()
    messages = [a_message(a_document(), "m1"), a_message(a_document(command=["false"]), "m2")]

    outcome = plane.submit()(messages)

    assert (outcome.accepted, outcome.rejected) == (1, 1)
    winner = plane.record(workload_id(NAMESPACE, "k1"))
    assert plane.manifests.rows[winner.manifest_key]["spec"]["command"] == ["true"]


def test_a_corrected_document_takes_the_place_of_its_rejected_one() -> None:
    plane = Plane()
    plane.submit()([a_message(a_document(resources={"cpu": 3}))])
    assert rows(plane)[0].state is State.REJECTED

    assert plane.submit()([a_message(a_document(), "m2")]).accepted == 1
    (record,) = rows(plane)
    assert record.state is State.PENDING


class BrokenFor(MemoryWorkloads):
    """DynamoDB that refuses one record."""

    broken = ""

    def create(self, workload: Workload) -> Created:
        if workload.id == self.broken:
            raise ConnectionError("the table is away")
        return super().create(workload)


def test_only_the_message_whose_record_cannot_be_written_comes_again() -> None:
    plane, workloads = Plane(), BrokenFor()
    workloads.broken = workload_id(NAMESPACE, "k2")
    documents = [a_document(f"k{number}") for number in range(1, 4)]
    messages = [a_message(d, f"m{number}") for number, d in enumerate(documents, start=1)]

    outcome = plane.submit(workloads)(messages)

    assert outcome.accepted == 2
    (failure,) = outcome.failed
    assert failure.message_id == "m2"
    assert "the table is away" in str(failure.error)
    assert set(workloads.rows) == {workload_id(NAMESPACE, key) for key in ("k1", "k3")}


def test_a_list_makes_a_record_of_each_item_under_one_message() -> None:
    plane = Plane()
    items = [a_document("k1"), {"kind": "Workload"}, a_document("k3")]

    outcome = plane.submit()([a_message({"kind": "List", "items": items})])

    assert (outcome.accepted, outcome.rejected) == (2, 1)
    assert len(rows(plane)) == 3


def test_a_list_with_one_unwritable_item_fails_as_one_message() -> None:
    plane, workloads = Plane(), BrokenFor()
    workloads.broken = workload_id(NAMESPACE, "k2")
    document = {"kind": "List", "items": [a_document("k1"), a_document("k2")]}

    outcome = plane.submit(workloads)([a_message(document)])

    assert [failure.message_id for failure in outcome.failed] == ["m1"]


def test_an_event_speaks_for_the_tenant_of_its_source_not_of_its_sender() -> None:
    plane = Plane()
    envelope = {
        "source": "blue.pipeline",
        "detail-type": "Sluice Workload Submission",
        "detail": a_document(),
    }
    stranger = {**envelope, "source": "red.pipeline"}

    accepted = plane.submit()([a_message(envelope, sender="", from_bus=True)])
    refused = plane.submit()([a_message(stranger, "m2", sender="AROATEAM:x", from_bus=True)])

    assert (accepted.accepted, refused.rejected) == (1, 1)


def test_a_reference_is_read_and_judged_like_a_body() -> None:
    plane = Plane()
    body = json.dumps(a_document()).encode()
    plane.manifests.objects["s3://manifests/a.json"] = body
    digest = hashlib.sha256(body).hexdigest()

    outcome = plane.submit()(
        [a_message({"manifestRef": "s3://manifests/a.json", "sha256": digest})]
    )

    assert outcome.accepted == 1
    assert plane.record(workload_id(NAMESPACE, "k1")).state is State.PENDING


def test_a_tenant_may_have_so_many_waiting_and_the_next_is_visibly_rejected() -> None:
    plane = Plane()
    tenant = {**TENANT, "spec": {**TENANT["spec"], "maxPending": 2}}
    version = plane.catalog.snapshot().version
    assert plane.catalog.edit(CatalogEdit(version, (("Tenant", "blue", tenant),)))
    plane.put(a_workload("other", queue="elsewhere/research"))
    submit = plane.submit()

    done = submit([a_message(a_document(key), key) for key in ("k1", "k2", "k3")])

    assert (done.accepted, done.rejected) == (2, 1)
    (capped,) = [w for w in plane.workloads.rows.values() if w.state is State.REJECTED]
    assert capped.reason.code == "QUOTA:PendingCap"
    assert "has 2 workloads waiting already" in capped.reason.message

    plane.admit()(ROOT)
    plane.clock.pass_ms(10_000)
    assert submit([a_message(a_document("k3"), "again")]).accepted == 1
    assert plane.record(capped.id).state is State.PENDING
