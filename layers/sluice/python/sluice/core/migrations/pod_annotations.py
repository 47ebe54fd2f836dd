"""Annotations of pods by which Sluice and its node agents talk to each other."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final

from sluice.core.checkpoints.drivers import DRIVERS
from sluice.core.lifecycle.job_status import GENERATION_LABEL as GENERATION
from sluice.core.lifecycle.job_status import WORKLOAD_LABEL as WORKLOAD
from sluice.core.migrations.gangs import part_of
from sluice.core.migrations.interruption import NoticeKind
from sluice.core.migrations.migration import Migration, PodCheckpoint
from sluice.core.values import strict_json

ORDER: Final = "sluice.dev/checkpoint-order"
"""Save the pod now; the value names the order, so that a repetition is none."""
MIGRATE: Final = "move-"
"""How the order of a move begins after which the pod stands still."""
FIRST: Final = "first-"
"""How the order of a move begins after which the pod works on."""
EVICT: Final = "yield-"
"""How the order begins after which a pod stands still that makes room for others."""
DONE: Final = "sluice.dev/checkpoint-done"
"""The answer, as JSON: `{order, error, at}`, or, with `held` only if the pod stands still,
`{order, uri, image, bytes, sha256, seconds, at, held}`; `ended` once all that was held is killed.
"""
DRIVER: Final = "sluice.dev/checkpoint-driver"
DESTINATION: Final = "sluice.dev/checkpoint-to"
"""Below which address (`s3://BUCKET/PREFIX/`) the pod's checkpoints are stored."""
LOGS: Final = "sluice.dev/logs-to"
"""Below which address (`s3://BUCKET/PREFIX/`) the node stores the pod's logs while they grow."""
SIGNAL: Final = "sluice.dev/checkpoint-signal"
"""What tells an application to save itself and go on; absent: it knows no such signal."""
CONNECTIONS: Final = "sluice.dev/checkpoint-connections"
"""What a dump does with open TCP connections: `close` or `refuse`."""
RESTORE_FROM: Final = "sluice.dev/restore-from"
"""What the pod's processes go on from; read by process nodes, and by people."""
RESTORE_DIGEST: Final = "sluice.dev/restore-sha256"
"""What its archive must be, where a set names it."""
MAX_TEXT: Final = 1024
MAX_NUMBER: Final = 2**53
LEAVING: Final = "sluice.dev/leaving"
"""Until when (epoch ms) the pod can stay where it is."""


def order_of(move: Migration) -> str:
    """The dump that its pods are to answer for."""
    if move.kind == NoticeKind.EVICTION:
        return f"{EVICT}{move.generation}"
    if move.last_at:
        # A migration on request may be called off and asked for again in the same generation.
        again = f"-{move.received_at}" if move.kind == NoticeKind.REQUEST else ""
        return f"{MIGRATE}{move.generation}{again}"
    return move.first_order or f"{FIRST}{move.generation}"


def under_way(pods: Sequence[Mapping[str, Any]]) -> str:
    """The order of an extra checkpoint that all of them bear and none has answered, or nothing."""
    (name, *others) = {annotations_of(pod).get(ORDER, "") for pod in pods} or {""}
    extra = bool(name) and not others and not name.startswith((FIRST, MIGRATE, EVICT))
    return name if extra and all(ordered_result(pod) is None for pod in pods) else ""


def annotations_of(pod: Mapping[str, Any]) -> Mapping[str, str]:
    return pod["metadata"].get("annotations") or {}


