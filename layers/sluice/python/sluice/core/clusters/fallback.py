"""Which flavors a waiting workload may take now: what it asks for, what EC2 has, and what it lost.

The ClusterQueue's order of flavors is the order of preference; this only takes flavors out of it,
or puts on-demand first for work that spot has failed too often.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final

from sluice.core.clusters.can_be_late import Pace, race_of
from sluice.core.clusters.can_be_late import pace as pace_of
from sluice.core.clusters.capacity import (
    ON_DEMAND,
    RESERVED,
    SPOT,
    Closure,
    Pool,
    PoolPlan,
    closed_flavors,
    pack,
)
from sluice.core.clusters.machine_sizes import why_never
from sluice.core.clusters.quarantine import CAPACITY_TYPE
from sluice.core.config.model import ClusterQueue, Gate, ResourceFlavor
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.options import Capacity
from sluice.core.lifecycle.pending_policy import allows_on_demand
from sluice.core.lifecycle.record import Change, Intent, IntentKind, State, Workload
from sluice.core.values.backoff import backoff_ms
from sluice.core.values.reasons import Reason

RECLAIMS: Final = 3
"""After so many losses of spot machines on-demand comes first, unless a workload says otherwise."""
PATIENCE_MS: Final = 30_000
"""How long a dispatched workload waits for a node before a flavor that is sold out is given up."""
STEADY: Final = frozenset({ON_DEMAND, RESERVED})
INTERRUPTIONS: Final = frozenset({"spot", "stopping", "terminated"})
"""Notices (core.migrations.interruption.NoticeKind) that mean that EC2 took the machine."""
# What another flavor may cure; a throttled EC2 is asked again within a minute anyway.
_GIVEN_UP: Final = frozenset(
    {
        Reason.INSUFFICIENT_INSTANCE,
        Reason.ACCOUNT_QUOTA,
        Reason.LAUNCH_REFUSED,
        Reason.NODE_CLASS_NOT_READY,
    }
)


@dataclass(frozen=True, slots=True)
class Market:
    """What is known of the flavors, at `now` (epoch ms).

    `kinds` maps a flavor to the capacity types of its machines (absent: unknown); `offers` a
    cluster to its flavors (empty: all); `closed` cluster and flavor to why it cannot be had.
    """

    offers: Mapping[str, Sequence[str]]
    kinds: Mapping[str, frozenset[str]] = field(default_factory=dict)
    closed: Mapping[str, Mapping[str, Closure]] = field(default_factory=dict)
    now: int = 0
    plans: Mapping[str, Sequence[PoolPlan]] = field(default_factory=dict)
    """What is known of each cluster's NodePools."""

    def offered(self, cluster: str, flavors: Collection[str]) -> bool:
        return not self.offers[cluster] or set(flavors) <= set(self.offers[cluster])

    def closed_to(self, cluster: str, flavors: Iterable[str]) -> list[Closure]:
        closed = self.closed.get(cluster, {})
        return [closed[flavor] for flavor in sorted(flavors) if flavor in closed]


@dataclass(frozen=True, slots=True)
class Choice:
    """The flavors that may be tried, in this order (None: the queue's own), or why none may."""

    flavors: tuple[str, ...] | None = None
    gate: Gate | None = None


ANY_FLAVOR: Final = Choice()
Taken = dict[tuple[str, str], tuple[int, ...]]
"""Millicores of room that earlier workloads of a pass may take, by cluster and flavor."""


def kinds_of(
    flavors: Mapping[str, ResourceFlavor], served: Mapping[str, Collection[str]]
) -> dict[str, frozenset[str]]:
    """Capacity types by flavor: its own label counts, else those of the pools that serve it."""
    found = {name: frozenset(kinds) for name, kinds in served.items() if kinds}
    for name, flavor in flavors.items():
        if label := flavor.node_labels.get(CAPACITY_TYPE):
            found[name] = frozenset({label})
    return found


def reclaims(workload: Workload) -> int:
    """How often EC2 took the machine from under it."""
    return sum(run.why in INTERRUPTIONS for run in workload.runs)


def wants_on_demand(workload: Workload) -> bool:
    """Whether it has lost enough spot machines to be worth the price of one that stays."""
    if workload.options.capacity is Capacity.SPOT:
        return False
    return workload.steady or reclaims(workload) >= _bearable(workload)


def may_leave(workload: Workload, now: int) -> bool:
    """Whether losing its present machine to EC2 is once too often."""
    enough = reclaims(workload) + 1 >= _bearable(workload)
    late = _pace(workload, now) is Pace.LAST_CHANCE
    return workload.reservation is not None and (enough or late)


def flavor_instead(workload: Workload, queue: ClusterQueue, market: Market) -> str:
    """The flavor that stays for which it leaves spot when EC2 takes its machine; none: it moves.

    Only where its queue has an on-demand flavor that can be bought now: else it is better off with
    the quota that it holds.
    """
    if workload.reservation is None or not may_leave(workload, market.now):
        return ""
    choice = choose(replace(workload, steady=True), queue, market, {})
    order = [flavor.name for group in queue.resource_groups for flavor in group.flavors]
    first = (choice.flavors or tuple(order))[:1] if choice.gate is None else ()
    held = workload.reservation.flavors
    return first[0] if first and first[0] not in held and _stays(first[0], market) else ""


def _bearable(workload: Workload) -> int:
    asked = workload.options.recovery.on_demand_after
    return RECLAIMS if asked is None else asked


