"""One order from the kubelet to S3 and the registry."""

import contextlib
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from agent.kubelet import CheckpointRefusedError
from agent.orders import Order
from agent.registry import PushRefusedError


class Uploads(Protocol):
    """The part of an S3 client that is needed; raises what it likes."""

    def upload_file(self, Filename: str, Bucket: str, Key: str) -> None: ...  # noqa: N803 - boto3's names


class Kubelet(Protocol):
    """See `agent.kubelet`."""

    def checkpoint(self, namespace: str, pod: str, container: str) -> Path: ...


class Repository(Protocol):
    """See `agent.registry`."""

    def push(self, tag: str, archive: Path, container: str) -> str: ...


@dataclass(frozen=True)
class Saver:
    """Carries orders out; the answer is the text of the annotation."""

    kubelet: Kubelet
    uploads: Uploads
    bucket: str
    repository: Callable[[], Repository]  # asked each time, as credentials expire
    failures: tuple[type[Exception], ...]  # of `uploads` and `repository`

    def save(self, order: Order) -> str:
        """Dump, then upload and push side by side; the node's copy goes in any case."""
        began, at = time.monotonic(), int(time.time() * 1000)
        try:
            archive = self.kubelet.checkpoint(order.namespace, order.pod, order.container)
        except (CheckpointRefusedError, OSError) as error:
            return order.failed(f"the kubelet could not save it: {error}")
        failures: tuple[type[Exception], ...] = (PushRefusedError, OSError, *self.failures)
        try:
            size = archive.stat().st_size
            with ThreadPoolExecutor(1) as beside:
                pushed = beside.submit(self.repository().push, order.tag, archive, order.container)
                self.uploads.upload_file(str(archive), self.bucket, order.key)
                image = pushed.result()
        except failures as error:
            return order.failed(f"its checkpoint could not be kept: {error}")
        finally:
            with contextlib.suppress(OSError):
                archive.unlink()
        uri = f"s3://{self.bucket}/{order.key}"
        seconds = time.monotonic() - began
        return order.saved(uri=uri, image=image, size=size, seconds=seconds, at=at)
