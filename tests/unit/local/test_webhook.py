"""Which tokens the webhook believes, and whom it takes their senders for."""

import base64
import threading
import time
from datetime import UTC, datetime, timedelta
from urllib.parse import urlencode

import pytest

from local.webhook import (
    AccessEntries,
    SignedCall,
    TokenRefusedError,
    Webhook,
    of_principal,
    principal_of,
    without_path,
)

AWS = "http://127.0.0.1:4566"
SIGNED_AT = datetime(2026, 11, 21, 12, 0, tzinfo=UTC)
PARAMETERS = {
    "Action": "GetCallerIdentity",
    "Version": "2011-06-15",
    "X-Amz-Algorithm": "AWS4-HMAC-SHA256",
    "X-Amz-Credential": "ASIA/20261121/us-east-1/sts/aws4_request",
    "X-Amz-Date": "20261121T120000Z",
    "X-Amz-Expires": "60",
    "X-Amz-SignedHeaders": "host;x-k8s-aws-id",
    "X-Amz-Signature": "abc",
}


def a_token(address="https://sts.us-east-1.amazonaws.com/", more="", **changed):
    query = urlencode({**PARAMETERS, **changed})
    url = f"{address}?{query}{more}"
    return "k8s-aws-v1." + base64.urlsafe_b64encode(url.encode()).decode().rstrip("=")


@pytest.mark.parametrize(
    ("address", "host"),
    [
        ("https://sts.us-east-1.amazonaws.com/", "sts.us-east-1.amazonaws.com"),
        ("https://sts.amazonaws.com/", "sts.amazonaws.com"),
        (f"{AWS}/", "127.0.0.1:4566"),
    ],
)
def test_a_call_signed_for_sts_is_believed(address, host) -> None:
    call = SignedCall.from_token(a_token(address), SIGNED_AT, AWS)

    assert call.host == host
    assert "X-Amz-Signature=abc" in call.query


@pytest.mark.parametrize(
    ("token", "reason"),
    [
        ("eyJhbGciOi", "not a token of EKS"),
        ("k8s-aws-v1.%%%", "not the base64"),
        ("k8s-aws-v1." + base64.urlsafe_b64encode(b"\xff\xfe").decode(), "not the base64"),
        (a_token("https://evil.example/"), "another address"),
        (a_token("https://sts.us-east-1.amazonaws.com.evil.example/"), "another address"),
        (a_token("http://sts.us-east-1.amazonaws.com/"), "another address"),
        (a_token("https://sts.us-east-1.amazonaws.com/other"), "another address"),
        (a_token("http://127.0.0.1:9999/"), "another address"),
        (a_token(Action="AssumeRole"), "another action"),
        (a_token(more="&Action=AssumeRole"), "given twice"),
        (a_token(more="&action=AssumeRole"), "given twice"),
        (a_token(RoleArn="arn:aws:iam::1:role/x"), "unknown parameter rolearn"),
        (a_token(**{"X-Amz-SignedHeaders": "host"}), "cluster's name"),
        (a_token(**{"X-Amz-Date": "yesterday"}), "no date"),
    ],
)
def test_anything_else_is_refused_with_the_reason(token, reason) -> None:
    with pytest.raises(TokenRefusedError, match=reason):
        SignedCall.from_token(token, SIGNED_AT, AWS)


@pytest.mark.parametrize("age", [timedelta(minutes=-4), timedelta(minutes=14, seconds=59)])
def test_a_token_lives_for_a_quarter_of_an_hour(age) -> None:
    assert SignedCall.from_token(a_token(), SIGNED_AT + age, AWS).query


@pytest.mark.parametrize("age", [timedelta(minutes=-6), timedelta(minutes=15)])
def test_before_and_after_it_is_refused(age) -> None:
    with pytest.raises(TokenRefusedError, match="expired"):
        SignedCall.from_token(a_token(), SIGNED_AT + age, AWS)


def test_a_session_stands_for_its_role() -> None:
    session = "arn:aws:sts::123456789012:assumed-role/sluice-act/observe"
    user = "arn:aws:iam::123456789012:user/ann"

    assert principal_of(session) == "arn:aws:iam::123456789012:role/sluice-act"
    assert principal_of(user) == user


def test_the_path_of_a_role_does_not_count() -> None:
    assert without_path("arn:aws:iam::1:role/team/blue/act") == "arn:aws:iam::1:role/act"
    assert without_path("arn:aws:iam::1:user/team/ann") == "arn:aws:iam::1:user/team/ann"


class OfflineWebhook(Webhook):
    """STS always says that it was the role `act`."""

    def identify(self, call: SignedCall) -> tuple[str, str, str]:
        return "arn:aws:sts::123456789012:assumed-role/act/f", "AROA1:f", "123456789012"


def an_entry(role, groups, username=""):
    return {
        "principalArn": f"arn:aws:iam::123456789012:role/{role}",
        "kubernetesGroups": groups,
        "username": username,
    }


def test_the_access_entry_of_the_role_gives_user_and_groups() -> None:
    entries = [an_entry("other", ["sluice:observe"]), an_entry("act", ["sluice:act"])]
    webhook = OfflineWebhook(AWS, "batch-1", lambda role: of_principal(entries, role))

    status = webhook.review(a_token(), SIGNED_AT)

    assert status["authenticated"] is True
    assert status["user"]["groups"] == ["sluice:act"]
    assert status["user"]["username"] == "arn:aws:sts::123456789012:assumed-role/act/f"
    assert status["user"]["extra"]["canonicalArn"] == ["arn:aws:iam::123456789012:role/act"]


@pytest.mark.parametrize(("role", "questions"), [("act", 1), ("late", 2)])
def test_entries_are_asked_for_again_only_for_who_is_unknown(
    role: str, questions: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[float] = []
    now = [100.0]

    class Known(AccessEntries):
        def __init__(self) -> None:
            self.asked, self.known, self.lock = -self.KEPT_SECONDS, [], threading.Lock()

        def describe(self) -> list[dict[str, object]]:
            asked.append(now[0])
            return [an_entry(name, []) for name in ["act", "late"][: len(asked)]]

    monkeypatch.setattr(time, "monotonic", lambda: now[0])
    entries = Known()
    assert len(entries("arn:aws:iam::123456789012:role/act")) == 1
    now[0] += 2

    assert len(entries(f"arn:aws:iam::123456789012:role/{role}")) == 1
    assert len(asked) == questions


def test_without_an_access_entry_nobody_gets_in() -> None:
    entries = [an_entry("other", ["system:masters"])]
    webhook = OfflineWebhook(AWS, "batch-1", lambda role: of_principal(entries, role))

    with pytest.raises(TokenRefusedError, match=r"no access entry of batch-1 for .*role/act"):
        webhook.review(a_token(), SIGNED_AT)
