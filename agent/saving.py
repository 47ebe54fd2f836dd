"""What becomes of one order: a dump in S3 and in the registry, or a signal."""

import contextlib
import tarfile
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from agent import criu_log
from agent.connections import count_connections
from agent.holding import HeldRuns, Hold, first_of, list_tree, untraced
from agent.kubelet import CheckpointRefusedError
from agent.orders import CONNECTIONS, REFUSE, Order
from agent.registry import PushRefusedError
from agent.signals import UnheardError, tell
from agent.upload import Uploads, upload

DUMP_SECONDS = 600  # where no machine goes away


class CheckpointEndpoint(Protocol):
    """See `agent.kubelet`."""

    def checkpoint(self, namespace: str, pod: str, container: str, *, seconds: int) -> Path: ...


class ImageRepository(Protocol):
    """See `agent.registry`."""

    def push(self, tag: str, archive: Path, container: str, digest: Callable[[], str]) -> str: ...


@dataclass(frozen=True)
class Saver:
    """Carries orders out; the answer is the text of the annotation."""

    # Of a node; its port may change with a reboot.
    kubelet: Callable[[str], CheckpointEndpoint]
    uploads: Uploads
    repository: Callable[[], ImageRepository | None]  # asked each time, as credentials expire
    failures: tuple[type[Exception], ...]  # of `kubelet`, `uploads` and `repository`
    holds: HeldRuns = field(default_factory=HeldRuns)
    host: Path = criu_log.HOST  # where the root of the machine is seen

    def save(self, order: Order) -> str:
        """The answer to an order, whatever becomes of it."""
        at = int(time.time() * 1000)
        if order.driver == "application" and order.signal:
            try:
                tell(order.workload, order.generation, order.signal)
            except UnheardError as error:
                return order.failed(str(error), at=at)
            return order.told(at=at)
        if order.driver == "application":
            return order.failed("the application names no signal; it hears SIGTERM only", at=at)
        if order.driver != "kubelet":
            return order.failed(f"this agent has no driver {order.driver!r}", at=at)
        if len(order.containers) > 1:
            return order.failed("only pods of one container can be saved", at=at)
        if not order.place[0]:
            return order.failed("the pod does not say where its checkpoints go", at=at)
        return self._dump(order, at)

    def _dump(self, order: Order, at: int) -> str:
        """Dump, then upload and push side by side; the node's copy goes in any case.

        Who moves works no more from the dump on, unless the dump is lost.
        """
        began = time.monotonic()
        (container,), (bucket, key) = order.containers, order.place
        if not untraced(order, _seconds_left(order)):
            return order.failed("its processes are traced already, as by another dump", at=at)
        if order.keeps_connections and (number := _open_connections(order)):
            why = f"it has {number} open TCP connections, and {CONNECTIONS} is {REFUSE}"
            return order.failed(why, at=at)
        left = _seconds_left(order)
        if left < 1:
            return order.failed("no time is left", at=at)
        hold = self.holds.begin(order) if order.holds else Hold(0)
        failures: tuple[type[Exception], ...] = (
            CheckpointRefusedError,
            PushRefusedError,
            OSError,
            tarfile.TarError,
            *self.failures,
        )
        try:
            archive = self.kubelet(order.node).checkpoint(
                order.namespace, order.pod, container, seconds=left
            )
        except failures as error:
            hold.release()
            words = criu_log.explain(str(error), order.container_id, self.host)
            why = (
                f"CRIU refuses it: {words}" if words else f"the kubelet could not save it: {error}"
            )
            return order.failed(why, at=at)
        hold.stop()
        try:
            with ThreadPoolExecutor(2) as beside:
                storing = beside.submit(upload, archive, self.uploads, bucket, key)
                digest = lambda: storing.result().digest  # noqa: E731 - once it is all read
                pushed = beside.submit(self._push, order.tag(at), archive, container, digest)
                stored, image = storing.result(), pushed.result()
        except failures as error:
            hold.release()
            return order.failed(f"its checkpoint could not be kept: {error}", at=at)
        finally:
            with contextlib.suppress(OSError):
                archive.unlink()
        seconds = time.monotonic() - began
        return order.saved(
            uri=f"s3://{bucket}/{key}",
            image=image,
            size=stored.size,
            digest=stored.digest,
            seconds=seconds,
            at=hold.traced_at or at,
            held_at=hold.held_at,
        )

    def _push(self, tag: str, archive: Path, container: str, digest: Callable[[], str]) -> str:
        """The image that a runtime restores; empty where nodes restore the archive itself."""
        repository = self.repository()
        return repository.push(tag, archive, container, digest) if repository else ""


def _open_connections(order: Order) -> int:
    first = first_of(order)
    return count_connections(list_tree(first)) if first else 0


def _seconds_left(order: Order) -> int:
    return order.deadline // 1000 - int(time.time()) if order.deadline else DUMP_SECONDS
