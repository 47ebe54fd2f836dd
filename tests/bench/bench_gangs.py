"""A thousand gangs on a hundred nodes, in virtual time: how near the makespan comes to its bound.

`python -m tests.bench.bench_gangs`: 1,000 Jobs of 10 pods, 200m each, all submitted at once; each
pod runs for a minute; 100 nodes of 4 vCPU, of which 3.92 can be given: 19 such pods a node. The
bound is the number of waves in which so many gangs fit, each of a minute.
"""

from __future__ import annotations

from typing import Any, Final

import click
from sluice.simulation.engine import Simulation
from sluice.simulation.report import report
from sluice.simulation.scenario import parse_scenario

KUEUE: Final = "kueue.x-k8s.io/v1beta2"
JOBS, PODS, MILLICORES, MINUTE_MS = 1_000, 10, 200, 60_000
NODES, NODE_MILLICORES = 100, 3_920
COMMIT_MS: Final = 30


def capacity() -> int:
    """Pods that the nodes have room for at once."""
    return NODES * (NODE_MILLICORES // MILLICORES)


def bound_seconds() -> float:
    gangs = capacity() // PODS
    return -(-JOBS // gangs) * MINUTE_MS / 1000


def documents() -> list[dict[str, Any]]:
    quota = {"name": "cpu", "nominalQuota": f"{capacity() * MILLICORES}m"}
    group = {
        "coveredResources": ["cpu"],
        "flavors": [{"name": "nodes", "resources": [quota]}],
    }
    pods = {"name": "main", "count": PODS, "requests": {"cpu": f"{MILLICORES}m"}}
    workloads = [
        {
            "name": f"job-{number:04d}",
            "localQueue": "team/jobs",
            "runtime": "1m",
            "podSets": [pods],
        }
        for number in range(JOBS)
    ]
    return [
        {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": {"name": "nodes"}},
        {
            "apiVersion": KUEUE,
            "kind": "ClusterQueue",
            "metadata": {"name": "jobs"},
            "spec": {"namespaceSelector": {}, "resourceGroups": [group]},
        },
        {
            "apiVersion": KUEUE,
            "kind": "LocalQueue",
            "metadata": {"name": "jobs", "namespace": "team"},
            "spec": {"clusterQueue": "jobs"},
        },
        {
            "apiVersion": "sluice.dev/v1",
            "kind": "Scenario",
            "metadata": {"name": "gangs"},
            "spec": {"start": "2026-01-01T09:00:00Z", "workloads": workloads},
        },
    ]


def measure() -> dict[str, Any]:
    """The summary of the simulated run."""
    scenario = parse_scenario(documents(), "gangs")
    simulation = Simulation(scenario, commit_latency_ms=COMMIT_MS)
    summary: dict[str, Any] = report(scenario, simulation.run())["summary"]
    return summary


def main() -> None:
    summary, bound = measure(), bound_seconds()
    makespan = summary["makespanSeconds"]
    click.echo(
        f"{JOBS:,} gangs of {PODS} pods: {makespan:.1f} s, bound {bound:.1f} s, "
        f"{makespan / bound:.3f} of it"
    )


if __name__ == "__main__":
    main()
