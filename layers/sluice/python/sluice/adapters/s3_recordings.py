"""Recorded passes in the bucket, compressed; a rule of the bucket forgets them after a month."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# Recording is on the way of admissions: the fastest level is within a fifth of the best.
LEVEL = 1


@dataclass(frozen=True)
class S3Recordings:
    client: S3Client
    bucket: str

    def put(self, root: str, version: int, text: str) -> None:
        body = gzip.compress(text.encode(), LEVEL, mtime=0)
        self.client.put_object(Bucket=self.bucket, Key=_key(root, version), Body=body)

    def get(self, root: str, version: int) -> str | None:
        try:
            answer = self.client.get_object(Bucket=self.bucket, Key=_key(root, version))
        except self.client.exceptions.NoSuchKey:
            return None
        return gzip.decompress(answer["Body"].read()).decode()


def _key(root: str, version: int) -> str:
    return f"passes/{root}/{version:012d}.json.gz"
