"""What else the deployed system decides by: the examples of the documentation, and their edges."""

import re
from pathlib import Path
from typing import Any

import pytest
from sluice.client.yaml_stream import parse_yaml
from sluice.core.config.document import DocumentError
from sluice.simulation.engine import Simulation
from sluice.simulation.expectation import differences
from sluice.simulation.report import report
from sluice.simulation.scenario import parse_scenario

from tests.simulation.builders import (
    KUEUE,
    START,
    Json,
    cohort,
    documents,
    local_queue,
    preemption,
    queue,
    running,
    simulate,
    waiting,
)

ROOT = Path(__file__).parents[2]
DOCUMENTED = re.findall(
    r"\(\.\./examples/scenarios/([a-z-]+)\.yaml\)", (ROOT / "docs/simulate.md").read_text("utf-8")
)
SLUICE = "sluice.dev/v1"


def job(name: str, where: str = "q", **fields: Any) -> Json:
    """A waiting workload of one core, with fields of a Workload's spec."""
    cpu = fields.pop("cpu", 1)
    return waiting(name, where, cpu=cpu) | fields


def budget(limit: int, **spec: Any) -> Json:
    body = {"clusterQueue": "q", "limitUSD": limit, "window": "1h", **spec}
    return {"apiVersion": SLUICE, "kind": "Budget", "metadata": {"name": "b"}, "spec": body}


def priced(usd: str, name: str = "default") -> Json:
    metadata = {"name": name, "annotations": {"sluice.dev/usd-per-cpu-hour": usd}}
    return {"apiVersion": KUEUE, "kind": "ResourceFlavor", "metadata": metadata, "spec": {}}


def policy(name: str = "p", **spec: Any) -> Json:
    metadata = {"name": name}
    return {
        "apiVersion": SLUICE, "kind": "SchedulingPolicy", "metadata": metadata, "spec": spec,
    }  # fmt: skip


def cluster(name: str, **spec: Any) -> Json:
    return {"apiVersion": SLUICE, "kind": "Cluster", "metadata": {"name": name}, "spec": spec}


def check(name: str = "c", controller: str = "sluice.dev/callback") -> Json:
    spec = {"controllerName": controller}
    metadata = {"name": name}
    return {"apiVersion": KUEUE, "kind": "AdmissionCheck", "metadata": metadata, "spec": spec}


def checked(*names: str) -> Json:
    return {"admissionChecksStrategy": {"admissionChecks": [{"name": name} for name in names]}}


def times(result: Any, key: str = "admitted") -> dict[str, float]:
    return {one["workload"]: one["at"] for one in result.report.get(key, ())}


def reasons(result: Any) -> dict[str, str]:
    return {one["workload"]: one["reason"] for one in result.report["ended"]}


def flaws(*parts: Json, **spec: Any) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse_scenario(documents(*parts, **spec), "case")
    return [f"{one.field}: {one.message}" for one in caught.value.flaws]


@pytest.mark.parametrize("name", sorted(set(DOCUMENTED) - {"baseline", "large-scale"}))
def test_every_documented_example_gives_what_it_says(name: str) -> None:
    text = (ROOT / f"examples/scenarios/{name}.yaml").read_text(encoding="utf-8")
    scenario = parse_scenario(parse_yaml(text), name)

    assert scenario.expectation is not None
    result = report(scenario, Simulation(scenario).run())
    assert list(differences(scenario.expectation, result)) == []
    assert scenario.notices == ()


def test_the_documentations_own_file_is_as_expected() -> None:
    (text,) = re.findall(
        r"```yaml\n(.*?)```", (ROOT / "docs/simulate.md").read_text("utf-8"), re.DOTALL
    )
    scenario = parse_scenario(parse_yaml(text), "docs")

    assert scenario.expectation is not None
    result = report(scenario, Simulation(scenario).run())
    assert list(differences(scenario.expectation, result)) == []


def test_a_dependent_waits_outside_its_queue_with_its_reason() -> None:
    after = job("after", dependsOn=[{"name": "first"}])

    result = simulate(queue("q", cpu=4), job("first"), after, passes=None)

    assert result.reasons == {"after": "DEPENDENCY:WaitingFor"}
    assert result.report["pending"][0]["message"] == "needs first to succeed"


