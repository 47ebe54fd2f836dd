"""What checkpoints consist of: an archive in the bucket, and an image where runtimes restore one.

Images are in ECR; a registry on loopback is spoken to as the OCI distribution interface says. What
the service of a driver has saved, it stores itself.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import urllib3
from botocore.exceptions import ClientError

from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.checkpoints.drivers import stored_by_service
from sluice.core.migrations.orphaned_archives import StoredArchive
from sluice.errors import SluiceError
from sluice.ports import Archive

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from mypy_boto3_s3 import S3Client

    from sluice.core.migrations.checkpointing import Checkpoint, Part

ECR = re.compile(r"(?P<account>\d{12})\.dkr\.ecr\.[a-z0-9-]+\.amazonaws\.com(\.cn)?/(?P<name>.+)")
LOOPBACK = re.compile(r"(?P<host>(127\.0\.0\.1|localhost)(:\d+)?)/(?P<name>.+)")
PLACE = re.compile(r"(?P<workload>[^/]+)/(?P<generation>\d+)/[^/]+/[^/]+\.tar")
ABSENT = {"404", "NoSuchKey", "NotFound"}
GONE = (200, 202, 404)


@dataclass(frozen=True)
class CheckpointArchives:
    """`ecr` makes the client, which only deployments with images need.

    `address` (`s3://BUCKET/PREFIX/`) is where node agents store archives, as
    `WORKLOAD/GENERATION/ORDER/POD.tar`.
    """

    s3: S3Client
    ecr: Callable[[], Any]
    address: str
    retire: Mapping[CheckpointMode, Callable[[str], None]] = field(default_factory=dict)
    """How a driver's service is told that a checkpoint is not needed any more."""
    http: urllib3.PoolManager = field(default_factory=lambda: urllib3.PoolManager(retries=False))

    def look(self, checkpoint: Checkpoint) -> Archive | None:
        heads = [self._head(piece.uri) for piece in checkpoint.pieces]
        whole = [head for head in heads if head is not None]
        if len(whole) < len(heads):
            return None
        encryption = ", ".join(sorted({head.encryption for head in whole}))
        return Archive(sum(head.size for head in whole), encryption)

    def _head(self, uri: str) -> Archive | None:
        bucket, key = _place(uri)
        try:
            head = self.s3.head_object(Bucket=bucket, Key=key)
        except ClientError as error:
            if error.response["Error"]["Code"] in ABSENT:
                return None
            raise SluiceError(f"{uri} cannot be looked at: {error}") from error
        return Archive(head["ContentLength"], str(head.get("ServerSideEncryption", "")))

    def remove(self, checkpoint: Checkpoint) -> None:
        for piece in checkpoint.pieces:
            self._remove(piece)

    def stored(self, ids: str) -> Iterator[StoredArchive]:
        bucket, prefix = _place(self.address)
        pages = self.s3.get_paginator("list_objects_v2")
        try:
            for page in pages.paginate(Bucket=bucket, Prefix=f"{prefix}{ids}"):
                for entry in page.get("Contents", []):
                    found = PLACE.fullmatch(entry["Key"].removeprefix(prefix))
                    if found:
                        uri = f"s3://{bucket}/{entry['Key']}"
                        at = int(entry["LastModified"].timestamp() * 1000)
                        yield StoredArchive(uri, found["workload"], int(found["generation"]), at)
        except ClientError as error:
            raise SluiceError(f"{self.address} cannot be listed: {error}") from error

    def discard(self, uri: str) -> None:
        bucket, key = _place(uri)
        try:
            self.s3.delete_object(Bucket=bucket, Key=key)
        except ClientError as error:
            raise SluiceError(f"{uri} cannot be removed: {error}") from error

    def _remove(self, piece: Part) -> None:
        try:
            if piece.image:
                self._remove_image(piece.image)
            if driver := stored_by_service(piece.uri):
                self._retire(driver.mode, piece.uri)
            elif piece.uri.startswith("s3://"):
                bucket, key = _place(piece.uri)
                self.s3.delete_object(Bucket=bucket, Key=key)
        except (ClientError, urllib3.exceptions.HTTPError) as error:
            raise SluiceError(f"{piece.source} cannot be removed: {error}") from error

    def _retire(self, driver: CheckpointMode, uri: str) -> None:
        if driver not in self.retire:
            raise SluiceError(f"{uri} is for the function `act` to retire")
        self.retire[driver](uri)

    def _remove_image(self, image: str) -> None:
        reference, _, tag = image.rpartition(":")
        if found := ECR.fullmatch(reference):
            self.ecr().batch_delete_image(  # an image that is not there is only reported
                registryId=found["account"],
                repositoryName=found["name"],
                imageIds=[{"imageTag": tag}],
            )
        elif found := LOOPBACK.fullmatch(reference):
            url = f"http://{found['host']}/v2/{found['name']}/manifests/{tag}"
            answer = self.http.request("DELETE", url)
            if answer.status not in GONE:
                raise SluiceError(f"DELETE {url}: HTTP {answer.status}")
        else:
            raise SluiceError(f"no way is known to remove {image}; only ECR's images are")


def _place(uri: str) -> tuple[str, str]:
    address = urlsplit(uri)
    return address.netloc, address.path.removeprefix("/")
