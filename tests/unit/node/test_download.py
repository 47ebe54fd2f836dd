"""The download of a checkpoint, from moto's S3."""

import hashlib
import io
import json
import os
import tarfile
from collections.abc import Iterator, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from local.node.checkpoint import LAST, RestoreError, Saved, StoppedError, unpack
from local.node.download import RANGE_BYTES

SOURCE = "s3://checkpoints/archive"
SAVED = Saved("default", "pod", "u", "main", {}, 0, "4.2", "now")
PAGES = os.urandom(2 * RANGE_BYTES + 5)
MEMBERS = {
    "config.dump": json.dumps(asdict(SAVED)).encode(),
    "checkpoint/pages-1.img": PAGES,
    LAST: b"numbers",
}


def archive_of(members: Mapping[str, bytes]) -> bytes:
    """More than one range."""
    file = io.BytesIO()
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name, content in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            tar.addfile(entry, io.BytesIO(content))
    return file.getvalue()


class Buckets:
    def __init__(self, s3: Any) -> None:
        self.s3 = s3

    def client(self, _region: None) -> Any:
        return self.s3

    def hold(self, data: bytes) -> None:
        self.s3.put_object(Bucket="checkpoints", Key="archive", Body=data)


@pytest.fixture
def buckets() -> Iterator[Any]:
    with mock_aws():
        s3 = boto3.client(
            "s3", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none"
        )
        s3.create_bucket(Bucket="checkpoints")
        yield Buckets(s3)


def test_an_archive_is_unpacked_while_it_arrives(buckets: Any, tmp_path: Path) -> None:
    data = archive_of(MEMBERS)
    buckets.hold(data)

    found = unpack(
        buckets, SOURCE, tmp_path / "restore", lambda: False, hashlib.sha256(data).hexdigest()
    )

    assert found.saved == SAVED
    assert (found.images / "pages-1.img").read_bytes() == PAGES
    assert {one.name for one in found.folder.iterdir()} == {"config.dump", "checkpoint", LAST}


@pytest.mark.parametrize("local", [True, False])
def test_another_archive_than_that_of_the_set_is_refused(
    buckets: Any, tmp_path: Path, local: bool
) -> None:
    data = archive_of(MEMBERS)
    buckets.hold(data)
    (tmp_path / "archive.tar").write_bytes(data)
    source = str(tmp_path / "archive.tar") if local else SOURCE

    with pytest.raises(RestoreError, match="belongs to its set"):
        unpack(buckets, source, tmp_path / "restore", lambda: False, "0" * 64)


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (bytes(20 << 20), r"config\.dump"),
        (os.urandom(3 * RANGE_BYTES), "no checkpoint"),
        (archive_of(MEMBERS)[: RANGE_BYTES + 7], "no checkpoint"),
        (archive_of({k: v for k, v in MEMBERS.items() if k != LAST}), "before its end"),
    ],
    ids=["zeros", "noise", "torn", "without its end"],
)
def test_what_is_no_whole_archive_is_refused(
    buckets: Any, tmp_path: Path, data: bytes, why: str
) -> None:
    buckets.hold(data)

    with pytest.raises(RestoreError, match=why):
        unpack(buckets, SOURCE, tmp_path / "restore", lambda: False)


def test_an_object_that_is_not_there_is_said(buckets: Any, tmp_path: Path) -> None:
    with pytest.raises(RestoreError, match="Not Found"):
        unpack(buckets, SOURCE, tmp_path / "restore", lambda: False)


def test_a_download_ends_once_its_pod_is_stopped(buckets: Any, tmp_path: Path) -> None:
    buckets.hold(archive_of(MEMBERS))
    asked = iter([False, False, True])

    with pytest.raises(StoppedError, match=SOURCE):
        unpack(buckets, SOURCE, tmp_path / "restore", lambda: next(asked))
