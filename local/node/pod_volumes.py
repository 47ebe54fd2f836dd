"""All volumes of one pod: filled before it runs, uploaded while it runs and when it has ended."""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from local.node import volumes
from local.node.environment import ConfigMissingError
from local.node.folders import PodFolder
from local.node.s3_volume import S3Folder, S3Mount, SyncError, mount_of
from local.node.site import Site

UPLOAD_SECONDS = 0.5
Warn = Callable[[str], Awaitable[None]]


class PodVolumes:
    def __init__(
        self, site: Site, pod: dict[str, Any], folder: PodFolder, allocatable: Mapping[str, str]
    ) -> None:
        self._site, self._pod, self._folder, self._allocatable = site, pod, folder, allocatable
        self._buckets: dict[str, S3Folder] = {}
        self._quiet = asyncio.Event()  # no container runs any more
        self._uploader: asyncio.Task[None] | None = None

    @property
    def read_only(self) -> set[str]:
        """The volumes from buckets that cannot be written."""
        return {name for name, bucket in self._buckets.items() if bucket.mount.read_only}

    async def fill(self) -> None:
        """Makes every volume's folder; may be repeated.

        Raises ConfigMissingError, ApiError or SyncError while a source is not there, and
        UnsupportedVolumeError for what the process node cannot provide.
        """
        for volume in self._pod["spec"].get("volumes", []):
            folder = self._folder.volume(volume["name"])
            if "persistentVolumeClaim" not in volume:
                fill, api = volumes.fill, self._site.api
                await self._site.work(fill, api, self._pod, volume, folder, self._allocatable)
            elif volume["name"] not in self._buckets:
                bucket = await self._bucket(volume)
                await self._site.work(bucket.download)
                self._buckets[volume["name"]] = bucket

    async def adopt(self) -> None:
        """After a restore: the folders are there already. Raises as `fill` does."""
        for volume in self._pod["spec"].get("volumes", []):
            if "persistentVolumeClaim" in volume:
                bucket = await self._bucket(volume)
                await self._site.work(bucket.adopt)
                self._buckets[volume["name"]] = bucket

    def start_uploading(self, warn: Warn) -> None:
        if self._buckets:
            self._uploader = asyncio.create_task(self._upload(warn))

    def hush(self) -> None:
        """No uploads any more: what a dead machine held is lost, and its files are no deletions."""
        self._quiet.set()

    async def silence(self) -> None:
        """Waits until nothing is being uploaded."""
        self.hush()
        if self._uploader:
            await self._uploader

    async def finish(self, warn: Warn) -> str:
        """The last uploads; returns what did not arrive, or an empty string."""
        if self._uploader:
            self._quiet.set()
            await self._uploader
        lost = []
        for bucket in self._buckets.values():
            try:
                await self._site.work(bucket.finish)
            except SyncError as error:
                lost.append(str(error))
                await warn(str(error))
        return "; ".join(lost)

    async def _upload(self, warn: Warn) -> None:
        """Uploads closed files; what fails is tried again, at last by `finish`."""
        warned = ""
        while not self._quiet.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._quiet.wait(), UPLOAD_SECONDS)
                return
            for bucket in self._buckets.values():
                try:
                    await self._site.work(bucket.upload_closed)
                except SyncError as error:
                    if warned != str(error):
                        warned = str(error)
                        await warn(warned)

    async def _bucket(self, volume: dict[str, Any]) -> S3Folder:
        mount = await self._site.call(self._s3_mount, volume)
        client = await self._site.work(self._site.buckets.client, mount.region)
        return S3Folder(client, mount, self._folder.volume(volume["name"]), self._folder.staging)

    def _s3_mount(self, volume: dict[str, Any]) -> S3Mount:
        claim_name = volume["persistentVolumeClaim"]["claimName"]
        namespace = self._pod["metadata"]["namespace"]
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims/{claim_name}"
        claim = self._site.api.get(path)
        if claim.get("status", {}).get("phase") != "Bound":
            raise ConfigMissingError(f"claim {claim_name!r} is not bound yet")
        mounts = [
            mount
            for kind in ("initContainers", "containers")
            for container in self._pod["spec"].get(kind, [])
            for mount in container.get("volumeMounts", [])
            if mount["name"] == volume["name"]
        ]
        read_only = volume["persistentVolumeClaim"].get("readOnly", False) or (
            bool(mounts) and all(mount.get("readOnly", False) for mount in mounts)
        )
        found = self._site.api.get(f"/api/v1/persistentvolumes/{claim['spec']['volumeName']}")
        return mount_of(found, read_only=read_only)
