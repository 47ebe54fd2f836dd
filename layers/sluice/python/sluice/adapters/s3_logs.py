"""Logs of pods, kept in the bucket after the pods are gone."""

from __future__ import annotations

import gzip
from dataclasses import dataclass
from typing import TYPE_CHECKING

from botocore.exceptions import ClientError

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

# The second is S3's answer while another conditional write of the same key is under way.
_PRESENT = ("PreconditionFailed", "ConditionalRequestConflict")


@dataclass(frozen=True)
class S3Logs:
    client: S3Client
    bucket: str

    def put(self, workload_id: str, generation: int, pod: str, container: str, log: bytes) -> None:
        key = _key(workload_id, generation, pod, container)
        self.client.put_object(Bucket=self.bucket, Key=key, Body=gzip.compress(log, mtime=0))

    def put_if_absent(
        self, workload_id: str, generation: int, pod: str, container: str, log: bytes
    ) -> None:
        key, body = _key(workload_id, generation, pod, container), gzip.compress(log, mtime=0)
        try:
            self.client.put_object(Bucket=self.bucket, Key=key, Body=body, IfNoneMatch="*")
        except ClientError as error:
            if error.response["Error"]["Code"] not in _PRESENT:
                raise

    def list(self, workload_id: str) -> list[str]:
        prefix = f"logs/{workload_id}/"
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=prefix
        )
        keys = [entry["Key"] for page in pages for entry in page.get("Contents", [])]
        return [key.removeprefix(prefix).removesuffix(".log.gz") for key in keys]

    def get(self, workload_id: str, generation: int, pod: str, container: str) -> bytes:
        key = _key(workload_id, generation, pod, container)
        return gzip.decompress(self.client.get_object(Bucket=self.bucket, Key=key)["Body"].read())


def _key(workload_id: str, generation: int, pod: str, container: str) -> str:
    return f"logs/{workload_id}/{generation}/{pod}/{container}.log.gz"
