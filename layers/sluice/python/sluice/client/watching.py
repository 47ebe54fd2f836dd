"""Watches workloads until each has reached the goal."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Protocol

from sluice.client.errors import (
    ControlPlaneUnavailableError,
    IdempotencyKeyReusedError,
    WorkloadNotFoundError,
)
from sluice.client.exit_codes import ExitCode

if TYPE_CHECKING:
    from sluice.client.connection import Connection

Json = dict[str, Any]

ENDED = {"SUCCEEDED", "FAILED", "CANCELLED", "REJECTED"}
GOALS = ("admitted", "running", "finished", "checkpointed")
BATCH = 100
PATIENCE_SECONDS = 60
MOST_FAILURES = 5  # about ten seconds of silence
PAUSES = ((10, 0.5), (60, 1.0), (float("inf"), 3.0))  # seconds waited, seconds to the next look
EXHAUSTED = "RECOVERY:BudgetExhausted"
OUTCOMES = {
    "SUCCEEDED": ExitCode.OK,
    "FAILED": ExitCode.WORKLOAD_FAILED,
    "CANCELLED": ExitCode.WORKLOAD_CANCELLED,
    "REJECTED": ExitCode.WORKLOAD_REJECTED,
}
WAITING = {"PENDING", "SUBMITTED"}
NOT_RUNNING = WAITING | {"ADMITTED", "STARTING"}


def reached(workload: Json, goal: str) -> bool:
    """Whether the goal is reached, or can no longer be reached."""
    phase = workload["phase"]
    if phase in ENDED:
        return True
    return {
        "admitted": phase not in WAITING,
        "running": phase not in NOT_RUNNING,
        "checkpointed": bool(workload.get("lastCheckpointAt")),
        "finished": False,
    }[goal]


def outcome(workload: Json, goal: str = "finished") -> ExitCode:
    """The exit code of a workload that has `reached` the goal."""
    phase = workload["phase"]
    if phase not in ENDED:
        return ExitCode.OK if reached(workload, goal) else ExitCode.NOT_FINISHED
    if (workload.get("reason") or {}).get("code") == EXHAUSTED:
        return ExitCode.RECOVERY_EXHAUSTED
    return OUTCOMES[phase]


def worst(codes: Sequence[ExitCode]) -> ExitCode:
    """One exit code for many workloads: the first that is not 0."""
    return next((code for code in codes if code is not ExitCode.OK), ExitCode.OK)


class WorkloadDisplay(Protocol):
    """Shows the workloads as they are now."""

    def __call__(self, workloads: Sequence[Json]) -> None: ...


def no_display(workloads: Sequence[Json]) -> None:
    """Shows nothing."""


@dataclass
class WorkloadWatcher:
    """Polls the api until every workload has reached the goal.

    `fresh` ids were just sent, so their records may not exist yet. `digests` maps an id to the
    digest of its document.
    """

    connection: Connection
    ids: Sequence[str]
    goal: str = "finished"
    timeout_seconds: float | None = None
    fresh: bool = False
    digests: Mapping[str, str] = field(default_factory=dict)

    def __call__(self, view: WorkloadDisplay) -> list[Json]:
        """The last state of each workload, in the order of the ids.

        Ends when all have reached the goal, or after the timeout. Raises WorkloadNotFoundError,
        and IdempotencyKeyReusedError when an id turns out to belong to another document.
        """
        started = self.connection.now()
        known: dict[str, Json] = {}
        failures = 0
        while True:
            waiting = [i for i in self.ids if i not in known or not reached(known[i], self.goal)]
            elapsed = self.connection.now() - started
            try:
                known |= self._ask(waiting)
                failures = 0
            except ControlPlaneUnavailableError:
                failures += 1
                if failures > MOST_FAILURES:
                    raise
            self._require(waiting, known, elapsed)
            workloads = [known.get(i) or _submitted(i) for i in self.ids]
            view(workloads)
            if all(reached(workload, self.goal) for workload in workloads):
                return workloads
            if self.timeout_seconds is not None and elapsed >= self.timeout_seconds:
                return workloads
            self.connection.sleep(next(pause for until, pause in PAUSES if elapsed < until))

    def _ask(self, ids: Sequence[str]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for some in batched_ids(ids):
            for workload in self.connection.api.get("workloads", ids=",".join(some))["items"]:
                if self._is_of_sent_document(workload):
                    found[workload.get("sentAs", workload["id"])] = workload
        return found

    def _is_of_sent_document(self, workload: Json) -> bool:
        """Whether the record is of the document that was sent. A rejected record will be replaced.

        Raises IdempotencyKeyReusedError if the id belongs to another document.
        """
        sent = self.digests.get(workload["id"])
        if not sent or workload.get("digest") == sent:
            return True
        if workload["phase"] == "REJECTED":
            return False
        raise key_reused(workload["id"])

    def _require(self, ids: Sequence[str], known: Mapping[str, Json], elapsed: float) -> None:
        missing = [i for i in ids if i not in known]
        if not missing or (self.fresh and elapsed < PATIENCE_SECONDS):
            return
        advice = (
            "the submission may still be in the queue: `sluice doctor` checks the queues; then "
            "run `sluice wait` again"
            if self.fresh
            else "`sluice ls` lists workloads"
        )
        raise WorkloadNotFoundError(f"no workload {', '.join(missing[:5])}", hint=advice)


def batched_ids(ids: Sequence[str]) -> Iterator[Sequence[str]]:
    """As many at a time as one request may ask about."""
    for start in range(0, len(ids), BATCH):
        yield ids[start : start + BATCH]


def key_reused(workload_id: str) -> IdempotencyKeyReusedError:
    return IdempotencyKeyReusedError(
        f"the idempotency key of {workload_id} was used before, for another document",
        hint=f"use a new key; `sluice get {workload_id} -o yaml` shows the first",
    )


def _submitted(workload_id: str) -> Json:
    """A workload whose message is sent and whose record is not written yet."""
    return {"id": workload_id, "phase": "SUBMITTED"}