def test_who_waits_for_itself_is_rejected() -> None:
    one = job("one", dependsOn=[{"name": "two"}])
    two = job("two", dependsOn=[{"name": "one"}])

    result = simulate(queue("q", cpu=4), one, two, passes=None)

    assert set(reasons(result).values()) == {"MISCONFIGURATION:DependencyCycle"}
    assert [one["phase"] for one in result.report["ended"]] == ["REJECTED", "REJECTED"]


def test_a_cancelled_workload_ends_the_wait_for_its_end_and_for_its_success() -> None:
    late = job("late", cpu=9, deadlines={"maxPending": "10s"}, arrivesAfter="5s", runtime="1s")
    del late["createdAt"]
    any_end = job("any", dependsOn=[{"name": "late", "condition": "Finished"}], runtime="1s")
    success = job("success", dependsOn=[{"name": "late"}], runtime="1s")

    result = simulate(queue("q", cpu=4), late, any_end, success, passes=None)

    assert times(result) == {"any": 15.001}
    assert times(result, "ended") == {"late": 15.001, "success": 15.001}


def test_an_array_runs_in_waves_of_what_was_admitted() -> None:
    array = job("a", array="0-9%4", runtime="10s")
    array["podSets"] = [{"name": "main", "minCount": 1, "requests": {"cpu": "1"}}]

    whole = simulate(queue("q", cpu=4), array, passes=None)
    half = simulate(queue("q", cpu=2), array, passes=None)

    assert (whole.counts, times(whole, "finished")) == ({"a": [4]}, {"a": 30.0})
    assert (half.counts, times(half, "finished")) == ({"a": [2]}, {"a": 50.0})


def test_who_runs_longer_than_was_assumed_uses_up_the_budget_as_it_runs() -> None:
    # $6 are committed for the first hour of `long`; after two hours of the window it has cost $12.
    spec = {"window": "24h", "start": "2026-01-01T00:00:00Z"}
    long = job("long", cpu=6)
    late = job("late", cpu=2, arrivesAfter="3h", runtime="1h")

    result = simulate(
        priced("1"), queue("q", cpu=9), budget(14, **spec), long, late, passes=None,
        until=4 * 3_600_000,
    )  # fmt: skip

    assert result.reasons == {"late": "QUOTA:BudgetExhausted"}
    assert result.report["budgets"] == [{"name": "b", "spentUSD": 24.0, "limitUSD": 14.0}]


def test_a_budget_without_a_price_says_so() -> None:
    result = simulate(queue("q", cpu=9), budget(1), job("w"), passes=None)

    assert result.reasons == {"w": "MISCONFIGURATION:PriceUnknown"}


def test_a_generated_load_is_charged_too() -> None:
    load = {
        "apiVersion": SLUICE, "kind": "Load", "metadata": {"name": "l"},
        "spec": {
            "clusterQueue": {"nominal": {"cpu": "9"}}, "flavor": "default",
            "classes": [{"name": "s", "count": 5, "runtime": "30m", "requests": {"cpu": "1"}}],
        },
    }  # fmt: skip
    for_load = budget(2, clusterQueue="l-1-1", window="10h", start="2026-01-01T00:00:00Z")
    scenario = parse_scenario([priced("1"), for_load, load], "x")

    admitted = report(scenario, Simulation(scenario).run())["admitted"]

    # Two at $1 an hour are committed; each ends after half of it and leaves 50 cents behind.
    assert [one["at"] for one in admitted] == [0.0, 0.0, 1800.0, 36000.0, 36000.0]


@pytest.mark.parametrize("latency", [0, 30])
def test_the_deadline_of_one_who_waits_passes_whether_or_not_anything_happens(
    latency: int,
) -> None:
    patient = job("patient", cpu=4)
    hasty = job("hasty", deadlines={"maxPending": "1h"})

    result = simulate(queue("q", cpu=4), patient, hasty, passes=None, latency=latency)

    assert reasons(result) == {"hasty": "MISCONFIGURATION:DeadlinePassed"}
    assert times(result, "ended")["hasty"] == pytest.approx(1800.0, abs=5)  # created 30 min before


