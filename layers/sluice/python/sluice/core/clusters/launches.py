"""What refused purchases teach: the bans that follow from Karpenter's events and NodeClaims."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from sluice.core.clusters.capacity import Pool
from sluice.core.clusters.quarantine import Ban, Offering, banned, cause_of, named
from sluice.core.migrations.interruption import epoch_ms

Document = Mapping[str, Any]


def lessons(
    pools: Sequence[Pool], events: Iterable[Document], before: Mapping[Offering, Ban], now: int
) -> list[Ban]:
    """New bans from refused purchases and from NodeClaims that cannot be launched.

    A refusal after which the pool could buy something says only what it names: other offerings
    were there. Same sight, same bans: an event that was seen before falls into its own ban.
    """
    known = dict(before)

    def bar(offering: Offering, message: str, at: int) -> None:
        known[offering] = banned(offering, cause_of(message), at, known.get(offering), message)

    by_name = {pool.name: pool for pool in pools}
    for at, claim, message in sorted(refusals(events)):
        pool = by_name.get(pool_of(claim))
        if pool is None:
            continue
        (kind,) = pool.capacity_types if len(pool.capacity_types) == 1 else ("",)
        for offering in named(message, kind):
            bar(offering, message, at)
        if pool.launched_at < at:
            bar(Offering(pool=pool.name), message, at)
    for pool in sorted(pools, key=lambda each: each.name):
        if pool.failure:
            bar(Offering(pool=pool.name), pool.failure, now)
    return [ban for offering, ban in known.items() if before.get(offering) is not ban]


def refusals(events: Iterable[Document]) -> list[tuple[int, str, str]]:
    """(when, NodeClaim, what EC2 said) of every refused purchase."""
    return [
        (
            epoch_ms(
                event.get("lastTimestamp")
                or event.get("eventTime")
                or event["metadata"]["creationTimestamp"]
            ),
            str(event["involvedObject"]["name"]),
            str(event.get("message", "")),
        )
        for event in events
    ]


def pool_of(claim: str) -> str:
    """The NodePool of a NodeClaim that is gone: Karpenter names claims POOL-XXXXX."""
    return claim.rpartition("-")[0]
