"""Why a pod that has its quota does not start: in the words of Kubernetes, and what to change.

What keeps a container from starting stands in the pod's status. A volume that cannot be mounted, or
a sandbox that cannot be made, shows in events only.
Source: Kubernetes 1.36, pkg/kubelet/events and pkg/controller/volume/events.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final

from sluice.core.jobs import gang_start
from sluice.core.values.reasons import Reason

Document = Mapping[str, Any]

# `state.waiting.reason` of a container.
_WAITING: Final = {
    "ErrImagePull": Reason.IMAGE_PULL,
    "ImagePullBackOff": Reason.IMAGE_PULL,
    "InvalidImageName": Reason.IMAGE_PULL,
    "ErrImageNeverPull": Reason.IMAGE_PULL,
    "CreateContainerConfigError": Reason.CONTAINER_START,
    "CreateContainerError": Reason.CONTAINER_START,
    "RunContainerError": Reason.CONTAINER_START,
}
# `reason` of a Warning about a pod.
_WARNED: Final = {
    "FailedMount": Reason.VOLUME_MOUNT,
    "FailedAttachVolume": Reason.VOLUME_MOUNT,
    "FailedMapVolume": Reason.VOLUME_MOUNT,
    "FailedCreatePodSandBox": Reason.POD_SANDBOX,
    "NetworkNotReady": Reason.POD_SANDBOX,
}
UNSCHEDULABLE: Final = "Unschedulable"
_SUMMARY: Final = "Unable to attach or mount volumes"  # said again later, without the cause
_CLAIM: Final = "persistentvolumeclaim"
# What people can mend, by what the messages have in common.
_ADVICE: Final = (
    (
        r"""\b(secret|configmap|persistentvolumeclaim)s? ['"]([^'"]+)['"] not found""",
        "create {0} {1} in its namespace, or name another one",
    ),
    (
        r"""\b(secret|configmap) ['"]([^'"]+)['"] has no key ['"]([^'"]+)['"]""",
        "add the key {2} to {0} {1}, or name another one",
    ),
    (
        r"references non-existent (secret|config) key: ([^\s,]+)",
        "add the key {1}, or name another one",
    ),
    (
        r"driver name (\S+) not found in the list of registered CSI drivers",
        "the cluster needs the CSI driver {0}",
    ),
    (
        r"unbound immediate persistentvolumeclaims|is not bound yet",
        "its claim needs a volume, or a StorageClass that makes one",
    ),
)


@dataclass(frozen=True, slots=True)
class Stuck:
    """Why a pod cannot start: Kubernetes' word, its message, and what it means to us."""

    code: Reason
    word: str
    message: str

    def __str__(self) -> str:
        return f"{self.word}: {self.message}"

    @property
    def passes(self) -> bool:
        """Whether it may be over in a moment: the volumes of its claims were made just now."""
        return self.word == UNSCHEDULABLE


def stuck(pods: Iterable[Document], warned: Mapping[str, Stuck]) -> Stuck | None:
    """A pod that cannot start for a reason of its own; an image first, as it ends the run.

    `warned`: what events say of pods, by UID; it counts while a pod is being prepared.
    """
    found = [each for pod in pods for each in (*_stuck_in(pod), *_warned_of(pod, warned))]
    found.sort(key=lambda each: each.code is not Reason.IMAGE_PULL)
    return found[0] if found else None


def in_preparation(pod: Document) -> bool:
    """Whether its node has it and has started none of it, and its status does not say why."""
    status = pod.get("status") or {}
    waits = status.get("phase") == "Pending" and bool(pod["spec"].get("nodeName"))
    begun = any(
        not (container.get("state") or {}).get("waiting")
        for kind in ("initContainerStatuses", "containerStatuses")
        for container in status.get(kind) or ()
    )
    return waits and not begun and not list(_stuck_in(pod))


def warning(events: Iterable[Document]) -> Stuck | None:
    """The newest of the events about one pod that says why it cannot start."""
    known = [each for each in events if each.get("reason") in _WARNED]
    known.sort(key=_newest_with_cause)
    if not known:
        return None
    event = known[-1]
    said = " ".join(str(event.get("message") or "").split())
    return Stuck(_WARNED[event["reason"]], event["reason"], said + _advice(said))


def _newest_with_cause(event: Document) -> tuple[bool, str]:
    """Times are of one form, so text compares as time does."""
    series = (event.get("series") or {}).get("lastObservedTime")
    at = event.get("lastTimestamp") or series or event.get("eventTime") or ""
    return not str(event.get("message") or "").startswith(_SUMMARY), str(at)


def _warned_of(pod: Document, warned: Mapping[str, Stuck]) -> Iterator[Stuck]:
    said = warned.get(pod["metadata"]["uid"])
    if said is not None and in_preparation(pod):
        yield said


def _stuck_in(pod: Document) -> Iterator[Stuck]:
    status = pod.get("status") or {}
    for kind in ("initContainerStatuses", "containerStatuses"):
        for container in status.get(kind) or ():
            waiting = (container.get("state") or {}).get("waiting") or {}
            if gang_start.is_held(waiting):
                continue  # until the whole gang has machines, which says nothing of this pod
            if code := _WAITING.get(waiting.get("reason", "")):
                name, said = container["name"], waiting.get("message") or ""
                if code is Reason.IMAGE_PULL:
                    message = said + _secrets_of(pod)
                else:
                    message = f"container {name}: {said}{_advice(said)}"
                yield Stuck(code, waiting["reason"], message)
    for condition in status.get("conditions") or ():
        said = condition.get("message") or ""
        refused = condition["type"] == "PodScheduled" and condition["status"] == "False"
        if refused and _CLAIM in said.lower():
            yield Stuck(Reason.VOLUME_MOUNT, condition["reason"], said + _advice(said))


def _secrets_of(pod: Document) -> str:
    """What the pull went with: a secret that is missing or wrong looks like an image that is."""
    names = [each["name"] for each in pod["spec"].get("imagePullSecrets") or ()]
    return f"; pulled with the secret {' and '.join(names)}: see that it is right" if names else ""


def _advice(said: str) -> str:
    for pattern, text in _ADVICE:
        if found := re.search(pattern, said, re.IGNORECASE):
            return "; " + text.format(*found.groups())
    return ""
