"""Whom the emulated Pod Identity gives a role."""

from typing import Any

import pytest

from local.pod_identity import PodIdentity, RefusedError, trusts

ARN = "arn:aws:iam::123456789012:role/agent"
TAGS = {"eks-cluster-name": "batch-1", "kubernetes-namespace": "sluice-agent"}


def a_trust(**changed: Any) -> dict[str, Any]:
    statement = {
        "Effect": "Allow",
        "Principal": {"Service": "pods.eks.amazonaws.com"},
        "Action": ["sts:AssumeRole", "sts:TagSession"],
        "Condition": {"StringEquals": {"aws:RequestTag/eks-cluster-name": "batch-1"}},
    }
    return {"Statement": [statement | changed]}


def test_a_role_is_for_pods_that_its_trust_policy_names() -> None:
    assert trusts(a_trust(), TAGS)


@pytest.mark.parametrize(
    "changed",
    [
        {"Principal": {"Service": "ec2.amazonaws.com"}},
        {"Action": "sts:AssumeRole"},
        {"Condition": {"StringEquals": {"aws:RequestTag/eks-cluster-name": "batch-2"}}},
        {"Condition": {"StringEquals": {"aws:RequestTag/unknown": "batch-1"}}},
        {"Effect": "Deny"},
    ],
)
def test_and_for_no_others(changed: dict[str, Any]) -> None:
    assert not trusts(a_trust(**changed), TAGS)


class Cluster:
    """Knows one token."""

    def create(self, _path: str, review: dict[str, Any]) -> dict[str, Any]:
        known = review["spec"] == {"token": "good", "audiences": ["pods.eks.amazonaws.com"]}
        user = {
            "username": "system:serviceaccount:sluice-agent:sluice-agent",
            "extra": {"authentication.kubernetes.io/pod-name": ["agent-1"]},
        }
        return {"status": {"authenticated": True, "user": user} if known else {"error": "no"}}


class Iam:
    def get_role(self, **_: Any) -> Any:
        return {"Role": {"AssumeRolePolicyDocument": a_trust(Principal={"Service": "other"})}}


@pytest.mark.parametrize(
    ("token", "role", "reason"),
    [
        ("forged", ARN, "no token of a service account"),
        ("good", None, "associated with no role"),
        ("good", ARN, "does not trust"),
    ],
)
def test_a_refusal_says_why(token: str, role: str | None, reason: str) -> None:
    cluster: Any = Cluster()
    identity = PodIdentity("batch-1", cluster, lambda *_: role, Iam(), None)

    with pytest.raises(RefusedError, match=reason):
        identity.credentials(token)
