from typing import Any

import pytest
import yaml

from infra.cluster_manifest import cluster_manifest
from infra.functions import FUNCTIONS
from tests.unit.infra.conftest import Assembly

GROUPS = {shape.cluster_group for shape in FUNCTIONS} - {None}
OWN_NAMESPACES = ("sluice-system", "default")
READS = {"get", "list", "watch"}


def rules(objects: list[dict[str, Any]], name: str) -> set[tuple[str, str]]:
    """(resource, verb) of one ClusterRole."""
    (role,) = [
        each
        for each in objects
        if each["kind"] == "ClusterRole" and each["metadata"]["name"] == name
    ]
    return {
        (resource, verb)
        for rule in role["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def test_every_function_enters_with_a_group_of_its_own(assembly: Assembly) -> None:
    entries = assembly.resources("ClusterAccess-batch-1", "AWS::EKS::AccessEntry").values()

    assert {each["KubernetesGroups"][0] for each in entries} == GROUPS
    assert len({str(each["PrincipalArn"]) for each in entries}) == len(GROUPS)
    for entry in entries:
        assert entry["ClusterName"] == "batch-1"
        assert entry["Type"] == "STANDARD"
        assert "AccessPolicies" not in entry
        assert len(entry["KubernetesGroups"]) == 1


def test_a_stack_name_avoids_the_underscore_of_a_cluster_name(assembly: Assembly) -> None:
    artifacts = yaml.safe_load((assembly.folder / "manifest.json").read_text())["artifacts"]
    names = {each.get("properties", {}).get("stackName") for each in artifacts.values()}

    assert "sluice-cluster-access-batch-2" in names


def test_the_published_manifest_is_that_of_the_cluster(assembly: Assembly) -> None:
    written = (assembly.folder / "cluster-batch-1.yaml").read_text()

    objects = list(yaml.safe_load_all(written))
    without_agent = cluster_manifest(["nlp", "research"])
    assert objects[: len(without_agent)] == without_agent
    assert {"DaemonSet", "ServiceAccount"} <= {each["kind"] for each in objects}
    other = list(yaml.safe_load_all((assembly.folder / "cluster-batch_2.yaml").read_text()))
    assert other == cluster_manifest(["default"], cedana="cedana-systems/cedana")
    outputs = assembly.template("ClusterAccess-batch-1")["Outputs"]
    assert "kubectl apply -f -" in str(outputs["Apply"]["Value"])


def test_role_bindings_are_repeated_for_every_namespace_and_nothing_else_is() -> None:
    one, two = cluster_manifest(["a"]), cluster_manifest(["b", "a"])
    bindings = tenant_bindings(two)

    assert {each["metadata"]["namespace"] for each in bindings} == {"a", "b"}
    assert len(two) - len(one) == len(bindings) / 2
    assert cluster_manifest([]) == [each for each in one if each not in tenant_bindings(one)]


def tenant_bindings(objects: list[dict[str, Any]]) -> list[dict[str, Any]]:
    bindings = [each for each in objects if each["kind"] == "RoleBinding"]
    return [each for each in bindings if each["metadata"]["namespace"] not in OWN_NAMESPACES]


def test_every_group_is_bound_and_every_role_used() -> None:
    objects = cluster_manifest(["a"])
    bindings = [each for each in objects if each["kind"].endswith("RoleBinding")]
    roles = {
        each["metadata"]["name"] for each in objects if each["kind"] in ("ClusterRole", "Role")
    }

    assert {each["subjects"][0]["name"] for each in bindings} == GROUPS
    assert {each["roleRef"]["name"] for each in bindings} == roles


@pytest.mark.parametrize(
    "forbidden", ["secrets", "pods/exec", "nodes/proxy", "serviceaccounts/token", "*"]
)
def test_nobody_gets(forbidden: str) -> None:
    roles = [each for each in cluster_manifest(["a"]) if each["kind"] == "ClusterRole"]
    granted = {
        text
        for role in roles
        for rule in role["rules"]
        for text in (*rule["resources"], *rule["verbs"], *rule["apiGroups"])
    }

    assert forbidden not in granted
    assert "impersonate" not in granted


def test_tenant_objects_are_changed_in_tenant_namespaces_only() -> None:
    objects = cluster_manifest(["a"])
    everywhere = {
        each["roleRef"]["name"] for each in objects if each["kind"] == "ClusterRoleBinding"
    }
    changed = {
        resource
        for role in everywhere
        for resource, verb in rules(objects, role)
        if verb not in READS
    }

    assert changed == {"persistentvolumes", "nodes", "nodeclaims", "nodepools"}


def test_only_act_changes_node_pools() -> None:
    objects = cluster_manifest(["a"])
    writers = {
        each["metadata"]["name"]
        for each in objects
        if each["kind"] == "ClusterRole"
        and ("nodepools", "patch") in rules(objects, each["metadata"]["name"])
    }

    assert writers == {"sluice:act"}


def test_only_act_creates_jobs() -> None:
    objects = cluster_manifest(["a"])
    creators = {
        each["metadata"]["name"]
        for each in objects
        if each["kind"] == "ClusterRole"
        and ("jobs", "create") in rules(objects, each["metadata"]["name"])
    }

    assert creators == {"sluice:act-for-tenants"}


def test_the_admitting_function_has_no_way_into_a_cluster() -> None:
    (admit,) = [shape for shape in FUNCTIONS if shape.name == "admit"]

    assert admit.cluster_group is None


def test_nobody_but_cedanas_account_may_bring_pods_back_and_only_where_it_is_named() -> None:
    plain, opened = cluster_manifest(["a"]), cluster_manifest(["a"], cedana="vendor/controller")
    changed = [after for before, after in zip(plain, opened, strict=True) if before != after]

    named = {each["metadata"]["name"]: each for each in changed}
    assert named.keys() == {"jobs.sluice.dev", "pods.sluice.dev", "pod-changes.sluice.dev"}
    jobs = named["jobs.sluice.dev"]
    for name in ("pods.sluice.dev", "pod-changes.sluice.dev"):  # makes pods, and removes its own
        (condition,) = [
            each
            for each in named[name]["spec"]["matchConditions"]
            if "vendor" in each["expression"]
        ]
        assert "'system:serviceaccount:vendor:controller'" in condition["expression"]
    assert "ACCOUNT" not in str(opened)
    assert "runtimeClassName == 'cedana'" in str(jobs["spec"]["validations"])
    assert len(jobs["spec"]["validations"]) == len(
        next(
            e
            for e in plain
            if e["metadata"]["name"] == "jobs.sluice.dev"
            and e["kind"] == "ValidatingAdmissionPolicy"
        )["spec"]["validations"]
    )
    assert "cedana" not in str(plain)
