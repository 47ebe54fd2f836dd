"""The node agent in a cluster, and what it may do there and in AWS."""

from typing import Any

import pytest

from infra.cluster_manifest import cluster_manifest
from tests.unit.infra.conftest import Assembly
from tests.unit.infra.test_functions import aslist

STACK = "ClusterAccess-batch-1"
FILLED = {"IMAGE": "repo/agent@sha256:0", "DEPLOYMENT": "sluice", "CLUSTER": "batch-1"}


def objects(kind: str) -> list[dict[str, Any]]:
    made = cluster_manifest(["a"], FILLED)[len(cluster_manifest(["a"])) :]
    return [each for each in made if each["kind"] == kind]


def one(kind: str) -> dict[str, Any]:
    (found,) = objects(kind)
    return found


def allowed(assembly: Assembly, action: str) -> list[dict[str, Any]]:
    """The statements of the agent's own role with this action."""
    (role,) = [
        name for name in assembly.resources(STACK, "AWS::IAM::Role") if name.startswith("Agent")
    ]
    return [
        statement
        for policy in assembly.resources(STACK, "AWS::IAM::Policy").values()
        if {"Ref": role} in policy["Roles"]
        for statement in policy["PolicyDocument"]["Statement"]
        if action in aslist(statement["Action"])
    ]


def test_the_agent_gets_what_it_needs_and_no_way_around_its_kubelet() -> None:
    rules = {
        (resource, verb)
        for rule in one("ClusterRole")["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }

    assert rules == {
        *(("pods", verb) for verb in ("get", "list", "watch", "patch")),
        *(("nodes", verb) for verb in ("get", "patch")),
        ("nodes/checkpoint", "create"),
    }


def test_a_policy_confines_what_the_agent_writes_to_its_own_node() -> None:
    policy, binding = one("ValidatingAdmissionPolicy"), one("ValidatingAdmissionPolicyBinding")
    (condition,) = policy["spec"]["matchConditions"]
    account = one("ServiceAccount")["metadata"]

    assert binding["spec"]["policyName"] == policy["metadata"]["name"]
    assert binding["spec"]["validationActions"] == ["Deny"]
    assert policy["spec"]["failurePolicy"] == "Fail"
    assert (
        f"system:serviceaccount:{account['namespace']}:{account['name']}" in condition["expression"]
    )
    assert "authentication.kubernetes.io/node-name" in str(policy["spec"]["variables"])


def test_its_pods_are_as_small_as_their_work_allows() -> None:
    pod = one("DaemonSet")["spec"]["template"]["spec"]
    (container,) = pod["containers"]
    security = container["securityContext"]

    assert container["image"] == FILLED["IMAGE"]
    assert {"--deployment=sluice", "--cluster=batch-1"} <= set(container["args"])
    assert "privileged" not in security
    assert security["allowPrivilegeEscalation"] is False
    assert security["readOnlyRootFilesystem"] is True
    assert security["capabilities"] == {
        "drop": ["ALL"],
        "add": ["KILL", "SYS_PTRACE", "DAC_READ_SEARCH"],
    }
    assert [volume["hostPath"]["path"] for volume in pod["volumes"] if "hostPath" in volume] == [
        "/var/lib/kubelet/checkpoints"
    ]
    assert pod["tolerations"] == [{"operator": "Exists"}], "it is needed while a node drains"


def test_its_role_is_for_its_account_in_its_cluster_alone(assembly: Assembly) -> None:
    (association,) = assembly.resources(STACK, "AWS::EKS::PodIdentityAssociation").values()
    (role,) = [
        each
        for name, each in assembly.resources(STACK, "AWS::IAM::Role").items()
        if name.startswith("Agent")
    ]
    (statement,) = role["AssumeRolePolicyDocument"]["Statement"]

    assert (association["Namespace"], association["ServiceAccount"]) == ("sluice-agent",) * 2
    assert statement["Principal"] == {"Service": "pods.eks.amazonaws.com"}
    assert set(statement["Action"]) == {"sts:AssumeRole", "sts:TagSession"}
    assert statement["Condition"]["StringEquals"] == {
        "aws:RequestTag/eks-cluster-name": "batch-1",
        "aws:RequestTag/kubernetes-namespace": "sluice-agent",
        "aws:RequestTag/kubernetes-service-account": "sluice-agent",
    }


@pytest.mark.parametrize(
    ("action", "reach"),
    [
        ("s3:PutObject", "/checkpoints/*"),
        ("s3:PutObject", "/logs/*.part-*"),
        ("sqs:SendMessage", "Notices"),
        ("ssm:GetParameter", "/clusters/batch-1/checkpoints"),
        ("ecr:PutImage", "Checkpoints"),
    ],
)
def test_in_aws_it_writes_checkpoints_and_notices(
    assembly: Assembly, action: str, reach: str
) -> None:
    (statement,) = allowed(assembly, action)

    assert reach in str(statement["Resource"])


@pytest.mark.parametrize(
    "action", ["s3:GetObject", "s3:DeleteObject", "ecr:BatchDeleteImage", "sqs:ReceiveMessage"]
)
def test_in_aws_it_may_not(assembly: Assembly, action: str) -> None:
    assert allowed(assembly, action) == []


def test_images_of_checkpoints_are_immutable_and_expire(assembly: Assembly) -> None:
    (repository,) = assembly.resources(STACK, "AWS::ECR::Repository").values()

    assert "EncryptionConfiguration" not in repository, "absent means AES-256"
    assert repository["ImageTagMutability"] == "IMMUTABLE"
    assert '"countNumber":90' in repository["LifecyclePolicy"]["LifecyclePolicyText"]


def test_a_drill_takes_one_tagged_spot_instance_two_minutes_after_its_notice(
    assembly: Assembly,
) -> None:
    (template,) = assembly.resources("Control", "AWS::FIS::ExperimentTemplate").values()
    ((name, target),) = template["Targets"].items()
    (action,) = template["Actions"].values()

    assert target["ResourceType"] == "aws:ec2:spot-instance"
    assert target["ResourceTags"] == {"sluice.dev/drill": "sluice"}
    assert target["SelectionMode"] == "COUNT(1)"
    assert action["ActionId"] == "aws:ec2:send-spot-instance-interruptions"
    assert action["Parameters"] == {"durationBeforeInterruption": "PT2M"}
    assert action["Targets"] == {"SpotInstances": name}


def test_the_agent_runs_only_where_its_image_does() -> None:
    affinity = one("DaemonSet")["spec"]["template"]["spec"]["affinity"]["nodeAffinity"]
    (term,) = affinity["requiredDuringSchedulingIgnoredDuringExecution"]["nodeSelectorTerms"]

    built_for = {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}
    assert built_for in term["matchExpressions"]
