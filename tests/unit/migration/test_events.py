"""EC2's and Health's events, exactly as they come."""

from __future__ import annotations

from typing import Any

import pytest
from sluice.core.migrations.interruption import (
    Notice,
    NoticeKind,
    ReservationNotice,
    UnreadableEvent,
    UserRequest,
    read_event,
)

AT = 1_787_303_645_000  # 2026-08-21T09:14:05Z
ENVELOPE: dict[str, Any] = {
    "version": "0",
    "id": "5d0e",
    "account": "111122223333",
    "region": "us-east-2",
    "source": "aws.ec2",
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "time": "2026-08-21T09:14:05Z",
    "resources": ["arn:aws:ec2:us-east-2a:instance/i-0abc"],
    "detail": {"instance-id": "i-0abc", "instance-action": "terminate"},
}


def an_event(kind: str, **detail: Any) -> dict[str, Any]:
    return ENVELOPE | {"detail-type": kind, "detail": detail}


def the_notice(envelope: dict[str, Any]) -> Notice:
    heard = read_event(envelope)
    assert isinstance(heard, list), heard
    (notice,) = heard
    return notice


def test_the_deadline_of_a_spot_notice_is_its_own_time_and_two_minutes() -> None:
    notice = the_notice(ENVELOPE)

    assert (notice.kind, notice.instance, notice.at) == (NoticeKind.SPOT, "i-0abc", AT)
    assert notice.deadline == AT + 120_000
    assert (notice.account, notice.region) == ("111122223333", "us-east-2")


def test_hibernation_leaves_no_time() -> None:
    event = an_event(
        "EC2 Spot Instance Interruption Warning",
        **{"instance-id": "i-0abc", "instance-action": "hibernate"},
    )

    assert the_notice(event).deadline == AT


def test_a_recommendation_has_no_deadline() -> None:
    event = an_event("EC2 Instance Rebalance Recommendation", **{"instance-id": "i-0abc"})

    assert the_notice(event).deadline is None
    assert the_notice(event).kind is NoticeKind.REBALANCE


@pytest.mark.parametrize(
    ("state", "kind"),
    [
        ("stopping", NoticeKind.STOPPING),
        ("shutting-down", NoticeKind.STOPPING),
        ("stopped", NoticeKind.TERMINATED),
        ("terminated", NoticeKind.TERMINATED),
    ],
)
def test_ends_of_instances_are_losses(state: str, kind: NoticeKind) -> None:
    event = an_event(
        "EC2 Instance State-change Notification", **{"instance-id": "i-0abc", "state": state}
    )

    assert the_notice(event).kind is kind


def test_a_reservation_names_its_own_end() -> None:
    event = an_event(
        "EC2 Capacity Reservation Instance Interruption Warning",
        **{
            "instance-id": "i-0abc",
            "instance-action": "terminate",
            "instance-termination-time": "2026-08-21T09:16:00Z",
            "availability-zone-id": "use2-az1",
        },
    )

    assert the_notice(event).deadline == AT + 115_000


@pytest.mark.parametrize(
    "kind",
    ["Capacity Block Expiration Warning", "Capacity Block Reservation Expiration Warning"],
)
def test_a_capacity_block_starts_to_end_half_an_hour_early(kind: str) -> None:
    event = an_event(
        kind, **{"capacity-reservation-id": "cr-1", "end-date": "2026-08-21T09:54:05Z"}
    )

    heard = read_event(event)

    assert isinstance(heard, ReservationNotice)
    assert (heard.reservation, heard.deadline) == ("cr-1", AT + 10 * 60_000)


def test_health_names_several_instances_and_its_own_region() -> None:
    event = an_event(
        "AWS Health Event",
        service="EC2",
        eventTypeCategory="scheduledChange",
        startTime="Fri, 04 Sep 2026 09:14:05 GMT",
        affectedEntities=[{"entityValue": "i-1"}, {"entityValue": "vol-1"}, {"entityValue": "i-2"}],
        eventRegion="eu-west-1",
    )

    heard = read_event(event)

    assert isinstance(heard, list)
    assert [(n.instance, n.region, n.deadline) for n in heard] == [
        ("i-1", "eu-west-1", AT + 14 * 86_400_000),
        ("i-2", "eu-west-1", AT + 14 * 86_400_000),
    ]


def test_a_wish_of_the_api_is_no_notice() -> None:
    event = an_event("Sluice Migration Requested", workload="abc", by="me") | {"source": "sluice"}

    assert read_event(event) == UserRequest("abc", AT, moves=True, by="me")


@pytest.mark.parametrize(
    "event",
    [
        an_event(
            "EC2 Instance State-change Notification", **{"instance-id": "i", "state": "running"}
        ),
        an_event("EC2 Spot Instance Interruption Warning"),
        an_event("AWS Health Event", service="RDS"),
        an_event("Something New", **{"instance-id": "i-1"}),
        an_event("Sluice Migration Requested", workload="abc"),
        ENVELOPE | {"time": "yesterday"},
        {"detail": None},
        [],
    ],
)
def test_what_cannot_be_read_says_why_and_raises_nothing(event: dict[str, Any]) -> None:
    heard = read_event(event)

    assert isinstance(heard, UnreadableEvent)
    assert heard.why


def test_an_older_spelling_of_the_kind_is_read_too() -> None:
    event = {k: v for k, v in ENVELOPE.items() if k != "detail-type"}
    event["detail_type"] = ENVELOPE["detail-type"]

    assert the_notice(event).instance == "i-0abc"


def test_copies_of_a_notice_have_one_key_and_a_new_launch_another() -> None:
    first, again = the_notice(ENVELOPE), the_notice(ENVELOPE | {"id": "other"})

    assert first.key("2026-08-20T00:00:00Z") == again.key("2026-08-20T00:00:00Z")
    assert first.key("2026-08-20T00:00:00Z") != first.key("2026-08-21T00:00:00Z")


def seen_by_the_agent(kind: str, at: str, **more: str) -> dict[str, Any]:
    detail = {"instance-id": "i-0abc", "kind": kind, "at": at, **more}
    about = {"source": "sluice", "detail-type": "Sluice Instance Notice", "detail": detail}
    return ENVELOPE | about | {"time": "2026-08-21T09:14:09Z"}


def test_the_metadata_service_tells_the_same_notice_as_the_event() -> None:
    told = the_notice(seen_by_the_agent("spot", "2026-08-21T09:16:05Z"))
    event = the_notice(ENVELOPE)

    assert (told.at, told.deadline) == (event.at, event.deadline)
    assert told.key("launched then") == event.key("launched then")
    assert (told.account, told.region) == (event.account, event.region)


def test_the_metadata_service_names_the_end_of_hibernation_and_no_end_of_advice() -> None:
    ends = the_notice(
        seen_by_the_agent("spot", "2026-08-21T09:14:05Z", **{"instance-action": "hibernate"})
    )
    advice = the_notice(seen_by_the_agent("rebalance", "2026-08-21T09:14:05Z"))

    assert (ends.at, ends.deadline) == (AT, AT)
    assert (advice.kind, advice.deadline) == (NoticeKind.REBALANCE, None)


def test_a_kind_that_no_agent_tells_is_unreadable() -> None:
    assert isinstance(
        read_event(seen_by_the_agent("burning", "2026-08-21T09:14:05Z")), UnreadableEvent
    )
