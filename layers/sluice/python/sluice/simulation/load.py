"""Generated work for benchmarks, in the shape of Kueue's performance generator."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final

from sluice.core.config.kueue_queue_fields import read_preemption
from sluice.core.config.model import (
    ClusterQueue,
    FlavorQuotas,
    PodSetInfo,
    Preemption,
    QueueingStrategy,
    ResourceGroup,
    ResourceQuota,
    WorkloadInfo,
)
from sluice.simulation.job import Job

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from sluice.core.config.document import Fields

# Generated work runs for less than a node takes to start: evicting it would only waste it. An
# installation says so in its SchedulingPolicy (`minRuntime`), which is 0s unless it does.
DEFAULT_MIN_RUN_MS: Final = 60_000
_NOTHING: Final[Mapping[str, Any]] = MappingProxyType({})  # shared by a million workloads


@dataclass(frozen=True, slots=True)
class LoadClass:
    """Equal workloads of one pod; one arrives in every ClusterQueue each `every_ms`."""

    name: str
    count: int
    requests: Mapping[str, int]
    every_ms: int = 0
    runtime_ms: int | None = None
    priority: int = 0


@dataclass(frozen=True, slots=True)
class Load:
    """Equal cohorts of equal ClusterQueues, each of which gets every class.

    Names are `<load>-<cohort>`, `<load>-<cohort>-<queue>` and
    `<load>-<cohort>-<queue>-<class>-<number>`, all counted from 1. `min_run_ms` protects each
    workload from preemption for that long after its admission; 0 is Kueue's rule.
    """

    name: str
    cohorts: int
    cluster_queues_per_cohort: int
    flavor: str
    quotas: Mapping[str, ResourceQuota]
    classes: tuple[LoadClass, ...]
    preemption: Preemption = field(default_factory=Preemption)
    queueing_strategy: QueueingStrategy = QueueingStrategy.BEST_EFFORT_FIFO
    min_run_ms: int = DEFAULT_MIN_RUN_MS

    def cluster_queues(self) -> Iterator[ClusterQueue]:
        group = ResourceGroup(tuple(self.quotas), (FlavorQuotas(self.flavor, self.quotas),))
        for cohort in range(1, self.cohorts + 1):
            for queue in range(1, self.cluster_queues_per_cohort + 1):
                yield ClusterQueue(
                    name=f"{self.name}-{cohort}-{queue}",
                    resource_groups=(group,),
                    cohort=f"{self.name}-{cohort}",
                    preemption=self.preemption,
                    queueing_strategy=self.queueing_strategy,
                )

    def jobs(self, start_ms: int) -> Iterator[Job]:
        """Every workload, queue by queue; `start_ms` is the virtual time of the first arrival."""
        sequence = 0
        for queue in self.cluster_queues():
            for one in self.classes:
                template = WorkloadInfo(
                    id="",
                    cluster_queue=queue.name,
                    pod_sets=(PodSetInfo("main", 1, one.requests, node_selector=_NOTHING),),
                    priority=one.priority,
                    min_run_ms=self.min_run_ms,
                    cost_microusd_per_hour=_NOTHING,
                    checks=_NOTHING,
                )
                for number in range(one.count):
                    arrives_ms = number * one.every_ms
                    sequence += 1
                    yield Job(
                        replace(
                            template,
                            id=f"{queue.name}-{one.name}-{number + 1}",
                            queued_at_ms=start_ms + arrives_ms,
                            sequence=sequence,
                        ),
                        arrives_ms=arrives_ms,
                        runtime_ms=one.runtime_ms,
                        group=one.name,
                    )


def read_load(name: str, spec: Fields, min_run_ms: int = DEFAULT_MIN_RUN_MS) -> Load:
    """A Load document's `spec`; flaws are collected by the reader.

    `min_run_ms` counts where it says none.
    """
    queue = spec.map("clusterQueue", required=True)
    nominal = queue.amounts("nominal", required=True)
    borrowing, lending = queue.amounts("borrowingLimit"), queue.amounts("lendingLimit")
    for key, limits in (("borrowingLimit", borrowing), ("lendingLimit", lending)):
        for resource in sorted(limits.keys() - nominal.keys()):
            queue.wrong(key, f"{resource} has no nominal quota; add it under nominal")
    load = Load(
        name=name,
        cohorts=spec.integer("cohorts", 1, minimum=1),
        cluster_queues_per_cohort=spec.integer("clusterQueuesPerCohort", 1, minimum=1),
        flavor=spec.name("flavor", "default"),
        quotas={
            resource: ResourceQuota(amount, borrowing.get(resource), lending.get(resource))
            for resource, amount in nominal.items()
        },
        preemption=read_preemption(queue.map("preemption")),
        queueing_strategy=queue.choice(
            "queueingStrategy", QueueingStrategy, QueueingStrategy.BEST_EFFORT_FIFO
        ),
        min_run_ms=spec.duration("minRunTime", min_run_ms) or 0,
        classes=tuple(_read_class(one) for one in spec.maps("classes", required=True)),
    )
    queue.close()
    names = [one.name for one in load.classes]
    for twice in sorted({one for one in names if names.count(one) > 1}):
        spec.wrong("classes", f"{twice} occurs twice; give each class its own name")
    if "all" in names:
        spec.wrong("classes", "all means every class in the report; call the class something else")
    return load


def _read_class(fields: Fields) -> LoadClass:
    one = LoadClass(
        name=fields.name("name", required=True),
        count=fields.integer("count", 1, minimum=1, required=True),
        every_ms=fields.duration("every", 0) or 0,
        runtime_ms=fields.duration("runtime"),
        requests=fields.amounts("requests", required=True),
        priority=fields.priority("priority"),
    )
    fields.close()
    return one
