"""Instances join and leave as real kubelets; one loop starts and kills them.

Requests to the API server run in threads of their own: they may take long, and a machine that is
gone has to die at once.
"""

import logging
import queue
import shutil
import socket
import threading
import time
import zlib
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from http import HTTPStatus
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from botocore.exceptions import BotoCoreError, ClientError

from local.certificates import serving_certificate
from local.kubelet_node import cgroups, debian
from local.kubelet_node.configuration import Plan
from local.kubelet_node.metadata import Metadata
from local.kubelet_node.node import Node
from local.kubelet_node.registry import PYTHON, Images, serve
from local.node.api import MERGE, ApiError, KubernetesApi
from local.node.instances import Instance, Instances, Machine
from local.node.membership import remove_if_dead
from local.ports import choose_ports

log = logging.getLogger(__name__)
POLL_SECONDS = 0.3
RETRY_SECONDS = 1.0
REBOOT_SECONDS = 5.0
CALL_THREADS = 8
FIRST_NETWORK, NETWORKS = 64, 64  # second number of the pods' addresses
OURS = "sluice.dev/node=kubelet"
PORTS = ("registry", "metadata")


@dataclass(frozen=True)
class Settings:
    """What the command line says; see `python -m local.kubelet_node --help`."""

    kubeconfig: Path
    ec2: str
    state: Path
    region: str
    base: Path
    pause: Path
    python: Path
    kubelet: Path
    cgroup: str
    instance_delay_seconds: float
    cluster_name: str | None
    client_ca: Path | None
    authority: Path | None
    ports: dict[str, int]  # those that others chose