def checkpoint_result(pod: Mapping[str, Any]) -> tuple[str, PodCheckpoint | str] | None:
    """The newest answer and its order, which the pod may not bear any more; None: no word yet.

    It is a checkpoint, or why there is none.
    """
    marks = annotations_of(pod)
    try:
        done = _answer_of(pod)
        if not done:
            return None
        order = _text(done["order"])
        if error := done.get("error"):
            return order, f"{error!s:.{MAX_TEXT}}"
        if problem := _not_its_own(pod, _text(done["uri"]), _text(done.get("image", ""))):
            return order, f"the node's answer is refused: {problem}"
        return order, PodCheckpoint(
            done["uri"],
            _whole(done.get("bytes", 0)),
            _whole(1000 * float(_whole(done.get("seconds", 0), fraction=True))),
            _whole(done.get("at", 0)),
            done.get("image", ""),
            _whole(done.get("held", 0)),
            _text(done.get("sha256", "")),
            pod["spec"].get("nodeName", ""),
            part_of(pod),
        )
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        return marks.get(ORDER, ""), f"the node's answer cannot be read: {error!s:.{MAX_TEXT}}"


def _answer_of(pod: Mapping[str, Any]) -> Any:
    """What the node's agent wrote. Raises ValueError for what is no strict JSON."""
    return strict_json.parse(annotations_of(pod).get(DONE, "null"))


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise ValueError(f"{value!r:.40} is no text of at most {MAX_TEXT} characters")
    return value


def _whole(value: Any, *, fraction: bool = False) -> Any:
    """A number as a table can hold it; whole unless it may be a fraction."""
    if not isinstance(value, int | float) or not 0 <= value <= MAX_NUMBER:
        raise ValueError(f"{value!r:.40} is no number from 0 to {MAX_NUMBER}")
    return value if fraction else int(value)


def _not_its_own(pod: Mapping[str, Any], uri: str, image: str) -> str:
    """Why an answer names what is no checkpoint of this pod's run; empty if it may be one.

    A compromised node could otherwise have its workloads restored from the memory of another
    tenant, or from any image. Sluice writes the address on every pod that may be dumped, and agents
    may change neither it nor labels (infra/agent.yaml).
    """
    marks, labels = annotations_of(pod), pod["metadata"].get("labels") or {}
    if DESTINATION not in marks:
        return ""
    scheme = next((d.scheme for d in DRIVERS.values() if d.mode == marks.get(DRIVER)), "")
    below = scheme or marks[DESTINATION]
    if uri and not (uri.startswith(below) and ".." not in uri):
        return f"{uri:.200} is not below {below}"
    tag = image.rpartition("/")[2].partition(":")[2]
    run = f"{labels.get(WORKLOAD, '')}-{labels.get(GENERATION, '')}-"
    if image and (scheme or "@" in image or not tag.startswith(run)):
        return f"the image {image:.200} is not tagged {run}…"
    return ""


def ordered_result(pod: Mapping[str, Any]) -> PodCheckpoint | str | None:
    """What became of the order that the pod bears; None: no word yet."""
    found = checkpoint_result(pod)
    return found[1] if found and found[0] == annotations_of(pod).get(ORDER, "") else None


def result_of_order(order: str, pod: Mapping[str, Any]) -> PodCheckpoint | str | None:
    """What became of this very order; None also if the pod bears another one."""
    return ordered_result(pod) if annotations_of(pod).get(ORDER) == order else None


def is_proven_ended(pod: Mapping[str, Any]) -> bool:
    """Whether the node's agent has killed all that it held of a deleted pod, and says so.

    Only of pods whose containers no kubelet starts again; of others the kubelet's word is needed.
    """
    annotations = annotations_of(pod)
    if not pod["metadata"].get("deletionTimestamp") or pod["spec"].get("restartPolicy") != "Never":
        return False
    try:
        done = _answer_of(pod)
        told = done["order"] == annotations.get(ORDER) and bool(done.get("held"))
        return told and bool(_whole(done.get("ended", 0)))
    except (ValueError, TypeError, KeyError, AttributeError):
        return False


def result_at(pod: Mapping[str, Any]) -> int:
    """When the newest answer was begun (epoch ms), whatever it says; 0 if that is not known."""
    try:
        return int(_whole(_answer_of(pod)["at"]))
    except (ValueError, TypeError, KeyError):
        return 0
