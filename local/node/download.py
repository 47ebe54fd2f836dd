"""Fetches an archive from S3 in ranges side by side, in order, without a copy of it on disk."""

import hashlib
from collections import deque
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TYPE_CHECKING, BinaryIO

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

RANGE_BYTES = 8 << 20
CONNECTIONS = 8


def fetch(
    client: "S3Client", bucket: str, key: str, sink: BinaryIO, proceed: Callable[[], None]
) -> str:
    """Writes the object into `sink`; returns its SHA-256 (hexadecimal).

    `proceed` is called before every range and may raise. Raises what the client raises, and
    OSError of the sink. At most twice as many ranges are in memory as there are connections.
    """
    head = client.head_object(Bucket=bucket, Key=key)
    size, etag, total = head["ContentLength"], head["ETag"], hashlib.sha256()

    def get(start: int) -> bytes:
        end = min(start + RANGE_BYTES, size) - 1
        # With the ETag all ranges are of one and the same object.
        answer = client.get_object(
            Bucket=bucket, Key=key, Range=f"bytes={start}-{end}", IfMatch=etag
        )
        return answer["Body"].read()

    with ThreadPoolExecutor(CONNECTIONS, "fetch") as pool:
        waiting: deque[Future[bytes]] = deque()
        starts = iter(range(0, size, RANGE_BYTES))
        try:
            while True:
                proceed()
                while len(waiting) < 2 * CONNECTIONS and (start := next(starts, None)) is not None:
                    waiting.append(pool.submit(get, start))
                if not waiting:
                    return total.hexdigest()
                data = waiting.popleft().result()
                total.update(data)
                sink.write(data)
        finally:
            for one in waiting:
                one.cancel()
