"""The node agent: whom it serves, what it answers, and what it hears of its machine's end."""

from __future__ import annotations

import gzip
import json
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from hashlib import sha256
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from sluice.core.migrations import pod_annotations
from sluice.core.migrations.interruption import NoticeKind, read_event
from sluice.core.migrations.migration import PodCheckpoint
from sluice.core.values.log_keys import generation_folder, log_key, short_name

from agent import orders, support
from agent.connections import count_connections
from agent.kubelet import CheckpointRefusedError, Kubelet
from agent.logs import LogUploader, address_of
from agent.notices import NOTICED, Listener, Metadata, SilentError
from agent.program import OrderController, ServedNodes
from agent.saving import Saver

PATIENCE_SECONDS = 10


def a_pod(**annotations: str) -> dict[str, Any]:
    named = {f"sluice.dev/{key.replace('_', '-')}": text for key, text in annotations.items()}
    labels = {"sluice.dev/workload": "w1", "sluice.dev/generation": "2"}
    return {
        "metadata": {
            "name": "pod-1", "namespace": "team", "uid": "u-1", "labels": labels,
            "annotations": named,
        },
        "spec": {"containers": [{"name": "main"}], "nodeName": "node-1"},
        "status": {"phase": "Running"},
    }  # fmt: skip


ORDERED = {
    "checkpoint_order": "move-2",
    "checkpoint_driver": "kubelet",
    "checkpoint_to": "s3://bucket/checkpoints/w1/2/",
}


@dataclass
class FakeMachine:
    """A kubelet that dumps into a folder, a bucket and a registry."""

    folder: Path
    seconds: list[int] = field(default_factory=list)
    uploaded: list[tuple[str, str]] = field(default_factory=list)
    refuses: str = ""

    def checkpoint(self, namespace: str, pod: str, container: str, *, seconds: int) -> Path:
        if self.refuses:
            raise CheckpointRefusedError(self.refuses)
        self.seconds.append(seconds)
        archive = self.folder / f"{namespace}-{pod}-{container}.tar"
        archive.write_bytes(b"12345")
        return archive

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803 - boto3's names
        assert Body == b"12345"
        self.uploaded.append((Bucket, Key))

    def push(self, tag: str, archive: Path, container: str, digest: Callable[[], str]) -> str:
        assert archive.exists()
        assert digest() == sha256(b"12345").hexdigest()
        return f"repo:{tag}-{container}"


def answered(machine: FakeMachine, *, images: bool = True, **annotations: str) -> Any:
    """What Sluice reads from the agent's answer."""
    pod = a_pod(**(ORDERED | annotations))
    order = orders.order_of(pod)
    assert order is not None
    saver = Saver(lambda _: machine, machine, lambda: machine if images else None, ())
    pod["metadata"]["annotations"][orders.DONE] = saver.save(order)
    assert not list(machine.folder.iterdir()), "the node's copy is gone in any case"
    return pod_annotations.ordered_result(pod)


def test_both_sides_speak_of_the_same_annotations() -> None:
    shared = {"ORDER", "DONE", "DRIVER", "DESTINATION", "SIGNAL", "LEAVING", "LOGS"}

    assert {name: getattr(orders, name) for name in shared} == {
        name: getattr(pod_annotations, name) for name in shared
    }


def test_a_dump_is_in_the_bucket_and_in_the_registry(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)

    saved = answered(machine)

    assert isinstance(saved, PodCheckpoint)
    assert saved.uri == "s3://bucket/checkpoints/w1/2/move-2/pod-1.tar"
    assert saved.image.startswith("repo:w1-2-")
    assert (saved.size, saved.digest) == (5, sha256(b"12345").hexdigest())
    assert machine.uploaded == [("bucket", "checkpoints/w1/2/move-2/pod-1.tar")]


def test_an_order_that_is_carried_out_again_gets_another_image(tmp_path: Path) -> None:
    first = answered(FakeMachine(tmp_path))
    time.sleep(0.002)
    second = answered(FakeMachine(tmp_path))

    assert isinstance(first, PodCheckpoint)
    assert isinstance(second, PodCheckpoint)
    assert (first.uri, first.image != second.image) == (second.uri, True)


