"""What keeps a function of Sluice from its work until a person helps: rights that it lacks."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.values.reasons import Reason

RECENT_MS = 900_000  # longer than any queue waits before it tries again
UNREACHABLE_MS = 150_000  # `observe` tries every minute, and notes a cluster that is unreachable


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
        again = UNREACHABLE_MS if self.code == Reason.CLUSTER_UNREACHABLE else RECENT_MS
        return now - self.at < again
