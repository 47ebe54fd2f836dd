"""What EC2 and AWS Health say about machines that go away, read from EventBridge envelopes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from enum import StrEnum
from typing import Any, Final

NOTICE_MS: Final = 120_000
"""From a spot interruption notice's `time` to the end of the instance."""
REQUEST_MS: Final = 600_000
"""How long the dump of a migration on request may take, while no machine goes away."""
BLOCK_LEAD_MS: Final = 30 * 60_000
"""Instances of a Capacity Block start to end half an hour before its `end-date`."""


class NoticeKind(StrEnum):
    """Why an instance goes away; the value is part of what identifies a notice."""

    SPOT = "spot"
    REBALANCE = "rebalance"
    RESERVATION = "reservation"
    BLOCK = "block"
    MAINTENANCE = "maintenance"
    STOPPING = "stopping"
    TERMINATED = "terminated"
    HOOK = "hook"
    REQUEST = "request"
    EVICTION = "yield"


# Kinds after which nothing on the instance can be saved; TERMINATED also proves that nothing runs.
LOSSES: Final = frozenset({NoticeKind.STOPPING, NoticeKind.TERMINATED})
# Kinds that warn without a need to leave: an extra checkpoint is all that they cause.
ADVICE: Final = frozenset({NoticeKind.REBALANCE, NoticeKind.MAINTENANCE})
# Kinds in which the machine stays: a user's wish, and a workload that makes room for others.
STAYS: Final = frozenset({NoticeKind.REQUEST, NoticeKind.EVICTION})


@dataclass(frozen=True, slots=True)
class Notice:
    """One instance that goes away; times in epoch ms. `deadline` None: nobody knows when."""

    kind: NoticeKind
    instance: str
    at: int
    deadline: int | None
    account: str
    region: str
    event: str = ""

    def key(self, launched: str) -> str:
        """What identifies the notice however often and by whatever channel it comes."""
        return f"notice#{self.instance}#{self.kind}#{launched or self.at // NOTICE_MS}"


@dataclass(frozen=True, slots=True)
class ReservationNotice:
    """A Capacity Block that ends: its instances have to be looked up."""

    reservation: str
    at: int
    deadline: int
    account: str
    region: str


@dataclass(frozen=True, slots=True)
class UserRequest:
    """A wish, sent by the api or by `observe`: to save a workload, or to move it.

    `order` names a checkpoint so that a repeated wish is the same; `generation` None: any.
    """

    workload: str
    at: int
    moves: bool
    by: str = ""
    checkpoint: str = ""
    order: str = ""
    generation: int | None = None
    reason: str = ""


@dataclass(frozen=True, slots=True)
class UnreadableEvent:
    """An event that says nothing to us, and why; it is logged, never retried."""

    why: str


MAX_TEXT: Final = 1024  # names and reasons; nothing that AWS sends is longer

EventContent = Sequence[Notice] | ReservationNotice | UserRequest | UnreadableEvent

MIGRATION_REQUESTED: Final = "Sluice Migration Requested"
CHECKPOINT_REQUESTED: Final = "Sluice Checkpoint Requested"
INSTANCE_NOTICED: Final = "Sluice Instance Notice"
"""A node agent read it from its machine's metadata service: the second channel."""

_STATES: Final = {
    "stopping": NoticeKind.STOPPING,
    "shutting-down": NoticeKind.STOPPING,
    "stopped": NoticeKind.TERMINATED,
    "terminated": NoticeKind.TERMINATED,
}


def read_agent_notice(envelope: Mapping[str, Any]) -> Sequence[Notice] | UnreadableEvent:
    """What a node agent may say: that EC2 will take a machine. Nothing else, and no wish.

    Whoever holds the agent's role, as from one compromised node, could otherwise choose what other
    workloads start from, or have pods ended as if EC2 had proven that their machine is gone.
    """
    found = read_event(envelope)
    if isinstance(found, UnreadableEvent):
        return found
    what = envelope.get("detail-type") or envelope.get("detail_type")
    if what != INSTANCE_NOTICED or not isinstance(found, Sequence):
        return UnreadableEvent(f"a node agent may not send {what!r:.80}")
    return found


def read_event(envelope: Mapping[str, Any]) -> EventContent:
    """The notices of one event; never raises, since a shape that AWS adds must not stop us.

    Source: facts, spot-and-karpenter §1.1. The ARN in `resources` is malformed by ordinary rules,
    so only `detail` is read.
    """
    try:
        return _read(envelope)
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        named = envelope if isinstance(envelope, Mapping) else {}
        kind = named.get("detail-type") or named.get("detail_type")
        return UnreadableEvent(f"{kind!r:.80}: {type(error).__name__}: {error!s:.200}")


