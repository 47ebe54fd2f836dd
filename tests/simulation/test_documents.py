"""Files: Kueue's objects of both versions, and mistakes that are named with place and remedy."""

from copy import deepcopy
from typing import Any

import pytest
from sluice.client.yaml_stream import parse_yaml
from sluice.core.config.document import DocumentError
from sluice.core.config.kueue_objects import parse_objects
from sluice.core.config.model import (
    FungibilityChoice,
    QueueingStrategy,
    StopPolicy,
    Taint,
    TaintEffect,
    Toleration,
)
from sluice.core.values.quantity import (
    format_quantity,
    parse_decimal,
    parse_duration,
    parse_quantity,
)
from sluice.simulation.expectation import differences
from sluice.simulation.scenario import parse_scenario

from tests.simulation.builders import (
    Json,
    documents,
    local_queue,
    queue,
    running,
    simulate,
    waiting,
)

FLAVOR = {"name": "default", "resources": [{"name": "cpu", "nominalQuota": "4"}]}


def cluster_queue(version: str = "v1beta2", **spec: Any) -> Json:
    body = {
        "namespaceSelector": {},
        "resourceGroups": [{"coveredResources": ["cpu"], "flavors": [deepcopy(FLAVOR)]}],
    }
    return {
        "apiVersion": f"kueue.x-k8s.io/{version}",
        "kind": "ClusterQueue",
        "metadata": {"name": "q"},
        "spec": body | spec,
    }


HUGE = {"nominalQuota": "9223372036854775808m"}


def flaws(*objects: Json) -> list[str]:
    with pytest.raises(DocumentError) as caught:
        parse_objects(objects)
    return [str(one) for one in caught.value.flaws]


def test_v1beta1_calls_the_cohort_cohort() -> None:
    (old,) = parse_objects([cluster_queue("v1beta1", cohort="team")]).cluster_queues
    (new,) = parse_objects([cluster_queue("v1beta2", cohortName="team")]).cluster_queues

    assert old == new
    assert new.cohort == "team"


def test_the_other_versions_name_is_an_error_with_the_right_one() -> None:
    (found,) = flaws(cluster_queue("v1beta2", cohort="team"))

    assert found == (
        "document 1 (ClusterQueue q): spec.cohort: unknown field; did you mean cohortName?"
    )


def test_v1beta1_says_borrow_and_preempt_for_may_stop_search() -> None:
    rules = {"whenCanBorrow": "Borrow", "whenCanPreempt": "Preempt"}

    (old,) = parse_objects([cluster_queue("v1beta1", flavorFungibility=rules)]).cluster_queues

    assert old.flavor_fungibility.when_can_borrow is FungibilityChoice.MAY_STOP_SEARCH
    assert old.flavor_fungibility.when_can_preempt is FungibilityChoice.MAY_STOP_SEARCH
    assert "'Borrow' is not one of" in flaws(cluster_queue(flavorFungibility=rules))[0]


def test_v1beta1_lists_admission_checks_bare() -> None:
    (old,) = parse_objects([cluster_queue("v1beta1", admissionChecks=["a"])]).cluster_queues
    strategy = {"admissionChecks": [{"name": "a"}, {"name": "b", "onFlavors": ["default"]}]}
    (new,) = parse_objects([cluster_queue(admissionChecksStrategy=strategy)]).cluster_queues

    assert old.admission_checks == {"a": ()}
    assert new.admission_checks == {"a": (), "b": ("default",)}


def test_status_labels_and_annotations_of_a_live_object_are_no_flaws() -> None:
    live = cluster_queue() | {"status": {"pendingWorkloads": 3}}
    live["metadata"] = {
        "name": "q", "uid": "1", "labels": {"a": "b"},
        "annotations": {"sluice.dev/max-running": "5"},
    }  # fmt: skip

    (found,) = parse_objects([live]).cluster_queues

    assert found.max_running == 5


def test_all_parts_of_a_flavor_are_read() -> None:
    taint = {"key": "spot", "value": "yes", "effect": "NoSchedule"}
    spec = {
        "nodeLabels": {"zone": "a"},
        "nodeTaints": [taint],
        "tolerations": [{"key": "spot", "operator": "Exists"}],
        "topologyName": "racks",
    }
    version = "kueue.x-k8s.io/v1beta2"
    one = {"apiVersion": version, "kind": "ResourceFlavor", "metadata": {"name": "f"}, "spec": spec}

    (flavor,) = parse_objects([one]).resource_flavors

    assert flavor.node_labels == {"zone": "a"}
    assert flavor.node_taints == (Taint("spot", TaintEffect.NO_SCHEDULE, "yes"),)
    assert flavor.tolerations == (Toleration("spot", "Exists"),)
    assert flavor.topology_name == "racks"


