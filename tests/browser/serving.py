"""The pages, served from a control plane in this process, with states to look at."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import uvicorn
from sluice.client.api import ApiClient
from sluice.client.connection import Connection
from sluice.client.transport import ApiRequest, ApiResponse

from cli.ui.guard import SessionGuard
from cli.ui.server import application
from tests.unit.api.control_plane import (
    ADMIN,
    COMPANY,
    ControlPlane,
    Signer,
    cluster_queue,
    flavor,
    local_queue,
    native,
)

HOSTILE = "</script><img src=x onerror=alert(1)>"
RECORDED = Path(__file__).parent / "recorded"
SPOT = {"usd_per_hour": 0.9, "on_demand_usd_per_hour": 2.4, "capacity": "spot"}
COHORTS = (
    flavor("on-demand"),
    cluster_queue("green-cq", 24),
    cluster_queue("research-cq", 256, cohort="science"),
    cluster_queue("vision-cq", 96, cohort="science"),
    cluster_queue("nightly-cq", 48, cohort="science"),
    local_queue("red", "vision", "vision-cq"),
    local_queue("red", "science", "research-cq"),
)


@dataclass
class Deployment:
    """A control plane, and answers that stand for states which it cannot reach by itself."""

    plane: ControlPlane = field(default_factory=ControlPlane)
    signer: Signer = ADMIN
    answers: dict[tuple[str, ...], Any] = field(default_factory=dict)
    migrated: str = ""
    drilled: list[str] = field(default_factory=list)
    lock: threading.Lock = field(default_factory=threading.Lock)

    def carry(self, request: ApiRequest) -> ApiResponse:
        if request.method == "GET" and request.path in self.answers:
            return ApiResponse(200, self.answers[request.path])
        path = "/" + "/".join(segment.replace("/", "%2F") for segment in request.path)
        query = dict(request.query) or None
        with self.lock:
            answer = self.plane.call(request.method, path, self.signer, request.body, query)
            self.plane.settle()
        return ApiResponse(*answer)

    def interrupt(self, target: str) -> dict[str, Any]:
        self.drilled.append(target)
        return {"instance": "i-0", "experiment": "EXP1"}


def recorded(name: str) -> Any:
    """An answer of the api of a deployed control plane, as it was recorded."""
    return json.loads((RECORDED / f"{name}.json").read_text())


def busy() -> Deployment:
    """Running, waiting, failed and migrated work in two cohorts; the ids by name are kept."""
    plane = ControlPlane(objects=(*COMPANY, *COHORTS))
    plane.clock.time = int(time.time() * 1_000) - 3_600_000
    ids: dict[str, str] = {}

    def send(name: str, cpu: int, queue: str = "batch", key: str | None = None) -> None:
        document = native(name, cpu, key=key or name, queue=queue)
        ids[name] = plane.send(document)
        plane.clock.pass_ms(20_000)

    for number in range(6):
        send(f"train-{number}", 40)
    for number in range(7):
        send(f"embed-{number}", 48, "vision")
    for number in range(3):
        send(f"simulate-{number}", 64, "science")
    send("hostile", 3)
    running = [i for i in ids.values() if plane.workloads.rows[i].state == "ADMITTED"]
    for identity in running:
        plane.run(identity, **SPOT)
        plane.clock.pass_ms(60_000)
    plane.finish(running[0])
    plane.finish(running[-1], succeeded=False)
    plane.clock.time = int(time.time() * 1_000)
    deployment = Deployment(plane)
    migrated = running[1]
    timeline = recorded("interrupted-events")
    shift = plane.clock.time - 150_000 - timeline["items"][0]["at"]
    for event in timeline["items"]:
        event["at"] += shift
    timeline["items"].insert(1, timeline["items"][0] | {"what": "Noted", "message": HOSTILE})
    deployment.answers["workloads", migrated, "events"] = timeline
    capacity = recorded("capacity")
    for closed in (*capacity["quarantine"], *(pool["closed"] for pool in capacity["items"])):
        if closed:
            closed["until"] = plane.clock.time + 1_500_000
    deployment.answers["capacity",] = capacity
    lines = [f"step {step:6,}  loss {3 / (1 + step / 2_000):.4f}" for step in range(0, 9_000, 250)]
    plane.logs.put(migrated, 0, "train-1-0", "main", "\n".join([*lines, HOSTILE, ""]).encode())
    deployment.migrated = migrated
    return deployment


@contextmanager
def served(deployment: Deployment) -> Iterator[SessionGuard]:
    """The pages of a deployment on a free port; the guard knows their address."""
    connection = Connection(now=lambda: deployment.plane.clock.now() / 1_000)
    connection.__dict__["api"] = ApiClient(deployment.carry)
    config = uvicorn.Config(
        application(connection, guard := SessionGuard(0), deployment.interrupt),
        host="127.0.0.1",
        port=0,
        log_level="error",
        lifespan="off",
    )
    server = uvicorn.Server(config)
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        time.sleep(0.01)
    guard.port = server.servers[0].sockets[0].getsockname()[1]
    try:
        yield guard
    finally:
        server.should_exit = True
        thread.join()
