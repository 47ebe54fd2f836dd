"""The `kubelet` driver's whole path: order, kubelet, S3, image, registry, another node."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from local.kubelet_node import cgroups
from local.node.api import KubernetesApi
from tests.contract.kubelet.conftest import KubeletProgram, joined
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import Machines
from tests.programs import corpus

pytestmark = [pytest.mark.kubelet, pytest.mark.stack, pytest.mark.slow]

BUCKET = "checkpoints-of-the-contract"
COUNTER = (
    "import os, time\n"
    "ballast = os.urandom(1 << 20) * 50\n"
    "secret = os.urandom(8).hex()\n"
    "out = open('/tmp/numbers', 'w')\n"
    "for n in range(10 ** 6):\n"
    "    print('count', n, secret, flush=True)\n"
    "    print(n, file=out, flush=True)\n"
    "    time.sleep(0.1)\n"
)
TALKER = (
    "import socket, time\n"
    "listening = socket.create_server(('127.0.0.1', 0))\n"
    "mine = socket.create_connection(listening.getsockname())\n"
    "theirs = listening.accept()\n"
    "print('up', flush=True)\n"
    "time.sleep(300)\n"
)
RESTRICTED = {
    "runAsUser": 1000,
    "runAsNonRoot": True,
    "allowPrivilegeEscalation": False,
    "capabilities": {"drop": ["ALL"]},
    "seccompProfile": {"type": "RuntimeDefault"},
}


def job(
    cluster: Cluster,
    script: str,
    workload: str,
    image: str = "python:3.11",
    marks: Mapping[str, str] | None = None,
    *,
    known_to_agent: bool = False,
) -> str:
    """A pod as Sluice renders it; without `known_to_agent` its processes are not held."""
    return pod_of(
        cluster,
        ["python3", "-c", script],
        workload,
        image,
        marks,
        known_to_agent=known_to_agent,
        memory="256Mi",
    )


def pod_of(
    cluster: Cluster,
    command: Sequence[str],
    workload: str,
    image: str = "python:3.11",
    marks: Mapping[str, str] | None = None,
    *,
    known_to_agent: bool = True,
    memory: str = "512Mi",
    security: Mapping[str, Any] | None = None,
) -> str:
    container = {
        "name": "main",
        "image": image,
        "command": list(command),
        "resources": {"requests": {"cpu": "50m", "memory": "128Mi"}, "limits": {"memory": memory}},
        "securityContext": RESTRICTED | (security or {}),
        "env": [{"name": "SLUICE_WORKLOAD_ID", "value": workload}] if known_to_agent else [],
    }
    return cluster.run_pod(
        {"containers": [container], "enableServiceLinks": False},
        labels={"sluice.dev/workload": workload, "sluice.dev/generation": "1"},
        annotations={
            "sluice.dev/checkpoint-driver": "kubelet",
            "sluice.dev/checkpoint-to": f"s3://{BUCKET}/checkpoints/{workload}/1/",
            **(marks or {}),
        },
    )


def counted(cluster: Cluster, name: str) -> list[tuple[int, str]]:
    """Number and secret of every line so far, without what stands there twice."""
    lines = [line.split() for line in cluster.logs(name).splitlines()]
    return sorted({(int(number), secret) for _, number, secret in lines})


def order(cluster: Cluster, name: str, what: str) -> None:
    annotations = {"sluice.dev/checkpoint-order": what}
    path = f"/api/v1/namespaces/default/pods/{name}"
    cluster.api.patch(path, {"metadata": {"annotations": annotations}})


def answer(cluster: Cluster, name: str, what: str) -> dict[str, Any]:
    """What the agent says of an order."""

    def answered() -> dict[str, Any] | None:
        pod = cluster.pod(name)
        marks = pod["metadata"]["annotations"] if pod else {}
        found: dict[str, Any] = json.loads(marks.get("sluice.dev/checkpoint-done", "{}"))
        return found if found.get("order") == what else None

    found: dict[str, Any] = until(answered, f"an answer to {what}")
    return found


@pytest.fixture(scope="module")
def bucket(machines: Machines, agents: None) -> None:
    machines.s3.create_bucket(Bucket=BUCKET)


@pytest.mark.usefixtures("bucket")
def test_an_ordered_checkpoint_goes_on_as_a_pod_of_another_node(
    cluster: Cluster, machines: Machines, api: KubernetesApi
) -> None:
    other = Cluster(api, joined(api, machines))
    source = job(cluster, COUNTER, "mover")
    cluster.await_line(source, "count 5")

    order(cluster, source, "move-1")
    saved = answer(cluster, source, "move-1")
    cluster.delete(source, grace_seconds=0)
    cluster.await_gone(source)

    assert "error" not in saved
    key = f"checkpoints/mover/1/move-1/{source}.tar"
    assert saved["uri"] == f"s3://{BUCKET}/{key}"
    stored = machines.s3.head_object(Bucket=BUCKET, Key=key)
    assert stored["ContentLength"] == saved["bytes"] > 50 << 20

    restored = job(other, COUNTER, "mover", saved["image"])
    other.wait(restored, "Running")
    last = until(lambda: counted(other, restored), "the restored log")[-1][0]
    until(lambda: counted(other, restored)[-1][0] > last + 5, "the count goes on")
    numbers, secrets = zip(*counted(other, restored), strict=True)
    assert numbers == tuple(range(len(numbers)))
    assert len(set(secrets)) == 1  # its memory, not a fresh start
    other.delete(restored, grace_seconds=0)


@pytest.mark.usefixtures("bucket")
def test_a_pod_that_keeps_its_connections_is_not_saved_and_runs_on(cluster: Cluster) -> None:
    refusing = {"sluice.dev/checkpoint-connections": "refuse"}
    name = job(cluster, TALKER, "talker", marks=refusing, known_to_agent=True)
    cluster.await_line(name, "up")

    order(cluster, name, "move-1")

    assert "2 open TCP connections" in answer(cluster, name, "move-1")["error"]
    assert cluster.wait(name, "Running")


@pytest.mark.usefixtures("bucket")
def test_a_program_sees_one_broken_connection_after_its_move(
    cluster: Cluster, machines: Machines, api: KubernetesApi
) -> None:
    other = Cluster(api, joined(api, machines))
    script = corpus.text("connection.py").replace("sys.argv[1]", corpus.STEPS)
    source = job(cluster, script, "connected")
    cluster.await_line(source, "ok 5 broken connections: 0")

    order(cluster, source, "move-1")
    saved = answer(cluster, source, "move-1")
    cluster.delete(source, grace_seconds=0)
    cluster.await_gone(source)

    assert "error" not in saved
    restored = job(other, script, "connected", saved["image"])
    other.wait(restored, "Running")
    until(lambda: "connections: 1" in other.logs(restored), "the connection breaks")
    known = len(other.logs(restored).splitlines())
    until(lambda: len(other.logs(restored).splitlines()) > known + 5, "it goes on")
    assert other.logs(restored).splitlines()[-1].endswith("connections: 1")
    other.delete(restored, grace_seconds=0)


def test_the_node_is_as_large_as_its_instance_type(cluster: Cluster) -> None:
    node = cluster.api.get(f"/api/v1/nodes/{cluster.node}")

    capacity, allocatable = node["status"]["capacity"], node["status"]["allocatable"]
    assert (capacity["cpu"], capacity["pods"]) == ("16", "234")
    assert (capacity["memory"], allocatable["cpu"]) == ("30310Mi", "15890m")
    (taint,) = node["spec"]["taints"]
    assert (taint["key"], taint["effect"]) == ("karpenter.sh/unregistered", "NoExecute")


def test_a_node_vanishes_with_its_instance(
    api: KubernetesApi, machines: Machines, program: KubeletProgram
) -> None:
    instance = machines.launch()
    name = instance["PrivateDnsName"]
    folder = program.state / "nodes" / instance["InstanceId"]
    until(lambda: api.find(f"/api/v1/nodes/{name}"), "the node has joined")
    group = f"{cgroups.name_of(program.state)}/{instance['InstanceId']}"
    assert any(one.exists() for one in cgroups.folders(group))

    machines.terminate(instance["InstanceId"])

    until(lambda: not folder.exists(), "its disk is gone")
    assert not any(one.exists() for one in cgroups.folders(group))
    until(lambda: api.find(f"/api/v1/nodes/{name}") is None, "the Node is gone", 120)
