"""Findings S5, S6 and S7: which images and documents a tenant may name."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

import boto3
import moto
import pytest
from sluice.adapters.dynamodb_manifests import DynamoDBManifests
from sluice.core.config.tenants import parse
from sluice.core.intake.images import refusal
from sluice.core.lifecycle.record import State, Workload

HOST = "111122223333.dkr.ecr.eu-west-1.amazonaws.com"
DIGEST = f"@sha256:{'a' * 64}"
RED = {
    "apiVersion": "sluice.dev/v1",
    "kind": "Tenant",
    "metadata": {"name": "red"},
    "spec": {"namespaces": ["research"]},
}


@pytest.mark.parametrize(
    ("repository", "allowed"),
    [
        ("red/train", True),
        ("research/train", True),
        ("blue/private", False),
        ("sluice-cluster-access-batch-1-agentcheckpoints1234-abcd", False),
        ("red", False),
        ("blue/red/train", False),
    ],
)
def test_s5_by_default_a_tenant_runs_images_of_its_own_repositories(
    repository: str, *, allowed: bool
) -> None:
    tenant = parse(RED)

    why = refusal(f"{HOST}/{repository}{DIGEST}", tenant.allowed_images, require_digest=True)

    assert (why is None) == allowed


@pytest.fixture
def manifests(monkeypatch: pytest.MonkeyPatch) -> Iterator[DynamoDBManifests]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    with moto.mock_aws():
        dynamodb = boto3.client("dynamodb", region_name="us-east-1")
        s3 = boto3.client("s3", region_name="us-east-1")
        s3.create_bucket(Bucket="bucket")
        dynamodb.create_table(
            TableName="manifests",
            BillingMode="PAY_PER_REQUEST",
            KeySchema=[{"AttributeName": "id", "KeyType": "HASH"}],
            AttributeDefinitions=[{"AttributeName": "id", "AttributeType": "S"}],
        )
        yield DynamoDBManifests(dynamodb, s3, "manifests", "bucket")


@pytest.mark.parametrize("key", ["red/x?versionId=y", "red/x#fragment", "red/ü ?&%20"])
def test_s6_the_key_that_was_allowed_is_the_key_that_is_read(
    manifests: DynamoDBManifests, key: str
) -> None:
    """Finding S6: `?` and `#` were cut off, so another object was read than was checked."""
    manifests.s3.put_object(Bucket="bucket", Key="red/x", Body=b"another")
    manifests.s3.put_object(Bucket="bucket", Key=key, Body=b"asked for")

    found = manifests.fetch(f"s3://bucket/{key}", hashlib.sha256(b"asked for").hexdigest())

    assert found == b"asked for"


def test_s7_the_key_of_a_manifest_holds_the_whole_digest() -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    workload = Workload("w", "n", "ns", "ns/q", State.PENDING, digest=digest)

    assert workload.manifest_key == f"w.{digest}"


def test_s7_a_stored_manifest_is_never_overwritten(manifests: DynamoDBManifests) -> None:
    """Finding S7: a manifest could be swapped after it had been counted."""
    manifests.put_many({"w.1": {"cpu": 1}})
    manifests.put_many({"w.1": {"cpu": 64}, "w.2": {"cpu": 2}})

    assert manifests.get_many(["w.1", "w.2"]) == {"w.1": {"cpu": 1}, "w.2": {"cpu": 2}}


def test_s7_manifests_of_earlier_versions_are_found(manifests: DynamoDBManifests) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    manifests.put_many({f"w.{digest[:16]}": {"cpu": 1}})

    assert manifests.get_many([f"w.{digest}", "gone.1"]) == {f"w.{digest}": {"cpu": 1}}


def test_s7_a_document_of_the_whole_key_comes_first(manifests: DynamoDBManifests) -> None:
    digest = hashlib.sha256(b"x").hexdigest()
    manifests.put_many({f"w.{digest[:16]}": {"cpu": 1}, f"w.{digest}": {"cpu": 2}})

    assert manifests.get_many([f"w.{digest}"]) == {f"w.{digest}": {"cpu": 2}}
