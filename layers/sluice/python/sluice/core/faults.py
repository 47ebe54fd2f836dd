"""What keeps a function of Sluice from its work until a person helps: rights that it lacks."""

from __future__ import annotations

from dataclasses import dataclass

RECENT_MS = 900_000  # longer than any queue waits before it tries again


@dataclass(frozen=True, slots=True)
class Fault:
    """The newest one of a function and its subject.

    `subject` is the cluster or root cohort that it worked on, "" if none; `at` in epoch ms.
    """

    function: str
    subject: str
    code: str
    message: str
    at: int

    def recent(self, now: int) -> bool:
        return now - self.at < RECENT_MS