class Program:
    """The nodes of one stack, and the registry that they pull from."""

    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.api = KubernetesApi(settings.kubeconfig)
        self.instances = Instances(settings.ec2, settings.region, settings.cluster_name)
        self.calls = ThreadPoolExecutor(CALL_THREADS, "api")
        self.nodes: dict[str, Node] = {}  # by instance id
        self.joining: set[str] = set()
        self.welcome: queue.SimpleQueue[tuple[Instance, Machine]] = queue.SimpleQueue()
        self.rebooted: dict[str, float] = {}
        self.stopping = threading.Event()
        # Stacks side by side route their pods through one machine: each has a network of its own.
        self.network = FIRST_NETWORK + zlib.crc32(settings.cgroup.encode()) % NETWORKS

    def run(self, stop: threading.Event) -> None:
        """Works until `stop` is set; then every node dies with it."""
        cgroups.remove(self.settings.cgroup)  # of an earlier life
        (self.settings.state / "nodes").mkdir(parents=True, exist_ok=True, mode=0o700)
        ports = choose_ports(self.settings.state / "ports.json", PORTS, self.settings.ports)
        self.registry = ports["registry"]
        server = serve(self._images(), self.registry)
        threading.Thread(target=server.serve_forever, name="registry", daemon=True).start()
        log.info("images from 127.0.0.1:%d", self.registry)
        Metadata(self.settings.ec2, self._instances).start(ports["metadata"])
        looked_back = False
        try:
            while not stop.wait(POLL_SECONDS):
                try:
                    running = self.instances.running()
                except (BotoCoreError, ClientError) as error:
                    log.warning("EC2 does not answer: %s", error)
                    continue
                if not looked_back:
                    looked_back = True
                    self._call(self._bury_earlier_nodes, running)
                self._follow(running)
        finally:
            self.stopping.set()
            for node in self.nodes.values():
                node.kill()
            cgroups.remove(self.settings.cgroup)
            server.shutdown()
            self.calls.shutdown(wait=False, cancel_futures=True)

    def _images(self) -> Images:
        images = Images(self.settings.state / "images")
        images.add("pause:1", [self.settings.pause], {"Entrypoint": ["/pause"]})
        python = {"Cmd": ["python3"], "Env": [f"PATH={debian.SEARCH_PATH}"]}
        images.add(PYTHON, [self.settings.python], python)
        return images

    def _call(self, work: Any, *arguments: Any) -> None:
        def ended(future: Future[None]) -> None:
            if not future.cancelled() and (error := future.exception()):
                log.error("%s failed", work.__name__, exc_info=error)

        self.calls.submit(work, *arguments).add_done_callback(ended)

    def _follow(self, running: dict[str, Instance]) -> None:
        """One look at the instances."""
        for gone in self.nodes.keys() - running.keys():
            self._leave(self.nodes.pop(gone))
        for instance in running.values():
            age = time.time() - instance.launched.timestamp()
            if (
                instance.id not in self.nodes
                and instance.id not in self.joining
                and age >= self.settings.instance_delay_seconds
            ):
                self.joining.add(instance.id)
                self._call(self._prepare, instance)
        while not self.welcome.empty():
            instance, machine = self.welcome.get()
            self.joining.discard(instance.id)
            if instance.id in running:
                self._start(Node(self._plan(instance, machine), self._folder(instance)))
        for node in list(self.nodes.values()):
            self._watch(node)

    def _folder(self, instance: Instance) -> Path:
        return self.settings.state / "nodes" / instance.id

    def _prepare(self, instance: Instance) -> None:
        """Make way for the node's name, and choose what it needs."""
        path = f"/api/v1/nodes/{instance.node_name}"
        while True:
            try:
                machine = self.instances.machine(instance.type)
                node = self.api.find(path)
                if node is None or node["spec"].get("providerID") == instance.provider_id:
                    break
                self.api.delete(path, uid=node["metadata"]["uid"])  # an earlier machine's
            except (ApiError, BotoCoreError, ClientError) as error:
                log.warning("%s cannot join yet: %s", instance.id, error)
            if self.stopping.wait(RETRY_SECONDS):
                return
        self.welcome.put((instance, machine))

    def _plan(self, instance: Instance, machine: Machine) -> Plan:
        client_ca = self.settings.client_ca
        taken = {node.plan.pod_range for node in self.nodes.values()}
        ranges = (f"10.{self.network}.{number}.0/24" for number in range(256))
        return Plan(
            instance=instance,
            machine=machine,
            kubeconfig=self.settings.kubeconfig.read_text(),
            client_ca=client_ca.read_text() if client_ca else None,
            port=free_port(),
            registry=self.registry,
            pod_range=next(one for one in ranges if one not in taken),
            cgroup=f"{self.settings.cgroup}/{instance.id}",
            serving=self._serving(instance),
        )

    def _serving(self, instance: Instance) -> tuple[str, str] | None:
        """A kubelet's certificate and key, which on EKS come from the cluster's authority, too."""
        if self.settings.authority is None:
            return None
        return serving_certificate(self.settings.authority, f"system:node:{instance.node_name}")

    def _instances(self) -> list[Instance]:
        return [node.plan.instance for node in list(self.nodes.values())]

    def _start(self, node: Node) -> None:
        node.start(self.settings.base, self.settings.kubelet)
        self.nodes[node.plan.instance.id] = node
        self.rebooted[node.plan.instance.id] = time.monotonic()
        log.info("%s starts: %s %s", node.name, node.plan.instance.id, node.plan.instance.type)
        self._call(self._initialise, node)

    def _watch(self, node: Node) -> None:
        """A node whose kubelet or containerd ended is a machine that reboots."""
        began = self.rebooted[node.plan.instance.id]
        if not node.runs and time.monotonic() - began > REBOOT_SECONDS:
            log.warning("%s ended by itself; see %s", node.name, node.folder / "log")
            cgroups.remove(node.plan.cgroup)
            self._start(node)

    def _initialise(self, node: Node) -> None:
        """The cloud controller's part for a new node: its addresses, then the taint goes.

        The kubelet itself refuses a loopback address as --node-ip, but accepts one from the cloud.
        """
        path = f"/api/v1/nodes/{node.name}"
        while (found := self.api.find(path)) is None:
            if not node.runs or self.stopping.wait(POLL_SECONDS):
                return
        addresses = [
            {"type": "InternalIP", "address": "127.0.0.1"},
            {"type": "Hostname", "address": node.name},
        ]
        self.api.patch(f"{path}/status", {"status": {"addresses": addresses}})
        self._remove_taint(path, found, "node.cloudprovider.kubernetes.io/uninitialized")
        log.info("%s joined on port %d", node.name, node.plan.port)

    def _remove_taint(self, path: str, node: dict[str, Any] | None, key: str) -> None:
        """Others change taints too, so the patch holds only for the version that was read."""
        while node is not None:
            taints = node["spec"].get("taints", [])
            kept = [taint for taint in taints if taint["key"] != key]
            if len(kept) == len(taints):
                return
            version = node["metadata"]["resourceVersion"]
            body = {"metadata": {"resourceVersion": version}, "spec": {"taints": kept}}
            try:
                self.api.patch(path, body, kind=MERGE)
            except ApiError as error:
                if error.status != HTTPStatus.CONFLICT:
                    raise
            node = self.api.find(path)

    def _leave(self, node: Node) -> None:
        """The machine is gone: everything on it dies at once."""
        node.kill()
        log.info("%s is gone: %s", node.name, node.plan.instance.id)
        self._call(self._bury, node)

    def _bury(self, node: Node) -> None:
        node.remove()
        self._remove_node(node.name, node.plan.instance.provider_id)

    def _bury_earlier_nodes(self, running: dict[str, Instance]) -> None:
        """What instances left behind that went while this program did not run."""
        for folder in (self.settings.state / "nodes").iterdir():
            if folder.name not in running:
                shutil.rmtree(folder, ignore_errors=True)
        query = urlencode({"labelSelector": OURS})
        for node in self.api.get(f"/api/v1/nodes?{query}")["items"]:
            provider_id = node["spec"]["providerID"]
            if provider_id.rpartition("/")[2] not in running:
                self._call(self._remove_node, node["metadata"]["name"], provider_id)

    def _remove_node(self, name: str, provider_id: str) -> None:
        while not self.stopping.is_set():
            try:
                if remove_if_dead(self.api, name, provider_id):
                    return
            except ApiError as error:
                log.warning("%s cannot be removed yet: %s", name, error)
            self.stopping.wait(5 * RETRY_SECONDS)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