def test_queues_and_classes_are_read_with_all_their_fields() -> None:
    version = "kueue.x-k8s.io/v1beta1"
    found = parse_objects(
        [
            cluster_queue(queueingStrategy="StrictFIFO", stopPolicy="Hold"),
            {
                "apiVersion": version,
                "kind": "LocalQueue",
                "metadata": {"name": "l", "namespace": "ns"},
                "spec": {"clusterQueue": "q", "fairSharing": {"weight": 0.25}},
            },
            {
                "apiVersion": version,
                "kind": "WorkloadPriorityClass",
                "metadata": {"name": "high"},
                "value": 1000,
                "description": "for people",
            },
        ]
    )

    assert found.cluster_queues[0].queueing_strategy is QueueingStrategy.STRICT_FIFO
    assert found.cluster_queues[0].stop_policy is StopPolicy.HOLD
    assert (found.local_queues[0].key, found.local_queues[0].fair_weight_milli) == ("ns/l", 250)
    assert found.priority_classes[0].value == 1000


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"queueingStrategy": "Fifo"}, "spec.queueingStrategy: 'Fifo' is not one of"),
        ({"queueStrategy": "StrictFIFO"}, "did you mean queueingStrategy?"),
        ({"cohortName": "Team A"}, "spec.cohortName: 'Team A' is not a name"),
        ({"fairSharing": {"weight": "-1"}}, "spec.fairSharing.weight: '-1' must be at least 0"),
        ({"resourceGroups": {}}, "spec.resourceGroups: must be a list, not a map"),
        ({"stopPolicy": True}, "spec.stopPolicy: True is not one of"),
        (
            {
                "resourceGroups": [
                    {
                        "coveredResources": ["cpu"],
                        "flavors": [{"name": "f", "resources": [{"name": "cpu", **HUGE}]}],
                    }
                ]
            },
            "resources[0].nominalQuota: '9223372036854775808m' is more than any cluster has",
        ),
        (
            {"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
            "spec.preemption.borrowWithinCohort: needs reclaimWithinCohort",
        ),
        (
            {"flavorFungibility": {"preference": "PreemptionOverBorrowing"}},
            "spec.flavorFungibility.preference: needs whenCanBorrow",
        ),
        (
            {"admissionScope": {"admissionMode": "ByUsage"}},
            "spec.admissionScope.admissionMode: 'ByUsage' is not one of",
        ),
    ],
)
def test_a_mistake_names_the_field_and_what_to_do(spec: Json, message: str) -> None:
    assert any(message in found for found in flaws(cluster_queue(**spec)))


@pytest.mark.parametrize(
    ("quota", "message"),
    [
        ({"nominalQuota": "4x"}, "nominalQuota: '4x' is not a quantity"),
        ({"nominalQuota": "-4"}, "nominalQuota: '-4' is negative"),
        ({"nominalQuota": True}, "nominalQuota: must be a quantity, not true"),
        ({"nominalQuota": None}, "nominalQuota: is missing"),
        ({"borrowingLimit": "1"}, "borrowingLimit: is only allowed below a cohort"),
        ({"lendingLimit": "1"}, "lendingLimit: is only allowed below a cohort"),
        ({"name": "memory"}, "must list the group's coveredResources in their order"),
    ],
)
def test_a_wrong_quota_is_found_where_it_stands(quota: Json, message: str) -> None:
    broken = cluster_queue()
    broken["spec"]["resourceGroups"][0]["flavors"][0]["resources"][0].update(quota)

    where = "document 1 (ClusterQueue q): spec.resourceGroups[0].flavors[0].resources"
    found = flaws(broken)
    assert any(one.startswith(where) and message in one for one in found)


def test_a_queue_cannot_lend_more_than_it_has_but_a_cohort_may() -> None:
    lending = {"name": "cpu", "nominalQuota": "4", "lendingLimit": "5"}
    groups = [
        {"coveredResources": ["cpu"], "flavors": [{"name": "default", "resources": [lending]}]}
    ]
    spec = {"parentName": "root", "resourceGroups": groups}
    version = "kueue.x-k8s.io/v1beta2"
    inner = {"apiVersion": version, "kind": "Cohort", "metadata": {"name": "c"}, "spec": spec}

    assert "is above nominalQuota" in flaws(cluster_queue(cohortName="c", resourceGroups=groups))[0]
    assert parse_objects([inner]).cohorts[0].parent == "root"


