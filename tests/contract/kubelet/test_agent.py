"""The node agent as the DaemonSet of the stacks: what it says of its node, what it may write."""

import json
from typing import Any
from urllib.error import HTTPError
from urllib.parse import urlencode

import pytest

from local.apply import ApiServer
from local.node.api import MERGE, KubernetesApi
from local.settings import Layout
from tests.contract.kubelet.conftest import AGENT, joined
from tests.contract.node.cluster import until
from tests.contract.node.conftest import Machines

pytestmark = [
    pytest.mark.kubelet,
    pytest.mark.stack,
    pytest.mark.slow,
    pytest.mark.usefixtures("agents"),
]

PODS = f"/api/v1/namespaces/{AGENT}/pods"


def pod_on(api: KubernetesApi, node: str) -> dict[str, Any]:
    """The agent's pod on a node, once it runs."""

    def running() -> dict[str, Any] | None:
        query = urlencode({"fieldSelector": f"spec.nodeName={node},status.phase=Running"})
        found = api.get(f"{PODS}?{query}")["items"]
        return found[0] if found else None

    pod: dict[str, Any] = until(running, f"the agent runs on {node}")
    return pod


@pytest.fixture
def other(api: KubernetesApi, machines: Machines, node: str) -> str:
    return joined(api, machines)


def test_it_says_on_its_node_that_processes_can_be_saved_there(
    api: KubernetesApi, node: str
) -> None:
    def labels() -> bool:
        found: dict[str, str] = api.get(f"/api/v1/nodes/{node}")["metadata"]["labels"]
        closes = found.get("sluice.dev/checkpoint-connections") == "close"
        return found.get("sluice.dev/checkpoint") == "criu" and closes

    until(labels, "the agent has looked at its node")

    (container,) = pod_on(api, node)["status"]["containerStatuses"]
    assert container["restartCount"] == 0


def test_what_it_writes_is_about_its_own_node_alone(
    control: tuple[Layout, Machines], api: KubernetesApi, node: str, other: str
) -> None:
    pod = pod_on(api, node)["metadata"]
    bound = {"kind": "Pod", "apiVersion": "v1", "name": pod["name"], "uid": pod["uid"]}
    answer = api.create(
        f"/api/v1/namespaces/{AGENT}/serviceaccounts/{AGENT}/token",
        {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": None, "boundObjectRef": bound, "expirationSeconds": 600},
        },
    )
    agent = ApiServer(control[0].kubeconfig)
    agent.token = answer["status"]["token"]

    def writes(name: str, **metadata: dict[str, str]) -> int:
        body = json.dumps({"metadata": metadata}).encode()
        try:
            agent.call("PATCH", f"/api/v1/nodes/{name}", body, MERGE)
        except HTTPError as error:
            return error.code
        return 200

    mark = {"sluice.dev/checkpoint-reason": "a test says so"}
    assert writes(node, annotations=mark) == 200
    assert writes(node, annotations={"karpenter.sh/do-not-disrupt": "true"}) == 403
    assert writes(node, labels={"karpenter.sh/nodepool": "another"}) == 403
    assert writes(other, annotations=mark) == 403
    with pytest.raises(HTTPError, match="403"):
        agent.call("GET", "/api/v1/namespaces/kube-system/secrets")
