"""Orders that pods carry for the agent, and its answers (core.migrations.pod_annotations)."""

import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

ORDER = "sluice.dev/checkpoint-order"
DONE = "sluice.dev/checkpoint-done"
DRIVER = "sluice.dev/checkpoint-driver"
DESTINATION = "sluice.dev/checkpoint-to"
SIGNAL = "sluice.dev/checkpoint-signal"
LOGS = "sluice.dev/logs-to"
CONNECTIONS = "sluice.dev/checkpoint-connections"
REFUSE = "refuse"
"""Open TCP connections are not to be closed; without the annotation they are."""
LEAVING = "sluice.dev/leaving"
ELSEWHERE = frozenset({"cedana"})
"""Drivers for which the control plane answers."""
HOLDING = ("move-", "yield-")
"""How the orders of a run begin that goes on elsewhere, or later."""
WORKLOAD = "sluice.dev/workload"
GENERATION = "sluice.dev/generation"


@dataclass(frozen=True)
class Order:
    """Save this pod now. `destination` is `s3://BUCKET/PREFIX/`."""

    name: str  # the value of the annotation; a repetition is no new order
    namespace: str
    pod: str
    uid: str
    containers: tuple[str, ...]
    workload: str
    generation: str
    driver: str
    destination: str
    signal: str
    node: str
    deadline: int  # epoch ms; 0 for none
    container_id: str = ""  # of its first container, without the name of the runtime
    keeps_connections: bool = False  # it is not saved while it has open TCP connections

    @property
    def place(self) -> tuple[str, str]:
        """Bucket and key of the archive, in a folder that is its order's: a gang's set is there."""
        address = urlsplit(self.destination)
        key = f"{address.path.removeprefix('/')}{self.name}/{self.pod}.tar"
        return (address.netloc if address.scheme == "s3" else ""), key

    def tag(self, at: int) -> str:
        """Of the image in the registry of a dump begun `at` (epoch ms).

        Tags are never given again, so the dump of an agent that died may have taken another one.
        """
        digest = hashlib.sha256(f"{self.uid}/{self.name}/{at}".encode()).hexdigest()[:12]
        return f"{self.workload}-{self.generation}-{digest}"

    @property
    def holds(self) -> bool:
        """Whether what the run does after its dump is lost."""
        return self.name.startswith(HOLDING)

    def saved(
        self,
        *,
        uri: str,
        image: str,
        size: int,
        digest: str,
        seconds: float,
        at: int,
        held_at: int,
    ) -> str:
        """`size` in bytes; in epoch ms, `at` of the image and `held_at` of the last work, if so."""
        return json.dumps(
            {
                "order": self.name,
                "uri": uri,
                "image": image,
                "bytes": size,
                "sha256": digest,
                "seconds": round(seconds, 3),
                "at": at,
                "held": held_at,
            }
        )

    def ended(self, answer: str, *, at: int) -> str:
        """The same answer, with the word that everything of the pod was killed by then."""
        return json.dumps({**json.loads(answer), "ended": at})

    def told(self, *, at: int) -> str:
        """The application was told to save itself; where, it publishes itself."""
        return json.dumps({"order": self.name, "uri": "", "at": at})

    def failed(self, why: str, *, at: int) -> str:
        return json.dumps({"order": self.name, "error": why, "at": at})


def order_of(pod: Mapping[str, Any]) -> Order | None:
    """The order that waits for an answer; None if there is none."""
    order = borne_by(pod)
    return None if order is None or _answer(pod).get("order") == order.name else order


def held_for(pod: Mapping[str, Any]) -> Order | None:
    """The order that a pod was stopped for when it was answered; None if it was not."""
    order, said = borne_by(pod), _answer(pod)
    return order if order and said.get("order") == order.name and said.get("held") else None


def borne_by(pod: Mapping[str, Any]) -> Order | None:
    """The order for the agent that a running pod bears, answered or not."""
    metadata = pod["metadata"]
    marks, labels = metadata.get("annotations") or {}, metadata.get("labels") or {}
    name = marks.get(ORDER)
    running = (pod.get("status") or {}).get("phase") == "Running"
    if not name or not running or WORKLOAD not in labels:
        return None
    if marks.get(DRIVER) in ELSEWHERE:
        return None
    return Order(
        name=name,
        namespace=metadata["namespace"],
        pod=metadata["name"],
        uid=metadata["uid"],
        containers=tuple(one["name"] for one in pod["spec"]["containers"]),
        workload=labels[WORKLOAD],
        generation=labels.get(GENERATION, ""),
        driver=marks.get(DRIVER, "none"),
        destination=marks.get(DESTINATION, ""),
        signal=marks.get(SIGNAL, ""),
        node=pod["spec"].get("nodeName", ""),
        deadline=int(leaving) if (leaving := marks.get(LEAVING, "")).isdigit() else 0,
        container_id=_container_id(pod),
        keeps_connections=marks.get(CONNECTIONS) == REFUSE,
    )


def _container_id(pod: Mapping[str, Any]) -> str:
    """Of `containerd://ID`, in which the kubelet names the first container."""
    statuses = (pod.get("status") or {}).get("containerStatuses") or [{}]
    return str(statuses[0].get("containerID", "")).rpartition("://")[2]


def _answer(pod: Mapping[str, Any]) -> Mapping[str, Any]:
    """What was said of the last order; empty if nothing, or nothing that can be read."""
    try:
        done = json.loads((pod["metadata"].get("annotations") or {}).get(DONE, "null"))
    except ValueError:
        return {}
    return done if isinstance(done, dict) else {}
