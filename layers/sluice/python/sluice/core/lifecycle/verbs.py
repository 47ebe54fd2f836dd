"""What users may do to a workload in each state: one table for who decides and for who advises."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import StrEnum
from typing import Final

from sluice.core.lifecycle.record import TERMINAL, State, Workload, is_migrating


class SteeringVerb(StrEnum):
    """A command of users that changes a workload."""

    CANCEL = "cancel"
    HOLD = "hold"
    RELEASE = "release"
    REQUEUE = "requeue"
    REPRIORITIZE = "reprioritize"
    CHECK = "check"


def _on_cluster(workload: Workload) -> bool:
    return workload.state in {State.ADMITTED, State.DISPATCHED}


def _is_cancelling(workload: Workload) -> bool:
    intent = workload.intent
    return intent is not None and intent.kind.value == SteeringVerb.CANCEL.value


# Where a verb changes something. Where it is refused, or finds nothing to do, nobody advises it.
_USEFUL: Final[Mapping[SteeringVerb, Callable[[Workload], bool]]] = {
    SteeringVerb.CANCEL: lambda w: w.state not in TERMINAL and not _is_cancelling(w),
    SteeringVerb.HOLD: lambda w: w.state is State.PENDING and not w.held,
    SteeringVerb.RELEASE: lambda w: w.state is State.PENDING and w.held,
    SteeringVerb.REQUEUE: lambda w: _on_cluster(w) and not is_migrating(w),
    SteeringVerb.REPRIORITIZE: lambda w: w.state is State.PENDING,
    SteeringVerb.CHECK: lambda w: w.state is State.ADMITTED and w.gated,
}


def useful_verbs(workload: Workload) -> tuple[SteeringVerb, ...]:
    """The verbs that are accepted now and change something."""
    return tuple(verb for verb in SteeringVerb if _USEFUL[verb](workload))
