"""The node contract with real kubelets; skipped where the machine cannot hold one."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from local.errors import PreparationError
from local.kubelet_node.preparation import prepare
from local.node.api import KubernetesApi
from local.settings import Layout, default_cache
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


class KubeletProgram(NodeProgram):
    """The program that makes a kubelet of every instance."""

    def __init__(self, folder: Path, kubeconfig: Path, client_ca: Path, endpoint: str) -> None:
        super().__init__(folder, kubeconfig, client_ca, endpoint)
        self.command[self.command.index("local.node")] = "local.kubelet_node"


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
    layout, machines = control
    found = KubeletProgram(
        tmp_path_factory.mktemp("kubelets"),
        layout.kubeconfig,
        layout.certs / "kubelet-client.crt",
        machines.endpoint,
    )
    found.start()
    yield found
    found.stop()


def joined(api: KubernetesApi, machines: Machines) -> str:
    """The name of a new node that is Ready."""
    name: str = machines.launch()["PrivateDnsName"]
    await_ready(api, name)
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
