"""What Kueue's API server refuses is refused here, and what it takes is taken."""

from typing import Any

import pytest
from sluice.core.config.document import DocumentError
from sluice.core.config.ignored_fields import list_ignored_fields
from sluice.core.config.kueue_objects import parse_objects

from tests.simulation.builders import Json, local_queue, queue, simulate, waiting


def flavor(**spec: Any) -> Json:
    return {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "ResourceFlavor",
        "metadata": {"name": "f"},
        "spec": spec,
    }


def covering(flavors: int, resources: int, groups: int = 1) -> Json:
    """`resourceGroups` of so many groups, each with so many flavors and resources."""
    return {
        "resourceGroups": [
            {
                "coveredResources": [f"r{group}-{r}" for r in range(resources)],
                "flavors": [
                    {
                        "name": f"f{group}-{f}",
                        "resources": [
                            {"name": f"r{group}-{r}", "nominalQuota": 1} for r in range(resources)
                        ],
                    }
                    for f in range(flavors)
                ],
            }
            for group in range(groups)
        ]
    }


def checks(*on_flavors: str, **more: Any) -> Json:
    rule = {"name": "budget", "onFlavors": list(on_flavors)}
    return {"admissionChecksStrategy": {"admissionChecks": [rule]}, **more}


def selecting(**expression: Any) -> Json:
    return {"namespaceSelector": {"matchExpressions": [expression]}}


MIGRATION = "concurrentAdmissionPolicy"
NUMBERED = {f"k{n}": "v" for n in range(9)}
TAINT = {"key": "k", "effect": "NoSchedule"}


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"topologyName": "racks"}, "topologyName: needs at least one of nodeLabels"),
        ({"topologyName": "A", "nodeLabels": {"a": "b"}}, "topologyName: 'A' is not a name"),
        ({"nodeLabels": NUMBERED}, "nodeLabels: 9 entries; at most 8 are allowed"),
        ({"nodeLabels": {"a b": "c"}}, "'a b' is not a valid key"),
        ({"nodeLabels": {"Prefix/a": "c"}}, "'Prefix/a' is not a valid key"),
        ({"nodeLabels": {"a": "-b"}}, "'-b' is not a value of a label"),
        ({"nodeLabels": {"a": "x" * 64}}, "is not a value of a label"),
        ({"nodeTaints": [{**TAINT, "key": "a/b/c"}]}, "nodeTaints[0].key: 'a/b/c'"),
        ({"nodeTaints": [{**TAINT, "value": "a b"}]}, "nodeTaints[0].value: 'a b'"),
        ({"nodeTaints": [TAINT, {**TAINT, "value": "v"}]}, "k:NoSchedule occurs twice"),
        ({"nodeTaints": [{**TAINT, "key": f"k{n}"} for n in range(9)]}, "nodeTaints: 9 entries"),
        ({"tolerations": [{"operator": "Equal"}]}, "operator: must be Exists where key is empty"),
        ({"tolerations": [{"value": "v"}]}, "operator: must be Exists where key is empty"),
        (
            {"tolerations": [{"key": "k", "operator": "Exists", "value": "v"}]},
            "value: must be empty where operator is Exists",
        ),
        (
            {"tolerations": [{"key": "k", "tolerationSeconds": 5}]},
            "tolerationSeconds: needs effect: NoExecute",
        ),
        ({"tolerations": [{"key": f"k{n}"} for n in range(9)]}, "tolerations: 9 entries"),
    ],
)
def test_a_flavor_that_kueue_refuses_is_refused(spec: Json, message: str) -> None:
    assert message in refusal(flavor(**spec))


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        (checks("default", "gone"), "onFlavors: the queue has no flavor 'gone'; known: default"),
        (checks("default", "default"), "onFlavors: default occurs twice"),
        ({"admissionChecksStrategy": {"admissionChecks": []}}, "must not be empty"),
        (
            {
                "admissionChecksStrategy": {
                    "admissionChecks": [{"name": f"c{n}"} for n in range(65)]
                }
            },
            "admissionChecks: 65 entries; at most 64 are allowed",
        ),
        (
            {"admissionChecksStrategy": {"admissionChecks": [{"name": "c"}, {"name": "c"}]}},
            "admissionChecks: c occurs twice",
        ),
        (covering(1, 52, 5), "260 resources; at most 256 are allowed"),
        (covering(9, 60), "540 combinations of flavor and resource; at most 512 are allowed"),
        ({"namespaceSelector": {"matchLabels": {"a b": "c"}}}, "'a b' is not a valid key"),
        (selecting(key="a", operator="In"), "values: must not be empty where operator is In"),
        (selecting(key="a", operator="Near"), "operator: 'Near' is not one of In, NotIn"),
        (
            selecting(key="a", operator="Exists", values=["b"]),
            "values: must be empty where operator is Exists",
        ),
        ({MIGRATION: {"migration": {"mode": "Sometimes"}}}, "'Sometimes' is not one of"),
        ({MIGRATION: {"mode": "TryPreferredFlavors"}}, "migration: is missing"),
        (
            {
                MIGRATION: {
                    "migration": {
                        "mode": "RetainFirstAdmission",
                        "constraints": {"lastAcceptableFlavorName": "default"},
                    }
                }
            },
            "lastAcceptableFlavorName: needs mode: TryPreferredFlavors",
        ),
        ({"fairSharing": {"weight": "0.000000001"}}, "must be at least 0"),
        ({"fairSharing": {"weight": "1n"}}, "must be at least 0"),
        ({"cohortName": "a..b"}, "cohortName: 'a..b' is not a name"),
    ],
)
def test_a_cluster_queue_that_kueue_refuses_is_refused(spec: Json, message: str) -> None:
    groups = {} if "resourceGroups" in spec else {"cpu": 1}
    assert message in refusal(queue("q", spec=spec, **groups))


