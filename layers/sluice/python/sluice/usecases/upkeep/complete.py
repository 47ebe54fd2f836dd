"""Tell Step Functions tasks how the workloads ended that they wait for."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.core.lifecycle import completion
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import TERMINAL, Workload
from sluice.core.lifecycle.record_entries import StatusReason
from sluice.core.values.reasons import Reason
from sluice.ports import Clock, Tasks, TaskTokens, Timeline, Workloads


@dataclass(frozen=True, slots=True)
class TasksAnswered:
    """How many tasks took the answer, and AWS's words of those that did not."""

    answered: int = 0
    refused: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Complete:
    """The record decides, a message only says where to look; every answer may come twice."""

    workloads: Workloads
    tokens: TaskTokens
    tasks: Tasks
    timeline: Timeline
    clock: Clock

    def __call__(self, key: str) -> TasksAnswered:
        """Answers every task that waits below a key, if what it waits for has ended."""
        workload = self.workloads.get(key.partition(".")[0])
        if workload is None or workload.task_key != key:
            return self._of_nobody(key, workload)
        if workload.state not in TERMINAL:
            return TasksAnswered()
        tokens = [token for token, _ in self.tokens.of(key)]
        responses = self._answer(key, tokens, completion.answer(workload))
        if responses:
            lines = [Happening(workload, self.clock.now(), "TaskAnswered", _sentence(responses))]
            self.timeline.append(lines)
        return _counted(responses)

    def _of_nobody(self, key: str, other: Workload | None) -> TasksAnswered:
        """No record is of this submission, so nothing will ever end: its tasks must not wait on.

        A token is stored before its record, so a young one only waits for that.
        """
        before = self.clock.now() - completion.LOST_MS
        tokens = [token for token, since in self.tokens.of(key) if since < before]
        if not tokens:
            return TasksAnswered()
        reason = StatusReason(
            Reason.KEY_REUSED,
            "another document was submitted under the same idempotency key",
        )
        if other is None:
            text = "the submission could not be recorded; it may lie in a dead-letter queue"
            reason = StatusReason(Reason.DLQ, text)
        answer = completion.failure(reason, {"id": key.partition(".")[0], "phase": "REJECTED"})
        return _counted(self._answer(key, tokens, answer))

    def _answer(self, key: str, tokens: Sequence[str], answer: completion.Answer) -> list[str]:
        responses = []
        for token in tokens:
            responses.append(self.tasks.answer(token, answer))
            self.tokens.forget(key, token)
        return responses


def _counted(responses: Sequence[str]) -> TasksAnswered:
    return TasksAnswered(responses.count(""), tuple(filter(None, responses)))


def _sentence(responses: Sequence[str]) -> str:
    """For the timeline; without the tokens."""
    parts = []
    if answered := responses.count(""):
        parts.append(f"{answered} waiting task(s) of Step Functions were told")
    if refused := sorted({*responses} - {""}):
        parts.append(f"{len(responses) - answered} did not wait any more: {', '.join(refused)}")
    return "; ".join(parts)
