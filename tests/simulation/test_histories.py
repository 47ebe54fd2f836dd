"""Histories with everything that an installation decides by: nobody is lost, and quota holds."""

import json
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from sluice.simulation.engine import Simulation
from sluice.simulation.outcome import SimulationResult
from sluice.simulation.report import report
from sluice.simulation.scenario import Scenario, parse_scenario

from tests.simulation.builders import (
    FAIR,
    LONG_AGO,
    Json,
    cohort,
    documents,
    preemption,
    queue,
    waiting,
)
from tests.simulation.test_installation import budget, check, checked, cluster, policy, priced

SOME = settings(max_examples=80, deadline=None, suppress_health_check=[HealthCheck.too_slow])
SECONDS = st.integers(0, 40).map(lambda seconds: f"{seconds}s")
LATENCY = st.sampled_from([0, 30, 2500])
NAMES = [f"w{number}" for number in range(8)]


@st.composite
def wishes(draw: st.DrawFn, name: str) -> Json:
    """Some of the fields that a Workload's spec may have."""
    fields: dict[str, Any] = {
        "dependsOn": [
            {
                "name": draw(st.sampled_from(NAMES)),
                "condition": draw(st.sampled_from(["Succeeded", "Finished", "Failed"])),
            }
        ],
        "deadlines": draw(
            st.fixed_dictionaries({}, optional={"maxPending": SECONDS, "maxRuntime": SECONDS})
        ),
        "capacity": draw(st.sampled_from(["spot", "on-demand"])),
        "placement": [{"flavor": "b"}, {"flavor": "a", "afterPending": draw(SECONDS)}],
        "checkpoint": {"mode": "application", "interval": draw(SECONDS)},
        "pendingPolicy": [
            {"reason": "QUOTA:*", "after": draw(SECONDS), "action": "Cancel"},
            {"reason": "PRIORITY:*", "after": draw(SECONDS), "action": "Notify"},
        ],
        "budget": {"maxCostUSD": draw(st.integers(1, 3)) / 100},
        "fails": True,
        "user": draw(st.sampled_from(["ann", "ben"])),
        "minRuntime": draw(SECONDS),
    }
    chosen = draw(st.lists(st.sampled_from(sorted(fields)), max_size=4, unique=True))
    found = {key: fields[key] for key in chosen}
    if found.get("dependsOn", [{}])[0].get("name") == name:
        del found["dependsOn"]
    return found


@st.composite
def files(draw: st.DrawFn) -> list[Json]:
    """Two queues of a cohort with budgets, checks, clusters and policies, or without."""
    spec = preemption(
        draw(st.sampled_from(["Never", "LowerPriority"])), draw(st.sampled_from(["Never", "Any"]))
    )
    spec |= {"queueingStrategy": draw(st.sampled_from(["StrictFIFO", "BestEffortFIFO"]))}
    scenario: Json = {}
    parts: list[Json] = [cohort("team"), priced("9", "a"), priced("18", "b")]
    if draw(st.booleans()):
        spec |= checked("c")
        retries = ["Retry"] * draw(st.integers(0, 2))
        states = [*retries, draw(st.sampled_from(["Ready", "Rejected"]))]
        answers = {"name": "c", "after": draw(SECONDS), "answers": states}
        parts, scenario = [*parts, check()], {"admissionChecks": [answers]}
    if draw(st.booleans()):
        parts.append(budget(1, clusterQueue="q0", assumedRuntime="1m"))
    if draw(st.booleans()):
        parts.append(cluster("east", flavors=["a"]))
        parts.append(cluster("west", flavors=["b"], cordoned=draw(st.booleans())))
    if draw(st.booleans()):
        parts.append(policy(minRuntime="5s", **draw(st.sampled_from([{}, FAIR]))))
    for name in ("q0", "q1"):
        group = {flavor: {"cpu": draw(st.integers(0, 3))} for flavor in ("a", "b")}
        parts.append(queue(name, "team", group, spec=spec))
    for number, name in enumerate(NAMES):
        where, cpu = draw(st.sampled_from(["q0", "q1"])), draw(st.integers(1, 3))
        one = waiting(name, where, draw(st.integers(-1, 1)), at=number, cpu=cpu)
        times = {"createdAt": LONG_AGO, "arrivesAfter": draw(SECONDS), "runtime": draw(SECONDS)}
        if draw(st.booleans()):
            del times["createdAt"], one["createdAt"]
        parts.append(one | times | draw(wishes(name)))
    return documents(*parts, passes=None, **scenario)


def run(case: list[Json], latency_ms: int) -> tuple[Scenario, SimulationResult]:
    scenario = parse_scenario(case, "history")
    return scenario, Simulation(scenario, commit_latency_ms=latency_ms).run()


@SOME
@given(files(), LATENCY)
def test_whatever_a_workload_wishes_it_ends_or_waits_exactly_once(
    case: list[Json], latency: int
) -> None:
    scenario, outcome = run(case, latency)

    fates = [job.workload.id for job, _ in outcome.finished]
    fates += [job.workload.id for job, _ in outcome.pending]
    fates += [one.job.workload.id for one in outcome.ended]
    assert sorted(fates) == NAMES
    for node in outcome.cluster_queues:
        assert not any(node.usage.values()), "all runtimes are finite"
    assert json.dumps(report(scenario, outcome)) == json.dumps(report(*run(case, latency)))
