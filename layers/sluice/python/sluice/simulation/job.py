"""A workload together with what the simulated world does to it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from sluice.core.model import Assignment, Workload


@dataclass(frozen=True, slots=True)
class Holds:
    """Quota that a workload holds when the scenario starts."""

    since_ms: int
    assignment: Assignment


@dataclass(frozen=True, slots=True)
class Job:
    """A workload, when it arrives, how long it runs and what it holds at the start.

    `arrives_ms` counts from the start of the scenario; `runtime_ms` None means for ever; `group`
    is the class whose waiting times are reported apart.
    """

    workload: Workload
    arrives_ms: int = 0
    runtime_ms: int | None = None
    holds: Holds | None = None
    group: str | None = None
