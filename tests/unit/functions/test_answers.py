"""Admission checks that are answered by events, from the batch of a queue to the record."""

from __future__ import annotations

import uuid
from typing import Any

import pytest
from sluice import bootstrap
from sluice.core.lifecycle.record import State, Workload
from sluice.usecases.steering.answer import AnswerByEvent

from functions import answer, api
from tests.unit.api.control_plane import (
    ACCOUNT,
    ADMIN,
    COMPANY,
    CONTEXT,
    RED,
    ControlPlane,
    cluster_queue,
    context_of,
    native,
    tenant,
)
from tests.unit.functions.events import sqs

CHECK = {
    "apiVersion": "kueue.x-k8s.io/v1beta2",
    "kind": "AdmissionCheck",
    "metadata": {"name": "licence.v2"},
    "spec": {"controllerName": "sluice.dev/callback"},
}


def grants(name: str, source: str, *checks: str) -> dict[str, Any]:
    document = tenant(name, f"AROA{name.upper()}", name)
    document["spec"] |= {"eventSources": [source], "checks": list(checks)}
    return document


class Office:
    """A plane whose red queue asks `licence.v2`, a tenant that answers it, one that does not."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        asks = {"admissionChecksStrategy": {"admissionChecks": [{"name": "licence.v2"}]}}
        objects = (
            *(each for each in COMPANY if each["metadata"]["name"] != "red-cq"),
            cluster_queue("red-cq", 64, **asks),
            CHECK,
            grants("licences", "licence.server", "licence.v2"),
            grants("others", "other.server"),
        )
        self.plane = plane = ControlPlane(objects)
        heard = AnswerByEvent(
            answer=plane.api.answer,
            catalog=plane.catalog,
            workloads=plane.workloads,
            timeline=plane.timeline,
            clock=plane.clock,
        )
        monkeypatch.setattr(bootstrap, "answer", lambda: heard)
        self.job = plane.send(native("one", 1), RED)

    @property
    def record(self) -> Workload:
        return self.plane.workloads.rows[self.job]

    def event(self, state: str = "Ready", **changed: Any) -> dict[str, Any]:
        return {
            "version": "0",
            "id": str(uuid.uuid4()),
            "detail-type": "Admission Check Answered",
            "source": "licence.server",
            "account": ACCOUNT,
            "detail": {"token": f"{self.job}.0.licence.v2", "state": state, "message": "seat 4"},
        } | changed

    def hear(self, *events: Any) -> list[str]:
        """What comes again of a batch."""
        answered = answer.handler(sqs(*events, queue="answers"), CONTEXT)
        self.plane.settle()
        return [each["itemIdentifier"] for each in answered["batchItemFailures"]]

    def told(self) -> list[str]:
        lines = self.plane.timeline.of(self.job)
        return [line["message"] for line in lines if "NotTaken" in line["what"]]


@pytest.fixture
def office(monkeypatch: pytest.MonkeyPatch) -> Office:
    return Office(monkeypatch)


def test_ready_opens_the_workload(office: Office) -> None:
    assert office.record.gated

    assert office.hear(office.event()) == []

    assert (office.record.state, office.record.gated) == (State.ADMITTED, False)
    assert office.record.answers[0].message == "seat 4"
    assert office.told() == []


def test_a_cloud_event_in_the_detail_says_the_same(office: Office) -> None:
    event = office.event("Rejected")
    event["detail"] = {"specversion": "1.0", "data": event["detail"]}

    assert office.hear(event) == []

    intent = office.record.intent
    assert intent is not None
    assert intent.message == "admission check licence.v2 rejected it: seat 4"


def test_a_copy_of_an_event_is_silent_and_changes_nothing(office: Office) -> None:
    event = office.event()

    assert office.hear(event, event) == []
    assert office.hear(event) == []

    assert len(office.record.answers) == 1
    assert office.told() == []


def test_stale_and_wrong_answers_are_visible_and_do_nothing(office: Office) -> None:
    for wrong in (f"{office.job}.7.licence.v2", f"{office.job}.licence.v2"):
        event = office.event()
        event["detail"]["token"] = wrong
        office.hear(event)
        office.plane.clock.pass_ms(1)
    office.hear(office.event("Perhaps"))
    office.plane.clock.pass_ms(1)
    assert office.record.gated
    assert office.record.answers == ()
    office.hear(office.event())
    office.hear(office.event("Rejected"))

    assert [message.partition(": ")[2] for message in office.told()] == [
        (
            f"Ready of licence.server: '{office.job}.7.licence.v2' is another question than the "
            f"present {office.job}.0.licence.v2"
        ),
        "Perhaps of licence.server: state 'Perhaps' is not one of Ready, Retry, Rejected",
        (
            f"Rejected of licence.server: workload {office.job} does not wait for its checks: "
            "it is ADMITTED"
        ),
    ]


@pytest.mark.parametrize(
    "changed",
    [
        {"source": "other.server"},
        {"source": "nobody"},
        {"source": ""},
        {"account": "999988887777"},
        {"detail-type": "Admission Check Requested"},
        {"detail": {"token": 7, "state": "Ready"}},
        {"detail": None},
    ],
)
def test_who_may_not_answer_leaves_no_trace_in_the_record(
    office: Office, changed: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    assert office.hear(office.event(**changed)) == [], "it would be no better the next time"

    assert office.record.gated
    assert office.record.answers == ()
    assert office.told() == []
    assert "answer not taken" in caplog.text


def test_a_fault_of_ours_brings_one_message_again_and_its_neighbours_through(
    office: Office, monkeypatch: pytest.MonkeyPatch
) -> None:
    apply, calls = office.plane.workloads.apply, []

    def fails_once(changes: Any) -> list[bool]:
        calls.append(changes)
        if len(calls) == 1:
            raise OSError("throttled")
        return apply(changes)

    monkeypatch.setattr(office.plane.workloads, "apply", fails_once)

    assert office.hear(office.event(), "[]", "{", office.event()) == ["m0"]

    assert not office.record.gated


def test_s1_the_api_takes_no_message_however_it_is_sent(monkeypatch: pytest.MonkeyPatch) -> None:
    """Finding S1: a direct Invoke of the api with `Records` forged answers of checks."""
    office = Office(monkeypatch)

    for forged in (
        sqs(office.event(), queue="answers"),
        sqs(office.event(), queue="answers") | {"requestContext": context_of("GET", ADMIN)},
    ):
        # A batch that fails as a whole stays in its queue, as during an upgrade that moves it.
        with pytest.raises(ValueError, match="messages belong to the function of their queue"):
            api.handler(forged, CONTEXT, office.plane.api)

    assert office.record.answers == ()


def test_s1_an_event_that_is_no_request_of_the_function_url_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Finding S1: the identity of a direct Invoke is whatever its caller writes."""
    office = Office(monkeypatch)
    context = context_of("GET", ADMIN)
    del context["domainName"]

    for forged in ({}, {"requestContext": None}, {"requestContext": context}):
        event = {"rawPath": "/identity", **forged}
        assert api.handler(event, CONTEXT, office.plane.api)["statusCode"] == 403