def test_all_mistakes_are_told_at_once() -> None:
    first, second = cluster_queue(stopPolicy="Never"), cluster_queue("v1alpha1")

    found = flaws(first, second, {"kind": "Pod", "apiVersion": "v1"})

    assert [one.split(":")[0] for one in found] == [
        "document 1 (ClusterQueue q)",
        "document 2 (ClusterQueue q)",
        "document 3 (Pod)",
    ]


def test_the_limits_of_kueues_api_hold() -> None:
    group = {"coveredResources": ["cpu"], "flavors": [FLAVOR]}
    many = [
        {"coveredResources": [f"r{i}"], "flavors": [
            {"name": f"f{i}", "resources": [{"name": f"r{i}", "nominalQuota": 1}]}]}
        for i in range(17)
    ]  # fmt: skip

    assert any("17 groups; at most 16" in one for one in flaws(cluster_queue(resourceGroups=many)))
    twice = flaws(cluster_queue(resourceGroups=[group, group]))
    assert any("flavor default occurs twice" in one for one in twice)
    assert any("resource cpu occurs twice" in one for one in twice)
    assert flaws(cluster_queue(), cluster_queue()) == [
        "document 2 (ClusterQueue q): metadata.name: ClusterQueue q is defined twice"
    ]


SCENARIO_MISTAKES: list[tuple[Json, str]] = [
    ({"passes": 0}, "spec.passes: 0 is too small"),
    ({"start": "yesterday"}, "spec.start: 'yesterday' is not a time"),
    ({"start": "2026-01-01T00:00:00"}, "spec.start: '2026-01-01T00:00:00' is not a time"),
    ({"fairSharing": {"preemptionStrategies": ["Fair"]}}, "'Fair' is not one of"),
    ({"admissionFairSharing": {"usageHalfLifeTime": "fast"}}, "'fast' is not a duration"),
    (
        {"admissionFairSharing": {"usageHalfLifeTime": "1h", "usageSamplingInterval": "0s"}},
        "usageSamplingInterval: must be longer than 0s",
    ),
    (
        {"localQueueUsage": [{"localQueue": "ns/x", "consumed": {}}]},
        "there is no LocalQueue 'ns/x'",
    ),
    ({"workload": []}, "spec.workload: unknown field; did you mean workloads?"),
]


@pytest.mark.parametrize(("spec", "message"), SCENARIO_MISTAKES)
def test_a_mistake_in_a_scenario_names_the_field(spec: Json, message: str) -> None:
    with pytest.raises(DocumentError) as caught:
        parse_scenario(documents(queue("q", cpu=1), **spec), "x")

    assert any(message in str(one) for one in caught.value.flaws)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"clusterQueue": "nowhere"}, "there is no ClusterQueue 'nowhere'; known: q"),
        ({"clusterQueue": None}, "name either clusterQueue or localQueue"),
        ({"localQueue": "ns/l"}, "name either clusterQueue or localQueue"),
        ({"priority": 2**31}, "priority: 2147483648 does not fit 32 bits"),
        ({"priority": "high"}, "priority: must be a whole number, not 'high'"),
        ({"runtime": "1 minute"}, "runtime: '1 minute' is not a duration"),
        ({"podSets": []}, "podSets: must not be empty"),
        (
            {"podSets": [{"name": "m", "count": 1, "minCount": 2, "requests": {}}]},
            "minCount: 2 exceeds the count of 1",
        ),
        ({"podSets": [{"name": "m", "count": 0, "requests": {}}]}, "count: 0 is too small"),
        (
            {"holds": {"since": "2026-01-01T00:00:00Z", "flavors": {"main": {}}}},
            "must give a flavor to each of its resources: cpu",
        ),
        (
            {"holds": {"since": "2026-01-01T00:00:00Z", "flavors": {"main": {"cpu": "gold"}}}},
            "q has no quota of gold for cpu",
        ),
        (
            {
                "holds": {"since": "2026-01-01T00:00:00Z", "flavors": {"main": {"cpu": "default"}}},
                "arrivesAfter": "1s",
            },
            "arrivesAfter: what holds quota is there from the start",
        ),
        (
            {"holds": {"since": "2026-01-01T01:00:01Z", "flavors": {"main": {"cpu": "default"}}}},
            "holds.since: is after the scenario's start",
        ),
    ],
)  # fmt: skip
def test_a_mistake_in_a_workload_names_the_field(change: Json, message: str) -> None:
    one = waiting("w", "q", cpu=1) | change
    parts = documents(queue("q", cpu=1), local_queue("ns/l", "q"), one)

    with pytest.raises(DocumentError) as caught:
        parse_scenario(parts, "x")
    assert any(message in str(one) for one in caught.value.flaws)


