"""Stores an archive in S3 in one pass: read once, hashed meanwhile, in parts side by side.

The archive may be a pipe that is still being written. What is not complete is not there: S3 shows
an object only when all of its parts are joined.
"""

import contextlib
import hashlib
import math
import os
import stat
from collections import deque
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO, Protocol

CONNECTIONS = 8
"""S3 takes some 90 MB/s on each."""
PART_BYTES = 8 << 20
MOST_PARTS = 10_000
READ_BYTES = 1 << 20
END = bytes(1024)
"""How a tar archive ends: a pipe whose writer has died ends otherwise."""


class Uploads(Protocol):
    """The part of an S3 client that is needed; raises what it likes."""

    @property
    def put_object(self) -> Callable[..., Any]: ...
    @property
    def create_multipart_upload(self) -> Callable[..., Any]: ...
    @property
    def upload_part(self) -> Callable[..., Any]: ...
    @property
    def complete_multipart_upload(self) -> Callable[..., Any]: ...
    @property
    def abort_multipart_upload(self) -> Callable[..., Any]: ...


@dataclass(frozen=True)
class Stored:
    """Bytes and SHA-256 (hexadecimal) of what was stored."""

    size: int
    digest: str


def upload(archive: Path, uploads: Uploads, bucket: str, key: str) -> Stored:
    """Raises OSError, and what `uploads` raises; then nothing of it is there."""
    with archive.open("rb", buffering=0) as file:
        status = os.fstat(file.fileno())
        regular = stat.S_ISREG(status.st_mode)
        size = status.st_size if regular else 0
        per_part = max(PART_BYTES, math.ceil(size / (MOST_PARTS - 1)))
        parts = _Parts(file, per_part, ends_as=b"" if regular else END)
        first = next(parts, b"")
        place = {"Bucket": bucket, "Key": key}
        if len(first) < per_part:
            uploads.put_object(Body=first, **place)
        else:
            _in_parts(first, parts, uploads, place)
        return Stored(parts.size, parts.sum.hexdigest())


class _Parts(Iterator[bytes]):
    """Pieces of one size, but for the last one, of a file or pipe; counted and summed."""

    def __init__(self, file: Any, per_part: int, ends_as: bytes) -> None:
        self._file: BinaryIO = file
        self._per_part = per_part
        self._ends_as, self._last = ends_as, b""
        self.size, self.sum = 0, hashlib.sha256()

    def __next__(self) -> bytes:
        part = bytearray(self._per_part)
        view, filled = memoryview(part), 0
        while filled < self._per_part:
            got: int = self._file.readinto(view[filled : filled + READ_BYTES])  # type: ignore[attr-defined]
            if not got:
                break
            self.sum.update(view[filled : filled + got])
            filled += got
        view.release()
        found = bytes(part[:filled])
        self._last = (self._last + found[-len(END) :])[-len(END) :]
        if filled < self._per_part and not self._last.endswith(self._ends_as):
            raise OSError("the archive ended before its end")
        if not found:
            raise StopIteration
        self.size += filled
        return found


def _in_parts(first: bytes, rest: Iterator[bytes], uploads: Uploads, place: dict[str, str]) -> None:
    """At most `CONNECTIONS` parts are in memory and one that is read."""
    upload = uploads.create_multipart_upload(**place)["UploadId"]
    whole = {**place, "UploadId": upload}

    def send(number: int, part: bytes) -> dict[str, Any]:
        answer = uploads.upload_part(**whole, PartNumber=number, Body=part)
        sums = {name: text for name, text in answer.items() if name.startswith("Checksum")}
        sums.pop("ChecksumType", None)
        return {"PartNumber": number, "ETag": answer["ETag"], **sums}

    try:
        with ThreadPoolExecutor(CONNECTIONS, "upload") as pool:
            waiting: deque[Future[dict[str, Any]]] = deque([pool.submit(send, 1, first)])
            sent: list[dict[str, Any]] = []
            for number, part in enumerate(rest, start=2):
                while len(waiting) >= CONNECTIONS:
                    sent.append(waiting.popleft().result())
                waiting.append(pool.submit(send, number, part))
            sent += [one.result() for one in waiting]
        uploads.complete_multipart_upload(**whole, MultipartUpload={"Parts": sent})
    except BaseException:
        with contextlib.suppress(Exception):  # the first error counts; the bucket expires the rest
            uploads.abort_multipart_upload(**whole)
        raise
