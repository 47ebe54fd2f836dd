"""Stores the logs of a pod in S3 while they grow, as the node agent does on kubelet nodes."""

import asyncio
import contextlib
import gzip
import logging
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from botocore.exceptions import BotoCoreError, ClientError
from sluice.core.values.log_keys import generation_folder

from local.node.folders import PodFolder
from local.node.logs import open_log
from local.node.s3_volume import Buckets
from local.node.state import Container

log = logging.getLogger(__name__)
ADDRESS = "sluice.dev/logs-to"
WORKLOAD, GENERATION = "sluice.dev/workload", "sluice.dev/generation"
PERIOD_SECONDS = 3.0
LOG_BYTES = 10_000_000
"""As much of a log as the control plane stores."""
PIECE_BYTES = 1_000_000
"""Of a log that grows only the last piece is stored again."""
Work = Callable[..., Awaitable[None]]


def address_of(pod: Mapping[str, Any]) -> tuple[str, str]:
    """Bucket and prefix of the pod's logs; empty without an address of its own workload."""
    metadata = pod["metadata"]
    labels = metadata.get("labels") or {}
    address = urlsplit((metadata.get("annotations") or {}).get(ADDRESS, ""))
    prefix = generation_folder(labels.get(WORKLOAD, ""), labels.get(GENERATION, ""))
    own = address.scheme == "s3" and address.path == f"/{prefix}"
    return (address.netloc, prefix) if own else ("", "")


class LogUpload:
    """The logs of one pod; without an address in its annotations nothing is stored."""

    def __init__(
        self, buckets: Buckets, work: Work, pod: dict[str, Any], folder: PodFolder
    ) -> None:
        self._buckets, self._work = buckets, work
        self._name = pod["metadata"]["name"]
        self._folder = folder
        self._bucket, self._prefix = address_of(pod)
        self._stored: dict[Path, int] = {}  # size of each log file as it was stored

    async def run(self, containers: list[Container], ended: asyncio.Event) -> None:
        """Stores what has grown, until the pod has ended, and then once more."""
        while self._bucket and not ended.is_set():
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(ended.wait(), PERIOD_SECONDS)
            for container in containers:
                path = self._folder.log(container.name, container.restarts)
                await self._work(self._store, container.name, path)

    def _store(self, container: str, path: Path) -> None:
        try:
            with open_log(path) as file:
                text = file.read(LOG_BYTES)
            if not text or self._stored.get(path) == len(text):
                return
            stem, stored = f"{self._prefix}{self._name}/{container}", self._stored.get(path, 0)
            for number in range(stored // PIECE_BYTES, -(-len(text) // PIECE_BYTES)):
                piece = text[number * PIECE_BYTES : (number + 1) * PIECE_BYTES]
                key, body = f"{stem}.part-{number:04}.gz", gzip.compress(piece, mtime=0)
                self._buckets.client(None).put_object(Bucket=self._bucket, Key=key, Body=body)
            self._stored[path] = len(text)
        except FileNotFoundError:
            return  # it has not started
        except (OSError, BotoCoreError, ClientError) as error:  # the next round tries again
            log.warning("log of %s: %s", self._name, error)
