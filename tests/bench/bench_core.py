"""CPU per admission of the scheduling core, as ratios within one run of this program.

`python -m tests.bench.bench_core [--full]`: Kueue's two generators with and without commit latency,
and one deep queue of equal jobs. `--full` goes to a million jobs. Kueue's own scheduler, measured
the same way (no API server, virtual time, one CPU), needs 0.50 to 0.73 ms for each admission.
"""

from __future__ import annotations

import gc
import sys
import time
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import click
from sluice.client.yaml_stream import parse_yaml
from sluice.core.config.kueue_objects import ConfigObjects
from sluice.core.config.model import ResourceQuota
from sluice.simulation.engine import Simulation
from sluice.simulation.load import Load, LoadClass
from sluice.simulation.report import report
from sluice.simulation.scenario import Scenario, parse_scenario

KUEUE_MS: Final = 0.50  # the best of Kueue's numbers for these loads
SCENARIOS: Final = Path(__file__).parents[2] / "examples" / "scenarios"
DEPTHS: Final = (2_000, 8_000, 100_000)
MILLION: Final = 1_000_000
WARM_UP: Final = 500


def generator(name: str) -> Scenario:
    """`baseline` or `large-scale`."""
    path = SCENARIOS / f"{name}.yaml"
    return parse_scenario(parse_yaml(path.read_text(encoding="utf-8")), name)


def deep_queue(jobs: int) -> Scenario:
    """One queue of 20 CPUs with equal jobs of one CPU and 200 ms, all there from the start."""
    load = Load(
        name="deep",
        cohorts=1,
        cluster_queues_per_cohort=1,
        flavor="rf",
        quotas={"cpu": ResourceQuota(20_000)},
        classes=(LoadClass("job", jobs, {"cpu": 1_000}, runtime_ms=200),),
    )
    empty = Scenario(name=f"deep-{jobs}", objects=ConfigObjects(), jobs=(), generated=True)
    objects = ConfigObjects(
        resource_flavors=generator("baseline").objects.resource_flavors,
        cluster_queues=tuple(load.cluster_queues()),
    )
    return replace(empty, objects=objects, jobs=tuple(load.jobs(empty.start_ms)))


def measure(scenario: Scenario, latency_ms: int = 0) -> dict[str, Any]:
    """The summary of one run; `cpuSecondsPerAdmission` counts time inside the core only."""
    simulation = Simulation(scenario, commit_latency_ms=latency_ms, cpu_clock=time.process_time)
    # The workloads are the simulator's; searching them for garbage is no decision.
    gc.collect()
    gc.freeze()
    try:
        summary: dict[str, Any] = report(scenario, simulation.run())["summary"]
    finally:
        gc.unfreeze()
    return summary


def _generators() -> None:
    headings = ("ms/admission", "vs Kueue", "useful", "makespan", "evictions")
    click.echo(f"{'load':<12} {'commit':>6} " + " ".join(f"{one:>12}" for one in headings))
    for name in ("baseline", "large-scale"):
        for latency_ms in (0, 30):
            one = measure(generator(name), latency_ms)
            per_admission = 1000 * one["cpuSecondsPerAdmission"]
            cells = (
                f"{per_admission:.4f}",
                f"{KUEUE_MS / per_admission:.0f}x",
                f"{one['utilisation']['cpu']:.1%}",
                f"{one['makespanSeconds']:.2f} s",
                f"{one['preemptions']:,}",
            )
            row = " ".join(f"{cell:>12}" for cell in cells)
            click.echo(f"{name:<12} {latency_ms:>3} ms {row}")


def _depths(depths: tuple[int, ...]) -> None:
    click.echo(f"\n{'one queue':>12} {'ms/admission':>13} {'to the first':>13}")
    first = 0.0
    for jobs in depths:
        per_admission = 1000 * measure(deep_queue(jobs))["cpuSecondsPerAdmission"]
        first = first or per_admission
        click.echo(f"{jobs:>12,} {per_admission:>13.4f} {per_admission / first:>12.2f}x")


def main(arguments: list[str]) -> None:
    measure(deep_queue(WARM_UP))
    _generators()
    _depths((*DEPTHS, MILLION) if "--full" in arguments else DEPTHS)


if __name__ == "__main__":
    main(sys.argv[1:])
