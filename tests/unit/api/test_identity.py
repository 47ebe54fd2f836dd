"""Who may call, see, steer and apply."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.usecases.callers import Caller, authority

from tests.unit.api.control_plane import (
    ACCOUNT,
    ADMIN,
    BLUE,
    COMPANY,
    RED,
    STRANGER,
    ControlPlane,
    Signer,
    flavor,
    native,
    renamed,
    tenant,
)


def test_an_unknown_role_is_refused_whatever_its_session_calls_itself() -> None:
    plane = ControlPlane()

    for session in ("admin", "Platform", "AROAPLATFORM", "red"):
        status, answer = plane.call("GET", "/queues", renamed(STRANGER, session))

        assert status == 403
        assert answer["error"]["code"] == "Forbidden"


def test_a_session_name_that_holds_a_colon_does_not_change_the_principal() -> None:
    plane = ControlPlane()
    forged = Signer("Stranger", "AROASTRANGER", "x:AROAPLATFORM")

    assert plane.call("GET", "/identity", forged)[0] == 403


def test_a_request_without_an_identity_is_refused() -> None:
    plane = ControlPlane()
    nobody = Signer("", "", account="")

    assert plane.call("GET", "/identity", nobody)[0] == 403


@pytest.mark.parametrize(
    "principal",
    [
        "AROARED",
        "arn:aws:iam::111122223333:role/Red",
        "arn:aws:iam::111122223333:role/teams/Red",
        "arn:aws:sts::111122223333:assumed-role/Red/anybody",
    ],
)
def test_a_tenant_may_name_a_role_by_its_id_or_by_its_arn(principal: str) -> None:
    plane = ControlPlane((*COMPANY[:-2], tenant("red", principal, "red")))

    status, answer = plane.call("GET", "/identity", RED)

    assert status == 200
    assert answer["tenant"] == "red"
    assert answer["namespaces"] == ["red"]
    assert answer["admin"] is False


def test_a_role_of_the_same_name_in_another_account_is_somebody_else() -> None:
    plane = ControlPlane(
        (*COMPANY[:-2], tenant("red", "arn:aws:iam::111122223333:role/Red", "red"))
    )

    assert plane.call("GET", "/identity", Signer("Red", "AROAX", account="999999999999"))[0] == 403


def test_the_most_specific_principal_decides() -> None:
    plane = ControlPlane((*COMPANY, tenant("everybody", "111122223333", "sandbox")))

    assert plane.call("GET", "/identity", RED)[1]["tenant"] == "red"
    assert plane.call("GET", "/identity", STRANGER)[1]["tenant"] == "everybody"


def test_before_the_first_tenant_the_account_itself_administers() -> None:
    plane = ControlPlane(())
    outsider = Signer("Any", "AROAANY", account="999999999999")

    assert plane.call("GET", "/identity", STRANGER)[1]["bootstrap"] is True
    assert plane.call("GET", "/identity", outsider)[0] == 403

    status, _ = plane.call(
        "POST", "/catalog", STRANGER, {"documents": [tenant("p", "AROAPLATFORM", "p", admin=True)]}
    )

    assert status == 200
    assert plane.call("GET", "/identity", STRANGER)[0] == 403
    assert plane.call("GET", "/identity", ADMIN)[1]["admin"] is True


def test_the_last_administrator_cannot_be_taken_away() -> None:
    plane = ControlPlane()

    powerless = tenant("platform", "AROAPLATFORM", "platform", admin=False)
    status, answer = plane.call("POST", "/catalog", ADMIN, {"documents": [powerless]})

    assert status == 422
    assert "administrator" in answer["error"]["errors"][0]["message"]
    assert plane.call("DELETE", "/catalog/Tenant/platform", ADMIN)[0] == 409


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("POST", "/catalog", {"documents": [flavor("mine")]}),
        ("POST", "/catalog", {"documents": [flavor("mine")], "dryRun": True}),
        ("POST", "/catalog", {"documents": [tenant("red", "AROARED", "red", admin=True)]}),
        ("DELETE", "/catalog/LocalQueue/blue/batch", None),
        ("GET", "/catalog/Tenant", None),
        ("GET", "/audit/company", None),
    ],
)
def test_tenants_touch_no_configuration(method: str, path: str, body: Any) -> None:
    plane = ControlPlane()
    before = plane.catalog.snapshot()

    status, answer = plane.call(method, path, RED, body)

    assert (status, answer["error"]["code"]) == (403, "Forbidden")
    assert plane.catalog.snapshot() is before


@pytest.mark.parametrize("taken", [False, True], ids=["a free id", "an id of the other tenant"])
def test_what_was_sent_to_a_foreign_namespace_is_a_rejected_record_of_its_sender(
    taken: bool,
) -> None:
    plane = ControlPlane()
    plane.send(native("mine", 1, key="one"), RED)  # under the same key, in its own namespace
    if taken:
        plane.send(native("secret", 4, key="one", namespace="blue"), BLUE)

    expected = plane.send(native("astray", 4, key="one", namespace="blue"), RED)
    status, found = plane.call("GET", f"/workloads/{expected}", RED)
    several = plane.call("GET", "/workloads", RED, query={"ids": expected})[1]["items"]

    assert status == 200
    assert (found["phase"], found["name"], found["namespace"]) == ("REJECTED", "astray", "red")
    assert found["sentAs"] == expected != found["id"]
    assert several == [found]
    assert found["errors"] == [
        {
            "field": "metadata.namespace",
            "message": "tenant red may use only red; take one of them, or ask an administrator to "
            "add blue to its `namespaces`",
        }
    ]
    assert plane.call("GET", f"/workloads/{expected}/why", RED)[0] == 200
    status, theirs = plane.call("GET", f"/workloads/{expected}", BLUE)
    assert (status, theirs.get("name")) == ((200, "secret") if taken else (404, None))


def test_a_tenant_neither_sees_nor_steers_the_work_of_another() -> None:
    plane = ControlPlane()
    theirs = plane.send(native("secret", 4, namespace="blue"), BLUE)
    before = plane.workloads.rows[theirs]

    assert plane.call("GET", "/workloads", RED)[1]["items"] == []
    assert plane.call("GET", "/workloads", RED, query={"ids": theirs})[1]["items"] == []
    assert plane.call("GET", "/workloads", RED, query={"queue": "blue/batch"})[0] == 403
    for part in ("", "/manifest", "/events", "/why", "/logs"):
        assert plane.call("GET", f"/workloads/{theirs}{part}", RED)[0] == 404
        assert plane.call("GET", f"/workloads/{theirs[:6]}{part}", RED)[0] == 404
    for verb in ("cancel", "hold", "release", "requeue"):
        assert plane.call("POST", f"/workloads/{theirs}/{verb}", RED, {})[0] == 404
    assert plane.call("POST", f"/workloads/{theirs}/reprioritize", RED, {"priority": -1})[0] == 404
    assert plane.workloads.rows[theirs] is before


def test_local_queues_of_others_are_not_listed() -> None:
    plane = ControlPlane()

    queues = plane.call("GET", "/catalog/LocalQueue", RED)[1]["items"]

    assert [queue["metadata"]["namespace"] for queue in queues] == ["red"]
    assert plane.call("GET", "/catalog/LocalQueue/blue/batch", RED)[0] == 404
    assert [q["name"] for q in plane.call("GET", "/queues", RED)[1]["items"]] == ["red-cq"]


def test_why_names_no_workload_of_another_tenant() -> None:
    plane = ControlPlane()
    plane.send(native("theirs", 96, namespace="blue", key="theirs-key"), BLUE)
    mine = plane.send(native("mine", 64), RED)

    answer = plane.call("GET", f"/workloads/{mine}/why", RED)[1]

    assert answer["holders"][0]["name"] == "(another tenant's)"
    assert "theirs" not in str(answer)


def test_the_root_user_is_known_by_its_arn_before_its_account() -> None:
    root = f"arn:aws:iam::{ACCOUNT}:root"

    assert [*Caller(ACCOUNT, root, ACCOUNT).principals()] == [root, ACCOUNT]


def test_the_root_user_submits_as_the_tenant_that_its_messages_count_as() -> None:
    """SQS knows the root user by the account alone, which another Tenant may name."""
    root = f"arn:aws:iam::{ACCOUNT}:root"
    red = tenant("red", ACCOUNT, "red")
    plane = ControlPlane((*COMPANY[:-2], tenant("ops", root, "ops", admin=True), red))

    who = authority(Caller(ACCOUNT, root, ACCOUNT), plane.catalog.snapshot(), account=ACCOUNT)

    assert (who.tenant, who.admin) == ("ops", True)
    assert (who.sends_as, who.home) == ("red", "red")
    documents = [native("mine", 1, namespace="red"), native("not-mine", 1, namespace="ops")]
    verdicts = plane.api.whatif(who, documents)["items"]
    assert [verdict["result"] == "would be rejected" for verdict in verdicts] == [False, True]
