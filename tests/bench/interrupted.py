"""Jobs of an embedded stack whose machines are taken away, and what that cost them."""

from __future__ import annotations

import contextlib
import json
import threading
import time
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

import urllib3
from kubernetes import client as kubernetes
from kubernetes import config as kubernetes_config
from kubernetes import watch
from sluice.core.lifecycle.record import phase
from sluice.core.migrations.pod_annotations import LEAVING

from local.endpoints import Endpoints
from tests.e2e.stack import BUCKET, NAMESPACE, Stack, a_workload
from tests.ticking import trace
from tests.ticking.trace import Tick

FOREVER = 10**9  # steps
STEADY = 10  # steps after which a job counts as running again
PATIENCE_SECONDS = 400


@dataclass(frozen=True)
class Cost:
    """Of one interruption, in seconds; `again` counts from the warning, or from a sudden end."""

    lost: float
    again: float
    standstill: float

    def __str__(self) -> str:
        return (
            f"{self.lost:6.1f} s of work lost, runs again after {self.again:6.1f} s,"
            f" stands still for {self.standstill:6.1f} s"
        )


def cost(ticks: list[Tick], at: float) -> Cost:
    """What the trace tells of an interruption at `at` (epoch seconds)."""
    found = trace.longest_break([tick for tick in ticks if tick.at > at - 1.0])
    return Cost(found.lost_seconds, found.after.at - at, found.downtime_seconds)


def middle(costs: list[Cost]) -> Cost:
    return Cost(
        median(each.lost for each in costs),
        median(each.again for each in costs),
        median(each.standstill for each in costs),
    )


def until(what: str, ready: Callable[[], Any]) -> Any:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not (found := ready()):
        if time.monotonic() > deadline:
            raise SystemExit(f"{what}: not within {PATIENCE_SECONDS} s")
        time.sleep(0.2)
    return found


def counted_for(path: Path, seconds: float) -> bool:
    ticks = trace.read(path)
    return bool(ticks) and ticks[-1].at - ticks[0].at >= seconds


def market(endpoints: Endpoints, action: str, instance: str) -> float:
    """Have EC2 `interrupt` or `terminate` an instance; when that was asked (epoch seconds)."""
    request = urllib.request.Request(
        f"{endpoints.ec2}/_market/{action}",
        json.dumps({"instanceId": instance}).encode(),
        {"Content-Type": "application/json"},
    )
    at = time.time()
    urllib.request.urlopen(request, timeout=10).close()
    return at


class PlainJob:
    """A Job of which Sluice knows nothing."""

    def __init__(self, endpoints: Endpoints, path: Path) -> None:
        kubernetes_config.load_kube_config(endpoints.kubeconfig)
        self.endpoints, self.path, self.name = endpoints, path, path.name
        container = {
            "name": "main",
            "image": "python:3.11",
            "command": ["python", "-c", trace.PROGRAM, trace.address(path), str(FOREVER)],
            "resources": {"requests": {"cpu": "1500m", "memory": "64Mi"}},
        }
        pod = {
            "restartPolicy": "Never",
            "containers": [container],
            "nodeSelector": {"sluice.dev/flavor": "spot"},
            "automountServiceAccountToken": False,
        }
        job = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "metadata": {"name": self.name},
            "spec": {"template": {"spec": pod}},
        }
        kubernetes.BatchV1Api().create_namespaced_job("default", job)

    def warned(self, head_start: float) -> float:
        """Warn its machine after so many seconds of work; when."""
        until(f"{self.name} counts", lambda: counted_for(self.path, head_start))
        core = kubernetes.CoreV1Api()
        (pod,) = core.list_namespaced_pod("default", label_selector=f"job-name={self.name}").items
        provider_id: str = core.read_node(pod.spec.node_name).spec.provider_id
        return market(self.endpoints, "interrupt", provider_id.rpartition("/")[2])

    def cost(self, at: float) -> Cost:
        """Once another process of the job counts."""
        known = trace.read(self.path)[0].run

        def again() -> bool:
            return sum(tick.run != known for tick in trace.read(self.path)) >= STEADY

        until(f"{self.name} runs again", again)
        return cost(trace.read(self.path), at)

    def end(self) -> None:
        kubernetes.BatchV1Api().delete_namespaced_job(
            self.name, "default", propagation_policy="Foreground"
        )


class SluiceJob:
    """A workload of Sluice that counts for ever, and is interrupted again and again."""

    def __init__(self, stack: Stack, queue: str, path: Path, mode: str, megabytes: int) -> None:
        self.stack, self.path = stack, path
        self.warned: dict[str, float] = {}  # pod → when its machine was (epoch seconds)
        saves = mode == "application"
        command = ["python", "-c", trace.PROGRAM, trace.address(path), str(FOREVER)]
        saved = {"bucket": BUCKET, "prefix": f"{path.name}/"}
        volumes = [{"name": "saved", "mountPath": "/saved", "s3": saved}] if saves else []
        document = a_workload(
            queue,
            *command,
            *("--megabytes", str(megabytes)),
            *(["--save", "/saved"] if saves else []),
            volumes=volumes,
            checkpoint={"mode": mode},
        )
        (self.id,) = stack.submit(document)

    def interrupted(self, action: str, head_start: float) -> Cost:
        """One interruption after at least so many seconds of work, once it runs again."""
        until(f"{self.path.name} counts", lambda: counted_for(self.path, head_start))
        before = self.stack.get(self.id).generation
        _, instance = self.stack.machine_of(self.id)
        (pod,) = self.stack.pods(self.id)
        at = self.warned[pod["metadata"]["name"]] = market(self.stack.endpoints, action, instance)

        def again() -> bool:
            record = self.stack.get(self.id)
            return record.generation > before and phase(record) == "RUNNING"

        until(f"{self.path.name} runs again", again)
        known = len(trace.read(self.path))
        until(f"{self.path.name} counts", lambda: len(trace.read(self.path)) > known + STEADY)
        return cost(trace.read(self.path), at)

    def end(self) -> None:
        self.stack.sluice("cancel", self.id)


class Orders:
    """When pods were told that they leave, and with it to save themselves (epoch seconds)."""

    def __init__(self, endpoints: Endpoints) -> None:
        kubernetes_config.load_kube_config(endpoints.kubeconfig)
        self.seen: dict[str, float] = {}
        threading.Thread(target=self._follow, daemon=True).start()

    def _follow(self) -> None:
        core = kubernetes.CoreV1Api()
        with contextlib.suppress(urllib3.exceptions.HTTPError):  # the stack is going down
            while True:
                for event in watch.Watch().stream(core.list_namespaced_pod, NAMESPACE):
                    pod = event["object"].metadata
                    if LEAVING in (pod.annotations or {}):
                        self.seen.setdefault(pod.name, time.time())
