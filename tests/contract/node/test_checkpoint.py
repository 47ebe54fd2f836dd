"""Saving real processes with CRIU and going on elsewhere; skipped with the reason without it."""

import json
import ssl
import tarfile
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any

import pytest

from local.node.checkpoint import LAST
from local.node.criu import probe
from local.settings import default_cache
from tests.contract.node.cluster import Cluster, until
from tests.contract.node.conftest import Machines, NodeProgram, await_ready

CRIU = probe(None, default_cache())
pytestmark = [
    pytest.mark.stack,
    pytest.mark.skipif(CRIU.program is None, reason=CRIU.reason or "no CRIU"),
]

SAVED = {"sluice.dev/checkpoint-driver": "kubelet"}
COUNTER = (
    "import os, time\n"
    "ballast = os.urandom(1 << 20) * 50\n"
    "secret = os.urandom(8).hex()\n"
    "out = open('/data/numbers', 'w')\n"
    "for n in range(10 ** 6):\n"
    "    print('count', n, secret, flush=True)\n"
    "    print(n, file=out, flush=True)\n"
    "    time.sleep(0.1)\n"
    "    if os.path.exists('/data/stop'): raise SystemExit(0)\n"
)


def counter(cluster: Cluster, **annotations: str) -> str:
    container: dict[str, Any] = {
        "name": "main",
        "image": cluster.image,
        "command": ["python3", "-c", COUNTER],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
    }
    spec = {"containers": [container], "volumes": [{"name": "data", "emptyDir": {}}]}
    return cluster.run_pod(spec, annotations=SAVED | annotations)


def counted(cluster: Cluster, name: str) -> list[tuple[int, str]]:
    """Number and secret of every line so far."""
    lines = [line.split() for line in cluster.logs(name).splitlines()]
    return [(int(number), secret) for _, number, secret in lines]


def save(cluster: Cluster, name: str) -> tuple[int, str]:
    """Status and body of the kubelet's checkpoint endpoint, asked by an administrator."""
    node = cluster.api.get(f"/api/v1/nodes/{cluster.node}")
    port = node["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"]
    trusting = ssl.create_default_context()
    trusting.check_hostname, trusting.verify_mode = False, ssl.CERT_NONE
    request = urllib.request.Request(
        f"https://127.0.0.1:{port}/checkpoint/default/{name}/main?timeout=60",
        method="POST",
        headers={"Authorization": "Bearer contract-admin"},
    )
    try:
        with urllib.request.urlopen(request, context=trusting) as answer:
            return answer.status, answer.read().decode()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read().decode()


def archive_of(cluster: Cluster, name: str) -> Path:
    status, body = save(cluster, name)
    assert status == 200, body
    (path,) = json.loads(body)["items"]
    return Path(path)


def test_the_node_says_that_it_can_save(cluster: Cluster) -> None:
    labels = cluster.api.get(f"/api/v1/nodes/{cluster.node}")["metadata"]["labels"]
    assert labels["sluice.dev/checkpoint"] == CRIU.label
    assert labels["sluice.dev/checkpoint-connections"] == "close"


def test_a_saved_process_runs_on_and_goes_on_elsewhere(
    cluster: Cluster, machines: Machines, program: NodeProgram
) -> None:
    source = counter(cluster)
    cluster.await_line(source, "count 5")

    archive = archive_of(cluster, source)

    last = counted(cluster, source)[-1][0]
    until(lambda: counted(cluster, source)[-1][0] > last, "the source runs on")
    with tarfile.open(archive) as tar:
        names = tar.getnames()
    assert {"config.dump", "stats-dump", "dump.log", "checkpoint/inventory.img"} <= set(names)
    machines.s3.create_bucket(Bucket="checkpoints")
    machines.s3.upload_file(str(archive), "checkpoints", "source.tar")
    cluster.delete(source, grace_seconds=0)
    cluster.await_gone(source)
    instance = machines.launch()
    await_ready(cluster.api, instance["PrivateDnsName"])
    there = Cluster(cluster.api, instance["PrivateDnsName"])
    restore_from = {"sluice.dev/restore-from": "s3://checkpoints/source.tar"}
    restored = counter(there, **restore_from)
    there.wait(restored, "Running")
    until(lambda: counted(there, restored)[-1][0] > last + 5, "the count goes on")

    numbers, secrets = zip(*counted(there, restored), strict=True)
    assert numbers == tuple(range(len(numbers)))
    assert len(set(secrets)) == 1  # its memory, not a fresh start
    record = program.state / "pods" / f"{uid(there, restored)}.json"
    root = Path(json.loads(record.read_text())["root"])
    numbers_in_file = [int(n) for n in (root / "volumes/data/numbers").read_text().split()]
    assert numbers_in_file == list(range(len(numbers_in_file)))
    (root / "volumes" / "data" / "stop").touch()
    assert there.finish(restored)["status"]["phase"] == "Succeeded"
    there.delete(restored, grace_seconds=0)
    machines.terminate(instance["InstanceId"])


