"""Checkpoint archives: the processes of one container with its pod's folder, in one tar file.

    config.dump   JSON: whose processes, and the mounts that they must find again
    checkpoint/   CRIU's images with its log and statistics
    pod/          the container's layer, volumes and logs as they were while it was frozen
    dump.log, stats-dump   as in the kubelet's archives

The archive holds process memory, Secrets included.
"""

import asyncio
import hashlib
import json
import shutil
import subprocess
from collections.abc import Callable
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError

from local.node.criu import Criu, CriuError, DumpRequest
from local.node.folders import SAVED, PodFolder
from local.node.s3_volume import ONE_THREAD, Buckets

DRIVER = "sluice.dev/checkpoint-driver"
XATTRS = ("--xattrs", "--xattrs-include=*")  # overlayfs marks folders of a layer by them
DRIVERS = ("kubelet", "cedana")
"""Those that save processes."""
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
) -> Path:
    """Saves a running container; returns the archive. Raises CriuError; it runs on in any case."""
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
        return await asyncio.to_thread(_pack, draft, saved, archive)
    finally:
        await asyncio.to_thread(shutil.rmtree, draft, ignore_errors=True)


def _pack(draft: Path, saved: Saved, archive: Path) -> Path:
    (draft / "config.dump").write_text(json.dumps(asdict(saved)))
    for name in ("dump.log", "stats-dump"):
        shutil.copy(draft / "checkpoint" / name, draft / name)
    partial = archive.with_suffix(".part")
    partial.touch(0o600)
    members = ["config.dump", "dump.log", "stats-dump", "checkpoint", "pod"]
    subprocess.run(["tar", *XATTRS, "-C", str(draft), "-cf", str(partial), *members], check=True)
    return partial.replace(archive)


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

    def proceed(_received: int) -> None:
        if stopped():
            raise StoppedError(f"stopped before {source} was here")

    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True, mode=0o700)
    tar = Path(source)
    if source.startswith("s3://"):
        tar = folder / "archive.tar"
        address = urlsplit(source)
        key = address.path.removeprefix("/")
        try:
            buckets.client(None).download_file(
                address.netloc, key, str(tar), Callback=proceed, Config=ONE_THREAD
            )
        except (BotoCoreError, ClientError) as error:
            raise RestoreError(f"{source}: {error}") from error
    try:
        if digest and digest != _digest(tar):
            raise RestoreError(f"{source} is not the archive that belongs to its set")
        subprocess.run(
            ["tar", *XATTRS, "-C", str(folder), "-xpf", str(tar)],
            check=True,
            capture_output=True,
            text=True,
        )
        saved = Saved(**json.loads((folder / "config.dump").read_text()))
    except subprocess.CalledProcessError as error:
        raise RestoreError(f"{source}: {error.stderr.strip()}") from error
    except (OSError, ValueError, TypeError) as error:
        raise RestoreError(f"{source} is no checkpoint of a process node: {error}") from error
    if source.startswith("s3://"):
        tar.unlink()
    return Archive(folder, saved)


def _digest(file: Path) -> str:
    with file.open("rb") as content:
        return hashlib.file_digest(content, "sha256").hexdigest()
