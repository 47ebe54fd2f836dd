"""Whose work is on a machine that goes away, and what would be lost with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.core.lifecycle.record import Workload


@dataclass(frozen=True, slots=True)
class AtRisk:
    """A workload on a dying machine, and what would be lost with it.

    `pods` are those on the machine; `others` the rest of a gang that is saved as a whole, and
    `no_set` why it cannot be.
    """

    workload: Workload
    pods: tuple[Mapping[str, Any], ...]
    unsaved_ms: int
    others: tuple[Mapping[str, Any], ...] = ()
    no_set: str = ""

    @property
    def all_pods(self) -> tuple[Mapping[str, Any], ...]:
        return (*self.pods, *self.others)

    @property
    def value(self) -> tuple[int, int]:
        """Unsaved work in core-milliseconds, weighed by priority. Source: facts §6.3."""
        cores = sum(s.count * s.requests.get("cpu", 0) for s in self.workload.pod_sets)
        return self.workload.priority, self.unsaved_ms * cores


def most_valuable_first(many: Iterable[AtRisk]) -> list[AtRisk]:
    return sorted(many, key=lambda each: (each.value, each.workload.id), reverse=True)


def unsaved_ms(workload: Workload, last_checkpoint_at: int, now: int) -> int:
    return max(0, now - max(workload.started_at or now, last_checkpoint_at))