def test_a_pending_policy_acts_on_the_reason_of_its_time() -> None:
    cancel = {"reason": "QUOTA:*", "after": "45m", "action": "Cancel"}
    other = {"reason": "CAPACITY:*", "after": "45m", "action": "Cancel"}

    result = simulate(
        queue("q", cpu=4), job("full", cpu=4),
        job("gives-up", pendingPolicy=[cancel]), job("stays", pendingPolicy=[other]), passes=None,
    )  # fmt: skip

    assert reasons(result) == {"gives-up": "CANCELLED:PendingPolicy"}
    assert result.pending == {"stays"}


def test_policies_count_for_their_root_only() -> None:
    rules = preemption("LowerPriority")
    peace = policy(rootCohort="red", minRuntime="24h")
    held = [running("r", "red", cpu=1), running("b", "blue", cpu=1)]
    new = [waiting("r2", "red", 1, cpu=1), waiting("b2", "blue", 1, cpu=1)]

    result = simulate(
        peace, *(queue(name, cpu=1, spec=rules) for name in ("red", "blue")), *held, *new
    )

    assert result.preempted == {"b": "InClusterQueue"}


def test_a_policys_minimum_replaces_that_of_generated_work() -> None:
    load = {
        "apiVersion": SLUICE, "kind": "Load", "metadata": {"name": "l"},
        "spec": {
            "clusterQueue": {"nominal": {"cpu": "1"}}, "flavor": "default",
            "classes": [{"name": "s", "count": 1, "requests": {"cpu": "1"}}],
        },
    }  # fmt: skip
    (alone,) = parse_scenario([load], "x").jobs
    (governed,) = parse_scenario([load, policy(minRuntime="2m")], "x").jobs

    assert (alone.workload.min_run_ms, governed.workload.min_run_ms) == (60_000, 0)


def test_a_check_that_never_answers_keeps_quota_and_starts_nothing() -> None:
    answers = [{"name": "c", "workloads": ["other"]}]

    result = simulate(
        check(), queue("q", cpu=1, spec=checked("c")), job("w", runtime="1s"), passes=None,
        admissionChecks=answers,
    )  # fmt: skip

    assert (result.order, result.report["finished"]) == (["w"], [])
    assert result.cpu("usage", "q") == ["1"]


def test_all_checks_must_be_ready_and_the_slowest_decides() -> None:
    answers = [{"name": "c", "after": "10s"}, {"name": "d", "after": "40s"}]

    result = simulate(
        check("c"), check("d"), queue("q", cpu=1, spec=checked("c", "d")),
        job("w", runtime="5s"), passes=None, admissionChecks=answers,
    )  # fmt: skip

    assert times(result, "finished") == {"w": 45.0}


def test_a_check_that_nobody_can_answer_stops_its_queue_as_it_would_in_the_cluster() -> None:
    answers = [{"name": "c"}]

    result = simulate(
        check("c", "example.com/other"), queue("q", cpu=1, spec=checked("c")), job("w"),
        admissionChecks=answers,
    )  # fmt: skip

    assert result.reasons == {"w": "MISCONFIGURATION:QueueInactive"}


def test_work_that_was_saved_is_not_done_again() -> None:
    rules = preemption("LowerPriority")
    saved = job("low", checkpoint={"mode": "application"}, runtime="60s") | {"priority": -1}
    lost = job("low", runtime="60s") | {"priority": -1}
    high = job("high", runtime="10s", arrivesAfter="20s")

    def end(low: Json) -> float:
        result = simulate(queue("q", cpu=1, spec=rules), low, high, passes=None)
        assert result.preempted == {"low": "InClusterQueue"}
        return times(result, "finished")["low"]

    assert (end(saved), end(lost)) == (70.0, 90.0)


