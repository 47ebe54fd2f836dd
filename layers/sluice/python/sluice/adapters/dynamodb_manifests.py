"""The table Manifests: verbatim documents, compressed; large ones in the bucket by their digest."""

from __future__ import annotations

import gzip
import hashlib
import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from sluice.adapters.attribute_values import from_item, to_item
from sluice.adapters.dynamodb_batches import put_all
from sluice.errors import ManifestUnavailable
from sluice.ports import Document

if TYPE_CHECKING:
    from mypy_boto3_dynamodb import DynamoDBClient
    from mypy_boto3_s3 import S3Client

INLINE_BYTES = 300_000  # an item may have 400 KB
MAX_BYTES = 5_000_000
BATCH_GET = 25


@dataclass(frozen=True)
class DynamoDBManifests:
    client: DynamoDBClient
    s3: S3Client
    table: str
    bucket: str

    def put_many(self, manifests: Mapping[str, Document]) -> None:
        put_all(self.client, self.table, [self._item(i, doc) for i, doc in manifests.items()])

    def get_many(self, ids: Iterable[str]) -> dict[str, Document]:
        wanted, found = list(dict.fromkeys(ids)), {}
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
        place = urlsplit(reference)
        try:
            answer = self.s3.get_object(Bucket=place.netloc, Key=place.path.lstrip("/"))
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
