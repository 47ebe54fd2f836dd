"""Who was evicted for whom, so that evictions cannot go round in circles."""

from __future__ import annotations


class PreemptionHistory:
    """Evictions since anything else last changed.

    A workload may not evict one that it yielded to, directly or through others: with fair sharing
    and priorities side by side, three workloads could otherwise replace each other for ever.
    """

    def __init__(self) -> None:
        self._yielded_to: dict[str, set[str]] = {}

    def note(self, victim: str, preemptor: str) -> None:
        self._yielded_to.setdefault(victim, set()).add(preemptor)

    def has_yielded(self, workload: str) -> bool:
        return workload in self._yielded_to

    def forget(self) -> None:
        """Clears the history after any other change: what was a circle may now be progress."""
        self._yielded_to.clear()

    def forbids(self, preemptor: str, candidate: str) -> bool:
        """Whether the preemptor made room, directly or through others, for the candidate."""
        if preemptor not in self._yielded_to:
            return False
        seen, ahead = set[str](), [preemptor]
        while ahead:
            for other in self._yielded_to.get(ahead.pop(), ()):
                if other == candidate:
                    return True
                if other not in seen:
                    seen.add(other)
                    ahead.append(other)
        return False
