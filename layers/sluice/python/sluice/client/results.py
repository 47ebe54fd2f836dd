"""What the client returns: frozen values with typed fields.

Every value keeps the answer of the api as `document`, for fields that have no attribute here.
Times are aware datetimes in UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from sluice.client.errors import WorkloadOutcomeError
from sluice.client.exit_codes import ExitCode
from sluice.client.watching import ENDED, outcome, reached

Document = Mapping[str, Any]


@dataclass(frozen=True, slots=True)
class SubmittedWorkload:
    """A document that was sent.

    `phase_before` is set if the same document was sent before with the same idempotency key: it
    is still one workload. `digest` identifies the document.
    """

    id: str
    namespace: str
    name: str
    phase_before: str | None
    digest: str


@dataclass(frozen=True, slots=True)
class WaitingReason:
    """Why a workload does not run: a code, a sentence, and who can act."""

    code: str
    message: str
    action: str


@dataclass(frozen=True, slots=True)
class WorkloadStatus:
    """A workload as it is now.

    `request` holds the resources of all its pods as Kubernetes quantities.
    """

    id: str
    name: str
    namespace: str
    queue: str
    phase: str
    reason: WaitingReason | None
    user: str
    priority: int
    generation: int
    recoveries: int
    position: int | None
    request: Mapping[str, str]
    cluster: str
    created_at: datetime | None
    started_at: datetime | None
    finished_at: datetime | None
    waited_seconds: float
    cost_usd: float | None
    document: Document = field(repr=False)

    @classmethod
    def from_api(cls, document: Document) -> WorkloadStatus:
        cost = document.get("costUsd")
        return cls(
            id=str(document["id"]),
            name=str(document.get("name", "")),
            namespace=str(document.get("namespace", "")),
            queue=str(document.get("queue", "")),
            phase=str(document["phase"]),
            reason=reason_from_api(document.get("reason")),
            user=str(document.get("user", "")),
            priority=int(document.get("priority", 0)),
            generation=int(document.get("generation", 0)),
            recoveries=int(document.get("recoveries", 0)),
            position=document.get("position"),
            request=dict(document.get("request") or {}),
            cluster=str(document.get("cluster", "")),
            created_at=time_from_ms(document.get("createdAt")),
            started_at=time_from_ms(document.get("startedAt")),
            finished_at=time_from_ms(document.get("finishedAt")),
            waited_seconds=document.get("waitedMs", 0) / 1_000,
            cost_usd=None if cost is None else float(cost),
            document=document,
        )

    @property
    def ended(self) -> bool:
        """Whether it is SUCCEEDED, FAILED, CANCELLED or REJECTED."""
        return self.phase in ENDED

    def reached(self, goal: str) -> bool:
        """Whether it is `admitted`, `running`, `checkpointed` or `finished`, or has ended."""
        return reached(dict(self.document), goal)

    @property
    def outcome(self) -> ExitCode:
        """The exit code that `sluice wait` has for it."""
        return outcome(dict(self.document))

    def require_success(self) -> WorkloadStatus:
        """Returns itself if it has succeeded. Raises WorkloadOutcomeError otherwise."""
        code = self.outcome
        if code is ExitCode.OK:
            return self
        result = self.document.get("result") or self.document.get("reason") or {}
        message = f"workload {self.id} is {self.phase}: {result.get('message', '')}".rstrip(": ")
        errors = self.document.get("errors") or ()
        raise WorkloadOutcomeError(message, exit_code=code, errors=errors)


@dataclass(frozen=True, slots=True)
class TimelineEntry:
    """One entry of a workload's timeline."""

    at: datetime
    generation: int
    what: str
    message: str
    document: Document = field(repr=False)

    @classmethod
    def from_api(cls, document: Document) -> TimelineEntry:
        return cls(
            at=datetime.fromtimestamp(document["at"] / 1_000, UTC),
            generation=int(document["generation"]),
            what=str(document["what"]),
            message=str(document["message"]),
            document=document,
        )


@dataclass(frozen=True, slots=True)
class LogText:
    """Text of a log; `source` is `pod/container`, or empty if there is only one."""

    source: str
    text: str


@dataclass(frozen=True, slots=True)
class WhyAnswer:
    """Why a workload does not run, and what would help.

    `wait_seconds` is an approximate range; its end is None where nothing can be said.
    """

    id: str
    headline: str
    reason: WaitingReason | None
    position: int | None
    waiting: int | None
    wait_seconds: tuple[float, float | None] | None
    would_help: tuple[str, ...]
    document: Document = field(repr=False)

    @classmethod
    def from_api(cls, document: Document) -> WhyAnswer:
        estimate = document.get("approximateWaitSeconds")
        return cls(
            id=str(document["id"]),
            headline=str(document["headline"]),
            reason=reason_from_api(document.get("reason")),
            position=document.get("position"),
            waiting=document.get("waiting"),
            wait_seconds=(estimate["least"], estimate["most"]) if estimate else None,
            would_help=tuple(map(str, document.get("wouldHelp", ()))),
            document=document,
        )


def reason_from_api(document: Document | None) -> WaitingReason | None:
    if not document:
        return None
    return WaitingReason(
        str(document.get("code", "")),
        str(document.get("message", "")),
        str(document.get("action", "")),
    )


def time_from_ms(at_ms: int | None) -> datetime | None:
    return None if not at_ms else datetime.fromtimestamp(at_ms / 1_000, UTC)
