"""What arrives at a door becomes single documents, each with a key of its own."""

import json

import pytest
from sluice.core.intake.documents import Document, Malformed, ManifestReference, from_value, read

from tests.unit.submission.builders import a_job, a_workload

EVENT = {
    "version": "0",
    "id": "6f1b",
    "detail-type": "Sluice Workload Submission",
    "source": "team.blue",
    "account": "123456789012",
    "detail": a_workload(),
}
CLOUD_EVENT = {"specversion": "1.0", "type": "x", "source": "/a", "id": "1", "data": a_workload()}


@pytest.mark.parametrize(
    "body", [a_workload(), EVENT, CLOUD_EVENT, EVENT | {"detail": CLOUD_EVENT}]
)
def test_envelopes_are_opened(body):
    assert read(json.dumps(body)) == (Document(a_workload()),)


def test_a_list_gives_each_item_its_own_place_and_key():
    anonymous = a_job()
    body = {"kind": "List", "apiVersion": "v1", "items": [a_workload(), anonymous, 7]}

    first, second, third = read(json.dumps(body))

    assert isinstance(first, Document)
    assert isinstance(second, Document)
    assert first.key("m") == "nightly-1"
    assert second.key("m") == "m-1"
    assert isinstance(third, Malformed)
    assert third.key("m") == "m-2"


def test_a_list_in_a_list_is_refused_alone():
    good, bad = from_value({"kind": "List", "items": [a_workload(), {"kind": "List", "items": []}]})

    assert isinstance(good, Document)
    assert isinstance(bad, Malformed)


def test_a_list_has_a_limit():
    (item,) = from_value({"kind": "List", "items": [a_workload()] * 1001})

    assert isinstance(item, Malformed)


def test_a_plain_job_declares_its_key_by_annotation():
    job = a_job()
    job["metadata"]["annotations"] = {"sluice.dev/idempotency-key": "run-7"}

    assert Document(job).key("m") == "run-7"


def test_a_reference_is_parsed_to_a_place_and_a_checksum():
    body = {"manifestRef": "s3://blue-manifests/big/job.json", "sha256": "ab" * 32}

    assert from_value(body) == (ManifestReference("blue-manifests", "big/job.json", "ab" * 32),)


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"manifestRef": "https://x/y"}, "manifestRef"),
        ({"manifestRef": "s3://B/x"}, "manifestRef"),
        ({"manifestRef": 7}, "manifestRef"),
        ({"sha256": "AB" * 32}, "sha256"),
        ({"sha256": None}, "sha256"),
        ({"kind": "Job"}, "kind"),
    ],
)
def test_a_bad_reference_is_malformed(change, field):
    body = {"manifestRef": "s3://blue-manifests/job.json", "sha256": "ab" * 32} | change

    (item,) = from_value(body)

    assert isinstance(item, Malformed)
    assert [flaw.field for flaw in item.flaws] == [field]


def test_duplicate_keys_are_refused_since_readers_disagree_about_them():
    (item,) = read('{"kind": "Job", "kind": "Workload"}')

    assert isinstance(item, Malformed)
    assert "'kind' appears twice" in item.flaws[0].message
