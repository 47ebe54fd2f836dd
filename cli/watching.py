"""Watches workloads until each has reached the goal, with a live view on a terminal."""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from cli.errors import (
    CommandExit,
    ControlPlaneUnavailableError,
    IdempotencyKeyReusedError,
    WorkloadNotFoundError,
)
from cli.exit_codes import ExitCode
from cli.output import hint, paint
from cli.selection import ENDED

if TYPE_CHECKING:
    from cli.app import App
    from cli.live import WorkloadDisplay
    from cli.output import Json

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


@contextmanager
def interruptible(ids: Sequence[str]) -> Iterator[None]:
    """Turns Ctrl-C into an exit code, and says that the workloads continue."""
    try:
        yield
    except KeyboardInterrupt:
        what = "workload continues" if len(ids) == 1 else "workloads continue"
        hint(
            f"\ninterrupted; the {what}. "
            f"See `sluice wait {ids[0]}`, stop with `sluice cancel {ids[0]}`"
        )
        raise CommandExit(ExitCode.INTERRUPTED) from None


@dataclass
class PhaseLines:
    """One line on stderr for each change of phase; for logs and pipes."""

    seen: dict[str, str] = field(default_factory=dict)

    def __call__(self, workloads: Sequence[Json]) -> None:
        for workload in workloads:
            reason = (workload.get("reason") or {}).get("code", "")
            line = f"{workload['phase']} {reason}".strip()
            if self.seen.get(workload["id"]) != line:
                self.seen[workload["id"]] = line
                phase, _, rest = line.partition(" ")
                name = workload.get("name") or ""
                hint(f"{workload['id']}  {name}  {paint(phase)} {rest}".rstrip())


@contextmanager
def live_view(app: App) -> Iterator[WorkloadDisplay]:
    """A live table on a terminal, lines elsewhere."""
    if not sys.stderr.isatty():
        yield PhaseLines()
        return
    from cli.live import table_view  # noqa: PLC0415 - a verb pays only for what it uses

    with table_view(app) as view:
        yield view


@dataclass
class WorkloadWatcher:
    """Polls the api until every workload has reached the goal.

    `fresh` ids were just sent, so their records may not exist yet. `digests` maps an id to the
    digest of its document.
    """

    app: App
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
        started = self.app.now()
        known: dict[str, Json] = {}
        failures = 0
        while True:
            waiting = [i for i in self.ids if i not in known or not reached(known[i], self.goal)]
            elapsed = self.app.now() - started
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
            self.app.sleep(next(pause for until, pause in PAUSES if elapsed < until))

    def _ask(self, ids: Sequence[str]) -> dict[str, Json]:
        found: dict[str, Json] = {}
        for some in batched_ids(ids):
            for workload in self.app.client.get("workloads", ids=",".join(some))["items"]:
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