def test_nodes_that_restore_archives_need_no_registry(tmp_path: Path) -> None:
    saved = answered(FakeMachine(tmp_path), images=False)

    assert isinstance(saved, PodCheckpoint)
    assert not saved.image


def test_a_dump_gets_the_time_that_is_left_and_none_without_any(tmp_path: Path) -> None:
    machine = FakeMachine(tmp_path)
    now = int(time.time() * 1000)

    assert isinstance(answered(machine, leaving=str(now + 60_000)), PodCheckpoint)
    assert 50 <= machine.seconds[0] <= 60
    assert answered(machine, leaving=str(now - 1)) == "no time is left"


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"checkpoint_driver": "magic"}, "no driver 'magic'"),
        ({"checkpoint_driver": "application"}, "names no signal"),
        ({"checkpoint_to": ""}, "does not say where"),
    ],
)
def test_what_cannot_be_done_is_said(tmp_path: Path, change: dict[str, str], why: str) -> None:
    assert why in answered(FakeMachine(tmp_path), **change)


def test_orders_for_cedana_are_left_to_the_control_plane() -> None:
    assert orders.order_of(a_pod(**(ORDERED | {"checkpoint_driver": "cedana"}))) is None


def test_the_kubelets_refusal_is_passed_on(tmp_path: Path) -> None:
    refused = answered(FakeMachine(tmp_path, refuses="HTTP 500: criu"))

    assert refused == "the kubelet could not save it: HTTP 500: criu"


@pytest.mark.parametrize(
    "pod",
    [
        a_pod(),
        a_pod(**ORDERED) | {"status": {"phase": "Pending"}},
        a_pod(**ORDERED, checkpoint_done='{"order": "move-2"}'),
    ],
)
def test_there_is_nothing_to_do_for(pod: dict[str, Any]) -> None:
    assert orders.order_of(pod) is None


@dataclass
class FakeApi:
    patched: list[tuple[str, str, dict[str, Any]]] = field(default_factory=list)
    done: threading.Event = field(default_factory=threading.Event)

    def read_node(self, name: str) -> Any:
        labels = {"sluice.dev/node": "process"} if name == "node-1" else None
        return SimpleNamespace(metadata=SimpleNamespace(labels=labels))

    def patch_namespaced_pod(self, name: str, namespace: str, patch: dict[str, Any]) -> None:
        self.patched.append((name, namespace, patch))
        self.done.set()


@pytest.mark.parametrize(
    "nodes", [ServedNodes(name="node-1"), ServedNodes(label="sluice.dev/node=process")]
)
def test_an_order_is_carried_out_once_on_a_served_node(tmp_path: Path, nodes: ServedNodes) -> None:
    machine, api = FakeMachine(tmp_path), FakeApi()
    agent = OrderController(api, nodes, Saver(lambda _: machine, machine, lambda: machine, ()))  # type: ignore[arg-type]

    for _ in range(3):
        agent.look(a_pod(**ORDERED))

    assert api.done.wait(PATIENCE_SECONDS)
    agent.pool.shutdown(wait=True)
    ((name, namespace, patch),) = api.patched
    assert (name, namespace, patch["metadata"]["uid"]) == ("pod-1", "team", "u-1")


@dataclass
class SlowMachine(FakeMachine):
    """Dumps when it is let, and tells how many dumps were under way at once."""

    let: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    begun: threading.Semaphore = field(default_factory=lambda: threading.Semaphore(0))
    at_once: list[int] = field(default_factory=list)
    under_way: int = 0

    def checkpoint(self, namespace: str, pod: str, container: str, *, seconds: int) -> Path:
        self.under_way += 1
        self.at_once.append(self.under_way)
        self.begun.release()
        assert self.let.acquire(timeout=PATIENCE_SECONDS)
        self.under_way -= 1
        return super().checkpoint(namespace, pod, container, seconds=seconds)


