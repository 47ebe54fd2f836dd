"""Dead letters: shown with all that is known of them, removed only when dealt with."""

from __future__ import annotations

import json
from typing import Any

import pytest
from sluice.core.lifecycle.faults import Fault
from sluice.message_queues import DEAD_LETTERS
from sluice.ports import DeadLetter

from infra.functions import FUNCTIONS
from tests.unit.api.control_plane import RED, ControlPlane


def letter(name: str, body: str = "{}", **said: str) -> DeadLetter:
    attributes = {"SenderId": "AROARED:session", "SentTimestamp": "1700000000000"}
    return DeadLetter(name, f"receipt-{name}", body, attributes, said)


def lying(queue: str, *letters: DeadLetter) -> ControlPlane:
    plane = ControlPlane()
    plane.dead_letters.queues[queue] = list(letters)
    return plane


def shown(plane: ControlPlane, queue: str) -> list[dict[str, Any]]:
    return list(plane.call("GET", f"/dead-letters/{queue}")[1]["items"])


def test_every_queue_is_listed_with_the_function_that_takes_from_it() -> None:
    _, answer = ControlPlane().call("GET", "/dead-letters")
    listed = {each["queue"]: each["function"] for each in answer["items"]}

    assert listed == {name: queue.consumer for name, queue in DEAD_LETTERS.items()}
    assert {*listed.values()} <= {"", *(shape.name for shape in FUNCTIONS)}


def test_all_queues_are_listed_and_everybody_sees_the_letters_afterwards() -> None:
    letters = [letter(f"m-{n}") for n in range(25)]
    plane = lying("commands", *letters)

    items = plane.call("GET", "/dead-letters")[1]["items"]
    some = plane.call("GET", "/dead-letters/commands", query={"limit": "15"})[1]

    assert {each["queue"]: each["count"] for each in items if each["count"]} == {"commands": 25}
    assert [each["id"] for each in some["items"]] == [f"m-{n}" for n in range(15)]
    assert len(plane.dead_letters.take("commands", hidden_seconds=1)) == 10, "none is hidden"


def test_a_task_token_in_a_body_is_not_shown() -> None:
    body = json.dumps({"spec": {"completion": {"taskToken": "secret-token"}}})

    (only,) = shown(lying("submissions", letter("m", body)), "submissions")

    assert "secret-token" not in only["body"]
    assert "taskToken" in only["body"]


@pytest.mark.parametrize(
    ("found", "why"),
    [
        (
            letter("m", ERROR_CODE="NO_PERMISSIONS", ERROR_MESSAGE="denied"),
            "NO_PERMISSIONS: denied",
        ),
        (letter("m", ErrorCode="200", ErrorMessage="it broke"), "it broke"),
        (
            letter(
                "m",
                json.dumps(
                    {
                        "requestContext": {"condition": "RetriesExhausted"},
                        "responsePayload": {"errorMessage": "no such table"},
                    }
                ),
            ),
            "RetriesExhausted: no such table",
        ),
        (letter("m", '{"requestContext": 7, "responsePayload": null}'), ""),
        (letter("m", "no json"), ""),
    ],
    ids=["a rule", "an asynchronous call", "a stream record", "another body", "no body at all"],
)
def test_why_it_was_given_up_as_far_as_anybody_said(found: DeadLetter, why: str) -> None:
    (only,) = shown(lying("undelivered", found), "undelivered")

    assert only["why"] == why


def test_sqs_says_nothing_so_the_newest_fault_of_the_function_is_told() -> None:
    plane = lying("commands", letter("m"))
    for at, message in ((1, "old"), (2, "cannot create jobs")):
        plane.faults.rows["act", str(at)] = Fault("act", str(at), "x:Y", message, at)
    plane.faults.rows["submit", ""] = Fault("submit", "", "x:Y", "other", 3)

    (only,) = shown(plane, "commands")

    assert only["why"] == "cannot create jobs"


def test_redriving_removes_what_the_function_has_dealt_with_and_nothing_else() -> None:
    plane = lying("submissions", letter("good"), letter("bad"))
    plane.consumers.refusing, plane.consumers.why = {"bad"}, "no such table"

    status, done = plane.call("POST", "/dead-letters/submissions/redrive")

    assert status == 200
    assert (done["taken"], done["refused"], done["left"]) == (1, 1, 1)
    assert done["why"] == "no such table"
    assert [each.id for each in plane.dead_letters.queues["submissions"]] == ["bad"]
    ((queue, handed),) = plane.consumers.handed
    assert (queue, handed.id) == ("submissions", "good")
    assert handed.attributes["SenderId"] == "AROARED:session", "it counts as its first sender's"


def test_a_letter_that_is_refused_is_not_tried_twice_in_one_go() -> None:
    plane = lying("submissions", letter("bad"))
    plane.consumers.refusing = {"bad"}

    plane.call("POST", "/dead-letters/submissions/redrive")
    _, done = plane.call("POST", "/dead-letters/submissions/redrive")

    assert (done["taken"], done["refused"], done["left"]) == (0, 0, 1)


def test_reports_of_failed_calls_have_nobody_who_takes_them() -> None:
    plane = lying("failures", letter("m"))

    status, answer = plane.call("POST", "/dead-letters/failures/redrive")

    assert (status, answer["error"]["code"]) == (409, "Conflict")
    assert plane.dead_letters.count("failures") == 1


def test_purging_deletes_all_but_not_in_a_dry_run() -> None:
    plane = lying("kicks", letter("a"), letter("b"))

    _, dry = plane.call("POST", "/dead-letters/kicks/purge", body={"dryRun": True})
    assert (dry["purged"], plane.dead_letters.count("kicks")) == (2, 2)
    _, done = plane.call("POST", "/dead-letters/kicks/purge")
    assert (done["purged"], plane.dead_letters.count("kicks")) == (2, 0)


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/dead-letters"),
        ("GET", "/dead-letters/kicks"),
        ("POST", "/dead-letters/kicks/redrive"),
        ("POST", "/dead-letters/kicks/purge"),
    ],
)
def test_tenants_may_not(method: str, path: str) -> None:
    plane = lying("kicks", letter("m"))

    assert plane.call(method, path, RED)[0] == 403
    assert plane.dead_letters.count("kicks") == 1


def test_an_unknown_queue_is_told_with_those_there_are() -> None:
    status, answer = ControlPlane().call("GET", "/dead-letters/none")

    assert status == 404
    assert "submissions" in answer["error"]["hint"]
