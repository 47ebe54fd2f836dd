"""The metrics of the functions: handlers report them, infra puts them on dashboard and alarms.

A new metric is one member here, and one call of its `add_to` in its function's handler. Its
graph and its alarm: infra/observability.py.
"""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

NAMESPACE: Final = "Sluice"


class MetricLog(Protocol):
    """What Powertools' Metrics is to a handler."""

    def add_metric(self, name: str, unit: str, value: float) -> None: ...


class Metric(Enum):
    """Name in CloudWatch, unit, the function that reports it, and how a minute is summed up.

    CloudWatch knows each by the dimension `service`, which is the function's name.
    """

    SUBMISSIONS_ACCEPTED = ("submissions_accepted_total", "Count", "submit", "Sum")
    SUBMISSIONS_REJECTED = ("submissions_rejected_total", "Count", "submit", "Sum")
    ADMITTED_WORKLOADS = ("admitted_workloads_total", "Count", "admit", "Sum")
    LEDGER_CONFLICTS = ("ledger_conflicts_total", "Count", "admit", "Sum")
    INTERRUPTED_WORKLOADS = ("interrupted_workloads", "Count", "interrupt", "Sum")
    PODS_WAITING_FOR_NODES = ("pods_waiting_for_nodes", "Count", "provision", "Maximum")
    NODE_POOLS_CLOSED = ("node_pools_closed", "Count", "provision", "Maximum")
    SOLD_OUT_REQUEUES = ("sold_out_requeues_total", "Count", "provision", "Sum")
    LEDGER_DRIFT = ("ledger_drift", "Count", "sweep", "Maximum")
    TASKS_ANSWERED = ("tasks_answered_total", "Count", "complete", "Sum")

    def __init__(self, metric_name: str, unit: str, function: str, statistic: str) -> None:
        self.metric_name = metric_name
        self.unit = unit
        self.function = function
        self.statistic = statistic

    @property
    def dimensions(self) -> dict[str, str]:
        return {"service": self.function}

    def add_to(self, log: MetricLog, value: float) -> None:
        """Report a value; those of one invocation stand beside each other."""
        log.add_metric(self.metric_name, self.unit, value)
