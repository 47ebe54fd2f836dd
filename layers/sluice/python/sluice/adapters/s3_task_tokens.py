"""Tokens of Step Functions tasks, in the bucket below a prefix that only `complete` may read.

A name tells nothing of its token but the digest, so that whoever may list learns no secret.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from mypy_boto3_s3 import S3Client

PREFIX = "tokens/"


@dataclass(frozen=True)
class S3TaskTokens:
    client: S3Client
    bucket: str

    def put(self, key: str, token: str) -> None:
        self.client.put_object(Bucket=self.bucket, Key=_name(key, token), Body=token.encode())

    def of(self, key: str) -> list[tuple[str, int]]:
        return [(self._read(name), since) for name, since in self._listed(f"{key}/")]

    def forget(self, key: str, token: str) -> None:
        self.client.delete_object(Bucket=self.bucket, Key=_name(key, token))

    def keys(self, prefix: str) -> list[tuple[str, int]]:
        found: dict[str, int] = {}
        for name, since in self._listed(prefix):
            key = name.removeprefix(PREFIX).partition("/")[0]
            found[key] = min(since, found.get(key, since))
        return list(found.items())

    def _listed(self, prefix: str) -> Iterator[tuple[str, int]]:
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.bucket, Prefix=f"{PREFIX}{prefix}"
        )
        for page in pages:
            for entry in page.get("Contents", []):
                yield entry["Key"], int(entry["LastModified"].timestamp() * 1000)

    def _read(self, name: str) -> str:
        return self.client.get_object(Bucket=self.bucket, Key=name)["Body"].read().decode()


def _name(key: str, token: str) -> str:
    return f"{PREFIX}{key}/{hashlib.sha256(token.encode()).hexdigest()}"
