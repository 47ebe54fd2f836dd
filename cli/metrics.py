"""What the api says of queues and of the whole, as metrics in Prometheus' text format.

Names follow Kueue's: what is `kueue_…` there is `sluice_…` here. Quantities are in base units
(cores, bytes, pieces). Every scrape asks the api twice, whatever the number of queues.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from sluice.core.values.quantity import parse_decimal

if TYPE_CHECKING:
    from sluice.client.api import ApiClient

    from cli.output import Json

QUEUE = ("cohort", "cluster_queue")
CELL = (*QUEUE, "flavor", "resource")

# Metric, help, and the field of a flavor's resource in the answer of `/queues`.
CELLS = (
    ("sluice_cluster_queue_nominal_quota", "Quota of its own.", "nominal"),
    ("sluice_cluster_queue_resource_usage", "Quota that admitted workloads hold.", "used"),
    ("sluice_cluster_queue_borrowed", "Used beyond its own quota.", "borrowed"),
    ("sluice_cluster_queue_lent", "Its own quota that others use.", "lent"),
    ("sluice_cluster_queue_available", "What it could use now.", "available"),
)
# Metric, help, and the field of a ClusterQueue.
QUEUES = (
    ("sluice_pending_workloads", "Workloads that wait for quota.", "pending"),
    ("sluice_admitted_active_workloads", "Workloads that hold quota.", "running"),
    ("sluice_oldest_pending_seconds", "How long the first in line waits.", "oldestSeconds"),
    ("sluice_cluster_queue_weighted_share", "Its share divided by its weight.", "share"),
)
# Metric, help, and the path in the answer of `/status`.
WHOLE = (
    ("sluice_workloads_usd_per_hour", "Machines' share of running workloads.", "workloads"),
    ("sluice_machines_usd_per_hour", "Machines of the clusters.", "machines"),
)


class ApiCollector(Collector):
    """Collects anew at each scrape; raises SluiceClientError where the api does not answer."""

    def __init__(self, api: ApiClient) -> None:
        self.api = api

    def collect(self) -> Iterator[Metric]:
        queues = self.api.get("queues")["items"]
        yield from _quota(queues)
        yield from _of_queues(queues)
        yield from _of_status(self.api.get("status"))


def exposition(api: ApiClient) -> bytes:
    """All metrics as text of version 0.0.4."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(ApiCollector(api))
    return generate_latest(registry)


def _quota(queues: Sequence[Json]) -> Iterator[Metric]:
    for name, text, field in CELLS:
        family = GaugeMetricFamily(name, text, labels=CELL)
        for queue in queues:
            for flavor, resources in queue["flavors"].items():
                for resource, cell in resources.items():
                    labels = (*_labels(queue), flavor, resource)
                    family.add_metric(labels, float(parse_decimal(cell[field])))
        yield family


def _of_queues(queues: Sequence[Json]) -> Iterator[Metric]:
    for name, text, field in QUEUES:
        family = GaugeMetricFamily(name, text, labels=QUEUE)
        for queue in queues:
            if queue.get(field) is not None:
                family.add_metric(_labels(queue), _number(queue[field]))
        yield family
    waits = GaugeMetricFamily(
        "sluice_admission_wait_time_seconds",
        "From submission to admission, of those admitted lately.",
        labels=(*QUEUE, "quantile"),
    )
    for queue in queues:
        for quantile, field in (("0.5", "p50WaitSeconds"), ("0.95", "p95WaitSeconds")):
            if queue.get(field) is not None:
                waits.add_metric((*_labels(queue), quantile), float(queue[field]))
    yield waits
    status = GaugeMetricFamily(
        "sluice_cluster_queue_status", "1 for the status that it has.", labels=(*QUEUE, "status")
    )
    for queue in queues:
        status.add_metric((*_labels(queue), str(queue["status"])), 1)
    yield status


def _of_status(status: Json) -> Iterator[Metric]:
    yield _counts("sluice_workloads", "Unfinished workloads.", "phase", status["states"])
    yield _counts("sluice_ended_workloads_24h", "In 24 hours.", "phase", status["ended24h"])
    reasons = {each["code"]: each["count"] for each in status["pending"]}
    yield _counts("sluice_pending_workloads_by_reason", "Why they wait.", "reason", reasons)
    for name, text, field in WHOLE:
        family = GaugeMetricFamily(name, text)
        family.add_metric((), float(status[field]["usdPerHour"]))
        yield family
    machines = {kind: status["machines"][kind] for kind in ("nodes", "ready", "spot")}
    yield _counts("sluice_machines", "Nodes of the clusters.", "kind", machines)
    recoveries = status["recoveries24h"]
    moves = GaugeMetricFamily("sluice_recoveries_24h", "Runs interrupted and resumed in 24 hours.")
    moves.add_metric((), float(recoveries["count"]))
    lost = GaugeMetricFamily("sluice_work_lost_seconds_24h", "Work done again in 24 hours.")
    lost.add_metric((), float(recoveries["lostWorkSeconds"]))
    yield from (moves, lost)


def _counts(name: str, text: str, label: str, counts: dict[str, float]) -> Metric:
    family = GaugeMetricFamily(name, text, labels=(label,))
    for key, count in counts.items():
        family.add_metric((key,), float(count))
    return family


def _number(value: float | str) -> float:
    """A count that is only known to be at least so much ends with `+`."""
    return float(str(value).removesuffix("+"))


def _labels(queue: Json) -> tuple[str, str]:
    return str(queue["cohort"] or ""), str(queue["name"])
