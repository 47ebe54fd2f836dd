"""The node program: instances join and leave, their pods run, one event loop drives it all."""

import asyncio
import contextlib
import json
import logging
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from http import HTTPStatus
from pathlib import Path
from typing import Any, Literal
from urllib.parse import urlencode

import urllib3
from botocore.exceptions import BotoCoreError, ClientError

from local.node import containers, criu, membership
from local.node.api import ApiError, KubernetesApi, follow
from local.node.certificate import server_context
from local.node.folders import PodRecord
from local.node.instances import Instance, Instances
from local.node.kubelet_api import KubeletApi
from local.node.launching import Surroundings
from local.node.metadata_service import MetadataService
from local.node.pod_run import PodRun
from local.node.process_pod import ProcessPod
from local.node.processes import Processes
from local.node.s3_volume import Buckets
from local.node.simulated_pod import SimulatedPod
from local.node.site import Site, install_interpreter
from local.node.web import Listener, serve
from local.settings import default_cache

log = logging.getLogger(__name__)
INSTANCES_SECONDS = 0.5
CALL_THREADS = 16
FILE_THREADS = 8
FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class Settings:
    """What the command line says; see `python -m local.node --help`."""

    kubeconfig: Path
    ec2: str
    aws: str
    state: Path
    region: str
    runtime: Literal["process", "simulated"]
    instance_delay_seconds: float
    cluster_name: str | None
    client_ca: Path | None
    criu: Path | None


@dataclass
class Member:
    """One instance as a node of the cluster, with the pods that it runs."""

    instance: Instance
    allocatable: dict[str, str]
    uid: str
    servers: list[Listener]
    metadata_endpoint: str
    runs: dict[str, PodRun] = field(default_factory=dict)

    def find(self, namespace: str, name: str) -> PodRun | None:
        full = f"{namespace}/{name}"
        return next((one for one in self.runs.values() if one.name == full), None)

    def all(self) -> list[ProcessPod]:
        return [one for one in self.runs.values() if isinstance(one, ProcessPod)]


