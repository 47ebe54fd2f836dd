"""Which workload belongs to a task instance: known before it is submitted, however often it runs.

A task instance that runs again, since its worker or the scheduler died, finds its workload by the
idempotency key. One that failed is followed by the next attempt, under a key of its own. A task
that a user has cleared starts anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Protocol

from sluice.client.results import WorkloadStatus

REPEATED = frozenset({"FAILED", "CANCELLED"})
"""Phases after which a retry submits another workload. A rejected one is replaced by its key."""


class TaskInstance(Protocol):
    """What is used of Airflow's."""

    dag_id: str
    run_id: str
    task_id: str
    map_index: int
    try_number: int
    max_tries: int


@dataclass(frozen=True, slots=True)
class AttemptKeys:
    """The idempotency keys of one task instance, oldest attempt first."""

    keys: tuple[str, ...]

    @classmethod
    def of(cls, task: TaskInstance, retries: int) -> AttemptKeys:
        """One key for each try that Airflow has begun.

        When a user clears a task, Airflow raises `max_tries` by the tries that there were; so the
        difference to the task's `retries` tells how often it began anew.
        """
        cleared = max(0, task.max_tries - retries)
        begun = max(1, task.try_number - cleared)
        where = (task.dag_id, task.run_id, task.task_id, str(task.map_index), str(cleared))
        return cls(tuple(_key(*where, str(attempt)) for attempt in range(begun)))

    def current(self, ids: Sequence[str], known: Mapping[str, WorkloadStatus]) -> int:
        """The first attempt that has not ended badly; `ids`: of the keys' workloads."""
        last = len(self.keys) - 1
        for attempt, identity in enumerate(ids[:last]):
            if identity not in known or known[identity].phase not in REPEATED:
                return attempt
        return last


def _key(*parts: str) -> str:
    return f"airflow-{sha256(chr(0).join(parts).encode()).hexdigest()[:40]}"
