from typing import Any

from infra.admission_policy import SOMETHING_IS_WRONG, with_early_pass
from infra.cluster_manifest import cluster_manifest

POLICY: dict[str, Any] = {
    "spec": {
        "matchConditions": [{"name": "first", "expression": "a"}],
        "variables": [
            {"name": "pod", "expression": "object.spec.template.spec"},
            {"name": "podLabels", "expression": "variables.pod.labels"},
        ],
        "validations": [
            {"expression": "has(variables.podLabels.x)", "message": "x"},
            {"expression": "variables.pod.y || z"},
        ],
    }
}


def test_a_policy_passes_early_what_meets_all_its_validations() -> None:
    conditions = with_early_pass(POLICY)["spec"]["matchConditions"]

    assert conditions == [
        {"name": "first", "expression": "a"},
        {
            "name": SOMETHING_IS_WRONG,
            "expression": "!((has(((object.spec.template.spec).labels).x))"
            " && ((object.spec.template.spec).y || z))",
        },
    ]


def test_what_is_wrong_still_meets_the_validations() -> None:
    spec = with_early_pass(POLICY)["spec"]

    assert spec["validations"] == POLICY["spec"]["validations"]
    assert spec["variables"] == POLICY["spec"]["variables"]


def test_only_the_policy_that_looks_at_every_job_passes_early() -> None:
    conditions = {
        each["metadata"]["name"]: [one["name"] for one in each["spec"].get("matchConditions", ())]
        for each in cluster_manifest(["a"])
        if each["kind"] == "ValidatingAdmissionPolicy"
    }

    early = {policy for policy, names in conditions.items() if SOMETHING_IS_WRONG in names}

    assert early == {"jobs.sluice.dev"}