def _read(envelope: Mapping[str, Any]) -> EventContent:
    what = envelope.get("detail-type") or envelope["detail_type"]
    detail, at = envelope["detail"], epoch_ms(envelope["time"])
    ours = envelope["source"] == "sluice"
    if ours and what != INSTANCE_NOTICED:
        return _request(what, detail, at)
    account, region = envelope["account"], envelope["region"]

    def notice(kind: NoticeKind, deadline: int | None, instance: str = "") -> Notice:
        named = _text(instance or detail["instance-id"])
        return Notice(kind, named, at, deadline, account, region, _text(envelope.get("id", "")))

    if ours:
        return [_metadata(detail, notice)]
    if "Capacity Block" in what and "Expiration" in what:
        end = epoch_ms(detail["end-date"]) - BLOCK_LEAD_MS
        named = _text(detail["capacity-reservation-id"])
        return ReservationNotice(named, at, end, account, region)
    return _of_instances(what, detail, at, notice)


def _of_instances(
    what: str, detail: Mapping[str, Any], at: int, notice: Callable[..., Notice]
) -> EventContent:
    """Events that name the instances that they are about."""
    match what:
        case "EC2 Spot Instance Interruption Warning":
            # Hibernation begins with the notice: there is no time to save anything.
            hibernates = detail.get("instance-action") == "hibernate"
            return [notice(NoticeKind.SPOT, at if hibernates else at + NOTICE_MS)]
        case "EC2 Instance Rebalance Recommendation":
            return [notice(NoticeKind.REBALANCE, None)]
        case "EC2 Instance State-change Notification" if detail["state"] in _STATES:
            return [notice(_STATES[detail["state"]], at)]
        case "EC2 Capacity Reservation Instance Interruption Warning":
            return [notice(NoticeKind.RESERVATION, epoch_ms(detail["instance-termination-time"]))]
        case "EC2 Instance-terminate Lifecycle Action":
            return [notice(NoticeKind.HOOK, at + NOTICE_MS, detail["EC2InstanceId"])]
        case "AWS Health Event":
            return _health(detail, notice)
    return UnreadableEvent(f"detail-type {what!r} is not known")


def _metadata(detail: Mapping[str, Any], notice: Callable[..., Notice]) -> Notice:
    """`at` is the reclaim itself in a spot notice, and when it was said in a recommendation."""
    if NoticeKind(detail["kind"]) is NoticeKind.REBALANCE:
        return notice(NoticeKind.REBALANCE, None)
    end = epoch_ms(detail["at"])
    hibernates = detail.get("instance-action") == "hibernate"
    said = notice(NoticeKind.SPOT, end)
    return replace(said, at=end if hibernates else end - NOTICE_MS)


def _request(what: str, detail: Mapping[str, Any], at: int) -> EventContent:
    if what not in (MIGRATION_REQUESTED, CHECKPOINT_REQUESTED):
        return UnreadableEvent(f"no wish is called {what!r}")
    by, checkpoint, order, reason = (
        _text(detail.get(name, "")) for name in ("by", "checkpoint", "order", "reason")
    )
    generation = detail.get("generation")
    if not isinstance(generation, int | None):
        raise TypeError("generation")
    moves = what == MIGRATION_REQUESTED
    return UserRequest(
        _text(detail["workload"]), at, moves, by, checkpoint, order, generation, reason
    )


def _text(value: Any) -> str:
    if not isinstance(value, str) or len(value) > MAX_TEXT:
        raise TypeError(f"{value!r:.40} is no text of at most {MAX_TEXT} characters")
    return value


def request_event(what: str, at: int, detail: Mapping[str, Any]) -> dict[str, Any]:
    """The envelope of a wish, in the shape of EC2's notices."""
    return {
        "source": "sluice",
        "detail-type": what,
        "time": datetime.fromtimestamp(at / 1000, UTC).isoformat(),
        "account": "",
        "region": "",
        "detail": dict(detail),
    }


def _health(detail: Mapping[str, Any], notice: Callable[..., Notice]) -> EventContent:
    if detail.get("service") != "EC2":
        return UnreadableEvent(f"a Health event of {detail.get('service')!r}")
    starts = int(parsedate_to_datetime(detail["startTime"]).timestamp() * 1000)
    named = [str(entity.get("entityValue", "")) for entity in detail.get("affectedEntities") or ()]
    found = [
        notice(NoticeKind.MAINTENANCE, starts, each) for each in named if each.startswith("i-")
    ]
    region = detail.get("eventRegion")
    return [replace(each, region=region or each.region) for each in found]


def epoch_ms(text: str) -> int:
    """Epoch milliseconds of an ISO 8601 time; without a zone it counts as UTC."""
    moment = datetime.fromisoformat(text)
    return int((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
