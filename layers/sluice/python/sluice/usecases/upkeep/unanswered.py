"""Find the Step Functions tasks that were not answered because an event was lost."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.core.lifecycle.completion import LOST_MS
from sluice.core.lifecycle.record import TERMINAL
from sluice.ports import Clock, Completions, TaskTokens, Workloads

LOOKS = "abcdefghijklmnopqrstuvwxyz234567"  # the first characters of ids, one a minute
MINUTE_MS = 60_000


@dataclass(frozen=True, kw_only=True)
class Unanswered:
    """Each task is looked at about twice an hour; reads no token."""

    workloads: Workloads
    tokens: TaskTokens
    completions: Completions
    clock: Clock

    def __call__(self) -> Sequence[str]:
        """The keys that `complete` was asked to look at."""
        now = self.clock.now()
        waiting = dict(self.tokens.keys(LOOKS[now // MINUTE_MS % len(LOOKS)]))
        records = {w.id: w for w in self.workloads.get_many(k.partition(".")[0] for k in waiting)}
        due = []
        for key, since in waiting.items():
            workload = records.get(key.partition(".")[0])
            if workload is None or workload.task_key != key:
                due += [key] if since < now - LOST_MS else []
            elif workload.state in TERMINAL:
                due.append(key)
        self.completions.look(due)
        return due
