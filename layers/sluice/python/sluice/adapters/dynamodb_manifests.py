"""The table Manifests: verbatim documents, compressed; large ones in the bucket by their digest."""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from botocore.exceptions import BotoCoreError, ClientError

from sluice.adapters.attribute_values import from_item, to_item
from sluice.errors import ManifestUnavailable
from sluice.ports import Document

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

INLINE_BYTES = 300_000  # an item may have 400 KB
MAX_BYTES = 5_000_000
BATCH_GET = 25
PARALLEL = 16
DIGEST = 64
SHORT_DIGEST = 16
"""Of what keys held of a digest until November 2026; such rows are read, and never written."""


@dataclass(frozen=True)
class DynamoDBManifests:
    client: DynamoDBClient
    s3: S3Client
    table: str
    bucket: str
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    def put_many(self, manifests: Mapping[str, Document]) -> None:
        """What is stored already stays as it is: it was counted so."""
        list(self.pool.map(self._put, manifests.items()))

    def _put(self, manifest: tuple[str, Document]) -> None:
        with contextlib.suppress(self.client.exceptions.ConditionalCheckFailedException):
            self.client.put_item(
                TableName=self.table,
                Item=self._item(*manifest),  # type: ignore[arg-type]
                ConditionExpression="attribute_not_exists(id)",
            )

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        """By id; a row of an earlier version is found under its shorter key."""
        wanted = list(dict.fromkeys(ids))
        found = self._rows(wanted)
        older = {_short(each): each for each in wanted if each not in found and _short(each)}
        for short, document in self._rows(list(older)).items():
            found[older[short]] = document
        return found

    def _rows(self, wanted: Sequence[str]) -> dict[str, Document]:
        found: dict[str, Document] = {}
        for first in range(0, len(wanted), BATCH_GET):
            keys = [to_item({"id": each}) for each in wanted[first : first + BATCH_GET]]
            left = {self.table: {"Keys": keys}}
            while left:
                answer = self.client.batch_get_item(RequestItems=left)  # type: ignore[arg-type]
                for item in answer["Responses"].get(self.table, []):
                    row = from_item(item)
                    found[row["id"]] = self._document(row)
                left = answer.get("UnprocessedKeys", {})  # type: ignore[assignment]
        return found

    def fetch(self, reference: str, sha256: str) -> bytes:
        # Not urlsplit: a key may hold `?` and `#`, and the one that was allowed is the one to read.
        bucket, _, key = reference.removeprefix("s3://").partition("/")
        try:
            answer = self.s3.get_object(Bucket=bucket, Key=key)
            body = answer["Body"].read(MAX_BYTES + 1)
        except (BotoCoreError, ClientError) as error:
            raise ManifestUnavailable(f"cannot read {reference}: {error}") from error
        if len(body) > MAX_BYTES:
            raise ManifestUnavailable(f"{reference} is larger than {MAX_BYTES} bytes")
        found = hashlib.sha256(body).hexdigest()
        if found != sha256:
            raise ManifestUnavailable(f"{reference} has sha256 {found}, not {sha256}")
        return body

    def _item(self, workload_id: str, document: Document) -> dict[str, object]:
        packed = gzip.compress(json.dumps(document, sort_keys=True).encode(), mtime=0)
        if len(packed) <= INLINE_BYTES:
            return to_item({"id": workload_id, "body": packed})
        key = f"manifests/{hashlib.sha256(packed).hexdigest()}"
        self.s3.put_object(Bucket=self.bucket, Key=key, Body=packed)
        return to_item({"id": workload_id, "key": key})

    def _document(self, row: Mapping[str, object]) -> Document:
        packed = row.get("body")
        if not isinstance(packed, bytes):
            packed = self.s3.get_object(Bucket=self.bucket, Key=str(row["key"]))["Body"].read()
        document: Document = json.loads(gzip.decompress(packed))
        return document


def _short(key: str) -> str:
    """The key that an earlier version gave the same document; empty if this is one already."""
    name, _, digest = key.rpartition(".")
    return f"{name}.{digest[:SHORT_DIGEST]}" if len(digest) == DIGEST else ""
