"""What whoever steals a role can do at worst: the table of docs/security.md, row by row.

Each cell is worked out from the synthesized policies or the published rules, for every capability
and every holder; a right that a role gains or loses changes the table, and the test says so.
"""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import Any

import pytest
from sluice.core.values.log_keys import LOGS

from infra.cluster_manifest import cluster_manifest
from infra.functions import FUNCTIONS
from tests.unit.infra.conftest import CLONE, Assembly
from tests.unit.infra.test_functions import aslist, functions, statements
from tests.unit.infra.test_node_agent import FILLED, STACK

WRITE = ("dynamodb:PutItem", "dynamodb:UpdateItem", "dynamodb:DeleteItem")
READ = ("dynamodb:GetItem", "dynamodb:BatchGetItem", "dynamodb:Query", "dynamodb:Scan")
INVOKE = ("lambda:InvokeFunction",)
SEND = ("sqs:SendMessage",)
# What it is called in the table: actions, and what names the resource in a template ("": any).
CAPABILITIES: dict[str, tuple[tuple[str, ...], str]] = {
    "writes ledgers": (WRITE, "GetAttLedgers"),
    "writes configuration": (WRITE, "GetAttCatalog"),
    "makes records": (("dynamodb:PutItem",), "GetAttWorkloads"),
    "changes records": (("dynamodb:UpdateItem",), "GetAttWorkloads"),
    "reads records": (READ, "GetAttWorkloads"),
    "reads manifests": (READ, "GetAttManifests"),
    "adds manifests": (("dynamodb:PutItem",), "GetAttManifests"),
    "reads logs": (("s3:GetObject",), f"/{LOGS}*"),
    "writes logs": (("s3:PutObject",), f"/{LOGS}*"),
    "reads checkpoints": (("s3:GetObject",), "/checkpoints/*"),
    "writes checkpoints": (("s3:PutObject",), "/checkpoints/*"),
    "deletes checkpoints": (("s3:DeleteObject",), "/checkpoints/*"),
    "reads task tokens": (("s3:GetObject",), "/tokens/*"),
    "ends tasks": (("states:SendTaskSuccess",), ""),
    "commands clusters": (SEND, "QueuesCommands"),
    "forges EC2's word": (SEND, "QueuesInterruptions"),
    "forges an agent's notice": (SEND, "Notices"),
    "submits as anybody": (SEND, "QueuesSubmissions"),
    "invokes functions": (INVOKE, ""),
    "takes dead letters": (("sqs:ReceiveMessage",), "Dead"),
    "publishes events": (("events:PutEvents",), ""),
    "reads Cedana's token": (("secretsmanager:GetSecretValue",), ""),
    "pushes images": (("ecr:PutImage",), ""),
}
KUBERNETES: dict[str, tuple[str, str]] = {
    "makes Jobs": ("jobs", "create"),
    "deletes Jobs": ("jobs", "delete"),
    "changes pods": ("pods", "patch"),
    "deletes pods": ("pods", "delete"),
    "reads logs": ("pods/log", "get"),
    "makes PersistentVolumes": ("persistentvolumes", "create"),
    "changes NodePools": ("nodepools", "patch"),
    "changes nodes": ("nodes", "patch"),
    "deletes machines": ("nodeclaims", "delete"),
    "dumps pods": ("nodes/checkpoint", "create"),
}
AGENT = "node agent"
NOBODY_GETS = (
    "iam:PassRole", "iam:CreateRole", "sts:AssumeRole", "ec2:RunInstances",
    "ec2:TerminateInstances", "eks:CreateAccessEntry", "eks:AssociateAccessPolicy",
    "lambda:UpdateFunctionCode",
    "lambda:UpdateFunctionConfiguration", "dynamodb:DeleteTable", "s3:DeleteBucket",
    "s3:PutBucketPolicy", "sqs:SetQueueAttributes", "kms:Decrypt",
)  # fmt: skip
BEYOND_REACH = ("secrets", "serviceaccounts/token", "pods/exec", "pods/attach", "nodes/proxy",
                "clusterroles", "clusterrolebindings", "rolebindings",
                "validatingadmissionpolicies", "namespaces")  # fmt: skip


