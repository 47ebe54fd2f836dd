"""The whole stack: its parts, what happens between them, and where it can be reached."""

import json
import os
import secrets
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from local import aws, control_plane, jobset, pod_identity
from local.add_ons import ADD_ONS
from local.apply import ApiServer, apply_all, read_manifests
from local.cedana import part as cedana
from local.certificates import make_certificates
from local.endpoints import Endpoints
from local.interruption_queue import make_queue
from local.modules import definitions
from local.parts import Part, Step
from local.ports import choose_ports
from local.settings import CLONE, MANIFESTS, NODE_ROLE, Layout, Settings
from local.toolchain import environment, tool_folders

PORTS = (
    "aws", "ec2", "webhook", "etcd", "etcd-peer", "kube-apiserver", "kube-controller-manager",
    "kube-scheduler", "karpenter", "karpenter-metrics", "jobset", "jobset-webhook",
    "registry", "cedana", "metadata", "pod-identity",
)  # fmt: skip
# A key of its own: the CDK CLI remembers which account belongs to which key.
ACCESS_KEY = "AKIASLUICELOCAL00001"


def secret(path: Path) -> str:
    """A random word, the same again when the state is resumed."""
    if not path.exists():
        path.touch(0o600)
        path.write_text(secrets.token_hex(20))
    return path.read_text()


def stack(settings: Settings) -> tuple[Endpoints, list[Part], list[Step]]:
    """Prepare the state folder and describe what to start. Starts nothing."""
    layout = Layout(settings.state)
    fixed = {"aws": settings.aws_port} if settings.aws_port else {}
    add_ons = [ADD_ONS[name] for name in settings.add_ons]
    more = tuple(port for each in add_ons for port in each.ports)
    ports = choose_ports(layout.ports, (*PORTS, *more), fixed)
    make_certificates(layout.certs)
    quiet = lambda _: None  # noqa: E731 - everything is there already; `up` has prepared it
    path = [*map(str, tool_folders(settings.cache, quiet)), os.environ.get("PATH", os.defpath)]
    endpoints = Endpoints(
        aws=f"http://127.0.0.1:{ports['aws']}",
        ec2=f"http://127.0.0.1:{ports['ec2']}",
        region=settings.region,
        account=settings.account,
        access_key_id=ACCESS_KEY,
        secret_access_key=secret(layout.certs / "aws-secret"),
        kubeconfig=str(layout.kubeconfig),
        cluster_name=settings.cluster,
        cluster_endpoint=f"https://127.0.0.1:{ports['kube-apiserver']}",
        certificate_authority=control_plane.authority_data(layout),
        state=str(settings.state),
        path=os.pathsep.join(path),
    )
    token = secret(layout.certs / "admin-token")
    jobset_token = secret(layout.certs / "jobset-token")
    cedana_account = secret(layout.certs / "cedana-account")
    control_plane.write_credentials(
        layout,
        endpoints,
        ports,
        token,
        jobset.account(jobset_token),
        *([cedana.account(cedana_account)] if settings.cedana else []),
        *(each.account(secret(layout.certs / f"{each.program}-token")) for each in add_ons),
    )
    ministack = environment(settings.cache, "ministack", quiet) / "bin" / "python"
    parts = [
        aws.ministack(settings, endpoints, ports, ministack),
        aws.ec2(settings, endpoints, ports),
        aws.webhook(endpoints, ports),
        *control_plane.control_plane(settings, endpoints, ports),
        jobset.part(settings, endpoints, ports, jobset_token),
    ]
    for each in add_ons:
        each_token = secret(layout.certs / f"{each.program}-token")
        parts.append(each.part(settings, endpoints, ports, each_token))
    if settings.cedana:
        parts.append(cedana.part(settings, endpoints, ports, cedana_account))
    if (CLONE / "local" / "node" / "__main__.py").exists():
        parts.append(aws.nodes(settings, endpoints, ports))
    if settings.nodes == "kubelet":  # there the agent is a DaemonSet, as on EKS
        parts.append(aws.pod_identity(endpoints, ports))
    else:
        parts.append(aws.agent(endpoints))
    return endpoints, parts, steps(settings, endpoints, ports)


def steps(settings: Settings, endpoints: Endpoints, ports: dict[str, int]) -> list[Step]:
    layout = Layout(settings.state)

    def crds() -> None:
        server = ApiServer(layout.kubeconfig)
        apply_all(server, read_manifests(definitions(settings.cache, "karpenter"), {}))

    def node_class() -> None:
        values = {
            "CLUSTER": endpoints.cluster_name,
            "NODE_ROLE": NODE_ROLE,
            "IMAGE": image(endpoints),
        }
        server = ApiServer(layout.kubeconfig)
        apply_all(server, read_manifests(MANIFESTS / "before-karpenter", values))

    def node_pools() -> None:
        # Karpenter misses a NodeClass that becomes ready after its first look at a NodePool.
        server = ApiServer(layout.kubeconfig)
        for manifest in read_manifests(MANIFESTS / "before-karpenter", {}):
            if manifest["kind"] == "EC2NodeClass":
                server.await_condition(manifest, "Ready")
        apply_all(server, read_manifests(MANIFESTS / "after-karpenter", {}))

    def jobset_objects() -> None:
        jobset.apply_objects(settings, endpoints, ports)

    def agent_pods() -> None:
        server = ApiServer(layout.kubeconfig)
        values = agent_pod_values(endpoints, ports)
        apply_all(server, read_manifests(MANIFESTS / "kubelet", values))

    def queue() -> None:
        make_queue(endpoints, settings.interruption_queue or "")

    def cedana_objects() -> None:
        cedana.prepare(settings, endpoints, ports, secret(layout.certs / "cedana-token"))

    after = ("kube-apiserver", "aws")
    return [
        *([Step(cedana.OBJECTS, cedana_objects, after=after)] if settings.cedana else []),
        *([Step("queue", queue, after=("aws",))] if settings.interruption_queue else []),
        *(
            [Step("agent pods", agent_pods, after=("kube-apiserver",))]
            if settings.nodes == "kubelet"
            else []
        ),
        Step("crds", crds, after=("kube-apiserver",)),
        Step(jobset.OBJECTS, jobset_objects, after=("kube-apiserver",)),
        *(ADD_ONS[name].step(settings, endpoints, ports) for name in settings.add_ons),
        Step("node class", node_class, after=("crds", "ec2")),
        Step("node pools", node_pools, after=("node class", "karpenter")),
    ]


def agent_pod_values(endpoints: Endpoints, ports: Mapping[str, int]) -> dict[str, str]:
    """What local/manifests/kubelet leaves open."""
    host, _, port = endpoints.cluster_endpoint.removeprefix("https://").partition(":")
    return {
        "POD_IDENTITY": f"http://127.0.0.1:{ports['pod-identity']}{pod_identity.PATH}",
        "METADATA": f"http://127.0.0.1:{ports['metadata']}",
        "AWS": endpoints.aws,
        "REGION": endpoints.region,
        "API_HOST": host,
        "API_PORT": port,
    }


def image(endpoints: Endpoints) -> str:
    """An image of the embedded EC2 for the nodes."""
    with urllib.request.urlopen(f"{endpoints.ec2}/_market/image", timeout=10) as answer:
        return str(json.loads(answer.read())["imageId"])
