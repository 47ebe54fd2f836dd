"""The cluster's manifest gives every kind of job its rights and its guard."""

from typing import Any

import pytest
from sluice.core.jobs.job import JOB
from sluice.core.jobs.table import KINDS

from infra.cluster_manifest import cluster_manifest
from infra.job_kinds import makers_of_jobs


def rules_of(manifest: list[dict[str, Any]], role: str) -> list[dict[str, Any]]:
    (found,) = [each for each in manifest if each["metadata"]["name"] == role and "rules" in each]
    rules: list[dict[str, Any]] = found["rules"]
    return rules


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
@pytest.mark.parametrize(
    ("role", "verbs"),
    [
        ("sluice:act-for-tenants", ["create", "get", "patch", "delete"]),
        ("sluice:observe", ["list", "watch"]),
        ("sluice:observe-for-tenants", ["delete"]),
        ("sluice:interrupt-for-tenants", ["get", "delete"]),
    ],
)
def test_every_kind_is_in_the_roles(kind: Any, role: str, verbs: list[str]) -> None:
    rule = {"apiGroups": [kind.group], "resources": [kind.plural], "verbs": verbs}

    assert rule in rules_of(cluster_manifest(["red"], kinds=KINDS), role)
    without = rules_of(cluster_manifest(["red"]), role)
    assert (rule in without) is not bool(kind.add_on), "rights for what no controller makes"


@pytest.mark.parametrize("kind", KINDS.values(), ids=KINDS)
def test_every_kind_is_created_by_sluice_alone(kind: Any) -> None:
    policies = {
        document["metadata"]["name"]: document
        for document in cluster_manifest(["red"], kinds=KINDS)
        if document["kind"] == "ValidatingAdmissionPolicy"
    }
    policy = policies[f"{kind.plural}.sluice.dev"]["spec"]

    (rule,) = policy["matchConstraints"]["resourceRules"]
    assert (rule["apiGroups"], rule["resources"]) == ([kind.group], [kind.plural])
    assert policy["validations"][0]["message"].startswith(f"{kind.kind}s of this namespace")


def test_only_controllers_of_the_table_make_jobs_and_pods() -> None:
    text = str(cluster_manifest(["red"], kinds=KINDS))

    assert "MAKERS_OF" not in text
    assert "KIND." not in text
    for kind in KINDS.values():
        assert kind.controller in text
    assert f"o.kind == '{JOB.kind}'" in text


def test_a_jobset_controller_is_known_by_its_manifests_and_by_helm() -> None:
    condition = makers_of_jobs()

    assert "== 'system:serviceaccount:jobset-system:jobset-controller-manager'" in condition
    assert ".startsWith('system:serviceaccount:jobset-system:')" in condition
    assert ".endsWith('-controller')" in condition
