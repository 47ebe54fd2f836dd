"""The port Cluster: preconditions and adoption alike on the fake and on a real API server."""

from __future__ import annotations

import threading
import time
import uuid
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest
from sluice.adapters.kubernetes_cluster import KubernetesCluster
from sluice.core.lifecycle.record import State
from sluice.errors import ClusterError, ClusterForbidden
from sluice.ports import AlreadyExists, Cluster, Document
from sluice.usecases.running.act import start

from tests.contract.aws import control_plane
from tests.contract.aws.builders import a_workload
from tests.fakes import FakeKubernetes

NAMESPACE = "default"
PATIENCE_SECONDS = 60.0


@pytest.fixture(scope="session")
def api_server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str, str]]:
    with control_plane.running(tmp_path_factory.mktemp("kubernetes")) as found:
        yield found


@pytest.fixture(params=["memory", pytest.param("api server", marks=pytest.mark.stack)])
def cluster(request: pytest.FixtureRequest) -> Cluster:
    if request.param == "memory":
        return FakeKubernetes()
    endpoint, authority, token = request.getfixturevalue("api_server")
    return KubernetesCluster(endpoint, authority, lambda: token)


@pytest.fixture
def real(api_server: tuple[str, str, str]) -> KubernetesCluster:
    endpoint, authority, token = api_server
    return KubernetesCluster(endpoint, authority, lambda: token)


def a_job(name: str = "", **labels: str) -> Document:
    container = {"name": "main", "image": "x", "command": ["true"]}
    template = {"spec": {"restartPolicy": "Never", "containers": [container]}}
    return {
        "apiVersion": "batch/v1",
        "kind": "Job",
        "metadata": {
            "name": name or f"job-{uuid.uuid4().hex[:8]}",
            "namespace": NAMESPACE,
            "labels": labels,
        },
        "spec": {"suspend": True, "template": template},
    }


def made(cluster: Cluster, document: Document) -> Document:
    answer = cluster.create(document)
    assert isinstance(answer, dict)
    return answer


def until(what: str, ready: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < deadline, what
        time.sleep(0.1)


def test_an_object_is_made_with_a_uid_and_found_again(cluster: Cluster) -> None:
    job = made(cluster, a_job())

    name = job["metadata"]["name"]
    found = cluster.get("Job", NAMESPACE, name)

    assert found is not None
    assert found["metadata"]["uid"] == job["metadata"]["uid"]
    assert found["spec"]["suspend"] is True
    assert cluster.get("Job", NAMESPACE, f"{name}-not") is None


def test_a_name_that_is_taken_returns_who_has_it(cluster: Cluster) -> None:
    first = made(cluster, a_job(app="first"))

    answer = cluster.create(a_job(first["metadata"]["name"], app="second"))

    assert isinstance(answer, AlreadyExists)
    assert answer.existing["metadata"]["uid"] == first["metadata"]["uid"]
    assert answer.existing["metadata"]["labels"]["app"] == "first"


def test_a_patch_happens_only_to_the_object_with_its_uid(cluster: Cluster) -> None:
    job = made(cluster, a_job())
    name = job["metadata"]["name"]

    def start(uid: str, of: str = name) -> Document | None:
        return cluster.patch(
            "Job", NAMESPACE, of, {"metadata": {"uid": uid}, "spec": {"suspend": False}}
        )

    assert start("11111111-2222-3333-4444-555555555555") is None
    assert start(job["metadata"]["uid"], f"{name}-not") is None
    found = cluster.get("Job", NAMESPACE, name)
    assert found is not None
    assert found["spec"]["suspend"] is True

    patched = start(job["metadata"]["uid"])

    assert patched is not None
    assert patched["spec"]["suspend"] is False


def test_a_deletion_happens_only_to_the_object_with_its_uid(cluster: Cluster) -> None:
    job = made(cluster, a_job())
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]

    assert not cluster.delete("Job", NAMESPACE, name, uid="11111111-2222-3333-4444-555555555555")
    assert cluster.get("Job", NAMESPACE, name) is not None
    assert not cluster.delete("Job", NAMESPACE, f"{name}-not", uid=uid)

    assert cluster.delete("Job", NAMESPACE, name, uid=uid)
    until("the Job is gone", lambda: cluster.get("Job", NAMESPACE, name) is None)