def _pace(workload: Workload, now: int) -> Pace | None:
    """How it stands against its deadline; None without one, or if it insists on a kind."""
    race = None if workload.options.capacity else race_of(workload, now)
    return None if race is None else pace_of(race)


def _waits_for(flavor: str, queue: ClusterQueue, market: Market) -> bool:
    """Whether it is spot, or in a group of resources that has no spot."""
    groups = [{each.name for each in group.flavors} for group in queue.resource_groups]
    (own,) = [group for group in groups if flavor in group][:1]
    spot = {name for name in own if SPOT in market.kinds.get(name, frozenset())}
    return not spot or flavor in spot


def _stays(flavor: str, market: Market) -> bool:
    return bool(market.kinds.get(flavor, frozenset()) & STEADY)


def choose(workload: Workload, queue: ClusterQueue, market: Market, taken: Taken) -> Choice:
    """Same workload, queue, market and room, same choice; notes what it may take in `taken`."""
    if never := why_never(workload.pod_sets, queue, market.plans, market.offers):
        return Choice(gate=Gate(Reason.REQUEST_LARGER_THAN_ANY_NODE, never))
    order = list(
        dict.fromkeys(flavor.name for group in queue.resource_groups for flavor in group.flavors)
    )
    asked = [name for name in order if _accepts(workload, name, market)]
    pace = _pace(workload, market.now)
    if wants_on_demand(workload) or pace is Pace.LAST_CHANCE:
        asked.sort(key=lambda name: not _stays(name, market))
    elif pace is Pace.AHEAD:  # it can afford to wait for spot, where there is any
        asked = [name for name in asked if _waits_for(name, queue, market)]
    closed = {n: why for n in asked if (why := _shut(n, market, workload, taken))}
    open_now = [name for name in asked if name not in closed]
    if open_now == order:
        return ANY_FLAVOR
    for group in queue.resource_groups:
        of_group = {flavor.name for flavor in group.flavors}
        if not of_group or not _needs(workload, group.covered_resources):
            continue
        if not of_group.intersection(asked):
            wish = workload.options.capacity
            text = f"it asks for {wish} machines, and ClusterQueue {queue.name} has no such flavor"
            return Choice(gate=Gate(Reason.NO_MATCHING_FLAVOR, text))
        if not of_group.intersection(open_now):
            return Choice(gate=_gate({n: why for n, why in closed.items() if n in of_group}))
    return Choice(tuple(open_now))


def _accepts(workload: Workload, flavor: str, market: Market) -> bool:
    """Unknown machines are taken at their word: the queue offers them."""
    kinds = market.kinds.get(flavor)
    match workload.options.capacity:
        case Capacity.SPOT:
            return kinds is None or SPOT in kinds or allows_on_demand(workload)
        case Capacity.ON_DEMAND:
            return kinds is None or bool(kinds & STEADY)
    return True


def _shut(flavor: str, market: Market, workload: Workload, taken: Taken) -> Closure | None:
    """Why no cluster can provide it; None if one can buy it, or has enough room left."""
    found: Closure | None = None
    for cluster in sorted(market.offers):
        if not market.offered(cluster, (flavor,)):
            continue
        closure = market.closed.get(cluster, {}).get(flavor)
        if closure is None:
            return None
        place = cluster, flavor
        left = pack(workload, taken.get(place, closure.rests()))
        if left is not None:
            taken[place] = left
            return None
        if found is None or closure.until < found.until:
            found = closure
    return found


def _gate(closed: Mapping[str, Closure]) -> Gate:
    name, first = min(closed.items(), key=lambda pair: (pair[1].until, pair[0]))
    return Gate(first.reason, f"flavor {name}: {first.message}", first.until)


def _needs(workload: Workload, resources: Collection[str]) -> bool:
    return any(
        resource in s.requests or resource == "pods"
        for s in workload.pod_sets
        for resource in resources
    )


def hopeless(
    holders: Iterable[Workload],
    waiting: Iterable[Mapping[str, Any]],
    plans: Sequence[PoolPlan],
    pools: Iterable[Pool],
    now: int,
) -> list[Change]:
    """Dispatched work that waits for machines which cannot be bought: back into its queue.

    There the next flavor may take it, or it waits without keeping quota from others. `waiting` are
    the pods without a node. Nobody is sent back for whom a machine may be on its way.
    """
    buying = {pool.name for pool in pools if pool.launching}
    coming = {flavor for each in plans if each.pool in buying for flavor in each.flavors}
    closed = {
        flavor: closure
        for flavor, closure in closed_flavors(plans, now).items()
        if flavor not in coming and closure.reason in _GIVEN_UP
    }
    without_node = {owner for pod in waiting if (owner := job_status.owner(pod))}
    changes = []
    for workload in holders:
        reservation = workload.reservation
        if (
            reservation is None
            or workload.state is not State.DISPATCHED
            or workload.started_at
            or now - workload.dispatched_at <= PATIENCE_MS
            or (workload.id, workload.generation) not in without_node
        ):
            continue
        for flavor in sorted(reservation.flavors & closed.keys()):
            why = closed[flavor]
            # At once the first time, since another flavor may take it; each later try waits longer.
            wait = backoff_ms(workload.requeues - 1) if workload.requeues else 0
            intent = Intent(IntentKind.REQUEUE, why.reason, why.message, not_before=now + wait)
            changes.append(lifecycle.reclaim(workload, intent))
            break
    return changes
