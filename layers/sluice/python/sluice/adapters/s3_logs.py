"""Logs of pods, kept in the bucket after the pods are gone.

Where they lie: core/values/log_keys.py. How often and how much: agent/logs.py and
usecases/running/archive_logs.py. Nodes write no complete logs, only pieces of growing ones, so that
none replaces one by less; the longer one is read.
"""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

from sluice.core.values.log_keys import log_key, piece_prefix, short_name, workload_folder

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# The second is S3's answer while another conditional write of the same key is under way.
_PRESENT = ("PreconditionFailed", "ConditionalRequestConflict")


@dataclass(frozen=True)
class S3Logs:
    client: S3Client
    bucket: str

    def put(self, workload_id: str, generation: int, pod: str, container: str, log: bytes) -> None:
        key = log_key(workload_id, generation, pod, container)
        self.client.put_object(Bucket=self.bucket, Key=key, Body=gzip.compress(log, mtime=0))

    def put_if_absent(
        self, workload_id: str, generation: int, pod: str, container: str, log: bytes
    ) -> None:
        key, body = log_key(workload_id, generation, pod, container), gzip.compress(log, mtime=0)
        try:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] not in _PRESENT:
                raise

    def list(self, workload_id: str) -> list[str]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=workload_folder(workload_id)
        )
        keys = (entry["Key"] for page in pages for entry in page.get("Contents", []))
        return sorted({short_name(key) for key in keys})

    def get(self, workload_id: str, generation: int, pod: str, container: str) -> bytes:
        key = log_key(workload_id, generation, pod, container)
        prefix = piece_prefix(workload_id, generation, pod, container)
        listed = self.client.list_objects_v2(Bucket=self.bucket, Prefix=prefix)
        parts = sorted(entry["Key"] for entry in listed.get("Contents", []))
        grown = b"".join(self._read(part) for part in parts)
        try:
            complete = self._read(key)
        except self.client.exceptions.NoSuchKey:
            if not parts:
                raise
            return grown
        return max(complete, grown, key=len)

    def _read(self, key: str) -> bytes:
        return gzip.decompress(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())
