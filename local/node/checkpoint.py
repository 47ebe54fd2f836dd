"""Checkpoint archives: the processes of one container with its pod's folder, in one tar file.

    config.dump, dump.log   whose processes (JSON) with their mounts, and what CRIU said
    checkpoint/   CRIU's images with its log and statistics
    pod/          the container's layer, volumes and logs as they were while it was frozen
    stats-dump    as in the kubelet's archives

The archive holds process memory, Secrets included.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO, cast
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from local.node.criu import Criu, CriuError, DumpRequest
from local.node.download import fetch
from local.node.folders import SAVED, PodFolder
from local.node.s3_volume import Buckets

log = logging.getLogger(__name__)
DRIVER = "sluice.dev/checkpoint-driver"
XATTRS = ("--xattrs", "--xattrs-include=*")  # overlayfs marks folders of a layer by them
DRIVERS = ("kubelet", "cedana")
"""Those that save processes."""
LAST = "stats-dump"
"""The last member of an archive: with it the archive is whole."""
PACK_SECONDS = 900.0
"""A pipe that nobody reads is given up."""
RESTORE_FROM = "sluice.dev/restore-from"
RESTORE_DIGEST = "sluice.dev/restore-sha256"
CONNECTIONS = "sluice.dev/checkpoint-connections"
REFUSE = "refuse"
"""A container with established TCP connections is not saved. By default they are closed."""


class RestoreError(Exception):
    """The archive cannot be used for this pod."""


class StoppedError(Exception):
    """The pod was stopped before it could be restored, which says nothing of its archive."""


@dataclass(frozen=True)
class Saved:
    """The content of config.dump."""

    namespace: str
    pod: str
    uid: str
    container: str
    mounts: dict[str, str]  # name for CRIU → path in the container
    restarts: int
    criu: str
    saved_at: str


@dataclass(frozen=True)
class Archive:
    """An unpacked archive."""

    folder: Path
    saved: Saved

    @property
    def images(self) -> Path:
        return self.folder / "checkpoint"

    @property
    def pidfile(self) -> Path:
        return self.folder / "pid"

    def lay_out(self, pod: PodFolder) -> None:
        """Fills the folder of the restored pod with what was saved."""
        for name in SAVED:
            shutil.rmtree(pod.root / name, ignore_errors=True)
        subprocess.run(["cp", "-a", f"{self.folder / 'pod'}/.", str(pod.root)], check=True)
        pod.root.chmod(0o700)
        pod.layers(self.saved.container).make()
        self.pidfile.unlink(missing_ok=True)


async def save(
    criu: Criu,
    pid: int,
    saved: Saved,
    pod: PodFolder,
    folder: Path,
    *,
    closes_connections: bool,
    timeout_seconds: float | None,
    streamed: bool = False,
) -> Path:
    """Saves a running container; returns the archive. Raises CriuError; it runs on in any case.

    A `streamed` archive is a pipe that is filled while it is read, so that there is no copy of the
    images on disk; it has to be read soon, and once.
    """
    if criu.program is None:
        raise CriuError(f"this node cannot save processes: {criu.reason}")
    stem = f"checkpoint-{saved.pod}_{saved.namespace}-{saved.container}-{saved.saved_at}"
    draft, archive = folder / f".{stem}", folder / f"{stem}.tar"
    images = draft / "checkpoint"
    images.mkdir(parents=True, mode=0o700)
    try:
        upper = pod.layers(saved.container).upper
        layer = draft / "pod" / upper.parent.relative_to(pod.root)
        layer.mkdir(parents=True)
        beside = [pod.root / name for name in SAVED if (pod.root / name).exists()]
        request = DumpRequest(
            mounts=saved.mounts,
            copies=[
                (upper, layer),
                *((one, draft / "pod") for one in beside if not upper.is_relative_to(one)),
            ],
            closes_connections=closes_connections,
            timeout_seconds=timeout_seconds,
        )
        await criu.dump(pid, images, request)
        _describe(draft, saved)
    except BaseException:
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)
        raise
    if streamed:
        os.mkfifo(archive, 0o600)
        task = asyncio.create_task(_pack(draft, archive))
        _streams.add(task)
        task.add_done_callback(_ended)
        return archive
    partial = archive.with_suffix(".part")
    partial.touch(0o600)
    await _pack(draft, partial)
    return partial.replace(archive)


_streams: set[asyncio.Task[None]] = set()


def _ended(task: asyncio.Task[None]) -> None:
    _streams.discard(task)
    if not task.cancelled() and (error := task.exception()):
        log.warning("an archive was not read to its end: %s", error)


def _describe(draft: Path, saved: Saved) -> None:
    (draft / "config.dump").write_text(json.dumps(asdict(saved)))
    for name in ("dump.log", LAST):
        shutil.copy(draft / "checkpoint" / name, draft / name)


async def _pack(draft: Path, target: Path) -> None:
    """Writes the archive into a file or a pipe, and removes the draft. Raises CriuError."""
    members = ["config.dump", "dump.log", "checkpoint", "pod", LAST]
    command = ["tar", *XATTRS, "-C", str(draft), "-cf", str(target), *members]
    process = await asyncio.create_subprocess_exec(*command)
    try:
        if code := await asyncio.wait_for(process.wait(), PACK_SECONDS):
            raise CriuError(f"tar ended with {code}")
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)


def moment() -> str:
    """Now in RFC 3339, to the microsecond, so that two archives never share a name."""
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")


def unpack(
    buckets: Buckets,
    source: str,
    folder: Path,
    stopped: Callable[[], bool],
    digest: str = "",
) -> Archive:
    """Fetches `s3://BUCKET/KEY` or a local path into `folder`. Raises RestoreError, StoppedError.

    With a `digest` (SHA-256, hexadecimal) no other archive is taken. A download ends early once
    its pod is `stopped`.
    """

    def proceed() -> None:
        if stopped():
            raise StoppedError(f"stopped before {source} was here")

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    address = urlsplit(source)
    try:
        with _unpacking(folder) as sink:
            if address.scheme == "s3":
                key = address.path.removeprefix("/")
                found = fetch(buckets.client(None), address.netloc, key, sink, proceed)
            else:
                found = _copied(Path(source), sink)
        if digest and digest != found:
            raise RestoreError(f"{source} is not the archive that belongs to its set")
        saved = Saved(**json.loads((folder / "config.dump").read_text()))
        if not (folder / LAST).exists():
            raise RestoreError(f"{source} ends before its end")
    except (BotoCoreError, ClientError) as error:
        raise RestoreError(f"{source}: {error}") from error
    except (OSError, ValueError, TypeError) as error:
        raise RestoreError(f"{source} is no checkpoint of a process node: {error}") from error
    return Archive(folder, saved)


@contextlib.contextmanager
def _unpacking(folder: Path) -> Iterator[BinaryIO]:
    """What is written is unpacked at once. Raises OSError if it is no archive."""
    command = ["tar", *XATTRS, "-C", str(folder), "-xpf", "-"]
    with tempfile.TemporaryFile() as words:
        process = subprocess.Popen(command, stdin=subprocess.PIPE, stderr=words)
        sink = cast("BinaryIO", process.stdin)
        try:
            with contextlib.suppress(BrokenPipeError):  # its exit code says more
                yield sink
                sink.close()
        except BaseException:
            process.kill()
            raise
        finally:
            with contextlib.suppress(BrokenPipeError):
                sink.close()
            code = process.wait()
        if code:
            words.seek(0)
            raise OSError(words.read().decode(errors="replace").strip())


def _copied(archive: Path, sink: BinaryIO) -> str:
    """Returns the SHA-256 of the archive (hexadecimal)."""
    total = hashlib.sha256()
    with archive.open("rb") as file:
        while data := file.read(1 << 20):
            total.update(data)
            sink.write(data)
    return total.hexdigest()
