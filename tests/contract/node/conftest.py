"""Starts what the contract needs: etcd, API server, controllers, EC2 and S3, a node program."""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import boto3
import pytest

from local import control_plane
from local.build import build
from local.certificates import make_certificates
from local.endpoints import Endpoints
from local.files import write_json
from local.node.api import KubernetesApi
from local.parts import Part
from local.plan import PORTS
from local.ports import choose_ports
from local.settings import CLONE, Layout, NodeKind, Settings, default_cache
from tests.contract.node.cluster import Cluster, until

if TYPE_CHECKING:
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

PROGRAMS = ("etcd", "kube-apiserver", "kube-controller-manager")


def say(text: str) -> None:
    sys.stderr.write(text + "\n")


@contextmanager
def running(command: list[str], log: Path, **environment: str) -> Iterator[subprocess.Popen[bytes]]:
    """A program in a session of its own, ended with the test."""
    with (
        log.open("ab") as output,
        subprocess.Popen(
            command,
            stdout=output,
            stderr=subprocess.STDOUT,
            start_new_session=True,
            env=os.environ | {"PYTHONPATH": str(CLONE)} | environment,
            cwd=CLONE,
        ) as process,
    ):
        yield process
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()


def await_healthy(part: Part, log: Path) -> None:
    health = part.health
    if health is not None:
        until(health.is_good, f"{part.name} is ready; see {log}")


class Machines:
    """Instances of the emulated EC2."""

    def __init__(self, endpoint: str) -> None:
        self.endpoint = endpoint
        session = boto3.Session("test", "test", region_name="us-east-1")
        self.ec2 = session.client("ec2", endpoint_url=endpoint)
        self.s3 = session.client("s3", endpoint_url=endpoint)

    def launch(self) -> "InstanceTypeDef":
        image = self.ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
        answer = self.ec2.run_instances(
            ImageId=image,
            InstanceType="c5.4xlarge",
            MinCount=1,
            MaxCount=1,
            InstanceMarketOptions={"MarketType": "spot"},
        )
        return answer["Instances"][0]

    def terminate(self, instance_id: str) -> None:
        self.ec2.terminate_instances(InstanceIds=[instance_id])


class NodeProgram:
    """The program under test; can be killed and started again on the same state."""

    def __init__(self, folder: Path, kubeconfig: Path, client_ca: Path, endpoint: str) -> None:
        self.folder = folder
        self.state = folder / "node"
        self.command = [
            *(sys.executable, "-m", "local.node", "--kubeconfig", str(kubeconfig)),
            *("--ec2", endpoint, "--aws", endpoint, "--state", str(self.state)),
            *("--client-ca", str(client_ca)),
        ]
        self.process: subprocess.Popen[bytes] | None = None
        self._stack = ExitStack()

    def start(self, *arguments: str) -> None:
        program = running([*self.command, *arguments], self.folder / "node.log")
        self.process = self._stack.enter_context(program)

    def stop(self) -> None:
        self._stack.close()

    def kill(self) -> None:
        assert self.process
        self.process.kill()
        self.process.wait()


@pytest.fixture(scope="session")
def kind() -> NodeKind:
    return "process"


@pytest.fixture(scope="session")
def control(
    kind: NodeKind, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[tuple[Layout, Machines]]:
    state = tmp_path_factory.mktemp("cluster")
    settings = Settings(state=state, cache=default_cache(), nodes=kind)
    build(settings.cache, say, PROGRAMS)
    layout = Layout(state)
    for folder in (layout.logs, layout.data):
        folder.mkdir()
    make_certificates(layout.certs)
    ports = choose_ports(layout.ports, PORTS, {})
    ec2 = f"http://127.0.0.1:{ports['ec2']}"
    endpoints = Endpoints(
        aws=ec2,
        ec2=ec2,
        region="us-east-1",
        account="123456789012",
        access_key_id="test",
        secret_access_key="test",
        kubeconfig=str(layout.kubeconfig),
        cluster_name="contract",
        cluster_endpoint=f"https://127.0.0.1:{ports['kube-apiserver']}",
        certificate_authority=control_plane.authority_data(layout),
        state=str(state),
        path=os.environ["PATH"],
    )
    write_json(layout.endpoints, endpoints.document())
    control_plane.write_credentials(layout, endpoints, ports, "contract-admin")
    parts = {part.name: part for part in control_plane.control_plane(settings, endpoints, ports)}
    moto = [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(ports["ec2"])]
    with ExitStack() as stack:
        stack.enter_context(running(moto, layout.log("ec2")))
        for name in PROGRAMS:
            part, log = parts[name], layout.log(name)
            stack.enter_context(running(list(part.command), log, **part.environment))
            await_healthy(part, log)
        yield layout, Machines(ec2)


@pytest.fixture(scope="session")
def api(control: tuple[Layout, Machines]) -> KubernetesApi:
    return KubernetesApi(control[0].kubeconfig)


@pytest.fixture(scope="session")
def machines(control: tuple[Layout, Machines]) -> Machines:
    return control[1]


@pytest.fixture(scope="session")
def program(
    control: tuple[Layout, Machines], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[NodeProgram]:
    layout, machines = control
    found = NodeProgram(
        tmp_path_factory.mktemp("nodes"),
        layout.kubeconfig,
        layout.certs / "kubelet-client.crt",
        machines.endpoint,
    )
    found.start()
    yield found
    found.stop()


def await_ready(api: KubernetesApi, name: str) -> None:
    def ready() -> bool:
        node = api.find(f"/api/v1/nodes/{name}") or {"status": {}}
        conditions = node["status"].get("conditions", [])
        return any(one["type"] == "Ready" and one["status"] == "True" for one in conditions)

    until(ready, f"node {name} is Ready")


@pytest.fixture(scope="session")
def node(program: NodeProgram, machines: Machines, api: KubernetesApi) -> str:
    deadline = time.monotonic() + 30
    while True:
        try:
            name = machines.launch()["PrivateDnsName"]
            break
        except OSError:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    await_ready(api, name)
    return name


@pytest.fixture
def cluster(api: KubernetesApi, node: str) -> Iterator[Cluster]:
    found = Cluster(api, node)
    yield found
    for name in found.pods:
        found.delete(name, grace_seconds=0)
