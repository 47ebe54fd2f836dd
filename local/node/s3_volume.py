"""A bucket prefix as a folder: what Mountpoint for Amazon S3 mounts, synchronised with files.

Objects are there as files when the pod starts. A file is uploaded once no process has it open for
writing any more, so that half-written files never appear, and whatever is left goes up before the
pod is reported finished. As under Mountpoint, overwriting needs `allow-overwrite` and deleting or
renaming `allow-delete`; a program learns of it only when its pod fails, with the file's name.
Unlike under Mountpoint, what others write meanwhile does not appear, and a file written and
renamed before it was uploaded passes.
"""

import contextlib
import fcntl
import os
import shutil
import stat
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from boto3.exceptions import Boto3Error
from boto3.s3.transfer import TransferConfig
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError

from local.node.emulator import session

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

DRIVER = "s3.csi.aws.com"
ONE_THREAD = TransferConfig(use_threads=False)
# Options of Mountpoint that mean nothing for a folder of one user on one machine.
WITHOUT_EFFECT = {
    *("allow-other", "allow-root", "uid", "gid", "file-mode", "dir-mode", "requester-pays"),
    *("cache", "max-cache-size", "metadata-ttl", "negative-metadata-ttl", "max-threads"),
    *("maximum-throughput-gbps", "read-part-size", "write-part-size", "part-size"),
    *("aws-max-attempts", "debug", "debug-crt", "user-agent-prefix", "force-path-style"),
    *("sse", "sse-kms-key-id", "storage-class", "upload-checksums"),
}

Stamp = tuple[int, int]
"""Size in bytes and time of the last change in nanoseconds."""


class UnsupportedVolumeError(Exception):
    """The PersistentVolume is not one that the process node can provide."""


class SyncError(Exception):
    """Files that did not reach the bucket, or changes that Mountpoint would have refused."""


@dataclass(frozen=True)
class S3Mount:
    """A PersistentVolume of the S3 driver, as far as it matters here."""

    bucket: str
    prefix: str  # empty, or ends with "/"
    region: str | None
    read_only: bool
    allow_delete: bool
    allow_overwrite: bool


def mount_of(volume: dict[str, Any], *, read_only: bool) -> S3Mount:
    """Reads the PersistentVolume's JSON. Raises UnsupportedVolumeError."""
    name, spec = volume["metadata"]["name"], volume["spec"]
    source = spec.get("csi", {})
    if source.get("driver") != DRIVER:
        raise UnsupportedVolumeError(f"PersistentVolume {name!r}: only csi.driver {DRIVER}")
    options: dict[str, str] = {}
    for option in spec.get("mountOptions", []):
        key, _, value = option.removeprefix("--").replace("=", " ", 1).partition(" ")
        options[key] = value.strip()
    known = {"prefix", "region", "read-only", "allow-delete", "allow-overwrite"}
    if unknown := set(options) - known - WITHOUT_EFFECT:
        text = ", ".join(sorted(unknown))
        raise UnsupportedVolumeError(f"PersistentVolume {name!r}: mountOptions {text}")
    prefix = options.get("prefix", "")
    if prefix and not prefix.endswith("/"):  # Mountpoint refuses it as well
        raise UnsupportedVolumeError(f"PersistentVolume {name!r}: prefix must end with a slash")
    return S3Mount(
        bucket=source["volumeAttributes"]["bucketName"],
        prefix=prefix,
        region=options.get("region") or None,
        read_only=read_only or source.get("readOnly", False) or "read-only" in options,
        allow_delete="allow-delete" in options,
        allow_overwrite="allow-overwrite" in options,
    )


class Buckets:
    """S3 clients of one endpoint by region. Safe for threads once made."""

    def __init__(self, endpoint: str, region: str) -> None:
        self._endpoint, self._region = endpoint, region
        self._clients: dict[str, S3Client] = {}

    def client(self, region: str | None) -> "S3Client":
        region = region or self._region
        if region not in self._clients:
            self._clients[region] = session().client(
                "s3",
                endpoint_url=self._endpoint,
                region_name=region,
                config=Config(
                    s3={"addressing_style": "path"},
                    retries={"mode": "standard", "total_max_attempts": 4},
                    max_pool_connections=32,
                ),
            )
        return self._clients[region]


