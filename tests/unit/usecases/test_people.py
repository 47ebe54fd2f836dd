"""People behind one role as users: only where an identity provider names the sessions."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sluice.core.config import tenants
from sluice.core.config.document import DocumentError
from sluice.core.config.tenants import user_of

from tests.unit.api.control_plane import (
    BLUE,
    COMPANY,
    RED,
    ControlPlane,
    native,
    renamed,
    tenant,
)

ADA = renamed(RED, "ada@example.com")
BOB = renamed(RED, "bob@example.com")


def federated() -> dict[str, Any]:
    red = tenant("red", "AROARED", "red")
    red["spec"]["federatedPrincipals"] = ["AROARED"]
    return red


def sso() -> ControlPlane:
    return ControlPlane((*COMPANY[:-2], federated(), COMPANY[-1]))


def users(plane: ControlPlane) -> set[str]:
    return {row.submitted_by for row in plane.workloads.rows.values()}


def test_each_person_behind_a_federated_role_is_a_user() -> None:
    plane = sso()
    mine, theirs = plane.send(native("a", 1), ADA), plane.send(native("b", 1), BOB)

    listed = plane.call("GET", "/workloads", ADA, query={"user": "ada@example.com"})[1]["items"]
    costs = plane.call("GET", "/costs", ADA, query={"by": "user"})

    assert plane.workloads.rows[mine].submitted_by == "ada@example.com"
    assert plane.workloads.rows[theirs].submitted_by == "bob@example.com"
    assert [each["id"] for each in listed] == [mine]
    assert plane.call("GET", "/identity", ADA)[1]["user"] == "ada@example.com"
    assert costs[0] == 200


def test_the_cap_per_user_counts_people() -> None:
    capped = ControlPlane(
        (
            *(each for each in COMPANY[:-2] if each["metadata"]["name"] != "red-cq"),
            _capped(next(each for each in COMPANY if each["metadata"]["name"] == "red-cq")),
            federated(),
        )
    )
    sent = (("a1", ADA), ("a2", ADA), ("b1", BOB))
    ids = [capped.send(native(name, 1), who) for name, who in sent]

    states = [capped.call("GET", f"/workloads/{each}", ADA)[1]["phase"] for each in ids]

    assert states == ["ADMITTED", "PENDING", "ADMITTED"]


def _capped(document: dict[str, Any]) -> dict[str, Any]:
    annotations = {"sluice.dev/max-running-per-user": "1"}
    return document | {"metadata": document["metadata"] | {"annotations": annotations}}


def test_of_a_role_that_is_not_listed_no_session_is_believed() -> None:
    plane = ControlPlane()

    plane.send(native("a", 1), ADA)

    assert users(plane) == {"AROARED"}
    assert plane.call("GET", "/identity", ADA)[1]["user"] == "AROARED"


def test_a_role_is_listed_for_its_own_tenant_alone() -> None:
    """Blue assumes its role as `ada@example.com`; red lists only its own."""
    plane = sso()
    blue = renamed(BLUE, "ada@example.com")

    plane.send(native("forged", 1, namespace="blue"), blue)

    assert users(plane) == {"AROABLUE"}


@pytest.mark.parametrize(
    "session",
    [
        *("AROABLUE", "AROAPLATFORM", "AIDAJQABLZS4A3QDU576Q", "111122223333"),
        *("", "x", "x:AROAPLATFORM", "a b", "ada@example.com\n", "ädä", "a" * 65),
    ],
)
def test_a_session_that_is_no_name_of_a_person_is_the_role(session: str) -> None:
    assert user_of(f"AROARED:{session}", ["AROARED"]) == "AROARED"


@pytest.mark.parametrize("identity", ["111122223333:ada", "AIDAUSER", "", ":ada"])
def test_what_is_no_role_has_no_person(identity: str) -> None:
    assert user_of(identity, ["AROARED"]) == identity.partition(":")[0]


@pytest.mark.parametrize("place", ["metadata", "spec", "status", "labels"])
def test_a_document_cannot_name_its_user(place: str) -> None:
    plane = sso()
    document = native("a", 1)
    where = document["metadata"] if place == "labels" else document
    said = dict.fromkeys(("user", "submittedBy", "submitted_by"), "bob@example.com")
    where[place] = where.get(place, {}) | said

    plane.deliver(json.dumps(document), ADA)

    assert users(plane) == {"ada@example.com"}


def test_an_envelope_in_a_message_cannot_name_its_user() -> None:
    plane = sso()
    envelope = {
        "source": "bob@example.com",
        "detail-type": "Workload",
        "detail": native("a", 1),
        "user": "bob@example.com",
    }

    plane.deliver(json.dumps(envelope), ADA)

    assert "bob@example.com" not in users(plane)


def test_what_was_submitted_before_keeps_its_user() -> None:
    plane = ControlPlane()
    before = plane.send(native("a", 1), ADA)
    documents = [federated()]
    assert plane.call("POST", "/catalog", body={"documents": documents})[0] == 200

    again, after = plane.send(native("a", 1), ADA), plane.send(native("b", 1), ADA)

    assert again == before
    assert plane.workloads.rows[before].submitted_by == "AROARED"
    assert plane.workloads.rows[after].submitted_by == "ada@example.com"


@pytest.mark.parametrize(
    "listed", [["AROABLUE"], ["arn:aws:iam::111122223333:role/Red"], ["111122223333"], [""]]
)
def test_only_ids_of_roles_that_are_principals_too_may_be_listed(listed: list[str]) -> None:
    document = federated()
    document["spec"]["principals"] += ["arn:aws:iam::111122223333:role/Red", "111122223333"]
    document["spec"]["federatedPrincipals"] = listed

    with pytest.raises(DocumentError, match="federatedPrincipals"):
        tenants.parse(document)


def test_a_tenant_cannot_list_a_role_itself() -> None:
    assert ControlPlane().call("POST", "/catalog", ADA, {"documents": [federated()]})[0] == 403


def test_the_shape_of_a_record_knows_its_user() -> None:
    """A pass takes equal shapes for one: another user must not be stopped by somebody's cap."""
    plane = sso()
    ids = [plane.send(native(name, 1), who) for name, who in (("a", ADA), ("b", BOB), ("c", ADA))]

    ada, bob, again = (plane.workloads.rows[each].shape_hash for each in ids)

    assert ada == again != bob