class Orders:
    """An agent with a slow machine, and what it has answered so far."""

    def __init__(self, folder: Path) -> None:
        self.machine, self.api = SlowMachine(folder), FakeApi()
        saver = Saver(lambda _: self.machine, self.machine, lambda: self.machine, ())
        self.agent = OrderController(self.api, ServedNodes(name="node-1"), saver)  # type: ignore[arg-type]
        self.done = "null"

    def bear(self, order: str | None) -> None:
        """The pod bears this order, beside the newest answer."""
        marks = ORDERED | {"checkpoint_done": self.done}
        marks = marks | {"checkpoint_order": order} if order else marks
        pod = a_pod(**marks)
        if order is None:
            del pod["metadata"]["annotations"][orders.ORDER]
        self.agent.look(pod)

    def dump(self) -> str:
        """Let one dump happen; to which order it is answered."""
        known = len(self.api.patched)
        assert self.machine.begun.acquire(timeout=PATIENCE_SECONDS)
        self.machine.let.release()
        deadline = time.monotonic() + PATIENCE_SECONDS
        while len(self.api.patched) == known:
            assert time.monotonic() < deadline
            time.sleep(0.005)
        self.done = self.api.patched[-1][2]["metadata"]["annotations"][orders.DONE]
        return str(json.loads(self.done)["order"])

    def idle(self) -> bool:
        return not self.machine.begun.acquire(timeout=0.2)


def test_a_pod_is_dumped_for_one_order_at_a_time_and_for_the_newest(tmp_path: Path) -> None:
    pod = Orders(tmp_path)

    for order in ("rebalance-1", "first-0", "rebalance-2", "first-0"):
        pod.bear(order)

    assert [pod.dump(), pod.dump()] == ["rebalance-1", "first-0"]
    assert pod.machine.at_once == [1, 1]
    pod.bear("first-0")
    assert pod.idle()


def test_an_order_whose_answer_was_overwritten_is_carried_out_again(tmp_path: Path) -> None:
    pod = Orders(tmp_path)
    pod.bear("first-0")
    assert pod.dump() == "first-0"
    pod.bear("rebalance-2")
    assert pod.dump() == "rebalance-2"

    pod.bear("first-0")

    assert pod.dump() == "first-0"


def test_an_order_that_is_taken_back_before_its_turn_is_not_carried_out(tmp_path: Path) -> None:
    pod = Orders(tmp_path)
    pod.bear("rebalance-1")
    pod.bear("move-0")

    pod.bear(None)

    assert pod.dump() == "rebalance-1"
    assert pod.idle()