def test_a_list_is_chosen_by_labels(cluster: Cluster) -> None:
    mark = f"m{uuid.uuid4().hex[:8]}"
    one = made(cluster, a_job(**{mark: "1", "color": "red"}))
    two = made(cluster, a_job(**{mark: "2", "color": "red"}))
    made(cluster, a_job(color="red"))

    def chosen(selector: str) -> set[str]:
        documents, version = cluster.list("Job", selector=selector)
        assert version
        return {document["metadata"]["uid"] for document in documents}

    uids = [each["metadata"]["uid"] for each in (one, two)]
    assert chosen(mark) == set(uids)
    assert chosen(f"{mark}=2,color=red") == {uids[1]}
    assert chosen(f"{mark}=2,color=blue") == set()


def test_pods_of_a_started_job_carry_its_labels(cluster: Cluster) -> None:
    mark = f"m{uuid.uuid4().hex[:8]}"
    document = a_job(**{mark: "1", "sluice.dev/workload": mark})
    document["spec"]["template"]["metadata"] = {"labels": {mark: "1"}}
    job = made(cluster, document)
    assert cluster.list("Pod", selector=mark)[0] == []

    metadata = job["metadata"]
    patch = {"metadata": {"uid": metadata["uid"]}, "spec": {"suspend": False}}
    assert cluster.patch("Job", NAMESPACE, metadata["name"], patch)

    until("it has a pod", lambda: len(cluster.list("Pod", selector=mark)[0]) == 1)


@pytest.mark.stack
def test_who_has_set_the_fields_of_a_started_job_is_kept_no_more(real: KubernetesCluster) -> None:
    job = made(real, a_job())
    metadata = job["metadata"]
    assert metadata["managedFields"]

    start(real, a_workload(state=State.DISPATCHED, uid=metadata["uid"]), job, 0)

    def status() -> Any:
        return (real.get("Job", NAMESPACE, metadata["name"]) or {})["status"]

    until("its controller has written to it", lambda: status().get("active"))
    started = real.get("Job", NAMESPACE, metadata["name"]) or {}
    assert started["spec"]["suspend"] is False
    assert "managedFields" not in started["metadata"]


@pytest.mark.stack
def test_a_foreground_deletion_waits_for_the_pods(real: KubernetesCluster) -> None:
    mark = f"m{uuid.uuid4().hex[:8]}"
    document = a_job()
    document["spec"]["template"]["metadata"] = {"labels": {mark: "1"}}
    document["spec"]["template"]["spec"]["nodeName"] = "a-node-that-does-not-answer"
    job = made(real, document)
    name, uid = job["metadata"]["name"], job["metadata"]["uid"]
    real.patch("Job", NAMESPACE, name, {"spec": {"suspend": False}, "metadata": {"uid": uid}})
    until("it has a pod", lambda: real.list("Pod", selector=mark)[0])

    assert real.delete("Job", NAMESPACE, name, uid=uid)

    (pod,), _ = real.list("Pod", selector=mark)
    until(
        "its pod is being deleted",
        lambda: (
            "deletionTimestamp"
            in (
                real.get("Pod", NAMESPACE, pod["metadata"]["name"])
                or {"metadata": {"deletionTimestamp": ""}}
            )["metadata"]
        ),
    )
    waiting = real.get("Job", NAMESPACE, name)
    assert waiting is not None, "a Job that is gone must have no pods"
    assert waiting["metadata"]["deletionTimestamp"]

    real.delete("Pod", NAMESPACE, pod["metadata"]["name"], grace_seconds=0)
    until("then it goes", lambda: real.get("Job", NAMESPACE, name) is None)


