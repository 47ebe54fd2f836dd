"""What `sluice doctor` finds by itself, before it asks the api."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from cli.commands import doctor
from cli.errors import CommandExit


class Lambda:
    def __init__(self, error: str) -> None:
        self.error = error

    def invoke(self, **asked: Any) -> dict[str, Any]:
        assert asked == {"FunctionName": "api-1", "InvocationType": "DryRun"}
        if self.error:
            raise ClientError({"Error": {"Code": self.error}}, "Invoke")
        return {"StatusCode": 204}


@pytest.mark.parametrize(("error", "result"), [("", "warn"), ("AccessDeniedException", "ok")])
def test_s1_doctor_warns_whoever_may_invoke_the_api_past_its_address(
    error: str, result: str
) -> None:
    """Finding S1: such a caller writes the identity of the request."""
    aws = SimpleNamespace(
        published=lambda name: SimpleNamespace(value="api-1"), client=lambda name: Lambda(error)
    )
    app: Any = SimpleNamespace(aws=aws)

    (found,) = doctor._invocation(app)

    assert (found.check, found.result) == ("direct invoke", result)


class Account:
    """AWS Lambda's account settings; None: who asks may not read them."""

    def __init__(self, concurrency: int | None) -> None:
        self.concurrency = concurrency

    def get_account_settings(self) -> dict[str, Any]:
        if self.concurrency is None:
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, "GetAccountSettings")
        return {"AccountLimit": {"UnreservedConcurrentExecutions": self.concurrency}}


@pytest.mark.parametrize(
    ("concurrency", "result", "message"),
    [
        (10, "warn", "10 functions may run at once"),
        (1_000, "ok", "1000 functions may run at once"),
        (None, "warn", "you may not read it"),
    ],
)
def test_a11_doctor_warns_of_an_account_that_runs_few_functions_at_once(
    concurrency: int | None, result: str, message: str
) -> None:
    aws = SimpleNamespace(client=lambda name: Account(concurrency))
    app: Any = SimpleNamespace(aws=aws)

    (found,) = doctor._concurrency(app)

    assert (found.check, found.result, found.message) == ("concurrency", result, message)
    assert bool(found.advice) == (result == "warn")


@pytest.mark.parametrize("result", ["ok", "fail"])
def test_l7_the_canary_runs_also_where_a_check_failed_and_doctor_still_says_so(
    result: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = list[str]()
    found = doctor.Finding("function observe (batch-1)", result, "90 s ago")
    monkeypatch.setattr(doctor, "CHECKS", (lambda _: [found],))
    monkeypatch.setattr(doctor, "_canary", lambda _app, queue, _image: ran.append(queue))
    app: Any = SimpleNamespace()

    if result == "fail":
        with pytest.raises(CommandExit):
            doctor.examine(app, "team/research", "busybox", "table")
        assert "the canary runs nevertheless" in capsys.readouterr().err
    else:
        doctor.examine(app, "team/research", "busybox", "table")

    assert ran == ["team/research"]
