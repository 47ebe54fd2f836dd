"""What the node knows of one container, and the pod status that follows from it."""

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any


def timestamp(moment: datetime | None = None) -> str:
    """RFC 3339 in UTC with whole seconds, as Kubernetes' metav1.Time."""
    return (moment or datetime.now(UTC)).strftime("%Y-%m-%dT%H:%M:%SZ")


@dataclass
class Container:
    """The course of one container of one pod. Changes only in the event loop."""

    name: str
    image: str
    init: bool = False
    restarts: int = 0
    started_at: str | None = None
    finished_at: str | None = None
    exit_code: int | None = None
    reason: str = ""
    message: str = ""
    waiting: str = "PodInitializing"
    waiting_message: str = ""
    last: dict[str, Any] = field(default_factory=dict)

    @property
    def running(self) -> bool:
        return self.started_at is not None and self.exit_code is None

    def starts(self) -> None:
        if self.exit_code is not None:
            self.last = self.state()
            self.restarts += 1
        self.started_at, self.finished_at, self.exit_code = timestamp(), None, None
        self.reason = self.message = self.waiting = ""

    def waits(self, reason: str, message: str) -> None:
        """Not running for now; what ended before stays the last state."""
        self.waiting, self.waiting_message = reason, message

    def ends(self, exit_code: int, reason: str = "", message: str = "") -> None:
        self.finished_at, self.exit_code = timestamp(), exit_code
        self.started_at = self.started_at or self.finished_at
        self.reason = reason or ("Error" if exit_code else "Completed")
        self.message, self.waiting = message, ""

    def state(self) -> dict[str, Any]:
        if self.exit_code is not None:
            ended = {"exitCode": self.exit_code, "reason": self.reason}
            times = {"startedAt": self.started_at, "finishedAt": self.finished_at}
            said = {"message": self.message} if self.message else {}
            return {"terminated": ended | times | said}
        if self.started_at is not None:
            return {"running": {"startedAt": self.started_at}}
        return {"waiting": {"reason": self.waiting, "message": self.waiting_message}}

    def status(self, pod_uid: str) -> dict[str, Any]:
        state, last = self.state(), self.last
        if self.waiting and self.exit_code is not None:  # between two runs
            last = state
            state = {"waiting": {"reason": self.waiting, "message": self.waiting_message}}
        ready = self.exit_code == 0 if self.init else self.running
        return {
            "name": self.name,
            "image": self.image,
            "imageID": "",
            "containerID": f"process://{pod_uid}/{self.name}/{self.restarts}",
            "ready": ready,
            "started": self.running,
            "restartCount": self.restarts,
            "state": state,
            "lastState": last or {},
        }


@dataclass
class PodState:
    """All containers of one pod with the pod's own verdict."""

    uid: str
    init: list[Container]
    containers: list[Container]
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    started_at: str = field(default_factory=timestamp)
    disrupted: str = ""
    """Why its containers ended through no fault of their own; Jobs do not count such a failure."""

    @classmethod
    def of(cls, pod: dict[str, Any]) -> "PodState":
        def course(container: dict[str, Any], *, init: bool) -> Container:
            return Container(container["name"], container.get("image", ""), init=init)

        spec = pod["spec"]
        return cls(
            pod["metadata"]["uid"],
            [course(one, init=True) for one in spec.get("initContainers", [])],
            [course(one, init=False) for one in spec["containers"]],
            started_at=pod.get("status", {}).get("startTime") or timestamp(),
        )

    def container(self, name: str) -> Container | None:
        return next((one for one in self.init + self.containers if one.name == name), None)

    @property
    def finished(self) -> bool:
        return self.phase in ("Succeeded", "Failed")

    def concludes(self) -> None:
        """Every container has ended for good, or never ran: the phase that follows."""
        clean = all(one.exit_code == 0 for one in self.init + self.containers)
        self.phase = "Succeeded" if clean and not self.reason else "Failed"

    def status(self) -> dict[str, Any]:
        """A pod status for a strategic merge patch: conditions of others stay untouched."""
        initialized = all(one.exit_code == 0 for one in self.init)
        ready = self.phase == "Running" and all(one.running for one in self.containers)
        completed = "PodCompleted" if self.phase == "Succeeded" else None
        why_not_ready = completed or ("PodFailed" if self.finished else "ContainersNotReady")
        return {
            "phase": self.phase,
            "reason": self.reason or None,
            "message": self.message or None,
            "startTime": self.started_at,
            "hostIP": "127.0.0.1",
            "podIP": "127.0.0.1",
            "podIPs": [{"ip": "127.0.0.1"}],
            "initContainerStatuses": [one.status(self.uid) for one in self.init],
            "containerStatuses": [one.status(self.uid) for one in self.containers],
            "conditions": [
                _condition("PodReadyToStartContainers", not self.finished, None),
                _condition("Initialized", initialized, completed),
                _condition("Ready", ready, None if ready else why_not_ready),
                _condition("ContainersReady", ready, None if ready else why_not_ready),
                *([self._disruption()] if self.disrupted else []),
            ],
        }

    def _disruption(self) -> dict[str, Any]:
        """As a kubelet says it of pods that end with their node."""
        told = _condition("DisruptionTarget", True, "TerminationByKubelet")
        return told | {"message": self.disrupted}


def _condition(kind: str, holds: bool, reason: str | None) -> dict[str, Any]:
    return {
        "type": kind,
        "status": str(holds),
        "reason": reason,
        "lastTransitionTime": timestamp(),
    }
