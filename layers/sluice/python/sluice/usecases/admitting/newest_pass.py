"""The entry PASS of a ledger: what the newest pass refused, and where the next one goes on."""

from __future__ import annotations

import json
import zlib
from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any

from sluice.core.clusters.fallback import Market
from sluice.core.clusters.fleet import Site
from sluice.core.passes.cycle_plan import CycleInput, CyclePlan
from sluice.ports import CatalogSnapshot, LedgerState, News

KEPT_REFUSALS = 1000
KEPT_PARKED = 10_000
PARKED_MS = 60_000
ALL_MS = 60_000
CLOCKS_DIFFER_MS = 1_000  # at most, between a queue and a function


def pass_summary(
    cycle: CyclePlan,
    gathered: CycleInput,
    version: int,
    catalog: int,
    last: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Mapping[str, Any]:
    """The newest pass as `why` and `ls` read it, and whom it parked; lists as compressed JSON.

    What was parked keeps the reason of the pass that refused it, the `last` one. `more`: what the
    next pass goes on with.
    """
    kept = json.loads(zlib.decompress(last["refusals"])) if last else {}
    refusals = {name: line for name, line in kept.items() if name in gathered.parked}
    refusals |= {
        refusal.workload: [refusal.reason.value, refusal.message, refusal.position]
        for refusal in list(cycle.refusals.values())[:KEPT_REFUSALS]
    }
    done = {step.change.before.id for step in (*cycle.admitted, *cycle.expired)}
    parked = [w.id for w in gathered.waiting if w.id not in done][:KEPT_PARKED]
    return {
        "at": gathered.now,
        "parked_at": last["parked_at"] if last else gathered.now,
        "version": version,
        "catalog": catalog,
        "fleet": fleet_digest(gathered.sites, gathered.market),
        "refusals": zlib.compress(json.dumps(refusals).encode()),
        "parked": zlib.compress(json.dumps(parked).encode()),
        **more,
    }


def fleet_digest(sites: Sequence[Site], market: Market) -> str:
    """What clusters answer and what cannot be had there, as a digest that changes with it."""
    answering = [[site.name, site.health.value, sorted(site.flavors)] for site in sites]
    closed = {cluster: sorted(flavors) for cluster, flavors in market.closed.items()}
    return sha256(json.dumps([answering, closed], sort_keys=True).encode()).hexdigest()[:16]


def parked_by(
    last: Mapping[str, Any], ledger: LedgerState, catalog: CatalogSnapshot, fleet: str, now: int
) -> frozenset[str]:
    """Who was refused by a pass since which neither ledger, configuration nor fleet has moved.

    Kueue's rule: a refused head keeps room for itself in one pass, then lets others by until
    something changes. After a while everybody is looked at again, since time is a change too.
    """
    seen = (last.get("version"), last.get("catalog"), last.get("fleet"))
    if seen != (ledger.version, catalog.version, fleet) or now - last["parked_at"] > PARKED_MS:
        return frozenset()
    return frozenset(json.loads(zlib.decompress(last["parked"])))


def covers(last: Mapping[str, Any], sent_at: int | None, news: News | None) -> bool:
    """Whether a pass began after a kick was sent, so that the kick has nothing more to tell."""
    if sent_at is None or sent_at + CLOCKS_DIFFER_MS >= int(last.get("began", 0)):
        return False
    looked = last.get("looked")
    if looked is None:
        return True
    let_in = {*last.get("let_in", ())}
    return news is not None and news.queues <= {*looked} and news.namespaces <= let_in


def worth_a_look(
    last: Mapping[str, Any], news: News | None, catalog: int, now: int
) -> frozenset[str] | None:
    """The ClusterQueues that somebody waits in, or that there is news of; None: all.

    Now and then all are looked at whatever is known, since a kick may be lost.
    """
    if news is None or last.get("waiting") is None or last.get("catalog") != catalog:
        return None
    if now - int(last.get("all_at", 0)) > ALL_MS:
        return None
    return news.queues | frozenset(last["waiting"])
