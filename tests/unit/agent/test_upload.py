"""Archives go to S3 in one pass, in parts side by side, and only as a whole."""

from __future__ import annotations

import hashlib
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from moto import mock_aws

from agent import upload as uploading
from agent.upload import PART_BYTES, Stored, upload


@pytest.fixture
def s3(monkeypatch: pytest.MonkeyPatch) -> Iterator[Any]:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "testing")
    with mock_aws():
        client = boto3.client("s3", region_name="us-east-1")
        client.create_bucket(Bucket="archives")
        yield client


def written(pipe: Path, data: bytes) -> threading.Thread:
    """A pipe into which somebody writes."""
    os.mkfifo(pipe)
    writer = threading.Thread(target=pipe.write_bytes, args=(data,), daemon=True)
    writer.start()
    return writer


def stored(data: bytes) -> Stored:
    return Stored(len(data), hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("size", [0, 5, PART_BYTES - 1, PART_BYTES, 2 * PART_BYTES + 7])
def test_a_file_arrives_whole(s3: Any, tmp_path: Path, size: int) -> None:
    data = os.urandom(size)
    (tmp_path / "a.tar").write_bytes(data)

    assert upload(tmp_path / "a.tar", s3, "archives", "a") == stored(data)
    assert s3.get_object(Bucket="archives", Key="a")["Body"].read() == data


def test_a_pipe_arrives_whole_while_it_is_written(s3: Any, tmp_path: Path) -> None:
    data, pipe = os.urandom(3 * PART_BYTES - 1023) + uploading.END, tmp_path / "pipe"
    writer = written(pipe, data)

    assert upload(pipe, s3, "archives", "p") == stored(data)
    assert s3.get_object(Bucket="archives", Key="p")["Body"].read() == data
    writer.join(10)


@pytest.mark.parametrize("size", [100, 2 * PART_BYTES, 2 * PART_BYTES + 1])
def test_a_pipe_whose_writer_died_is_no_archive(s3: Any, tmp_path: Path, size: int) -> None:
    written(tmp_path / "pipe", os.urandom(size))

    with pytest.raises(OSError, match="before its end"):
        upload(tmp_path / "pipe", s3, "archives", "p")

    assert "Contents" not in s3.list_objects_v2(Bucket="archives")


def test_a_part_that_fails_leaves_nothing(s3: Any, tmp_path: Path) -> None:
    (tmp_path / "a.tar").write_bytes(os.urandom(3 * PART_BYTES))
    send = s3.upload_part

    def fail(**of: Any) -> Any:
        if of["PartNumber"] == 2:
            raise OSError("the connection broke")
        return send(**of)

    s3.upload_part = fail
    with pytest.raises(OSError, match="broke"):
        upload(tmp_path / "a.tar", s3, "archives", "a")

    assert "Contents" not in s3.list_objects_v2(Bucket="archives")
    assert "Uploads" not in s3.list_multipart_uploads(Bucket="archives")


def test_parts_travel_side_by_side_and_never_more_than_there_is_memory_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(uploading, "PART_BYTES", 1_000)
    (tmp_path / "a.tar").write_bytes(bytes(100_000))
    at_once, most, lock, both = 0, 0, threading.Lock(), threading.Barrier(2)

    class Slow:
        def create_multipart_upload(self, **_: Any) -> Any:
            return {"UploadId": "u"}

        def upload_part(self, **_: Any) -> Any:
            nonlocal at_once, most
            with lock:
                at_once += 1
                most = max(most, at_once)
            both.wait(10)  # two parts have to be under way at once, or it breaks
            with lock:
                at_once -= 1
            return {"ETag": "e"}

        def complete_multipart_upload(self, **of: Any) -> None:
            numbers = [part["PartNumber"] for part in of["MultipartUpload"]["Parts"]]
            assert numbers == list(range(1, 101))

        def put_object(self, **_: Any) -> None:
            raise AssertionError

        abort_multipart_upload = put_object

    upload(tmp_path / "a.tar", Slow(), "archives", "a")

    assert 1 < most <= uploading.CONNECTIONS