def refusal(document: Json) -> str:
    with pytest.raises(DocumentError) as caught:
        parse_objects([document])
    return str(caught.value)


def test_a_resource_needs_a_qualified_name() -> None:
    spec = covering(1, 1)
    spec["resourceGroups"][0]["coveredResources"] = ["a b"]
    spec["resourceGroups"][0]["flavors"][0]["resources"][0]["name"] = "a b"

    assert "'a b' is not a valid key" in refusal(queue("q", spec=spec))


def test_what_an_earlier_version_stored_is_read() -> None:
    found = parse_objects([flavor(topologyName="racks")], stored=True)

    assert [one.name for one in found.resource_flavors] == ["f"]


@pytest.mark.parametrize("weight", ["0", "2n", "0.0000000015", "500u", "0.0005", "1.00005", "3"])
def test_every_weight_that_kueue_takes_is_taken(weight: str) -> None:
    (found,) = parse_objects(
        [queue("q", "team", spec={"fairSharing": {"weight": weight}}, cpu=1)]
    ).cluster_queues

    assert found.fair_weight_milli >= 0
    assert (found.fair_weight_milli > 0) is (weight != "0")


def test_a_tiny_weight_counts() -> None:
    result = simulate(
        queue("tiny", "team", cpu=0, spec={"fairSharing": {"weight": "500u"}}),
        queue("small", "team", cpu=0, spec={"fairSharing": {"weight": "0.001"}}),
        queue("lender", "team", cpu=1),
        waiting("a", "tiny", cpu=1),
        waiting("b", "small", at=9, cpu=1),
        fairSharing={},
    )

    assert result.order == ["b"]


@pytest.mark.parametrize(
    ("expression", "admitted"),
    [
        ({"key": "team", "operator": "In", "values": ["red", "blue"]}, ["a", "b"]),
        ({"key": "team", "operator": "NotIn", "values": ["red"]}, ["b", "c"]),
        ({"key": "team", "operator": "Exists"}, ["a", "b"]),
        ({"key": "team", "operator": "DoesNotExist"}, ["c"]),
    ],
)
def test_a_cluster_queue_selects_namespaces_by_expressions(
    expression: Json, admitted: list[str]
) -> None:
    result = simulate(
        queue("q", cpu=9, spec=selecting(**expression)),
        *(local_queue(f"{namespace}/lq", "q") for namespace in ("red", "blue", "grey")),
        waiting("a", "red/lq", cpu=1),
        waiting("b", "blue/lq", at=1, cpu=1),
        waiting("c", "grey/lq", at=2, cpu=1),
        namespaceLabels={"red": {"team": "red"}, "blue": {"team": "blue"}, "grey": {}},
    )

    assert result.order == admitted
    assert set(result.reasons.values()) == {"MISCONFIGURATION:NamespaceNotSelected"}


def test_a_cohort_of_the_oldest_version_names_its_parent_so() -> None:
    (found,) = parse_objects(
        [
            {
                "apiVersion": "kueue.x-k8s.io/v1alpha1",
                "kind": "Cohort",
                "metadata": {"name": "team"},
                "spec": {"parent": "root"},
            }
        ]
    ).cohorts

    assert found.parent == "root"


def test_the_oldest_version_is_for_cohorts_only() -> None:
    assert "must be kueue.x-k8s.io/v1beta2" in refusal(
        flavor() | {"apiVersion": "kueue.x-k8s.io/v1alpha1"}
    )


@pytest.mark.parametrize(
    ("document", "path"),
    [
        (flavor(topologyName="racks", nodeLabels={"a": "b"}), "spec.topologyName"),
        (
            flavor(tolerations=[{"key": "k", "effect": "NoExecute", "tolerationSeconds": 9}]),
            "spec.tolerations[0].tolerationSeconds",
        ),
        (
            queue("q", spec={MIGRATION: {"migration": {"mode": "TryPreferredFlavors"}}}, cpu=1),
            "spec.concurrentAdmissionPolicy",
        ),
        (
            queue(
                "q",
                "team",
                spec={"preemption": {"borrowWithinCohort": {"policy": "LowerPriority"}}},
            ),
            "spec.preemption.borrowWithinCohort",
        ),
        (local_queue("default/lq", "q", flavors=[{"name": "f"}]), "spec.flavors"),
        ({"kind": "AdmissionCheck", "spec": {"parameters": {"name": "x"}}}, "spec.parameters"),
        ({"kind": "AdmissionCheck", "spec": {"retryDelayMinutes": 3}}, "spec.retryDelayMinutes"),
    ],
)
def test_what_has_no_effect_is_told(document: Json, path: str) -> None:
    assert [found for found, _ in list_ignored_fields(document, fair_sharing=True)] == [path]