@pytest.mark.stack
def test_a_list_of_many_comes_whole(
    real: KubernetesCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sluice.adapters.kubernetes_cluster.PAGE", 3)
    mark = f"m{uuid.uuid4().hex[:8]}"
    names = {made(real, a_job(**{mark: "1"}))["metadata"]["name"] for _ in range(8)}

    found, _ = real.list("Job", selector=mark)

    assert {each["metadata"]["name"] for each in found} == names


@pytest.mark.stack
def test_a_watch_tells_what_happens_after_its_version_and_ends(real: KubernetesCluster) -> None:
    mark = f"m{uuid.uuid4().hex[:8]}"
    before = made(real, a_job(**{mark: "before"}))["metadata"]["name"]
    _, version = real.list("Job", selector=mark)
    heard: list[tuple[str, str]] = []

    def listen() -> None:
        for change, document in real.watch("Job", selector=mark, version=version, seconds=3):
            if change != "BOOKMARK":
                heard.append((change, document["metadata"]["name"]))

    listener = threading.Thread(target=listen)
    listener.start()
    job = made(real, a_job(**{mark: "after"}))
    made(real, a_job(other="x"))
    name = job["metadata"]["name"]
    real.delete("Job", NAMESPACE, name, uid=job["metadata"]["uid"])
    listener.join(PATIENCE_SECONDS)

    assert not listener.is_alive(), "a watch ends after its time"
    assert {other for _, other in heard} - {before} == {name}
    assert ("ADDED", before) not in heard
    changes = [change for change, other in heard if other == name]
    assert (changes[0], changes[-1]) == ("ADDED", "DELETED")


@pytest.mark.parametrize(
    ("body", "gone"),
    [
        (b"unable to retrieve container logs for containerd://995faff8", True),
        (b'failed to try resolving symlinks in path "/var/log/pods/a/0.log": lstat', True),
        (b"unable to retrieve container logs for a\nis what this program prints\n", False),
        (b"trained\n", False),
    ],
)
def test_what_a_kubelet_says_instead_of_a_log_is_no_log(
    monkeypatch: pytest.MonkeyPatch, body: bytes, gone: bool
) -> None:
    answer = SimpleNamespace(status=200, data=body)
    monkeypatch.setattr(KubernetesCluster, "_request", lambda *_, **__: answer)
    cluster = KubernetesCluster("https://127.0.0.1:1", "", lambda: "t")

    if gone:
        with pytest.raises(ClusterError) as raised:
            cluster.logs(NAMESPACE, "pod", "main", limit_bytes=10)
        assert raised.value.status == 404
    else:
        assert cluster.logs(NAMESPACE, "pod", "main", limit_bytes=10) == body


@pytest.mark.stack
def test_logs_of_a_pod_that_is_not_there_are_an_error(real: KubernetesCluster) -> None:
    with pytest.raises(ClusterError, match='pods "nobody" not found') as raised:
        real.logs(NAMESPACE, "nobody", "main", limit_bytes=10)

    assert raised.value.status == 404


@pytest.mark.stack
def test_an_object_that_makes_no_sense_is_refused_with_its_field(real: KubernetesCluster) -> None:
    document = a_job()
    document["spec"]["template"]["spec"]["restartPolicy"] = "Always"

    with pytest.raises(ClusterError, match="restartPolicy") as raised:
        real.create(document)

    assert raised.value.status == 422
    assert not isinstance(raised.value, ClusterForbidden)


@pytest.mark.stack
def test_a_denial_names_verb_and_resource(
    real: KubernetesCluster, api_server: tuple[str, str, str]
) -> None:
    endpoint, authority, _ = api_server
    nobody = KubernetesCluster(endpoint, authority, lambda: service_account_token(real))
    name = made(real, a_job())["metadata"]["name"]

    for attempt, verb, resource in (
        (lambda: nobody.create(a_job()), "create", "jobs"),
        (lambda: nobody.get("Job", NAMESPACE, name), "get", "jobs"),
        (lambda: nobody.list("Pod"), "list", "pods"),
        (lambda: nobody.patch("Job", NAMESPACE, name, {"spec": {}}), "patch", "jobs"),
        (lambda: nobody.delete("Job", NAMESPACE, name), "delete", "jobs"),
        (lambda: nobody.logs(NAMESPACE, "p", "main", limit_bytes=1), "get", "pods/log"),
        (lambda: list(nobody.watch("Job", selector="", version="1", seconds=1)), "watch", "jobs"),
    ):
        with pytest.raises(ClusterForbidden, match=f'cannot {verb} resource "{resource}"'):
            attempt()


@pytest.mark.stack
def test_a_token_that_nobody_knows_is_forbidden_too(api_server: tuple[str, str, str]) -> None:
    endpoint, authority, _ = api_server
    stranger = KubernetesCluster(endpoint, authority, lambda: "stranger")

    with pytest.raises(ClusterForbidden) as raised:
        stranger.get("Job", NAMESPACE, "x")

    assert raised.value.status == 401


@pytest.mark.stack
def test_a_server_that_does_not_answer_is_an_error_of_the_cluster(
    api_server: tuple[str, str, str],
) -> None:
    silent = KubernetesCluster("https://127.0.0.1:9", api_server[1], lambda: "x")

    with pytest.raises(ClusterError, match=r"https://127\.0\.0\.1:9 does not answer"):
        silent.get("Job", NAMESPACE, "x")


def service_account_token(real: KubernetesCluster) -> str:
    """A token of the namespace's default account, which may do nothing."""
    path = f"/api/v1/namespaces/{NAMESPACE}/serviceaccounts/default/token"
    request = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": {}}
    until("the account exists", lambda: real._call("POST", path, request)[0] == 201)
    return str(real._call("POST", path, request)[1]["status"]["token"])
