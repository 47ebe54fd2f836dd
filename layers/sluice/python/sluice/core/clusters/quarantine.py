"""Offerings and NodePools where nothing is bought for a while, and why: the one quarantine.

Three things put something here: a machine that was taken away (`interrupt`), a purchase that EC2
refused, and a pool that cannot buy at all (both `provision`). Each cause has cool-downs of its own.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from sluice.core.values.reasons import Reason

INSTANCE_TYPE: Final = "node.kubernetes.io/instance-type"
ZONE: Final = "topology.kubernetes.io/zone"
CAPACITY_TYPE: Final = "karpenter.sh/capacity-type"
_MINUTE: Final = 60_000
FORGIVEN_AFTER_MS: Final = 6 * 60 * _MINUTE


class Cause(StrEnum):
    """What went wrong when somebody bought there."""

    LOST = "Lost"
    SOLD_OUT = "SoldOut"
    ACCOUNT_QUOTA = "AccountQuota"
    THROTTLED = "Throttled"
    MISCONFIGURED = "Misconfigured"

    @property
    def reason(self) -> Reason:
        return _REASONS[self]


_REASONS: Final = {
    Cause.LOST: Reason.INSUFFICIENT_INSTANCE,
    Cause.SOLD_OUT: Reason.INSUFFICIENT_INSTANCE,
    Cause.ACCOUNT_QUOTA: Reason.ACCOUNT_QUOTA,
    Cause.THROTTLED: Reason.LAUNCH_THROTTLED,
    Cause.MISCONFIGURED: Reason.LAUNCH_REFUSED,
}
# The first ban, doubled by each further strike up to the longest.
COOL_DOWNS_MS: Final = {
    Cause.LOST: (15 * _MINUTE, 60 * _MINUTE),
    Cause.SOLD_OUT: (15 * _MINUTE, 60 * _MINUTE),
    Cause.ACCOUNT_QUOTA: (5 * _MINUTE, 60 * _MINUTE),
    Cause.THROTTLED: (_MINUTE // 2, 5 * _MINUTE),
    Cause.MISCONFIGURED: (2 * _MINUTE, 30 * _MINUTE),
}
# A whole pool is tried again sooner than one offering of many, which nobody misses.
FIRST_OF_POOL_MS: Final = 5 * _MINUTE


@dataclass(frozen=True, slots=True)
class Offering:
    """A (type, zone, capacity type) of EC2, or with `pool` alone a whole NodePool."""

    instance_type: str = ""
    zone: str = ""
    capacity_type: str = ""
    pool: str = ""

    @property
    def key(self) -> str:
        """Unique among the offerings and pools of a cluster."""
        if self.pool:
            return f"pool/{self.pool}"
        return f"{self.instance_type}/{self.zone}/{self.capacity_type}"

    def __str__(self) -> str:
        words = (self.pool, self.capacity_type, self.instance_type, self.zone)
        return " ".join(word for word in words if word)


@dataclass(frozen=True, slots=True)
class Ban:
    """Nothing is bought of an offering until `until` (epoch ms); `message` is EC2's own."""

    offering: Offering
    cause: Cause
    at: int
    until: int
    strikes: int = 1
    message: str = ""


def banned(offering: Offering, cause: Cause, at: int, before: Ban | None, message: str = "") -> Ban:
    """The cause's first cool-down, doubled by each further strike, at most its longest.

    A failure while the offering is barred is no new lesson: what failed was begun before.
    """
    if before is not None and at <= before.until:
        return before
    recent = before is not None and at - before.until < FORGIVEN_AFTER_MS
    strikes = before.strikes + 1 if before is not None and recent else 1
    first, longest = COOL_DOWNS_MS[cause]
    if offering.pool:
        first = min(first, FIRST_OF_POOL_MS)
    length = min(first * 2 ** min(strikes - 1, 16), longest)
    return Ban(offering, cause, at, at + length, strikes, message)


def in_force(bans: Iterable[Ban], now: int) -> list[Ban]:
    return [ban for ban in bans if ban.until > now]


def avoiding(
    bans: Iterable[Ban], now: int, capacity_types: Collection[str] = ()
) -> list[dict[str, Any]]:
    """Alternatives for required node affinity that keep clear of every barred offering.

    `capacity_types` are those of the pod's nodes; empty: unknown, so every ban counts. Two terms,
    since exact ones would be 2ⁿ; Karpenter tries them in this order, the scheduler takes any.
    Over-excludes for several offerings, is exact for one. Where the nodes may be of a capacity type
    that nothing bars, that is the last resort. Source: facts, spot-and-karpenter §3.3.
    """
    current = [
        ban.offering
        for ban in in_force(bans, now)
        if not ban.offering.pool
        and (not capacity_types or ban.offering.capacity_type in capacity_types)
    ]
    if not current:
        return []
    barred = {each.capacity_type for each in current}
    unbarred = set(capacity_types) - barred
    terms = [
        (INSTANCE_TYPE, sorted({each.instance_type for each in current})),
        (ZONE, sorted({each.zone for each in current})),
        *([(CAPACITY_TYPE, sorted(barred))] if unbarred else ()),
    ]
    return [
        {"matchExpressions": [{"key": key, "operator": "NotIn", "values": values}]}
        for key, values in terms
    ]


_QUOTA: Final = re.compile(
    r"VcpuLimitExceeded|MaxSpotInstanceCountExceeded|InstanceLimitExceeded|InstanceQuotaExceeded"
)
_THROTTLED: Final = re.compile(r"RequestLimitExceeded|Throttl|SlowDown|TooManyRequests")
_SOLD_OUT: Final = re.compile(
    r"InsufficientInstanceCapacity|UnfulfillableCapacity|InsufficientCapacity"
    r"|InsufficientHostCapacity|ReservationCapacityExceeded|insufficient capacity"
    r"|no Spot capacity|SpotMaxPriceTooLow|\bUnsupported\b"
)
_NAMED: Final = re.compile(
    r"sufficient (?P<type>[a-z0-9-]+\.[a-z0-9-]+) capacity in the Availability Zone you requested "
    r"\((?P<zone>[a-z0-9-]+)\)"
)


def cause_of(message: str) -> Cause:
    """What EC2 (through Karpenter) means by refusing to sell.

    One message may join the errors of many offerings: the one that no other offering would cure
    counts, since a quota or a throttled API is the same for all of them.
    """
    for pattern, cause in (
        (_THROTTLED, Cause.THROTTLED),
        (_QUOTA, Cause.ACCOUNT_QUOTA),
        (_SOLD_OUT, Cause.SOLD_OUT),
    ):
        if pattern.search(message):
            return cause
    return Cause.MISCONFIGURED


def named(message: str, capacity_type: str) -> list[Offering]:
    """The offerings that a message says are sold out, sorted; spot messages often name none."""
    found = {(match["type"], match["zone"]) for match in _NAMED.finditer(message)}
    return [Offering(kind, zone, capacity_type) for kind, zone in sorted(found)]