def rights_of(assembly: Assembly, holder: str) -> list[dict[str, Any]]:
    if holder == AGENT:
        return [
            statement
            for policy in assembly.resources(STACK, "AWS::IAM::Policy").values()
            if any(str(role.get("Ref", "")).startswith("Agent") for role in policy["Roles"])
            for statement in policy["PolicyDocument"]["Statement"]
        ]
    role = aslist(functions(assembly)[holder]["Role"]["Fn::GetAtt"])[0]
    return statements(assembly)[role]


def allowed(rights: list[dict[str, Any]], actions: tuple[str, ...], named: str) -> bool:
    """Whether any of these actions is allowed on a resource that is named so."""
    assert all(each["Effect"] == "Allow" for each in rights), "a Deny would narrow what is said"
    return any(
        fnmatchcase(action, granted)
        and any(named in text_of(resource) for resource in aslist(each["Resource"]))
        for each in rights
        for action in actions
        for granted in aslist(each["Action"])
    )


def text_of(resource: Any) -> str:
    """An ARN as a text: what names the table, queue or prefix stays in it."""
    return str(resource).replace("{'Fn::GetAtt': ['", "GetAtt").replace("FnGetAtt", "GetAtt")


def capabilities(assembly: Assembly, holder: str) -> list[str]:
    rights = rights_of(assembly, holder)
    return [name for name, (actions, on) in CAPABILITIES.items() if allowed(rights, actions, on)]


def in_clusters(group: str) -> list[str]:
    """What the published roles of a group, or the agent's, allow on objects of a cluster."""
    made = cluster_manifest(["a"], FILLED if group == AGENT else None)
    names = {group, f"{group}-for-tenants"} if group != AGENT else {"sluice:agent"}
    rules = [
        (resource, verb)
        for each in made
        if each["kind"] in ("ClusterRole", "Role") and each["metadata"]["name"] in names
        for rule in each["rules"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    assert rules, f"nothing is published for {group}"
    assert not {resource for resource, _ in rules} & {*BEYOND_REACH, "*"}
    return [name for name, right in KUBERNETES.items() if right in rules]


def table_of_the_page() -> dict[str, tuple[str, str]]:
    """Holder → what it can do in AWS and in clusters, as docs/security.md says."""
    page = (CLONE / "docs" / "security.md").read_text().partition("## Stolen roles")[2]
    rows = [line.split("|") for line in page.splitlines() if line.startswith("| `")]
    return {row[1].strip(" `"): (row[2].strip(), row[3].strip()) for row in rows}


HOLDERS = [*(shape.name for shape in FUNCTIONS), AGENT]


@pytest.mark.parametrize("holder", HOLDERS)
def test_the_page_says_what_a_stolen_role_can_do_and_nothing_less(
    assembly: Assembly, holder: str
) -> None:
    group = next((s.cluster_group for s in FUNCTIONS if s.name == holder), AGENT)

    in_aws = ", ".join(capabilities(assembly, holder)) or "nothing"
    in_kubernetes = ", ".join(in_clusters(group)) or "reads" if group else "no access"
    assert table_of_the_page()[holder] == (in_aws, in_kubernetes)


@pytest.mark.parametrize("holder", HOLDERS)
@pytest.mark.parametrize("action", NOBODY_GETS)
def test_no_stolen_role_reaches_other_roles_machines_or_code(
    assembly: Assembly, holder: str, action: str
) -> None:
    assert not allowed(rights_of(assembly, holder), (action,), "")


def test_the_page_lists_every_holder_once() -> None:
    assert sorted(table_of_the_page()) == sorted(HOLDERS)