class NodeProgram:
    def __init__(self, settings: Settings) -> None:
        self.settings = settings
        self.api = KubernetesApi(settings.kubeconfig)
        isolation = containers.probe(settings.state, [settings.kubeconfig.parent.resolve()])
        self.site = Site(
            api=self.api,
            processes=Processes(settings.state),
            calls=ThreadPoolExecutor(CALL_THREADS, "api"),
            files=ThreadPoolExecutor(FILE_THREADS, "files"),
            buckets=Buckets(settings.aws, settings.region),
            criu=criu.probe(settings.criu, default_cache(), isolation),
            isolation=isolation,
            state=settings.state,
        )
        self.instances = Instances(settings.ec2, settings.region, settings.cluster_name)
        self.members: dict[str, Member] = {}  # by node name
        self.pods: dict[str, dict[str, dict[str, Any]]] = {}  # node name -> uid -> unfinished pod
        self.records: dict[str, PodRecord] = {}  # of an earlier life of this program
        self.tasks: set[asyncio.Task[Any]] = set()
        self.stop_watching = threading.Event()
        self.http = urllib3.PoolManager(maxsize=4)

    async def run(self, stop: asyncio.Event) -> None:
        """Works until `stop` is set; then every process of every pod ends with it."""
        self.loop = asyncio.get_running_loop()
        self.settings.state.mkdir(parents=True, exist_ok=True)
        self.site.pods.mkdir(exist_ok=True)
        self.site.checkpoints.mkdir(exist_ok=True, mode=0o700)
        await asyncio.to_thread(install_interpreter, self.settings.state / "bin")
        await self.site.processes.open()
        for path in self.site.pods.glob("*.json"):
            self.records[path.stem] = PodRecord.load(path)
        listed = asyncio.Event()
        watch = threading.Thread(target=self._watch, args=(listed,), name="pods", daemon=True)
        watch.start()
        await listed.wait()
        self._spawn(self._renew_leases())
        try:
            await self._follow_instances(stop)
        finally:
            self.stop_watching.set()
            for task in self.tasks:
                task.cancel()
            await self.site.processes.close()

    def _spawn(self, work: Any) -> None:
        task = asyncio.create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Any]) -> None:
        self.tasks.discard(task)
        if not task.cancelled() and (error := task.exception()):
            log.error("%s", task.get_name(), exc_info=error)

    # Instances

    async def _follow_instances(self, stop: asyncio.Event) -> None:
        joining: set[str] = set()
        looked_back = False
        while not stop.is_set():
            try:
                running = await self.site.call(self.instances.running)
            except (BotoCoreError, ClientError) as error:
                log.warning("EC2 does not answer: %s", error)
            else:
                if not looked_back:
                    looked_back = True
                    self._spawn(self._bury_earlier_nodes(set(running)))
                known = {member.instance.id for member in self.members.values()} | joining
                for instance in running.values():
                    if instance.id not in known:
                        joining.add(instance.id)
                        self._spawn(self._join(instance, joining))
                for member in list(self.members.values()):
                    if member.instance.id not in running:
                        self._leave(member)
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(stop.wait(), INSTANCES_SECONDS)

    async def _join(self, instance: Instance, joining: set[str]) -> None:
        try:
            age = time.time() - instance.launched.timestamp()
            await asyncio.sleep(max(0, self.settings.instance_delay_seconds - age))
            if instance.id in await self.site.call(self.instances.running):
                await self._register(instance)
        except (ApiError, BotoCoreError, ClientError) as error:
            log.warning("%s cannot join yet: %s", instance.id, error)
            await asyncio.sleep(1)
        finally:
            joining.discard(instance.id)

    async def _register(self, instance: Instance) -> None:
        machine = await self.site.call(self.instances.machine, instance.type)
        metadata = await serve(
            MetadataService(instance, lambda what: self._ask_market(instance, what))
        )
        endpoint = f"http://127.0.0.1:{metadata.port}"
        member = Member(instance, machine.allocatable, "", [metadata], endpoint)
        tls = server_context(self.settings.state, self.settings.client_ca)
        kubelet = await serve(KubeletApi(self.site, member), tls=tls)
        member.servers.append(kubelet)
        registration = membership.Registration(
            instance=instance,
            machine=machine,
            kubelet_port=kubelet.port,
            checkpoint=self.site.criu.label,
            checkpoint_reason=self.site.criu.reason,
            isolation_reason=self.site.isolation.reason,
        )
        try:
            member.uid = await self.site.call(membership.join, self.api, registration)
        except ApiError:
            for server in member.servers:
                server.close()
            raise
        log.info("%s joined: %s %s", instance.node_name, instance.id, instance.type)
        self.members[instance.node_name] = member
        for pod in list(self.pods.get(instance.node_name, {}).values()):
            self._accept(member, pod)

    def _leave(self, member: Member) -> None:
        """The machine is gone: its pods die at once, its Lease is not renewed any more."""
        name = member.instance.node_name
        log.info("%s is gone: %s", name, member.instance.id)
        del self.members[name]
        for server in member.servers:
            server.close()
        for run in member.runs.values():
            run.abandon()
        self._spawn(self._bury(member))

    async def _bury(self, member: Member) -> None:
        for run in member.all():
            await run.discard()
        await self._remove_node(member.instance.node_name, member.instance.provider_id)

    async def _bury_earlier_nodes(self, running: set[str]) -> None:
        """Nodes whose instance went while this program did not run."""
        query = urlencode({"labelSelector": membership.OURS})
        nodes = await self.site.call(self.api.get, f"/api/v1/nodes?{query}")
        for node in nodes["items"]:
            provider_id = node["spec"]["providerID"]
            if provider_id.rpartition("/")[2] not in running:
                self._spawn(self._remove_node(node["metadata"]["name"], provider_id))

    async def _remove_node(self, name: str, provider_id: str) -> None:
        while True:
            with contextlib.suppress(ApiError):
                if await self.site.call(membership.remove_if_dead, self.api, name, provider_id):
                    return
            await asyncio.sleep(5)

    async def _ask_market(self, instance: Instance, what: str) -> dict[str, Any] | None:
        """The market's word for one machine, as the metadata service passes it on."""
        url = f"{self.settings.ec2.rstrip('/')}/_market/instances/{instance.id}/{what}"
        try:
            response = await self.site.call(
                self.http.request, "GET", url, timeout=2.0, retries=False
            )
        except urllib3.exceptions.HTTPError:
            return None
        if response.status != HTTPStatus.OK:
            return None
        document: dict[str, Any] = json.loads(response.data)
        return document

    async def _renew_leases(self) -> None:
        while True:
            await asyncio.gather(*(self._renew(one) for one in list(self.members.values())))
            await asyncio.sleep(membership.RENEW_SECONDS)

    async def _renew(self, member: Member) -> None:
        name = member.instance.node_name
        try:
            await self.site.call(membership.renew, self.api, name, member.uid)
        except ApiError as error:
            log.warning("lease of %s: %s", name, error)

    # Pods

    def _watch(self, first: asyncio.Event) -> None:
        def listed(pods: list[dict[str, Any]]) -> None:
            self.loop.call_soon_threadsafe(self._listed, pods, first)

        def changed(kind: str, pod: dict[str, Any]) -> None:
            self.loop.call_soon_threadsafe(self._changed, kind, pod)

        follow(
            self.api,
            "/api/v1/pods",
            {"fieldSelector": "spec.nodeName!="},
            listed=listed,
            changed=changed,
            stop=self.stop_watching,
        )

    def _listed(self, pods: list[dict[str, Any]], first: asyncio.Event) -> None:
        present = {pod["metadata"]["uid"] for pod in pods}
        known = [uid for some in self.pods.values() for uid in some]
        running = [uid for member in self.members.values() for uid in member.runs]
        for uid in {*known, *running, *self.records} - present:
            self._forget(uid)
        for pod in pods:
            self._changed("ADDED", pod)
        first.set()

    def _changed(self, kind: str, pod: dict[str, Any]) -> None:
        uid, node = pod["metadata"]["uid"], pod["spec"]["nodeName"]
        if kind == "DELETED":
            self._forget(uid)
            return
        if pod.get("status", {}).get("phase") in FINISHED and uid not in self.records:
            self.pods.get(node, {}).pop(uid, None)
        else:
            self.pods.setdefault(node, {})[uid] = pod
        member = self.members.get(node)
        if member is None:
            return
        if run := member.runs.get(uid):
            run.update(pod)
        elif uid in self.pods.get(node, {}):
            self._accept(member, pod)

    def _forget(self, uid: str) -> None:
        """The pod is gone from the API; what it left on disk goes too."""
        for some in self.pods.values():
            some.pop(uid, None)
        for member in self.members.values():
            if run := member.runs.pop(uid, None):
                run.vanish()
                if isinstance(run, ProcessPod):
                    self._spawn(run.discard())
        if record := self.records.pop(uid, None):
            self._spawn(self.site.work(record.discard, self.site.pods))

    def _accept(self, member: Member, pod: dict[str, Any]) -> None:
        uid = pod["metadata"]["uid"]
        run: PodRun
        if self.settings.runtime == "simulated":
            run = SimulatedPod(self.site, pod)
        else:
            around = Surroundings(member.allocatable, member.metadata_endpoint)
            run = ProcessPod(self.site, pod, around, self.records.pop(uid, None))
        member.runs[uid] = run
        self._spawn(run.run())
