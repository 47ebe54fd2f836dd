"""The download of a checkpoint, from moto's S3."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from local.node.checkpoint import RestoreError, StoppedError, unpack

SOURCE = "s3://checkpoints/archive"


@pytest.fixture
def buckets() -> Iterator[Any]:
    """With an object of more than one range that is no archive."""

    class Moto:
        def client(self, _region: None) -> Any:
            return s3

    with mock_aws():
        s3 = boto3.client(
            "s3", region_name="us-east-1", aws_access_key_id="none", aws_secret_access_key="none"
        )
        s3.create_bucket(Bucket="checkpoints")
        s3.put_object(Bucket="checkpoints", Key="archive", Body=bytes(20 << 20))
        yield Moto()


def test_the_whole_object_is_looked_at(buckets: Any, tmp_path: Path) -> None:
    with pytest.raises(RestoreError, match=r"config\.dump"):
        unpack(buckets, SOURCE, tmp_path / "restore", lambda: False)

    assert (tmp_path / "restore" / "archive.tar").stat().st_size == 20 << 20


def test_a_download_ends_once_its_pod_is_stopped(buckets: Any, tmp_path: Path) -> None:
    asked = iter([False, False, True])

    with pytest.raises(StoppedError, match=SOURCE):
        unpack(buckets, SOURCE, tmp_path / "restore", lambda: next(asked))

    assert not (tmp_path / "restore" / "archive.tar").exists()
