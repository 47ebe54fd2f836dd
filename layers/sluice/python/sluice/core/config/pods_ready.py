"""Kueue's `waitForPodsReady`: how long an admitted workload may be without all of its pods.

Three places may say it, each field for itself: the workload first, then its ClusterQueue, then the
SchedulingPolicy of its root cohort. Kueue has these fields in its controller's `Configuration`.
Source: config.kueue.x-k8s.io/v1beta2, facts kueue-semantics §8.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final

from sluice.core.values import strict_json

if TYPE_CHECKING:
    from sluice.core.config.document import Fields

ANNOTATION: Final = "sluice.dev/wait-for-pods-ready"
"""Of a ClusterQueue, or of a plain manifest: the fields as JSON, or a duration, the timeout."""
FIELD: Final = "waitForPodsReady"
_LONGEST_S: Final = 7 * 86_400
_MOST_TRIES: Final = 10_000


class RequeuingTimestamp(StrEnum):
    """What orders a workload in its queue after such an eviction."""

    EVICTION = "Eviction"
    CREATION = "Creation"


@dataclass(frozen=True, slots=True)
class WaitForPodsReady:
    """What one place says; None: nothing. Seconds."""

    timeout_seconds: int | None = None
    recovery_timeout_seconds: int | None = None
    timestamp: RequeuingTimestamp | None = None
    backoff_limit_count: int | None = None
    backoff_base_seconds: int | None = None
    backoff_max_seconds: int | None = None

    def over(self, other: WaitForPodsReady | None) -> WaitForPodsReady:
        """What this place says, and where it says nothing, the other."""
        if other is None:
            return self
        values = {
            each.name: getattr(other if getattr(self, each.name) is None else self, each.name)
            for each in fields(self)
        }
        return WaitForPodsReady(**values)


UNSAID: Final = WaitForPodsReady()


@dataclass(frozen=True, slots=True)
class PodsReadyRules:
    """What is in force for one workload; times in milliseconds.

    `recovery_timeout_ms` None: pods that are lost later are waited for without an end.
    `backoff_limit_count` None: it is tried again for ever.
    """

    timeout_ms: int = 900_000
    recovery_timeout_ms: int | None = None
    timestamp: RequeuingTimestamp = RequeuingTimestamp.EVICTION
    backoff_limit_count: int | None = None
    backoff_base_ms: int = 60_000
    backoff_max_ms: int = 3_600_000


DEFAULT_RULES: Final = PodsReadyRules()


def rules(*places: WaitForPodsReady | None) -> PodsReadyRules:
    """The rules that follow from all places, the most particular first."""
    said = UNSAID
    for place in places:
        said = said.over(place)

    def ms(seconds: int | None, default: int) -> int:
        return default if seconds is None else 1000 * seconds

    recovery = said.recovery_timeout_seconds
    return PodsReadyRules(
        timeout_ms=ms(said.timeout_seconds, DEFAULT_RULES.timeout_ms),
        recovery_timeout_ms=None if recovery is None else 1000 * recovery,
        timestamp=said.timestamp or DEFAULT_RULES.timestamp,
        backoff_limit_count=said.backoff_limit_count,
        backoff_base_ms=ms(said.backoff_base_seconds, DEFAULT_RULES.backoff_base_ms),
        backoff_max_ms=ms(said.backoff_max_seconds, DEFAULT_RULES.backoff_max_ms),
    )


def read_wait_for_pods_ready(spec: Fields) -> WaitForPodsReady | None:
    """The field `waitForPodsReady` of a document's spec; None if it is not there."""
    if not spec.has(FIELD):
        spec.ignore(FIELD)
        return None
    return _read(spec.map(FIELD))


def read_annotation(annotations: Fields) -> WaitForPodsReady | None:
    """The same in an annotation, whose values are text."""
    if not (text := annotations.text(ANNOTATION)):
        return None
    try:
        value = as_field(text)
    except strict_json.JsonError as error:
        annotations.wrong(ANNOTATION, f"is neither a duration nor JSON: {error}")
        return None
    return _read(annotations.within(ANNOTATION, value))


def as_field(text: str) -> Any:
    """The field that an annotation stands for. Raises strict_json.JsonError."""
    return strict_json.parse(text) if text.lstrip().startswith("{") else {"timeout": text}


def _read(spec: Fields) -> WaitForPodsReady:
    if spec.has("enable") and not spec.boolean("enable", default=True):
        spec.wrong("enable", "cannot be false: quota is never held for ever; set a long timeout")
    if spec.boolean("blockAdmission", default=False):
        text = "cannot be true: others are admitted meanwhile; gangs start as one without it"
        spec.wrong("blockAdmission", text)
    spec.ignore("enable")
    strategy = spec.map("requeuingStrategy")
    timestamp = None
    if strategy.has("timestamp"):
        timestamp = strategy.choice("timestamp", RequeuingTimestamp, RequeuingTimestamp.EVICTION)
    strategy.ignore("timestamp")
    found = WaitForPodsReady(
        timeout_seconds=_seconds(spec, "timeout"),
        recovery_timeout_seconds=_seconds(spec, "recoveryTimeout"),
        timestamp=timestamp,
        backoff_limit_count=_count(strategy, "backoffLimitCount", 0, _MOST_TRIES),
        backoff_base_seconds=_count(strategy, "backoffBaseSeconds", 1, _LONGEST_S),
        backoff_max_seconds=_count(strategy, "backoffMaxSeconds", 1, _LONGEST_S),
    )
    strategy.close()
    spec.close()
    return found


def _seconds(spec: Fields, key: str) -> int | None:
    ms = spec.duration(key)
    seconds = None if ms is None else ms // 1000
    if seconds is not None and not 0 < seconds <= _LONGEST_S:
        spec.wrong(key, "must be from 1s to 168h")
        return None
    return seconds


def _count(spec: Fields, key: str, minimum: int, maximum: int) -> int | None:
    if not spec.has(key):
        spec.ignore(key)
        return None
    return spec.integer(key, minimum, minimum=minimum, maximum=maximum)
