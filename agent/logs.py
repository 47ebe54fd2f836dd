"""Stores the logs of the node's running pods in S3 while they grow.

When a machine ends without notice, all but the last seconds of its logs are in the bucket. They
are there in pieces, of which only the last one is stored again when it grows. The control plane
stores the complete log under another name once a pod has ended, and reads whichever is longer.
"""

import gzip
import logging
import threading
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import urlsplit

from agent.orders import GENERATION, LOGS, WORKLOAD

log = logging.getLogger(__name__)
PERIOD_SECONDS = 3.0
LOG_BYTES = 10_000_000
"""As much of a log as the control plane stores."""
POD_LOGS = Path("/proc/1/root/var/log/pods")
PARTIAL = b"P"
PIECE_BYTES = 1_000_000
FORGOTTEN_SECONDS = 600.0
"""So long a pod without a folder is looked for; whoever watches it says again that it is there."""


class ObjectWriter(Protocol):
    """The part of an S3 client that is needed; raises what it likes."""

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> object: ...  # noqa: N803 - boto3's names


@dataclass
class LogUploader:
    """Follows the pods of one node whose annotation says where their logs go."""

    objects: ObjectWriter
    failures: tuple[type[Exception], ...]  # of `objects`
    folder: Path = POD_LOGS
    pods: dict[str, Mapping[str, Any]] = field(default_factory=dict)  # by uid
    files: dict[Path, "StoredLog"] = field(default_factory=dict)  # what is stored, by log file
    seen: dict[str, float] = field(default_factory=dict)  # when pods were there last, by uid
    lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, pod: Mapping[str, Any]) -> None:
        with self.lock:
            uid = pod["metadata"]["uid"]
            self.pods[uid] = pod
            self.seen[uid] = time.monotonic()

    def forget(self, uid: str) -> None:
        with self.lock:
            self.pods.pop(uid, None)
            self.seen.pop(uid, None)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(PERIOD_SECONDS):
            self.upload()

    def upload(self) -> None:
        """Stores every log that has grown since the last time."""
        with self.lock:
            self._forget_gone()
            pods = list(self.pods.values())
        present: dict[Path, StoredLog] = {}
        expected: tuple[type[Exception], ...] = (OSError, *self.failures)
        for pod in pods:
            for container, file in newest_logs(pod, self.folder):
                present[file] = known = self.files.get(file) or StoredLog()
                try:
                    size = file.stat().st_size
                    if size != known.file_bytes and known.text_bytes < LOG_BYTES:
                        self._store(pod, container, file, known)
                        known.file_bytes = size
                except expected as error:  # the next round tries again
                    log.warning("log of %s: %s", pod["metadata"]["name"], error)
        self.files = present

    def _forget_gone(self) -> None:
        """A deletion that fell between two watches is told to nobody; its folder is gone too."""
        now = time.monotonic()
        for uid, pod in list(self.pods.items()):
            if folder_of(pod, self.folder).exists():
                self.seen[uid] = now
            elif now - self.seen.get(uid, now) > FORGOTTEN_SECONDS:
                del self.pods[uid], self.seen[uid]

    def _store(
        self, pod: Mapping[str, Any], container: str, file: Path, known: "StoredLog"
    ) -> None:
        """Every piece from the last stored one on; what is stored never becomes less."""
        bucket, prefix = address_of(pod)
        if not bucket or was_rotated(file):
            return
        with file.open("rb") as stream:
            text = plain_text(stream)[:LOG_BYTES]
        stem = f"{prefix}{pod['metadata']['name']}/{container}"
        for number in range(known.text_bytes // PIECE_BYTES, -(-len(text) // PIECE_BYTES)):
            piece = text[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
            until = number * PIECE_BYTES + len(piece)
            if until > known.text_bytes:
                key, body = f"{stem}.part-{number:04}.gz", gzip.compress(piece, mtime=0)
                self.objects.put_object(Bucket=bucket, Key=key, Body=body)
                known.text_bytes = until


@dataclass
class StoredLog:
    """How much of a log is stored, and how long its file was then."""

    file_bytes: int = 0
    text_bytes: int = 0


def address_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Bucket and prefix of the pod's logs; empty without an address of its own workload."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    address = urlsplit((metadata.get("annotations") or {}).get(LOGS, ""))
    # As sluice.core.values.log_keys, which the agent's image does not hold; a test compares them.
    prefix = f"logs/{labels.get(WORKLOAD, '')}/{labels.get(GENERATION, '')}/"
    own = address.scheme == "s3" and address.path == f"/{prefix}"
    return (address.netloc, prefix) if own else ("", "")


def folder_of(pod: Mapping[str, Any], folder: Path) -> Path:
    metadata = pod["metadata"]
    return folder / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"


def was_rotated(file: Path) -> bool:
    """Whether the kubelet has begun the file anew: what it holds is not the beginning any more."""
    return any(file.parent.glob(f"{file.name}.*"))


def newest_logs(pod: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Path]]:
    """Container and log file of its newest run, in the kubelet's layout."""
    found = folder_of(pod, folder)
    for container in pod["spec"]["containers"]:
        runs = [file for file in (found / container["name"]).glob("*.log") if file.stem.isdigit()]
        if runs:
            yield container["name"], max(runs, key=lambda file: int(file.stem))


def plain_text(lines: Any) -> bytes:
    """What the container printed, of lines as the CRI writes them: `TIME STREAM F|P TEXT`."""
    parts: list[bytes] = []
    for line in lines:
        fields = line.split(b" ", 3)
        if len(fields) < 4:  # noqa: PLR2004 - not written to its end yet
            continue
        text = fields[3]
        parts.append(text.removesuffix(b"\n") if fields[2] == PARTIAL else text)
    return b"".join(parts)
