"""The server of the pages: one session, this host only, nothing for other sites."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
import urllib3

from cli.ui.guard import CHANGE_HEADER, SessionGuard
from cli.ui.quota_trial import cells, try_nominal
from cli.ui.server import STATIC
from tests.browser.serving import Deployment, served
from tests.unit.api.control_plane import ADMIN, ControlPlane, native

HTTP = urllib3.PoolManager(retries=False)


@pytest.fixture
def deployment() -> Deployment:
    return Deployment()


@pytest.fixture
def guard(deployment: Deployment) -> Iterator[SessionGuard]:
    with served(deployment) as guard:
        yield guard


def ask(
    guard: SessionGuard, path: str, method: str = "GET", **headers: str
) -> urllib3.BaseHTTPResponse:
    given = {name.replace("_", "-"): value for name, value in headers.items()}
    return HTTP.request(
        method, f"http://127.0.0.1:{guard.port}{path}", headers=given, redirect=False
    )


def session(guard: SessionGuard) -> dict[str, str]:
    return {"cookie": f"{guard.cookie}={guard.session}"}


def test_the_address_opens_one_session_and_works_once(guard: SessionGuard) -> None:
    token = guard.token

    opened = ask(guard, f"/?token={token}")
    again = ask(guard, f"/?token={token}")

    assert opened.status == 303
    assert "HttpOnly" in opened.headers["set-cookie"]
    assert "SameSite=strict" in opened.headers["set-cookie"]
    assert again.status == 401


@pytest.mark.parametrize("path", ["/", "/api/workloads", "/static/app.js", "/quotas/company"])
def test_without_the_session_nothing_is_served(guard: SessionGuard, path: str) -> None:
    assert ask(guard, path).status == 401
    assert ask(guard, path, cookie=f"{guard.cookie}=guess").status == 401


def test_two_servers_on_one_host_keep_their_sessions_apart() -> None:
    assert SessionGuard(4101).cookie != SessionGuard(4102).cookie


def test_another_host_or_origin_is_refused(guard: SessionGuard) -> None:
    assert ask(guard, "/", host=f"evil.example:{guard.port}", **session(guard)).status == 421
    assert ask(guard, "/", origin="https://evil.example", **session(guard)).status == 403


def test_a_change_needs_the_header_that_only_the_page_can_set(
    guard: SessionGuard, deployment: Deployment
) -> None:
    identity = deployment.plane.send(native("a", 1))
    path = f"/api/workloads/{identity}/cancel"

    without = ask(guard, path, "POST", **session(guard))
    given = session(guard) | {CHANGE_HEADER: "1", "content-type": "application/json"}
    changed = HTTP.request("POST", f"http://127.0.0.1:{guard.port}{path}", body="{}", headers=given)

    assert without.status == 403
    assert changed.status == 200


def test_every_answer_carries_the_policy(guard: SessionGuard) -> None:
    for answer in (ask(guard, "/", **session(guard)), ask(guard, "/")):
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"


def test_an_answer_of_the_api_keeps_its_status(guard: SessionGuard) -> None:
    missing = ask(guard, "/api/workloads/aaaaaaaaaaaaa", **session(guard))

    assert missing.status == 404
    assert missing.json()["error"]["message"]


def test_vendored_files_are_what_their_list_says() -> None:
    vendor = STATIC / "vendor"
    listed: list[dict[str, Any]] = json.loads((vendor / "vendored.json").read_text())

    for entry in listed:
        digest = hashlib.sha256((vendor / entry["file"]).read_bytes()).hexdigest()
        assert digest == entry["sha256"], entry["file"]
        assert entry["license"]
    assert {path.name for path in vendor.glob("*.js")} == {entry["file"] for entry in listed}


def test_a_pass_is_decided_again_with_another_quota() -> None:
    plane = ControlPlane()
    for number in range(4):
        plane.send(native(f"job-{number}", 40))
    newest = plane.call("GET", "/passes/company", ADMIN)[1]["items"][-1]["version"]
    document = plane.call("GET", f"/passes/company/{newest}", ADMIN)[1]
    (red,) = [cell for cell in cells(document) if cell["queue"] == "red-cq"]

    answer = try_nominal(document, queue="red-cq", flavor="spot", resource="cpu", nominal=0)

    assert red["nominal"] == 64_000
    assert len(answer["recorded"]["admitted"]) == 1
    assert answer["trial"]["admitted"] == []