def test_an_answer_that_nobody_takes_does_not_keep_the_next_order_from_its_turn(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pod = Orders(tmp_path)
    take, refused = pod.api.patch_namespaced_pod, threading.Event()

    def refuse(*_: Any) -> None:
        monkeypatch.setattr(pod.api, "patch_namespaced_pod", take)
        refused.set()
        raise RuntimeError("out of order")

    monkeypatch.setattr(pod.api, "patch_namespaced_pod", refuse)
    pod.bear("rebalance-1")
    pod.bear("first-0")
    pod.machine.let.release()
    assert refused.wait(PATIENCE_SECONDS)
    assert pod.machine.begun.acquire(timeout=PATIENCE_SECONDS)

    assert pod.dump() == "first-0"


@pytest.mark.parametrize(
    "nodes", [ServedNodes(name="other"), ServedNodes(label="sluice.dev/node=kubelet")]
)
def test_nodes_of_others_are_left_to_them(tmp_path: Path, nodes: ServedNodes) -> None:
    machine, api = FakeMachine(tmp_path), FakeApi()
    agent = OrderController(api, nodes, Saver(lambda _: machine, machine, lambda: machine, ()))  # type: ignore[arg-type]

    agent.look(a_pod(**ORDERED))
    agent.pool.shutdown(wait=True)

    assert api.patched == []


def test_a_kubelet_elsewhere_needs_a_known_authority(tmp_path: Path) -> None:
    kubelet = Kubelet("10.0.0.1", 10250, None, tmp_path, "token")

    with pytest.raises(CheckpointRefusedError, match="no authority"):
        kubelet.checkpoint("team", "pod", "main", seconds=1)


@pytest.mark.parametrize(
    ("runtime", "criu", "why"),
    [
        ("containerd://2.2.4", True, ""),
        ("containerd://2.2.4", False, "no CRIU"),
        ("containerd://2.4.0", True, "2.1 to 2.3"),
        ("containerd://2.0.5", True, "2.1 to 2.3"),
        ("cri-o://1.36.0", True, "2.1 to 2.3"),
    ],
)
def test_a_node_says_whether_it_can_save(
    tmp_path: Path, runtime: str, criu: bool, why: str
) -> None:
    if criu:
        (tmp_path / "usr/sbin").mkdir(parents=True)
        (tmp_path / "usr/sbin/criu").touch()

    reason = support.why_not(runtime, tmp_path)

    assert (why in reason) if why else (reason == "")
    published = support.marks(reason, closes=False)
    assert published["labels"] == {
        "sluice.dev/checkpoint": None if why else "criu",
        "sluice.dev/checkpoint-connections": None,
    }
    assert published["annotations"] == {"sluice.dev/checkpoint-reason": reason or None}


@pytest.mark.parametrize(
    ("options", "closes"),
    [("tcp-close\nskip-in-flight\n", True), ("file-locks\n", False), ("", False)],
)
def test_a_node_says_whether_its_checkpoints_close_connections(
    tmp_path: Path, options: str, closes: bool
) -> None:
    if options:
        (tmp_path / "etc/criu").mkdir(parents=True)
        (tmp_path / "etc/criu/runc.conf").write_text(options)

    assert support.closes_connections(tmp_path) is closes
    labels = support.marks("", closes=closes)["labels"]
    assert labels["sluice.dev/checkpoint-connections"] == ("close" if closes else None)
    unable = support.marks("the node has no CRIU", closes=closes)["labels"]
    assert unable["sluice.dev/checkpoint-connections"] is None


def test_connected_sockets_of_a_process_are_counted() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listening:
        assert count_connections([os.getpid()]) == 0
        with socket.create_connection(listening.getsockname()), listening.accept()[0]:
            assert count_connections([os.getpid(), os.getpid()]) == 2


class FakeMetadata(BaseHTTPRequestHandler):
    """IMDSv2 as far as the agent asks."""

    said: ClassVar[dict[str, str]] = {}

    def do_PUT(self) -> None:
        assert self.headers["X-aws-ec2-metadata-token-ttl-seconds"].isdigit()
        self._say(200, "token")

    def do_GET(self) -> None:
        known = self.headers["X-aws-ec2-metadata-token"] == "token"
        text = self.said.get(self.path.removeprefix("/latest/meta-data/"))
        self._say(401 if not known else 404 if text is None else 200, text or "")

    def _say(self, status: int, text: str) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the base class's name
        """Nothing."""


@pytest.fixture
def metadata() -> Iterator[str]:
    FakeMetadata.said = {"instance-id": "i-1"}
    server = ThreadingHTTPServer(("127.0.0.1", 0), FakeMetadata)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_address[1]}"
    server.shutdown()
    server.server_close()


def test_every_word_on_the_end_of_the_machine_is_sent_once(metadata: str) -> None:
    sent: list[dict[str, Any]] = []
    listener = Listener(Metadata(metadata), sent.append, "111122223333", "eu-west-1")
    listener.look()
    assert sent == []

    FakeMetadata.said["events/recommendations/rebalance"] = '{"noticeTime": "2026-11-20T10:00:00Z"}'
    listener.look()
    FakeMetadata.said["spot/instance-action"] = (
        '{"action": "terminate", "time": "2026-11-20T10:05:00Z"}'
    )
    listener.look()
    listener.look()

    assert [each["detail-type"] for each in sent] == [NOTICED, NOTICED]
    notices = [read_event(each) for each in sent]
    assert [(n[0].kind, n[0].instance) for n in notices if isinstance(n, list)] == [
        (NoticeKind.REBALANCE, "i-1"),
        (NoticeKind.SPOT, "i-1"),
    ]


def test_what_could_not_be_sent_is_sent_at_the_next_look(metadata: str) -> None:
    FakeMetadata.said["spot/instance-action"] = json.dumps(
        {"action": "terminate", "time": "2026-11-20T10:05:00Z"}
    )
    tries: list[dict[str, Any]] = []

    def send(envelope: dict[str, Any]) -> None:
        tries.append(envelope)
        if len(tries) == 1:
            raise ConnectionError("no route")

    listener = Listener(Metadata(metadata), send, "1", "r")
    with pytest.raises(ConnectionError):
        listener.look()
    listener.look()
    listener.look()

    assert len(tries) == 2


