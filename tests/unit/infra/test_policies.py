"""What operators are told to grant, evaluated: the published policies and nothing else."""

from __future__ import annotations

import re
from typing import Any

import pytest

from tests.unit.infra.conftest import CLONE, Assembly
from tests.unit.infra.iam import allows

OF_URL = {"lambda:FunctionUrlAuthType": "AWS_IAM", "lambda:InvokedViaFunctionUrl": "true"}


def policy(assembly: Assembly, name: str) -> list[dict[str, Any]]:
    found = assembly.resources("Control", "AWS::IAM::ManagedPolicy")
    (document,) = [each for key, each in found.items() if key.startswith(f"Policies{name}")]
    statements: list[dict[str, Any]] = document["PolicyDocument"]["Statement"]
    return statements


def functions(assembly: Assembly) -> dict[str, str]:
    """Logical ids by handler."""
    found = assembly.resources("Control", "AWS::Lambda::Function").items()
    return {each["Handler"].split(".")[1]: key for key, each in found}


@pytest.mark.parametrize("name", ["Submitter", "Operator"])
def test_s1_no_published_policy_lets_anybody_invoke_a_function_directly(
    assembly: Assembly, name: str
) -> None:
    """Finding S1: without `lambda:InvokedViaFunctionUrl` every user of the api is administrator."""
    statements = policy(assembly, name)

    for function in functions(assembly).values():
        for context in ({}, {"lambda:InvokedViaFunctionUrl": "false"}):
            assert not allows(statements, "lambda:InvokeFunction", function, context)


def test_a_submitter_reaches_the_api_by_its_url_and_no_other_function(assembly: Assembly) -> None:
    statements = policy(assembly, "Submitter")

    for handler, function in functions(assembly).items():
        for action in ("lambda:InvokeFunctionUrl", "lambda:InvokeFunction"):
            assert allows(statements, action, function, OF_URL) == (handler == "api")


def test_a_submitter_sends_to_the_submission_queue_alone(assembly: Assembly) -> None:
    statements = policy(assembly, "Submitter")

    reached = {
        key
        for key in assembly.resources("Control", "AWS::SQS::Queue")
        if allows(statements, "sqs:SendMessage", key)
    }
    assert [key[:-8] for key in reached] == ["QueuesSubmissions"]


def test_an_operator_may_look_at_queues_and_take_nothing_from_them(assembly: Assembly) -> None:
    statements = policy(assembly, "Operator")

    for key in assembly.resources("Control", "AWS::SQS::Queue"):
        assert allows(statements, "sqs:GetQueueAttributes", key)
        for action in ("sqs:SendMessage", "sqs:ReceiveMessage", "sqs:PurgeQueue"):
            assert not allows(statements, action, key)


def test_a_role_of_sluice_that_may_invoke_is_listed(assembly: Assembly) -> None:
    """Whoever holds one of these can tell a function anything (docs/security.md)."""
    holders = set()
    for each in assembly.resources("Control", "AWS::IAM::Policy").values():
        for function in functions(assembly).values():
            if allows(each["PolicyDocument"]["Statement"], "lambda:InvokeFunction", function):
                holders |= {role["Ref"].rpartition("Role")[0] for role in each["Roles"]}

    assert holders == {"Api", "Act", "Schedules"}


def test_the_manual_names_the_policies_and_writes_none_of_its_own() -> None:
    manual = (CLONE / "docs" / "operations.md").read_text()

    assert "/sluice/policies/submitter" in manual
    assert not re.search(r"`lambda:InvokeFunction` on the function `api`,", manual)
