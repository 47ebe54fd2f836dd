"""A right that is missing is named where an operator looks, and its return heals everything."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from tests.e2e.stack import Document, Stack, a_workload, until

pytestmark = pytest.mark.stack

ROLE = "/apis/rbac.authorization.k8s.io/v1/clusterroles/sluice:act-for-tenants"


def logged(stack: Stack, function: str, since: float) -> str:
    """What a function has written since then."""
    logs = stack.client("logs")
    groups = [group["logGroupName"] for group in logs.describe_log_groups()["logGroups"]]
    (group,) = [name for name in groups if f"/{function}Logs" in name]
    pages = logs.get_paginator("filter_log_events").paginate(
        logGroupName=group, startTime=int(since * 1000)
    )
    return "\n".join(event["message"] for page in pages for event in page["events"])


@contextmanager
def without_verb(stack: Stack, resource: str, verb: str) -> Iterator[None]:
    """The ClusterRole of `act` lacks one verb on one resource."""
    role = stack.kubernetes.call("GET", ROLE)

    def put(rules: list[Document]) -> None:
        changed = {**role, "rules": rules, "metadata": {"name": role["metadata"]["name"]}}
        stack.kubernetes.call("PUT", ROLE, json.dumps(changed).encode(), "application/json")

    rules = [
        {**rule, "verbs": [v for v in rule["verbs"] if v != verb]}
        if resource in rule["resources"]
        else rule
        for rule in role["rules"]
    ]
    assert rules != role["rules"]
    put(rules)
    try:
        yield
    finally:
        put(role["rules"])


@contextmanager
def without_action(stack: Stack, function: str, action: str) -> Iterator[None]:
    """The role of a function lacks one IAM action."""
    iam = stack.client("iam")
    configuration = stack.client("lambda").get_function_configuration(
        FunctionName=stack.published[f"functions/{function}"]
    )
    role = configuration["Role"].rpartition("/")[2]
    before = {
        name: iam.get_role_policy(RoleName=role, PolicyName=name)["PolicyDocument"]
        for name in iam.list_role_policies(RoleName=role)["PolicyNames"]
    }
    changed = {name: stripped(document, action) for name, document in before.items()}
    assert changed != before

    def put(policies: dict[str, Document]) -> None:
        for name, document in policies.items():
            iam.put_role_policy(RoleName=role, PolicyName=name, PolicyDocument=json.dumps(document))

    put(changed)
    try:
        yield
    finally:
        put(before)


def stripped(policy: Document, action: str) -> Document:
    statements = []
    for statement in policy["Statement"]:
        actions = statement["Action"]
        kept = [a for a in ([actions] if isinstance(actions, str) else actions) if a != action]
        if kept:
            statements.append({**statement, "Action": kept})
    return {**policy, "Statement": statements}


def failed_checks(stack: Stack) -> set[str]:
    lines = json.loads(stack.sluice("doctor", "-o", "json", fails=None))["items"]
    return {line["check"] for line in lines if line["result"] == "fail"}


def test_a_missing_rbac_verb_is_named_and_its_return_heals(impatient: Stack) -> None:
    stack = impatient
    queue, since = stack.queue("1"), time.time()
    with without_verb(stack, "jobs", "create"):
        (job,) = stack.submit(a_workload(queue, "true"))
        until(
            "act names verb and resource",
            lambda: 'cannot create resource \\"jobs\\"' in logged(stack, "Act", since),
        )
        assert stack.phase(job) == "ADMITTED"
        assert stack.jobs(job) == []
        until(
            "the timeline has it",
            lambda: 'cannot create resource "jobs"' in stack.sluice("events", job),
        )
        assert 'cannot create resource "jobs"' in stack.sluice("why", job)
        assert "function act (batch-1)" in failed_checks(stack)

    stack.await_phase("SUCCEEDED", job)
    stack.await_released(queue)


def test_a_missing_iam_action_is_named_and_its_return_heals(impatient: Stack) -> None:
    stack = impatient
    queue, since = stack.queue("1"), time.time()
    with without_action(stack, "admit", "dynamodb:UpdateItem"):
        (job,) = stack.submit(a_workload(queue, "true"))
        until(
            "admit names the action", lambda: "dynamodb:UpdateItem" in logged(stack, "Admit", since)
        )
        assert stack.phase(job) == "PENDING"
        assert stack.ledgers.read(queue).version == 0
        assert "dynamodb:UpdateItem" in stack.sluice("why", job)
        assert f"function admit ({queue})" in failed_checks(stack)

    stack.await_phase("SUCCEEDED", job)
    stack.await_released(queue)
