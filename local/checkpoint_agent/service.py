"""Follows the pods of its nodes, carries out orders, and answers by annotation."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from sluice.adapters.kubernetes_cluster import KubernetesCluster
from sluice.core.job_status import WORKLOAD_LABEL
from sluice.core.marks import DONE
from sluice.core.options import CheckpointMode
from sluice.errors import ClusterError

from agent.signals import UnheardError, tell
from local.checkpoint_agent.kubelet import CheckpointFailedError, Kubelet
from local.checkpoint_agent.orders import Order, order_of

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client

log = logging.getLogger("agent")
WATCH_SECONDS = 240.0
PAUSE_SECONDS = 1.0
DUMP_SECONDS = 600
PARALLEL = 4


@dataclass(frozen=True)
class Agent:
    """`serves` says whether a node, by its object, is this agent's."""

    cluster: KubernetesCluster
    kubelet: Kubelet
    s3: S3Client
    serves: Callable[[Mapping[str, Any]], bool]
    begun: set[tuple[str, str]] = field(default_factory=set)
    pool: ThreadPoolExecutor = field(default_factory=lambda: ThreadPoolExecutor(PARALLEL))

    def run(self) -> None:
        """Works until it is stopped; a broken connection is only a pause."""
        while True:
            try:
                self.follow()
            except ClusterError as error:
                log.warning("%s", error)
                time.sleep(PAUSE_SECONDS)

    def follow(self) -> None:
        pods, version = self.cluster.list("Pod", selector=WORKLOAD_LABEL)
        for pod in pods:
            self.hear(pod)
        events = self.cluster.watch(
            "Pod",
            selector=WORKLOAD_LABEL,
            version=version,
            seconds=WATCH_SECONDS,
        )
        for change, pod in events:
            if change == "ERROR":
                return
            if change in ("ADDED", "MODIFIED"):
                self.hear(pod)

    def hear(self, pod: Mapping[str, Any]) -> None:
        order = order_of(pod)
        if order is not None and order.key not in self.begun:
            self.begun.add(order.key)
            self.pool.submit(self.obey, order)

    def obey(self, order: Order) -> None:
        node = self.cluster.get("Node", "", order.node)
        if node is None or not self.serves(node):
            return
        began = time.time()
        try:
            done = self.save(order, address(node))
        except (CheckpointFailedError, UnheardError) as error:
            done = {"error": str(error)}
        except Exception as error:  # whatever it is, Sluice has to learn that there is none
            log.exception("order %s of %s", order.token, order.pod)
            done = {"error": f"{type(error).__name__}: {error}"}
        done |= {"order": order.token, "seconds": round(time.time() - began, 3)}
        log.info("%s/%s: %s", order.namespace, order.pod, done)
        patch = {"metadata": {"uid": order.uid, "annotations": {DONE: json.dumps(done)}}}
        self.cluster.patch("Pod", order.namespace, order.pod, patch)

    def save(self, order: Order, kubelet: str) -> dict[str, Any]:
        if order.driver is CheckpointMode.APPLICATION:
            if not order.signal:
                raise CheckpointFailedError(
                    "the application names no signal; it hears SIGTERM only"
                )
            tell(order.workload, order.generation, order.signal)
            return {"uri": "", "at": int(time.time() * 1000)}
        if order.driver is not CheckpointMode.KUBELET:
            raise CheckpointFailedError(f"no such driver on this node: {order.driver}")
        if len(order.containers) > 1:
            raise CheckpointFailedError("only pods of one container can be saved")
        (container,) = order.containers
        left = order.deadline / 1000 - time.time() if order.deadline else DUMP_SECONDS
        if left <= 1:
            raise CheckpointFailedError("no time is left")
        at = int(time.time() * 1000)
        archive = self.kubelet.checkpoint(
            kubelet, order.namespace, order.pod, container, seconds=int(left)
        )
        try:
            return {"uri": self.upload(order, archive), "bytes": archive.stat().st_size, "at": at}
        finally:
            archive.unlink(missing_ok=True)

    def upload(self, order: Order, archive: Path) -> str:
        """The archive's address once it is complete in S3: before that it dies with the node."""
        where = urlsplit(order.destination)
        if where.scheme != "s3":
            raise CheckpointFailedError("the pod does not say where its checkpoints go")
        key = f"{where.path.removeprefix('/')}{order.pod}/{order.token}.tar"
        self.s3.upload_file(str(archive), where.netloc, key)
        return f"s3://{where.netloc}/{key}"


def address(node: Mapping[str, Any]) -> str:
    """`HOST:PORT` of a node's kubelet."""
    status = node.get("status") or {}
    known = {each["type"]: each["address"] for each in status.get("addresses") or ()}
    port = status["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    return f"{known.get('InternalIP', '127.0.0.1')}:{port}"
