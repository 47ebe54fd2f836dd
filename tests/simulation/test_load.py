"""Generated load has the shape of Kueue's generator."""

from collections import Counter
from pathlib import Path

import pytest
from sluice.client.yaml_stream import parse_yaml
from sluice.core.config.document import DocumentError
from sluice.simulation.engine import Simulation
from sluice.simulation.report import report
from sluice.simulation.scenario import Scenario, parse_scenario

from tests.simulation.builders import Json, documents, queue, waiting

EXAMPLES = Path(__file__).parents[2] / "examples" / "scenarios"


def load(**spec: object) -> Json:
    body = {
        "cohorts": 2,
        "clusterQueuesPerCohort": 3,
        "flavor": "rf",
        "clusterQueue": {"nominal": {"cpu": "4"}, "borrowingLimit": {"cpu": "2"}},
        "classes": [
            {"name": "small", "count": 5, "every": "100ms", "runtime": "200ms",
             "requests": {"cpu": "1"}, "priority": 50},
            {"name": "large", "count": 2, "every": "1s", "runtime": "1s", "requests": {"cpu": "4"}},
        ],
    }  # fmt: skip
    name = {"name": "tiny"}
    return {"apiVersion": "sluice.dev/v1", "kind": "Load", "metadata": name, "spec": body | spec}


def example(name: str) -> Scenario:
    text = (EXAMPLES / f"{name}.yaml").read_text(encoding="utf-8")
    return parse_scenario(parse_yaml(text), name)


def test_every_queue_of_every_cohort_gets_every_class() -> None:
    scenario = parse_scenario([load()], "x")

    assert scenario.name == "tiny"
    assert [one.name for one in scenario.objects.cluster_queues] == [
        "tiny-1-1", "tiny-1-2", "tiny-1-3", "tiny-2-1", "tiny-2-2", "tiny-2-3",
    ]  # fmt: skip
    assert {one.cohort for one in scenario.objects.cluster_queues} == {"tiny-1", "tiny-2"}
    assert Counter(job.group for job in scenario.jobs) == {"small": 30, "large": 12}
    assert len({job.workload.id for job in scenario.jobs}) == 42


def test_classes_arrive_side_by_side_each_at_its_own_pace() -> None:
    jobs = [job for job in parse_scenario([load()], "x").jobs if "tiny-1-1-" in job.workload.id]

    arrivals = {job.workload.id: job.arrives_ms for job in jobs}
    assert arrivals["tiny-1-1-small-1"] == 0
    assert arrivals["tiny-1-1-small-5"] == 400
    assert arrivals["tiny-1-1-large-2"] == 1000


def test_workloads_are_as_old_as_their_arrival() -> None:
    scenario = parse_scenario([load()], "x")

    assert all(
        job.workload.queued_at_ms - scenario.start_ms == job.arrives_ms for job in scenario.jobs
    )


def test_all_of_it_is_worked_off_and_measured_by_class() -> None:
    scenario = parse_scenario([load()], "x")

    result = report(scenario, Simulation(scenario).run())

    summary = result["summary"]
    assert len(result["finished"]) == summary["workloads"] == 42
    assert list(summary["waitSeconds"]) == ["all", "small", "large"]
    # 6 queues with 5 jobs of 1 CPU for 0.2 s and 2 of 4 CPUs for 1 s: 54 CPU-seconds of 24 CPUs.
    assert summary["utilisation"]["cpu"] == round(54 / 24 / summary["makespanSeconds"], 4)


def test_placed_work_is_safe_for_its_first_minute_unless_the_load_says_otherwise() -> None:
    # low starts when the first high is over, at 400 ms; the second high comes at 500 ms.
    classes = [
        {"name": "low", "count": 1, "runtime": "2s", "requests": {"cpu": "4"}},
        {"name": "high", "count": 2, "every": "500ms", "runtime": "400ms", "priority": 9,
         "requests": {"cpu": "4"}},
    ]  # fmt: skip
    rules = {"withinClusterQueue": "LowerPriority"}
    spec = {
        "cohorts": 1,
        "clusterQueuesPerCohort": 1,
        "clusterQueue": {"nominal": {"cpu": "4"}, "preemption": rules},
        "classes": classes,
    }

    safe = Simulation(parse_scenario([load(**spec)], "x")).run()
    kueue = Simulation(parse_scenario([load(**spec, minRunTime="0s")], "x")).run()

    assert safe.preempted == []
    assert [one.step.victim for one in kueue.preempted] == ["tiny-1-1-low-1"]


def test_a_load_stands_beside_listed_queues_and_other_loads() -> None:
    second = load(cohorts=1, clusterQueuesPerCohort=1)
    second["metadata"] = {"name": "other"}

    scenario = parse_scenario([queue("own", None, {"rf": {"cpu": 1}}), load(), second], "x")

    names = [one.name for one in scenario.objects.cluster_queues]
    assert (names[0], names[-1], len(names)) == ("own", "other-1-1", 8)
    assert [one.name for one in scenario.objects.resource_flavors] == ["rf"]


@pytest.mark.parametrize(
    ("parts", "taken"),
    [
        ([load()], "ClusterQueue tiny-1-1"),
        (documents(queue("tiny-1-1", cpu=1)), "ClusterQueue tiny-1-1"),
        (
            documents(queue("q", cpu=1), waiting("tiny-1-1-large-1", "q", cpu=1)),
            "workload tiny-1-1-large-1",
        ),
    ],
)
def test_a_load_takes_no_name_that_exists(parts: list[Json], taken: str) -> None:
    with pytest.raises(DocumentError, match=rf"\(Load tiny\): metadata.name: it makes a {taken}, "):
        parse_scenario([*parts, load()], "x")


@pytest.mark.parametrize(
    ("name", "queues", "workloads", "work_seconds"),
    [("baseline", 30, 15_000, 66.0), ("large-scale", 1_000, 50_000, 4.025)],
)
def test_the_examples_are_kueues_generators(
    name: str, queues: int, workloads: int, work_seconds: float
) -> None:
    scenario = example(name)

    work = sum(
        job.workload.pod_sets[0].requests["cpu"] * (job.runtime_ms or 0) for job in scenario.jobs
    )
    assert len(scenario.objects.cluster_queues) == queues
    assert len(scenario.jobs) == workloads
    assert work / scenario.capacity["cpu"] / 1000 == work_seconds


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"cohorts": 0}, "spec.cohorts: 0 is too small"),
        ({"classes": None}, "spec.classes: is missing"),
        ({"classes": [{"name": "a", "count": 1}]}, r"spec.classes\[0\].requests: is missing"),
        ({"classes": [{"name": "all", "count": 1, "requests": {}}]}, "all means every class"),
        ({"clusterQueue": {"nominal": {"cpu": "1"}, "lendingLimit": {"gpu": "1"}}}, "lendingLimit"),
        ({"color": "red"}, "spec.color: unknown field"),
    ],
)
def test_a_flawed_load_says_where(spec: Json, message: str) -> None:
    with pytest.raises(DocumentError, match=message):
        parse_scenario([load(**spec)], "x")
