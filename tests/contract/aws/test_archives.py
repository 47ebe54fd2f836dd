"""Archives of checkpoints on moto's S3 and ECR."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import boto3
import pytest
from moto import mock_aws
from sluice.adapters.checkpoint_archives import CheckpointArchives
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.migrations.checkpointing import Checkpoint, Part
from sluice.errors import SluiceError
from sluice.ports import Archive

HOUR_MS = 3_600_000
REGION, BUCKET, NAME = "us-east-1", "bucket", "sluice/checkpoints"
MANIFEST = (
    '{"schemaVersion": 2, "mediaType": "application/vnd.oci.image.manifest.v1+json",'
    ' "config": {"mediaType": "x", "digest": "sha256:%s", "size": 1}, "layers": []}'
)


@dataclass(frozen=True)
class Stored:
    archives: CheckpointArchives
    s3: Any
    ecr: Any
    repository: str

    def put(self, n: int) -> Checkpoint:
        """A checkpoint with its archive and its image."""
        self.s3.put_object(
            Bucket=BUCKET, Key=f"checkpoints/{n}.tar", Body=b"x" * n, ServerSideEncryption="AES256"
        )
        self.ecr.put_image(
            repositoryName=NAME, imageTag=f"t{n}", imageManifest=MANIFEST % (f"{n}" * 64)
        )
        return Checkpoint(
            "w", 0, f"s3://{BUCKET}/checkpoints/{n}.tar", n, CheckpointMode.KUBELET, n,
            image=f"{self.repository}:t{n}",
        )  # fmt: skip

    def tags(self) -> list[str]:
        images = self.ecr.list_images(repositoryName=NAME)["imageIds"]
        return sorted(each["imageTag"] for each in images)


@pytest.fixture
def stored(monkeypatch: pytest.MonkeyPatch) -> Iterator[Stored]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "test")
    with mock_aws():
        s3 = boto3.client("s3", region_name=REGION)
        ecr: Any = boto3.client("ecr", region_name=REGION)  # type: ignore[call-overload]
        s3.create_bucket(Bucket=BUCKET)
        uri = ecr.create_repository(repositoryName=NAME)["repository"]["repositoryUri"]
        yield Stored(
            CheckpointArchives(s3, lambda: ecr, f"s3://{BUCKET}/checkpoints/"), s3, ecr, uri
        )


def test_an_archive_says_how_large_it_is_and_how_it_is_encrypted(stored: Stored) -> None:
    checkpoint = stored.put(7)

    assert stored.archives.look(checkpoint) == Archive(7, "AES256")


def test_archive_and_image_are_removed_and_others_stay(stored: Stored) -> None:
    one, two = stored.put(1), stored.put(2)

    stored.archives.remove(one)
    stored.archives.remove(one)

    assert stored.archives.look(one) is None
    assert stored.archives.look(two) == Archive(2, "AES256")
    assert stored.tags() == ["t2"]


def test_a_set_is_there_as_a_whole_or_not_and_goes_as_a_whole(stored: Stored) -> None:
    parts = tuple(
        Part(str(n), one.uri, n, image=one.image) for n in (3, 4) if (one := stored.put(n))
    )
    whole = Checkpoint(
        "w", 0, f"s3://{BUCKET}/checkpoints/", 1, CheckpointMode.KUBELET, 7, parts=parts
    )
    other = stored.put(5)
    assert stored.archives.look(whole) == Archive(7, "AES256")

    stored.s3.delete_object(Bucket=BUCKET, Key="checkpoints/4.tar")
    assert stored.archives.look(whole) is None
    stored.archives.remove(whole)

    assert stored.archives.look(other) == Archive(5, "AES256")
    assert stored.tags() == ["t5"]


def test_what_cannot_be_removed_says_so(stored: Stored) -> None:
    elsewhere = Checkpoint("w", 0, "", 1, CheckpointMode.KUBELET, image="registry.example/x:1")
    lost = Checkpoint("w", 0, "s3://no-such-bucket/x", 1, CheckpointMode.KUBELET)

    with pytest.raises(SluiceError, match="only ECR"):
        stored.archives.remove(elsewhere)
    with pytest.raises(SluiceError, match="cannot be removed"):
        stored.archives.remove(lost)


def test_archives_are_listed_by_workload_and_discarded_one_by_one(stored: Stored) -> None:
    names = ("abc/0/move-0/pod-1.tar", "abc/12/first-12/pod-2.tar", "ax/0/move-0/p.tar")
    others = ("abc/notes.txt", "b/0/move-0/pod.tar")
    for name in (*names, *others):
        stored.s3.put_object(Bucket=BUCKET, Key=f"checkpoints/{name}", Body=b"")

    found = list(stored.archives.stored("a"))

    assert [each.uri for each in found] == [f"s3://{BUCKET}/checkpoints/{name}" for name in names]
    assert [(each.workload, each.generation) for each in found] == [
        ("abc", 0),
        ("abc", 12),
        ("ax", 0),
    ]
    assert abs(found[0].at - time.time() * 1000) < HOUR_MS
    for _ in range(2):
        stored.archives.discard(found[1].uri)
    assert [each.workload for each in stored.archives.stored("a")] == ["abc", "ax"]


def test_a_bucket_that_is_closed_is_an_error_of_ours(stored: Stored) -> None:
    closed = CheckpointArchives(stored.s3, lambda: stored.ecr, "s3://absent/checkpoints/")

    with pytest.raises(SluiceError, match="cannot be listed"):
        list(closed.stored("a"))
    with pytest.raises(SluiceError, match="cannot be removed"):
        closed.discard("s3://absent/checkpoints/abc/0/move-0/pod.tar")
