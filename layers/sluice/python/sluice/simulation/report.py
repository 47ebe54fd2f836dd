"""The answer of a simulation as one JSON document; its shape is a published format."""

from __future__ import annotations

from fractions import Fraction
from typing import TYPE_CHECKING, Any

from sluice.core.values.quantity import format_quantity

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sluice.simulation.outcome import AdmittedJob, QuotaNodeState, SimulationResult
    from sluice.simulation.scenario import Scenario


def report(scenario: Scenario, outcome: SimulationResult) -> dict[str, Any]:
    """The JSON document of one run; times in seconds, quantities in Kubernetes' canonical text."""
    return {
        "scenario": scenario.name,
        "passes": outcome.passes,
        "virtualSeconds": _seconds(outcome.end_ms),
        "admitted": [_admitted(one) for one in outcome.admitted],
        "preempted": [
            {
                "workload": one.step.victim,
                "clusterQueue": one.step.cluster_queue,
                "by": one.step.by,
                "reason": one.step.reason.value,
                "at": _seconds(one.at_ms),
            }
            for one in outcome.preempted
        ],
        "finished": [
            {"workload": job.workload.id, "at": _seconds(at_ms)}
            | ({"succeeded": False} if job.fails else {})
            for job, at_ms in outcome.finished
        ],
        "pending": [
            {
                "workload": job.workload.id,
                "clusterQueue": job.workload.cluster_queue,
                "reason": refusal.reason.value,
                "message": refusal.message,
            }
            for job, refusal in outcome.pending
        ],
        "clusterQueues": [_node(one) for one in outcome.cluster_queues],
        "cohorts": [_node(one) for one in outcome.cohorts],
        "summary": _summary(scenario, outcome),
    } | _installation(outcome)


def _installation(outcome: SimulationResult) -> dict[str, Any]:
    """What there is to say only where more than queues takes part."""
    found: dict[str, Any] = {}
    if outcome.ended:
        found["ended"] = [
            {
                "workload": one.job.workload.id,
                "clusterQueue": one.job.workload.cluster_queue,
                "at": _seconds(one.at_ms),
                "phase": one.phase,
                "reason": one.reason,
                "message": one.message,
            }
            for one in outcome.ended
        ]
    if outcome.budgets:
        found["budgets"] = [
            {
                "name": one.name,
                "spentUSD": round(one.spent / 1_000_000, 6),
                "limitUSD": round(one.limit / 1_000_000, 6),
            }
            for one in outcome.budgets
        ]
    return found


def _admitted(one: AdmittedJob) -> dict[str, Any]:
    return {
        "workload": one.job.workload.id,
        "clusterQueue": one.job.workload.cluster_queue,
        "at": _seconds(one.at_ms),
        "podSets": [
            {"name": pods.name, "count": pods.count, "flavors": dict(pods.flavors)}
            for pods in one.assignment.pod_sets
        ],
    } | ({"cluster": one.cluster} if one.cluster else {})


def _node(node: QuotaNodeState) -> dict[str, Any]:
    value, resource = node.share
    return {
        "name": node.name,
        "usage": _quantities(node.usage),
        "available": _quantities(node.available),
        "potential": _quantities(node.potential),
        "share": {"value": value, "resource": resource},
    }


def _quantities(cells: Mapping[tuple[str, str], int]) -> dict[str, dict[str, str]]:
    """Flavor → resource → canonical text, both in alphabetical order."""
    by_flavor: dict[str, dict[str, str]] = {}
    for (flavor, resource), amount in sorted(cells.items()):
        by_flavor.setdefault(flavor, {})[resource] = format_quantity(resource, amount)
    return by_flavor


def _summary(scenario: Scenario, outcome: SimulationResult) -> dict[str, Any]:
    admissions = len(outcome.admitted)
    return {
        "workloads": len(scenario.jobs),
        "admissions": admissions,
        "preemptions": len(outcome.preempted),
        "makespanSeconds": _seconds(outcome.makespan_ms),
        "utilisation": {
            resource: utilisation(outcome.useful.get(resource, 0), capacity, outcome.makespan_ms)
            for resource, capacity in sorted(scenario.capacity.items())
        },
        "waitSeconds": _waits(scenario, outcome),
        "decisionCpuSeconds": outcome.decision_seconds,
        "cpuSecondsPerAdmission": outcome.decision_seconds / admissions if admissions else 0.0,
        "peakPending": outcome.peak_pending,
    }


def utilisation(useful: int, capacity: int, makespan_ms: int) -> float:
    """Useful work over capacity times makespan, to four decimals; 0 where there is no capacity."""
    if not capacity or not makespan_ms:
        return 0.0
    return round(float(Fraction(useful, capacity * makespan_ms)), 4)


def _waits(scenario: Scenario, outcome: SimulationResult) -> dict[str, dict[str, float]]:
    """Waiting times of all admitted workloads, and of each class of a Load."""
    by_group: dict[str, list[int]] = {"all": []}
    for job in scenario.jobs:
        if job.group is not None:
            by_group.setdefault(job.group, [])
        if (wait_ms := outcome.waits_ms.get(job.workload.id)) is not None:
            by_group["all"].append(wait_ms)
            if job.group is not None:
                by_group[job.group].append(wait_ms)
    return {group: distribution(waits) for group, waits in by_group.items()}


def distribution(waits_ms: Iterable[int]) -> dict[str, float]:
    """Nearest-rank percentiles, mean and maximum in seconds; all 0 for an empty group."""
    ordered = sorted(waits_ms)
    if not ordered:
        return dict.fromkeys(("p50", "p90", "p99", "mean", "max"), 0.0)
    percentiles = {
        f"p{percent}": _seconds(ordered[-(-percent * len(ordered) // 100) - 1])
        for percent in (50, 90, 99)
    }
    mean = round(sum(ordered) / len(ordered) / 1000, 3)
    return percentiles | {"mean": mean, "max": _seconds(ordered[-1])}


def _seconds(milliseconds: int) -> float:
    return milliseconds / 1000