@pytest.mark.parametrize(
    ("checkpoint", "within", "low_ends", "high_waits"),
    [
        ({"mode": "kubelet"}, None, 70.5, 0.5),
        ({"mode": "kubelet"}, "1s", 70.5, 0.5),
        ({"mode": "kubelet"}, "400ms", 90.0, 0.0),
        ({"mode": "kubelet"}, "0s", 90.0, 0.0),
        ({"mode": "kubelet", "interval": "15s"}, "0s", 75.0, 0.0),
        ({"mode": "application"}, None, 70.0, 0.0),
    ],
)
def test_a_victim_is_saved_in_the_time_that_its_policy_gives_it_and_holds_its_place_meanwhile(
    checkpoint: Json, within: str | None, low_ends: float, high_waits: float
) -> None:
    low = job("low", checkpoint=checkpoint, runtime="60s") | {"priority": -1}
    high = job("high", runtime="10s", arrivesAfter="20s")
    stated = [] if within is None else [policy(saveVictimsWithin=within)]

    result = simulate(
        queue("q", cpu=1, spec=preemption("LowerPriority")), *stated, low, high, passes=None
    )

    assert times(result, "finished") == {"low": low_ends, "high": 30.0 + high_waits}
    assert times(result, "admitted")["high"] == 20.0 + high_waits


def test_periodic_checkpoints_choose_the_victim_that_loses_least() -> None:
    rules = preemption("LowerPriority")
    often = job("often", runtime="1h", checkpoint={"mode": "application", "interval": "100s"})
    seldom = job("seldom", runtime="1h", checkpoint={"mode": "application", "interval": "650s"})

    def victims(arrives_s: int) -> dict[str, str]:
        high = job("high", arrivesAfter=f"{arrives_s}s") | {"priority": 1}
        parts = (queue("q", cpu=2, spec=rules), often, seldom, high)
        return simulate(*parts, passes=None, until=1000 * arrives_s).preempted

    assert victims(690) == {"seldom": "InClusterQueue"}  # saved at 650 s; the other one at 600 s
    assert victims(710) == {"often": "InClusterQueue"}


def test_a_cluster_gives_back_what_its_work_has_used() -> None:
    jobs = [job(f"w{n}", runtime="10s", arrivesAfter=f"{20 * n}s") for n in range(3)]

    result = simulate(queue("q", cpu=4), cluster("a"), cluster("b"), *jobs, passes=None)

    # Nothing else runs when the next one comes, so that the name decides each time.
    assert [one["cluster"] for one in result.report["admitted"]] == ["a", "a", "a"]


def test_flavors_of_two_groups_that_no_cluster_has_together_hold_no_quota() -> None:
    groups = [{"spot": {"cpu": 4}}, {"gpus": {"gpu": 4}}]
    both = waiting("both", "q", cpu=1, gpu=1)

    result = simulate(
        queue("q", None, *groups), cluster("a", flavors=["spot"]), cluster("b", flavors=["gpus"]),
        both, passes=None,
    )  # fmt: skip

    assert result.reasons == {"both": "MISCONFIGURATION:NoMatchingFlavor"}
    assert result.node("q")["usage"] == {"gpus": {"gpu": "0"}, "spot": {"cpu": "0"}}


def test_namespaces_are_selected_only_if_their_labels_are_told() -> None:
    selecting = queue("q", cpu=4, spec={"namespaceSelector": {"matchLabels": {"tier": "gold"}}})
    parts = [selecting, local_queue("a/l", "q"), local_queue("b/l", "q")]
    jobs = [job("in", "a/l"), job("out", "b/l")]

    told = simulate(*parts, *jobs, namespaceLabels={"a": {"tier": "gold"}})
    untold = simulate(*parts, *jobs)

    assert told.reasons == {"out": "MISCONFIGURATION:NamespaceNotSelected"}
    assert untold.reasons == {}


def test_what_has_no_effect_is_told_with_its_place() -> None:
    spec = checked("c") | {"namespaceSelector": {"matchLabels": {"tier": "gold"}}}
    parts = documents(
        check(), queue("q", cpu=1, spec=spec), cluster("a", managePools=False), job("w")
    )

    told = parse_scenario(parts, "case").notices

    assert [line.partition(" has no effect here: ")[0] for line in told] == [
        "document 3 (ClusterQueue q): spec.admissionChecksStrategy",
        "document 3 (ClusterQueue q): spec.namespaceSelector",
        "document 4 (Cluster a): spec.managePools",
    ]
    answered = documents(*parts[1:3], job("w"), admissionChecks=[{"name": "c"}])
    assert "admissionChecks" not in str(parse_scenario(answered, "case").notices)


