"""The embedded AWS as parts: MiniStack, EC2 with its market, the token webhook."""

import json
import os
import sys
from pathlib import Path

from local.endpoints import Endpoints
from local.kubelet_node import cgroups
from local.modules import KUBERNETES
from local.parts import Health, Part
from local.settings import CLONE, Layout, Settings

LAUNCHER = Path(__file__).with_name("ministack_launcher.py")
# All that a program may learn of its user's environment; credentials least of all.
PASSED_ON = ("HOME", "LANG", "LC_ALL", "LD_LIBRARY_PATH", "USER", "TZ")


def base_environment(endpoints: Endpoints) -> dict[str, str]:
    return {name: os.environ[name] for name in PASSED_ON if name in os.environ} | {
        "PATH": endpoints.path,
        "NO_PROXY": "127.0.0.1,localhost",
        "PYTHONPATH": str(CLONE),
        "PYTHONUNBUFFERED": "1",
    }


def ministack(
    settings: Settings, endpoints: Endpoints, ports: dict[str, int], python: Path
) -> Part:
    data = Layout(settings.state).data / "aws"
    for folder in ("tmp", "state", "s3"):
        (data / folder).mkdir(parents=True, exist_ok=True)
    cluster = {
        "endpoint": endpoints.cluster_endpoint,
        "ca": endpoints.certificate_authority,
        "version": KUBERNETES.removeprefix("v").rpartition(".")[0],
    }
    return Part(
        "aws",
        (str(python), "-P", str(LAUNCHER)),
        port=ports["aws"],
        health=Health(f"{endpoints.aws}/_ministack/health"),
        environment={
            "GATEWAY_PORT": str(ports["aws"]),
            "MINISTACK_HOST": "127.0.0.1",  # in queue URLs; `localhost` may mean ::1 first
            "MINISTACK_ACCOUNT_ID": endpoints.account,
            "MINISTACK_REGION": endpoints.region,
            "AUTH": "true",  # functions act as their own roles, under their own policies
            "TMPDIR": str(data / "tmp"),
            "STATE_DIR": str(data / "state"),
            "S3_DATA_DIR": str(data / "s3"),
            "PERSIST_STATE": "1",
            "S3_PERSIST": "1",
            "IOT_MTLS_ENABLED": "0",  # these two would listen on further ports
            "SFTP_ENABLED": "0",
            "LOCAL_EKS": json.dumps({endpoints.cluster_name: cluster}),
            "LOCAL_REGISTRY": f"127.0.0.1:{ports['registry']}",  # where real kubelets pull from
            "AWS_ENDPOINT_URL_EC2": endpoints.ec2,  # inherited by every function
            "AWS_ENDPOINT_URL_PRICING": endpoints.ec2,
            "LOG_LEVEL": "WARNING",
            **endpoints.environment(),
        },
        restartable=False,
    )


def ec2(settings: Settings, endpoints: Endpoints, ports: dict[str, int]) -> Part:
    return Part(
        "ec2",
        (
            sys.executable, "-m", "local.ec2",
            "--port", str(ports["ec2"]),
            "--aws", endpoints.aws,
            "--account", endpoints.account,
            "--region", endpoints.region,
            "--cluster", endpoints.cluster_name,
            "--templates", str(Layout(settings.state).data / "experiment-templates"),
            "--time-scale", str(settings.time_scale),
            "--instance-delay", str(settings.instance_delay),
        ),
        port=ports["ec2"],
        health=Health(f"{endpoints.ec2}/_market/image"),
        environment={"MOTO_ACCOUNT_ID": endpoints.account},
        restartable=False,
    )  # fmt: skip


def webhook(endpoints: Endpoints, ports: dict[str, int]) -> Part:
    return Part(
        "webhook",
        (
            sys.executable, "-m", "local.webhook",
            "--port", str(ports["webhook"]),
            "--aws", endpoints.aws,
            "--cluster", endpoints.cluster_name,
            "--region", endpoints.region,
        ),
        port=ports["webhook"],
        health=Health(f"http://127.0.0.1:{ports['webhook']}/"),
        environment=endpoints.environment(),
    )  # fmt: skip


def pod_identity(endpoints: Endpoints, ports: dict[str, int]) -> Part:
    """What gives the DaemonSet of real kubelets its role."""
    return Part(
        "pod-identity",
        (
            sys.executable, "-m", "local.pod_identity",
            "--port", str(ports["pod-identity"]),
            "--aws", endpoints.aws,
            "--kubeconfig", endpoints.kubeconfig,
            "--cluster", endpoints.cluster_name,
        ),
        port=ports["pod-identity"],
        health=Health(f"http://127.0.0.1:{ports['pod-identity']}/"),
        after=("kube-apiserver", "aws"),
        environment=endpoints.environment(),
    )  # fmt: skip


def nodes(settings: Settings, endpoints: Endpoints, ports: dict[str, int]) -> Part:
    """The program that makes a node of every running instance."""
    layout = Layout(settings.state)
    own = {
        "process": ("local.node", "--runtime", "process", "--aws", endpoints.aws),
        "simulated": ("local.node", "--runtime", "simulated", "--aws", endpoints.aws),
        "kubelet": (
            "local.kubelet_node",
            "--cgroup", cgroups.name_of(settings.state),
            "--authority", str(layout.certs),
            "--registry-port", str(ports["registry"]),
            "--metadata-port", str(ports["metadata"]),
        ),
    }  # fmt: skip
    module, *options = own[settings.nodes]
    images = Health(f"http://127.0.0.1:{ports['registry']}/v2/")
    registry = images if settings.nodes == "kubelet" else None
    return Part(
        "nodes",
        (
            sys.executable, "-m", module,
            "--kubeconfig", endpoints.kubeconfig,
            "--ec2", endpoints.ec2,
            "--state", str(layout.data / "node"),
            "--region", endpoints.region,
            "--cluster-name", endpoints.cluster_name,
            "--client-ca", str(layout.certs / "kubelet-client.crt"),
            *options,
        ),
        port=ports["registry"] if registry else None,
        health=registry,
        after=("kube-apiserver", "ec2", "aws"),
        environment=endpoints.environment(),
    )  # fmt: skip


def agent(endpoints: Endpoints) -> Part:
    """One node agent for all process nodes; they share this machine."""
    return Part(
        "agent",
        (
            sys.executable, "-m", "agent",
            "--kubeconfig", endpoints.kubeconfig,
            "--label", "sluice.dev/node=process",
            "--loopback",
        ),
        port=None,
        health=None,
        after=("kube-apiserver", "aws"),
        environment=endpoints.environment() | {"AWS_ENDPOINT_URL": endpoints.aws},
    )  # fmt: skip
