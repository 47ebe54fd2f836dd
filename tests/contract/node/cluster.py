"""A pod-sized view of a cluster with one node: all that the contract needs of any kind of node."""

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import count
from typing import Any
from urllib.parse import urlencode

from local.node.api import ApiError, KubernetesApi

NAMESPACE = "default"
PATIENCE_SECONDS = 60
_numbers = count(1)


def until(question: Callable[[], Any], what: str, seconds: float = PATIENCE_SECONDS) -> Any:
    """The question's first true answer."""
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if answer := question():
            return answer
        time.sleep(0.1)
    raise AssertionError(f"waited {seconds:.0f} s in vain: {what}")


@dataclass
class Cluster:
    """One node of the kind under test, reached through the API server only."""

    api: KubernetesApi
    node: str
    image: str = "python:3.12"  # what a node that pulls images shall run
    pods: list[str] = field(default_factory=list)

    def create(self, kind: str, body: dict[str, Any]) -> dict[str, Any]:
        return self.api.create(f"/api/v1/namespaces/{NAMESPACE}/{kind}", body)

    def run(self, *command: str, **spec: Any) -> str:
        """Creates a pod with one container `main`; returns the pod's name."""
        container = {"name": "main", "image": self.image, "command": list(command)}
        container |= spec.pop("container", {})
        return self.run_pod({"containers": [container], **spec})

    def run_pod(self, spec: dict[str, Any], **metadata: Any) -> str:
        name = f"pod-{next(_numbers)}"
        everywhere = {
            "nodeName": self.node,
            "restartPolicy": "Never",
            "tolerations": [{"operator": "Exists"}],
            "automountServiceAccountToken": False,
        }
        self.create("pods", {"metadata": {"name": name} | metadata, "spec": everywhere | spec})
        self.pods.append(name)
        return name

    def pod(self, name: str) -> dict[str, Any] | None:
        return self.api.find(f"/api/v1/namespaces/{NAMESPACE}/pods/{name}")

    def wait(self, name: str, *phases: str) -> dict[str, Any]:
        """The pod once it is in one of the phases."""

        def there() -> dict[str, Any] | None:
            pod = self.pod(name)
            return pod if pod and pod["status"].get("phase") in phases else None

        found: dict[str, Any] = until(there, f"{name} in {phases}: {self.pod(name)}")
        return found

    def finish(self, name: str) -> dict[str, Any]:
        return self.wait(name, "Succeeded", "Failed")

    def exit_state(self, name: str, container: str = "main") -> dict[str, Any]:
        """The `terminated` state of a container of the finished pod."""
        statuses = self.finish(name)["status"]["containerStatuses"]
        state = next(one["state"] for one in statuses if one["name"] == container)
        terminated: dict[str, Any] = state["terminated"]
        return terminated

    def logs(self, name: str, container: str = "main", **query: str) -> str:
        query = {"container": container, **query}
        path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}/log?{urlencode(query)}"
        return self.api.read(path).decode()

    def output(self, name: str) -> str:
        """The log of a pod that must succeed."""
        pod = self.finish(name)
        assert pod["status"]["phase"] == "Succeeded", (pod["status"], self.logs(name))
        return self.logs(name)

    def await_line(self, name: str, line: str) -> None:
        def written() -> bool:
            try:
                return line in self.logs(name)
            except ApiError:  # not started yet
                return False

        until(written, f"{line!r} in the log of {name}")

    def delete(self, name: str, grace_seconds: int | None = None) -> None:
        pod = self.pod(name)
        if pod:
            path = f"/api/v1/namespaces/{NAMESPACE}/pods/{name}"
            self.api.delete(path, uid=pod["metadata"]["uid"], grace_seconds=grace_seconds)

    def await_gone(self, name: str) -> None:
        until(lambda: self.pod(name) is None, f"{name} is gone")

    def events(self, name: str) -> list[dict[str, Any]]:
        query = urlencode({"fieldSelector": f"involvedObject.name={name}"})
        items: list[dict[str, Any]] = self.api.get(
            f"/api/v1/namespaces/{NAMESPACE}/events?{query}"
        )["items"]
        return items