def test_borrowing_while_preempting_has_no_effect_beside_fair_sharing() -> None:
    rules = {"reclaimWithinCohort": "Any", "borrowWithinCohort": {"policy": "LowerPriority"}}
    one = queue("q", "c", spec={"preemption": rules}, cpu=1)

    assert parse_scenario(documents(one), "case").notices == ()
    (told,) = parse_scenario(documents(one, fairSharing={}), "case").notices
    assert "spec.preemption.borrowWithinCohort has no effect here" in told


@pytest.mark.parametrize(
    ("parts", "spec", "message"),
    [
        ([job("w", dependsOn=[{"name": "ww"}])], {},
         "workloads[0].dependsOn[0].name: there is no workload 'ww'; did you mean w?"),
        ([job("w", dependsOn=[{"nam": "v"}])], {}, "dependsOn[0].nam: unknown field; did you mean"),
        ([job("w", array="9")], {}, "workloads[0].array: '9' is not an array"),
        ([job("w", array="0-9%2")], {}, "podSets[0].count: the array says 2 already"),
        ([job("w", deadlines={"maxPendin": "1h"})], {},
         "deadlines.maxPendin: unknown field; did you mean maxPending?"),
        ([job("w", recovery={"onFailure": {}})], {}, "workloads[0].recovery: nothing is interr"),
        ([budget(0)], {}, "spec.limitUSD: must be an amount of dollars above 0"),
        ([budget(1, clusterQueue="p")], {}, "spec.clusterQueue: no ClusterQueue is named p"),
        ([budget(1), budget(2)], {}, "metadata.name: Budget b is defined twice"),
        ([policy(rootCohort="r")], {}, "spec.rootCohort: no root cohort is named r; known: q"),
        ([policy(), policy("o")], {}, "SchedulingPolicy o is for every root cohort already"),
        ([policy()], {"fairSharing": {}}, "spec.fairSharing: the SchedulingPolicy says it"),
        ([cluster("a", flavors=["b"])], {}, "spec.flavors: no ResourceFlavor is named b; known: "),
        ([cluster("a", flavor=["b"])], {}, "spec.flavor: unknown field; did you mean flavors?"),
        ([], {"admissionChecks": [{"name": "c"}]}, "name: no AdmissionCheck is named c; known: -"),
        ([check(), check("d"), queue("x", spec=checked("d"))], {"admissionChecks": [
            {"name": "c"}]}, "spec.admissionChecks: nobody answers d; add an entry with its name"),
        ([check()], {"admissionChecks": [{"name": "c", "answers": ["Yes"]}]},
         "answers: 'Yes' is not one of Ready, Retry, Rejected"),
        ([check()], {"admissionChecks": [{"name": "c", "answers": ["Ready", "Retry"]}]},
         "answers: Retry cannot be the last answer"),
    ],
)  # fmt: skip
def test_a_mistake_names_its_field_and_what_to_do(
    parts: list[Json], spec: Json, message: str
) -> None:
    assert any(message in found for found in flaws(queue("q", cpu=1), *parts, **spec))


def test_fair_sharing_may_be_a_policy_of_the_tree() -> None:
    queues = [queue(name, "team", cpu=0, spec=preemption("Never", "Any")) for name in ("a", "b")]
    hog = [running(f"r{n}", "a", at=n, cpu=1) for n in range(4)]
    parts = [cohort("team", cpu=4), *queues, *hog, job("w", "b")]

    assert simulate(*parts).preempted == {}
    assert simulate(*parts, policy(fairSharing={})).preempted == {"r3": "InCohortFairSharing"}


def test_after_a_retry_the_time_of_the_eviction_orders_the_queue() -> None:
    # `w` is evicted at 10 s and comes back at 70 s behind `next`, which was created at 5 s.
    answers = [
        {"name": "c", "workloads": ["w"], "answers": ["Retry", "Ready"], "after": "10s"},
        {"name": "c"},
    ]
    created = {"createdAt": "2026-01-01T01:00:05Z"}

    result = simulate(
        check(), queue("q", cpu=1, spec=checked("c")), job("w", runtime="5s"),
        job("blocker", runtime="100s", arrivesAfter="9s") | {"createdAt": START},
        job("next", runtime="5s", arrivesAfter="15s") | created,
        passes=None, admissionChecks=answers,
    )  # fmt: skip

    assert result.order == ["w", "blocker", "next", "w"]