def test_what_is_no_text_names_no_document() -> None:
    one = cluster_queue() | {"metadata": {"name": ["x"] * 10_000}}

    assert all(len(line) < 200 for line in flaws(one))


def test_one_mistake_is_told_once() -> None:
    lost = running("lost", "nowhere", cpu=1)
    late = waiting("late", "q", cpu=1, runtime="1s", arrivesAfter="-5s")

    with pytest.raises(DocumentError) as caught:
        parse_scenario(documents(queue("q", cpu=1), lost, late), "x")

    assert [one.field for one in caught.value.flaws] == [
        "spec.workloads[0].clusterQueue",
        "spec.workloads[1].arrivesAfter",
    ]


def test_names_are_unique_and_documents_single() -> None:
    parts = documents(queue("q", cpu=1), waiting("w", "q", cpu=1), waiting("w", "q", cpu=1))

    with pytest.raises(DocumentError, match="'w' is listed twice"):
        parse_scenario(parts, "x")
    with pytest.raises(DocumentError, match="is the second Scenario"):
        parse_scenario([*documents(), documents()[-1]], "x")


def test_a_queue_and_a_cohort_cannot_share_a_name() -> None:
    with pytest.raises(DocumentError, match=r"ClusterQueue q: metadata.name: is a cohort's name"):
        parse_scenario(documents(queue("q", "q", cpu=1)), "x")


@pytest.mark.parametrize(
    ("document", "message"),
    [
        (["a"], "document 1: must be a map, not a list"),
        ({"apiVersion": "sluice.dev/v1", "kind": "Scenarios"}, "known: .*, Scenario, Load, Expect"),
    ],
)
def test_a_document_of_no_known_kind_has_one_flaw(document: object, message: str) -> None:
    with pytest.raises(DocumentError, match=message) as caught:
        parse_scenario([document], "x")

    assert len(caught.value.flaws) == 1


def test_the_class_called_default_applies_to_work_without_priority() -> None:
    version = "kueue.x-k8s.io/v1beta2"
    name = {"name": "default"}
    ours = {"apiVersion": version, "kind": "WorkloadPriorityClass", "metadata": name, "value": 7}
    bare = {k: v for k, v in waiting("bare", "q", cpu=1).items() if k != "priority"}
    parts = documents(queue("q", cpu=1), waiting("own", "q", 3, cpu=1), bare)

    jobs = parse_scenario([ours, *parts], "x").jobs

    assert [job.workload.priority for job in jobs] == [3, 7]


@pytest.mark.parametrize(
    ("expected", "line"),
    [
        ({"admitted": {}}, "admitted: w was admitted unexpectedly"),
        (
            {"admitted": {"w": {}, "x": {}}},
            "admitted: x is expected, but was not admitted; it waits (QUOTA:",
        ),
        ({"admitted": {"w": {}, "y": {}}}, "not admitted; it is not in the report"),
        ({"admitted": {"w": {"main": {"count": 3}}}}, "admitted: w.main: expected 3 pods, found 2"),
        (
            {"admitted": {"w": {"main": {"flavors": {"cpu": "gold"}}}}},
            "admitted: w.main: expected cpu: gold, found cpu: default",
        ),
        ({"admitted": {"w": {"side": {}}}}, "admitted: w.side: there is no such pod set"),
        ({"preempted": {"x": "InClusterQueue"}}, "preempted: x is expected (InClusterQueue)"),
        ({"pending": []}, "pending: x waits unexpectedly (QUOTA:"),
        (
            {"pending": ["w", "x"]},
            "pending: w is expected to wait, but does not; it was admitted at 0 s",
        ),
        (
            {"available": {"q": {"default": {"cpu": "9"}}}},
            "available: q: cpu of default: expected 9, found 1",
        ),
        ({"potential": {"q": {"gold": {"cpu": "9"}}}}, "found no quota"),
        ({"potential": {"p": {}}}, "there is no ClusterQueue or Cohort p"),
        (
            {"share": {"q": {"value": 5, "resource": "cpu"}}},
            "share: q: expected 5 cpu, found 0",
        ),
    ],
)  # fmt: skip
def test_each_difference_from_the_expectation_is_one_line(expected: Json, line: str) -> None:
    parts = [queue("q", cpu=3), waiting("w", "q", count=2, cpu=1), waiting("x", "q", at=1, cpu=2)]
    checked = {"apiVersion": "sluice.dev/v1", "kind": "Expectation", "spec": expected}

    scenario = parse_scenario([*documents(*parts), checked], "x")

    assert scenario.expectation is not None
    found = list(differences(scenario.expectation, simulate(*parts).report))
    assert any(line in one for one in found), found


