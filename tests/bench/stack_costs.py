"""What a stretch of work costs on an embedded stack: CPU by process, calls by operation.

Kernel and servers count, so another program on the machine makes the work slower, not dearer.
"""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import psutil
from kubernetes import client as kubernetes

SAMPLE_SECONDS = 0.5
SETTLE_SECONDS = 3
LAMBDA = "lambda "
FUNCTION, ACCESS_KEY = "POWERTOOLS_SERVICE_NAME", "AWS_ACCESS_KEY_ID"
# What AWS does on its own machines: its services, its half of EKS's authentication.
EMULATED_AWS = frozenset({"aws", "ec2", "webhook"})
REQUEST = re.compile(r"^apiserver_request_total\{(?P<labels>[^}]*)\} (?P<count>\S+)$", re.MULTILINE)
LABEL = re.compile(r'(\w+)="([^"]*)"')
IGNORED_RESOURCES = frozenset({"leases", "tokenreviews", "subjectaccessreviews"})


@dataclass(frozen=True)
class Costs:
    """CPU seconds by part of the stack or Lambda; numbers of AWS calls and Kubernetes requests."""

    cpu: Counter[str]
    aws: Counter[str]
    kubernetes: Counter[str]

    def __sub__(self, earlier: Costs) -> Costs:
        return Costs(
            self.cpu - earlier.cpu, self.aws - earlier.aws, self.kubernetes - earlier.kubernetes
        )

    @property
    def cluster_cpu(self) -> float:
        """Seconds in the cluster: all but AWS's own services and the Lambdas."""
        return sum(
            seconds
            for part, seconds in self.cpu.items()
            if part not in EMULATED_AWS and not part.startswith(LAMBDA)
        )

    def table(self, jobs: int) -> str:
        """Per Job, dearest first; what comes less often than once in 50 Jobs is left out."""
        columns = (
            ("CPU, ms", {part: 1000 * seconds for part, seconds in self.cpu.items()}),
            ("Kubernetes requests", self.kubernetes),
            ("AWS calls", self.aws),
        )
        lines = []
        for title, amounts in columns:
            lines.append(f"  {title} per Job: {sum(amounts.values()) / jobs:.2f}")
            dear = sorted(amounts.items(), key=lambda item: -item[1])
            lines += [f"    {n / jobs:8.2f}  {what}" for what, n in dear if n / jobs >= 0.02]
        return "\n".join(lines)


class Meter:
    """Watches the processes of a stack, since Lambdas end and take their account with them."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._endpoints: Mapping[str, str] = json.loads((folder / "endpoints.json").read_text())
        self._spent: dict[tuple[int, float], tuple[str, float]] = {}
        self._callers: dict[str, str] = {}
        self._lock = threading.Lock()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self._thread.start()

    def close(self) -> None:
        self._stop.set()
        self._thread.join()

    def read(self) -> Costs:
        """All costs since the stack came up."""
        self._sample()
        cpu: Counter[str] = Counter()
        for part, seconds in self._spent.values():
            cpu[part] += seconds  # type: ignore[assignment]  # Counter adds whatever has a sum
        return Costs(cpu, self._aws_calls(), kubernetes_requests())

    def settled(self) -> Costs:
        """All costs, once the events of Kubernetes are written too, which lag behind the work."""
        last = -1
        while (now := kubernetes_requests()["POST events"]) != last:
            last = now
            time.sleep(SETTLE_SECONDS)
        return self.read()

    def _watch(self) -> None:
        while not self._stop.wait(SAMPLE_SECONDS):
            self._sample()

    def _sample(self) -> None:
        with self._lock:
            for part in json.loads((self._folder / "parts.json").read_text()):
                if part["pid"] is None:
                    continue
                process = psutil.Process(part["pid"])
                self._note(process, part["name"])
                for child in process.children(recursive=True):
                    self._note(child, part["name"])

    def _note(self, process: psutil.Process, part: str) -> None:
        try:
            key = (process.pid, process.create_time())
            name = self._spent[key][0] if key in self._spent else self._name(process, part)
            times = process.cpu_times()
        except psutil.Error:
            return
        self._spent[key] = (name, times.user + times.system)

    def _name(self, process: psutil.Process, part: str) -> str:
        """A Lambda's worker is a child of the emulator, and holds credentials of its own."""
        environment = process.environ() if part == "aws" else {}
        if FUNCTION not in environment:
            return part
        name = LAMBDA + environment[FUNCTION]
        self._callers[environment.get(ACCESS_KEY, "")] = name
        return name

    def _aws_calls(self) -> Counter[str]:
        with urllib.request.urlopen(f"{self._endpoints['aws']}/_local/calls") as answer:
            counts: Mapping[str, int] = json.loads(answer.read())
        calls: Counter[str] = Counter()
        for call, count in counts.items():
            key, _, operation = call.partition(" ")
            calls[f"{operation} of {self._callers.get(key, 'others').removeprefix(LAMBDA)}"] += (
                count
            )
        return calls


def kubernetes_requests() -> Counter[str]:
    """Requests that the API server has answered, such as `PATCH pods/status`."""
    answer = kubernetes.ApiClient().call_api(
        "/metrics", "GET", auth_settings=["BearerToken"], _preload_content=False
    )[0]
    text = answer.data.decode()
    requests: Counter[str] = Counter()
    for match in REQUEST.finditer(text):
        labels = dict(LABEL.findall(match["labels"]))
        resource = labels["resource"]
        if resource and resource not in IGNORED_RESOURCES:
            name = "/".join(filter(None, (resource, labels["subresource"])))
            requests[f"{labels['verb']} {name}"] += int(float(match["count"]))
    return requests