@dataclass
class S3Folder:
    """One mounted volume of one pod; used by one thread at a time."""

    client: "S3Client"
    mount: S3Mount
    folder: Path
    staging: Path
    known: dict[str, Stamp] = field(default_factory=dict)  # as in the bucket
    seen: dict[str, Stamp] = field(default_factory=dict)  # at the last look
    refused: dict[str, str] = field(default_factory=dict)  # file -> what was not allowed

    def download(self) -> None:
        """Starts afresh with what the bucket holds. Raises SyncError."""
        shutil.rmtree(self.folder, ignore_errors=True)
        self.folder.mkdir(parents=True)
        self.staging.mkdir(parents=True, exist_ok=True)
        with _as_sync_error(f"s3://{self.mount.bucket}/{self.mount.prefix}"):
            for name, _ in self._objects():
                target = self.folder / name
                target.parent.mkdir(parents=True, exist_ok=True)
                key = self.mount.prefix + name
                self.client.download_file(self.mount.bucket, key, str(target), Config=ONE_THREAD)
                self.known[name] = _stamp(target.stat())

    def adopt(self) -> None:
        """Takes the folder as it is after a restore; equal sizes count as in the bucket."""
        self.staging.mkdir(parents=True, exist_ok=True)
        present = self._files()
        with _as_sync_error(f"s3://{self.mount.bucket}/{self.mount.prefix}"):
            for name, size in self._objects():
                if name in present and present[name][0] == size:
                    self.known[name] = present[name]

    def upload_closed(self) -> None:
        """Uploads files that rest since the last look and are closed. Raises SyncError."""
        if self.mount.read_only:
            return
        before, self.seen = self.seen, self._files()
        for name, stamp in self.seen.items():
            if self.known.get(name) != stamp and before.get(name) == stamp:
                self._upload(name, stamp, only_closed=True)
        self._delete_missing()

    def finish(self) -> None:
        """Uploads all the rest: the pod's processes are gone. Raises SyncError."""
        if self.mount.read_only:
            return
        self.seen = self._files()
        for name, stamp in self.seen.items():
            if self.known.get(name) != stamp:
                self._upload(name, stamp, only_closed=False)
        self._delete_missing()
        if self.refused:
            details = "; ".join(f"{name}: {why}" for name, why in sorted(self.refused.items()))
            raise SyncError(f"s3://{self.mount.bucket}/{self.mount.prefix}: {details}")

    def _objects(self) -> Iterator[tuple[str, int]]:
        """Name below the prefix and size of every object that can be a file."""
        pages = self.client.get_paginator("list_objects_v2").paginate(
            Bucket=self.mount.bucket, Prefix=self.mount.prefix
        )
        for page in pages:
            for one in page.get("Contents", []):
                name = one["Key"].removeprefix(self.mount.prefix)
                if all(part not in ("", ".", "..") for part in name.split("/")):
                    yield name, one["Size"]

    def _files(self) -> dict[str, Stamp]:
        found: dict[str, Stamp] = {}
        pending = [self.folder]
        while pending:
            with contextlib.suppress(FileNotFoundError), os.scandir(pending.pop()) as entries:
                for entry in entries:
                    if entry.is_dir(follow_symlinks=False):
                        pending.append(Path(entry.path))
                    elif stat.S_ISREG((status := entry.stat(follow_symlinks=False)).st_mode):
                        found[os.path.relpath(entry.path, self.folder)] = _stamp(status)
        return found

    def _upload(self, name: str, stamp: Stamp, *, only_closed: bool) -> None:
        if name in self.known and not self.mount.allow_overwrite:
            self.refused[name] = "overwritten without the mount option allow-overwrite"
            return
        handle, staged = tempfile.mkstemp(dir=self.staging)
        os.close(handle)
        try:
            if not copy_closed(self.folder / name, Path(staged), only_closed=only_closed):
                return
            key = self.mount.prefix + name
            with _as_sync_error(f"s3://{self.mount.bucket}/{key}"):
                self.client.upload_file(staged, self.mount.bucket, key, Config=ONE_THREAD)
            self.known[name] = stamp
        finally:
            Path(staged).unlink()

    def _delete_missing(self) -> None:
        for name in set(self.known) - set(self.seen):
            if not self.mount.allow_delete:
                self.refused[name] = "deleted or renamed without the mount option allow-delete"
                continue
            key = self.mount.prefix + name
            with _as_sync_error(f"s3://{self.mount.bucket}/{key}"):
                self.client.delete_object(Bucket=self.mount.bucket, Key=key)
            del self.known[name]


def copy_closed(source: Path, target: Path, *, only_closed: bool) -> bool:
    """Copies a file; False if it vanished or, under `only_closed`, is open for writing somewhere.

    A read lease is granted only on a file that nobody has open for writing, and makes the next
    writer wait until the copy is made.
    """
    try:
        descriptor = os.open(source, os.O_RDONLY | os.O_NOFOLLOW)
    except FileNotFoundError:
        return False
    with os.fdopen(descriptor, "rb") as file:
        if only_closed:
            try:
                fcntl.fcntl(file, fcntl.F_SETLEASE, fcntl.F_RDLCK)
            except BlockingIOError:
                return False
            except OSError:  # no leases here: that the file rests must do
                pass
        with target.open("wb") as copy:
            shutil.copyfileobj(file, copy, 1 << 20)
    return True


def _stamp(status: os.stat_result) -> Stamp:
    return (status.st_size, status.st_mtime_ns)


@contextlib.contextmanager
def _as_sync_error(what: str) -> Iterator[None]:
    try:
        yield
    except (Boto3Error, BotoCoreError, ClientError) as error:
        raise SyncError(f"{what}: {error}") from error