def test_a_machine_without_a_metadata_service_is_silent(metadata: str) -> None:
    FakeMetadata.said["spot/instance-action"] = "no JSON"

    with pytest.raises(SilentError, match="instance-action"):
        Listener(Metadata(metadata), lambda _: None, "1", "r").look()
    with pytest.raises(SilentError):
        Metadata("http://127.0.0.1:9").get("instance-id")


class StoredObjects(dict[str, bytes]):
    """An S3 bucket by key."""

    refuses = False

    def put_object(self, *, Bucket: str, Key: str, Body: bytes) -> None:  # noqa: N803
        if self.refuses:
            raise ConnectionError(Bucket)
        self[f"{Bucket}/{Key}"] = gzip.decompress(Body)


def a_printing_pod(folder: Path, text: str) -> dict[str, Any]:
    where = folder / "default_pod-1_uid-1" / "main"
    where.mkdir(parents=True, exist_ok=True)
    (where / "0.log").write_text("2026-11-22T10:00:00Z stdout F of an earlier run\n")
    (where / "1.log").write_text(text)
    return {
        "metadata": {
            "name": "pod-1",
            "namespace": "default",
            "uid": "uid-1",
            "labels": {"sluice.dev/workload": "w1", "sluice.dev/generation": "2"},
            "annotations": {orders.LOGS: "s3://bucket/logs/w1/2/"},
        },
        "spec": {"containers": [{"name": "main"}, {"name": "not-started"}]},
    }


def test_logs_are_stored_as_they_grow(tmp_path: Path) -> None:
    stored, line = StoredObjects(), "2026-11-22T10:00:00.1Z stdout"
    uploader = LogUploader(stored, (), tmp_path)
    uploader.follow(a_printing_pod(tmp_path, f"{line} F one\n{line} P half \n{line} F a line\n"))

    uploader.upload()
    assert stored == {"bucket/logs/w1/2/pod-1/main.part-0000.gz": b"one\nhalf a line\n"}

    stored.clear()
    uploader.upload()
    assert stored == {}, "nothing has grown"

    more = f"{line} F one\n{line} F half a line\n{line} F cut off"
    uploader.follow(a_printing_pod(tmp_path, more))
    stored.refuses = True
    uploader.upload()
    stored.refuses = False
    uploader.upload()
    piece = b"one\nhalf a line\ncut off"
    assert stored == {"bucket/logs/w1/2/pod-1/main.part-0000.gz": piece}

    stored.clear()
    uploader.forget("uid-1")
    a_printing_pod(tmp_path, f"{line} F more\n")
    uploader.upload()
    assert stored == {}


@pytest.mark.parametrize(
    "address", ["", "s3://bucket/logs/w2/2/", "s3://bucket/logs/w1/1/", "s3://bucket/elsewhere/"]
)
def test_a_pod_does_not_send_its_logs_to_those_of_another(tmp_path: Path, address: str) -> None:
    stored = StoredObjects()
    uploader = LogUploader(stored, (), tmp_path)
    pod = a_printing_pod(tmp_path, "2026-11-22T10:00:00Z stdout F forged\n")
    pod["metadata"]["annotations"][orders.LOGS] = address
    uploader.follow(pod)

    uploader.upload()

    assert stored == {}


def test_the_agent_stores_logs_where_the_control_plane_reads_them() -> None:
    folder = generation_folder("w1", 2)
    labels = {"sluice.dev/workload": "w1", "sluice.dev/generation": "2"}
    metadata = {"labels": labels, "annotations": {orders.LOGS: f"s3://bucket/{folder}"}}

    assert address_of({"metadata": metadata}) == ("bucket", folder)
    assert log_key("w1", 2, "pod-1", "main") == f"{folder}pod-1/main.log.gz"
    assert short_name(f"{folder}pod-1/main.log.gz") == "2/pod-1/main"
    assert short_name(f"{folder}pod-1/main.part-0001.gz") == "2/pod-1/main"