def uid(cluster: Cluster, name: str) -> str:
    pod = cluster.pod(name)
    assert pod
    return str(pod["metadata"]["uid"])


def test_a_restored_process_can_be_stopped_and_saved_again(cluster: Cluster) -> None:
    source = counter(cluster)
    cluster.await_line(source, "count 3")
    first = archive_of(cluster, source)
    cluster.delete(source, grace_seconds=0)

    middle = counter(cluster, **{"sluice.dev/restore-from": str(first)})
    cluster.await_line(middle, "count 8")
    second = archive_of(cluster, middle)
    cluster.delete(middle, grace_seconds=0)
    last = counter(cluster, **{"sluice.dev/restore-from": str(second)})
    cluster.wait(last, "Running")
    until(lambda: counted(cluster, last)[-1][0] > 15, "the count goes on")

    cluster.delete(last, grace_seconds=5)
    cluster.await_gone(last)


def test_a_pod_that_did_not_ask_for_it_is_not_saved(cluster: Cluster) -> None:
    name = cluster.run("sh", "-c", "echo up; sleep 300")
    cluster.await_line(name, "up")

    status, body = save(cluster, name)

    assert status == 500
    assert "sluice.dev/checkpoint-driver" in body


def test_open_connections_are_refused_where_the_pod_asks_for_it(cluster: Cluster) -> None:
    script = (
        "import socket, time\n"
        "listening = socket.create_server(('127.0.0.1', 0))\n"
        "mine = socket.create_connection(listening.getsockname())\n"
        "theirs = listening.accept()\n"
        "print('up', flush=True)\n"
        "time.sleep(300)\n"
    )
    container = {"name": "main", "image": cluster.image, "command": ["python3", "-c", script]}
    refusing = SAVED | {"sluice.dev/checkpoint-connections": "refuse"}
    name = cluster.run_pod({"containers": [container]}, annotations=refusing)
    cluster.await_line(name, "up")

    status, body = save(cluster, name)

    assert status == 500
    assert "Connected TCP socket" in body
    assert cluster.wait(name, "Running")


def test_an_archive_that_cannot_be_used_fails_the_pod(cluster: Cluster, tmp_path: Path) -> None:
    broken = tmp_path / "broken.tar"
    broken.write_bytes(b"no archive")
    name = counter(cluster, **{"sluice.dev/restore-from": str(broken)})

    status = cluster.wait(name, "Failed")["status"]
    assert status["reason"] == "RestoreFailed"
    assert any(one["reason"] == "RestoreFailed" for one in cluster.events(name))


def test_images_that_criu_cannot_restore_are_told_with_its_words(
    cluster: Cluster, tmp_path: Path
) -> None:
    source = counter(cluster)
    cluster.await_line(source, "count 3")
    archive = archive_of(cluster, source)
    cluster.delete(source, grace_seconds=0)
    with tarfile.open(archive) as tar:
        tar.extractall(tmp_path, filter="tar")
    for pages in (tmp_path / "checkpoint").glob("pages-*.img"):
        pages.unlink()
    torn = tmp_path / "torn.tar"
    with tarfile.open(torn, "w") as tar:
        for member in ("config.dump", "checkpoint", "pod", LAST):
            tar.add(tmp_path / member, member)

    name = counter(cluster, **{"sluice.dev/restore-from": str(torn)})

    status = cluster.wait(name, "Failed")["status"]
    assert status["reason"] == "RestoreFailed"
    assert "Can't read pages data" in status["message"]
