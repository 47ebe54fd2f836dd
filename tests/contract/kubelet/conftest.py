"""The node contract with real kubelets; skipped where the machine cannot hold one."""

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

import boto3
import pytest

from infra.cluster_manifest import cluster_manifest
from local.apply import ApiServer, apply_all, read_manifests
from local.endpoints import Endpoints
from local.errors import PreparationError
from local.kubelet_node import agent_image
from local.kubelet_node.preparation import prepare
from local.kubelet_node.registry import Images
from local.node.api import ApiError, KubernetesApi
from local.plan import agent_pod_values
from local.pod_identity import NEEDED, PRINCIPAL, PodIdentity, handler
from local.settings import MANIFESTS, Layout, NodeKind, default_cache
from tests.contract.node.cluster import Cluster
from tests.contract.node.conftest import (
    Machines,
    NodeProgram,
    api,
    await_ready,
    control,
    machines,
    say,
)

__all__ = ["api", "control", "machines"]  # fixtures that both kinds of node share

DEPLOYMENT = "sluice"
AGENT = "sluice-agent"  # its namespace, its account, its DaemonSet


class KubeletProgram(NodeProgram):
    """The program that makes a kubelet of every instance."""

    def __init__(self, folder: Path, layout: Layout, machines: Machines) -> None:
        client_ca = layout.certs / "kubelet-client.crt"
        super().__init__(folder, layout.kubeconfig, client_ca, machines.endpoint)
        ports = json.loads(layout.ports.read_text())
        aws = self.command.index("--aws")
        self.command[aws : aws + 2] = ["--authority", str(layout.certs)]
        for name in ("registry", "metadata"):
            self.command += [f"--{name}-port", str(ports[name])]
        self.command[self.command.index("local.node")] = "local.kubelet_node"


@pytest.fixture(scope="session")
def kind() -> NodeKind:
    return "kubelet"


@pytest.fixture(scope="session")
def able() -> None:
    """Builds the kubelet and the nodes' root file system, or says in one line why it cannot."""
    try:
        prepare(default_cache(), say)
    except PreparationError as reason:
        pytest.skip(str(reason))


@pytest.fixture(scope="session")
def program(
    able: None,
    control: tuple[Layout, Machines],
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KubeletProgram]:
    found = KubeletProgram(tmp_path_factory.mktemp("kubelets"), *control)
    found.start()
    yield found
    found.stop()


def joined(api: KubernetesApi, machines: Machines) -> str:
    """The name of a new node that is Ready and, as Karpenter would mark it, of a NodePool."""
    name: str = machines.launch()["PrivateDnsName"]
    await_ready(api, name)
    labels = {"karpenter.sh/nodepool": "contract"}
    api.patch(f"/api/v1/nodes/{name}", {"metadata": {"labels": labels}})
    return name


@pytest.fixture(scope="session")
def node(program: KubeletProgram, machines: Machines, api: KubernetesApi) -> str:
    return joined(api, machines)


@pytest.fixture
def cluster(api: KubernetesApi, node: str) -> Iterator[Cluster]:
    found = Cluster(api, node)
    yield found
    for name in found.pods:
        found.delete(name, grace_seconds=0)


@pytest.fixture(scope="session")
def agents(
    control: tuple[Layout, Machines], program: KubeletProgram, api: KubernetesApi
) -> Iterator[None]:
    """The node agent as the stacks' manifest has it, with a role in the emulated AWS."""
    layout, _ = control
    endpoints = Endpoints.read(layout.endpoints)
    ports = json.loads(layout.ports.read_text())
    registry = f"127.0.0.1:{ports['registry']}"
    image = agent_image.store(Images(program.state / "images"), default_cache(), say)
    filled = {
        "IMAGE": f"{registry}/{image}",
        "DEPLOYMENT": DEPLOYMENT,
        "CLUSTER": endpoints.cluster_name,
    }
    without = len(cluster_manifest([]))
    identity = _identity(endpoints, api)
    published = {
        f"clusters/{endpoints.cluster_name}/checkpoints": f"{registry}/sluice/checkpoints",
        "queues/notices": _client(endpoints, "sqs").create_queue(QueueName="notices")["QueueUrl"],
    }
    for name, value in published.items():
        _client(endpoints, "ssm").put_parameter(
            Name=f"/{DEPLOYMENT}/{name}", Value=value, Type="String"
        )
    server = ThreadingHTTPServer(("127.0.0.1", ports["pod-identity"]), handler(identity))
    threading.Thread(target=server.serve_forever, daemon=True).start()
    cluster = ApiServer(layout.kubeconfig)
    values = agent_pod_values(endpoints, ports)
    apply_all(cluster, read_manifests(MANIFESTS / "kubelet", values))
    apply_all(cluster, cluster_manifest([], filled)[without:])
    stop = threading.Event()
    scheduler = threading.Thread(target=_schedule, args=(api, stop))
    scheduler.start()
    yield
    stop.set()
    scheduler.join()
    server.shutdown()
    server.server_close()


def _schedule(api: KubernetesApi, stop: threading.Event) -> None:
    """The scheduler's part for pods of the DaemonSet, which name their nodes; others have none."""
    pods = f"/api/v1/namespaces/{AGENT}/pods"
    while not stop.wait(0.3):
        for pod in api.get(f"{pods}?fieldSelector=spec.nodeName%3D")["items"]:
            affinity = pod["spec"]["affinity"]["nodeAffinity"]
            required = affinity["requiredDuringSchedulingIgnoredDuringExecution"]
            (node,) = required["nodeSelectorTerms"][0]["matchFields"][0]["values"]
            name = pod["metadata"]["name"]
            target = {"apiVersion": "v1", "kind": "Node", "name": node}
            with contextlib.suppress(ApiError):  # node or pod have gone meanwhile
                api.create(f"{pods}/{name}/binding", {"metadata": {"name": name}, "target": target})


def _identity(endpoints: Endpoints, api: KubernetesApi) -> PodIdentity:
    """One role for the one account."""
    trust = {
        "Version": "2012-10-17",
        "Statement": [
            {"Effect": "Allow", "Principal": {"Service": PRINCIPAL}, "Action": sorted(NEEDED)}
        ],
    }
    iam: Any = _client(endpoints, "iam")
    role = iam.create_role(RoleName="agent", AssumeRolePolicyDocument=json.dumps(trust))["Role"]
    return PodIdentity(
        endpoints.cluster_name,
        api,
        lambda *account: role["Arn"] if account == (AGENT, AGENT) else None,
        iam,
        _client(endpoints, "sts"),
    )


def _client(endpoints: Endpoints, service: Any) -> Any:
    session = boto3.Session("test", "test", region_name=endpoints.region)
    return session.client(service, endpoint_url=endpoints.aws)
