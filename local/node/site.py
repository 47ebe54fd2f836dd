"""What the pods of one node program share: API, processes, thread pools, folders."""

import asyncio
import contextlib
import stat
import sys
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

from local.node.api import ApiError, KubernetesApi
from local.node.containers import Isolation
from local.node.criu import Criu
from local.node.processes import Processes
from local.node.s3_volume import Buckets
from local.node.state import timestamp

P = ParamSpec("P")
T = TypeVar("T")
SYSTEM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"


@dataclass(frozen=True)
class Site:
    api: KubernetesApi
    processes: Processes
    calls: ThreadPoolExecutor  # requests to the API server
    files: ThreadPoolExecutor  # disk and S3, so that slow transfers never delay a status
    buckets: Buckets
    criu: Criu
    isolation: Isolation
    state: Path

    @property
    def pods(self) -> Path:
        return self.state / "pods"

    @property
    def checkpoints(self) -> Path:
        return self.state / "checkpoints"

    @property
    def search_path(self) -> str:
        return f"{self.state / 'bin'}:{SYSTEM_PATH}"

    async def call(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """A blocking call of the API server, off the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.calls, lambda: function(*args, **kwargs))

    async def work(self, function: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Blocking work on files, off the event loop."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self.files, lambda: function(*args, **kwargs))

    async def warn(self, pod: dict[str, Any], reason: str, message: str) -> None:
        """A Warning event on the pod; a lost event is not worth a failed pod."""
        with contextlib.suppress(ApiError):
            namespace = pod["metadata"]["namespace"]
            path = f"/api/v1/namespaces/{namespace}/events"
            await self.call(self.api.create, path, warning(pod, reason, message))


def warning(pod: dict[str, Any], reason: str, message: str) -> dict[str, Any]:
    metadata, now = pod["metadata"], timestamp()
    return {
        "metadata": {"name": f"{metadata['name']}.{uuid.uuid4().hex[:16]}"},
        "involvedObject": {
            "apiVersion": "v1",
            "kind": "Pod",
            "name": metadata["name"],
            "namespace": metadata["namespace"],
            "uid": metadata["uid"],
        },
        "type": "Warning",
        "reason": reason,
        "message": message[:1024],
        "source": {"component": "kubelet", "host": pod["spec"].get("nodeName", "")},
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def install_interpreter(folder: Path) -> None:
    """`python` and `python3` for the pods: the interpreter, with its packages, that runs the node.

    Small scripts, because a link to a virtual environment's interpreter loses the environment.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for name in ("python", "python3"):
        script = folder / name
        script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
        script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)
