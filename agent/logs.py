"""Stores the logs of the node's running pods in S3 while they grow.

When a machine ends without notice, all but the last seconds of its logs are in the bucket. The
control plane stores the complete log once a pod has ended; it reads and writes the same objects.
"""

import gzip
import logging
import threading
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
    sizes: dict[Path, int] = field(default_factory=dict)  # what is stored, by log file
    lock: threading.Lock = field(default_factory=threading.Lock)

    def follow(self, pod: Mapping[str, Any]) -> None:
        with self.lock:
            self.pods[pod["metadata"]["uid"]] = pod

    def forget(self, uid: str) -> None:
        with self.lock:
            self.pods.pop(uid, None)

    def run(self, stop: threading.Event) -> None:
        while not stop.wait(PERIOD_SECONDS):
            self.upload()

    def upload(self) -> None:
        """Stores every log that has grown since the last time."""
        with self.lock:
            pods = list(self.pods.values())
        present: dict[Path, int] = {}
        expected: tuple[type[Exception], ...] = (OSError, *self.failures)
        for pod in pods:
            for container, file in newest_logs(pod, self.folder):
                try:
                    size = file.stat().st_size
                    if size and self.sizes.get(file) != size:
                        self._store(pod, container, file)
                    present[file] = size
                except expected as error:  # the next round tries again
                    log.warning("log of %s: %s", pod["metadata"]["name"], error)
        self.sizes = present

    def _store(self, pod: Mapping[str, Any], container: str, file: Path) -> None:
        bucket, prefix = address_of(pod)
        if bucket:
            with file.open("rb") as stream:
                text = plain_text(stream)
            body = gzip.compress(text[:LOG_BYTES], mtime=0)
            key = f"{prefix}{pod['metadata']['name']}/{container}.log.gz"
            self.objects.put_object(Bucket=bucket, Key=key, Body=body)


def address_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Bucket and prefix of the pod's logs; empty without an address of its own workload."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    address = urlsplit((metadata.get("annotations") or {}).get(LOGS, ""))
    # As sluice.core.values.log_keys, which the agent's image does not hold; a test compares them.
    prefix = f"logs/{labels.get(WORKLOAD, '')}/{labels.get(GENERATION, '')}/"
    own = address.scheme == "s3" and address.path == f"/{prefix}"
    return (address.netloc, prefix) if own else ("", "")


def newest_logs(pod: Mapping[str, Any], folder: Path) -> Iterator[tuple[str, Path]]:
    """Container and log file of its newest run, in the kubelet's layout."""
    metadata = pod["metadata"]
    found = folder / f"{metadata['namespace']}_{metadata['name']}_{metadata['uid']}"
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