def test_what_is_drained_is_not_expected_as_preempted() -> None:
    spec = {"preempted": {"w": "QueueDrained"}}
    checked = {"apiVersion": "sluice.dev/v1", "kind": "Expectation", "spec": spec}

    with pytest.raises(DocumentError, match=r"preempted\.w: .* write it under pending"):
        parse_scenario([*documents(queue("q", cpu=1)), checked], "x")


def test_an_expectation_that_is_met_has_no_differences() -> None:
    parts = [queue("q", cpu=3), running("r", "q", cpu=4), waiting("w", "q", cpu=1)]
    spec = {
        "admitted": {}, "preempted": {}, "pending": ["w"],
        "available": {"q": {"default": {"cpu": "-1"}}},
        "potential": {"q": {"default": {"cpu": "3000m"}}},
        "share": {"q": {"value": 0, "resource": ""}},
    }  # fmt: skip
    checked = {"apiVersion": "sluice.dev/v1", "kind": "Expectation", "spec": spec}

    scenario = parse_scenario([*documents(*parts), checked], "x")

    assert scenario.expectation is not None
    assert list(differences(scenario.expectation, simulate(*parts).report)) == []


@pytest.mark.parametrize(
    ("resource", "text", "amount", "canonical"),
    [
        ("cpu", "4", 4_000, "4"),
        ("cpu", "500m", 500, "500m"),
        ("cpu", ".5", 500, "500m"),
        ("cpu", 0.25, 250, "250m"),
        ("cpu", "2k", 2_000_000, "2k"),
        ("cpu", "0.0001", 1, "1m"),
        ("cpu", "-3", -3_000, "-3"),
        ("memory", "16Gi", 16 * 2**30, "16Gi"),
        ("memory", "1.5Gi", 1536 * 2**20, "1536Mi"),
        ("memory", "1G", 10**9, "1000000000"),
        ("memory", "512", 512, "512"),
        ("nvidia.com/gpu", "1e3", 1_000, "1k"),
        ("hugepages-2Mi", "4Mi", 4 * 2**20, "4Mi"),
        ("gpu", 0, 0, "0"),
    ],
)
def test_quantities_go_to_base_units_and_back(
    resource: str, text: str | float, amount: int, canonical: str
) -> None:
    assert parse_quantity(resource, text) == amount
    assert format_quantity(resource, amount) == canonical
    assert parse_quantity(resource, canonical) == amount


@pytest.mark.parametrize("text", ["", "x", "1 Gi", "1gi", "--1", "1e", "0x10", "१"])
def test_what_is_no_quantity_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a quantity"):
        parse_decimal(text)


@pytest.mark.parametrize(
    ("text", "milliseconds"),
    [("90s", 90_000), ("1h30m", 5_400_000), ("100ms", 100), ("1.5s", 1_500), ("0s", 0), ("0", 0),
     ("1000us", 1)],
)  # fmt: skip
def test_durations_are_milliseconds(text: str, milliseconds: int) -> None:
    assert parse_duration(text) == milliseconds


@pytest.mark.parametrize("text", ["", "5", "5 s", "1d", "-1s", "1s2", "500us", "s"])
def test_what_is_no_duration_of_whole_milliseconds_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"not a duration|finer than a millisecond"):
        parse_duration(text)


def test_yaml_is_read_as_kubernetes_reads_it() -> None:
    text = "a: on\nb: 2026-01-01T00:00:00Z\nc: true\nd: 1\n---\n- no\n---\n"

    assert parse_yaml(text) == [
        {"a": "on", "b": "2026-01-01T00:00:00Z", "c": True, "d": 1},
        ["no"],
        None,
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\nb: 2\na: 3\n", r"line 3, column 1: the key 'a' occurs twice"),
        ("a: {b: 1, b: 2}", "'b' occurs twice"),
        ("a: [1", r"line 2, column 1|line 1"),
        ("a: \x01", "special characters|unacceptable|control characters"),
        ("[" * 50_000, "line 1, column 65: nested more than 64 deep; flatten"),
        ("- " * 65 + "1", "line 1, column 129: nested more than 64 deep"),
        ("{a: &a [[[1]]], b: " + "[" * 61 + "*a]", "column 81: nested more than 64 deep"),
        ("a: &a\n  b: &b [*a]", r"line 2, column 10: \*a stands inside"),
    ],
)
def test_bad_yaml_names_the_place(text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        parse_yaml(text)
