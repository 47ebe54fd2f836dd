"""One run of a workload as its record keeps it: where, from when to when, at what cost.

Times are epoch milliseconds, prices dollars an hour; None and "" mean that nobody knows.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Final


@dataclass(frozen=True, slots=True)
class MachineShare:
    """What the pods of a run have of their machines (core.accounting.machines).

    `capacity`: `spot`, `on-demand`, or both with a comma.
    """

    bound_at: int = 0
    capacity: str = ""
    usd_per_hour: float | None = None
    on_demand_usd_per_hour: float | None = None


@dataclass(frozen=True, slots=True)
class RunEnd:
    """What is known of the end of a run that was interrupted (core.accounting.recovery).

    `lost_ms` is the work that its successor repeats; None where only the application knows it
    (`self_saved` where it should have been dumped). `back_to` is when the older checkpoint was
    taken that counts from now on, 0 for the beginning. `ordered_at` orders the workload in its
    queue instead of its creation.
    """

    node: str = ""
    instance: str = ""
    why: str = ""
    interrupted_at: int | None = None
    stopped_at: int = 0
    lost_ms: int | None = None
    self_saved: bool = False
    back_to: int | None = None
    usd_per_hour: float | None = None
    on_demand_usd_per_hour: float | None = None
    ordered_at: int = 0


NO_END: Final = RunEnd()
NO_MACHINE: Final = MachineShare()


@dataclass(frozen=True, slots=True)
class Run:
    """One generation of a workload.

    `flavor` names its flavors with commas; `counts` its pods by pod set where they are not those
    that were asked for. `by` is the workload that it was preempted for, `microusd` what its own
    budget counts for it. The rest is that of MachineShare and RunEnd.
    """

    generation: int = 0
    cluster: str = ""
    admitted_at: int = 0
    dispatched_at: int = 0
    started_at: int = 0
    ended_at: int = 0
    outcome: str = ""
    flavor: str = ""
    counts: Mapping[str, int] = field(default_factory=dict)
    bound_at: int = 0
    capacity: str = ""
    usd_per_hour: float | None = None
    on_demand_usd_per_hour: float | None = None
    node: str = ""
    instance: str = ""
    why: str = ""
    interrupted_at: int | None = None
    stopped_at: int = 0
    lost_ms: int | None = None
    self_saved: bool = False
    back_to: int | None = None
    by: str = ""
    microusd: int = 0
    ordered_at: int = 0

    def with_known(self, known: MachineShare | RunEnd) -> Run:
        """The run with what is known of its machines or of its end, and nothing else changed."""
        values = {each.name: getattr(known, each.name) for each in fields(known)}
        unknown = {each.name: each.default for each in fields(known)}
        return replace(self, **{n: value for n, value in values.items() if value != unknown[n]})


NO_RUN: Final = Run()
EVERY_RUN: Final = (
    *("generation", "cluster", "admitted_at", "dispatched_at", "started_at", "ended_at"),
    "outcome",
)
"""What is stored of every run, whatever it holds."""
