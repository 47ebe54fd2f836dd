"""Everything at a glance: states, who waits and why, what it costs, what was interrupted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.accounting.costs import requested
from sluice.core.accounting.recovery import has_moved, undone
from sluice.core.lifecycle.record import ON_CLUSTER, State, Workload, phase
from sluice.core.lifecycle.runs import present_run, queued_at
from sluice.core.migrations.restoring import RESTORE
from sluice.usecases.fleet import GONE_MS
from sluice.usecases.reading.query import DAY_MS, UNFINISHED
from sluice.usecases.reading.visible_fleet import visible_fleet
from sluice.usecases.views import Json, Refusals

if TYPE_CHECKING:
    from sluice.ports import CatalogSnapshot
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

ENDED = 2_000  # of those that have ended in the last 24 hours, in each LocalQueue


@dataclass(frozen=True)
class Status:
    """Of the workloads that a caller may see; machines are those that its queues may use.

    Bounded like lists: the first thousands of each queue are looked at.
    """

    query: Query

    def __call__(self, caller: Authority) -> Json:
        now = self.query.clock.now()
        snapshot = self.query.catalog.snapshot()
        queues = self.query.queues(caller, snapshot, "")
        unfinished = self.query.unfinished(snapshot, queues, known={})
        ended = self._ended(queues, now - DAY_MS)
        running = [w for w in unfinished if w.state in ON_CLUSTER]
        pending = [w for w in unfinished if w.state is State.PENDING]
        refusals = self.query.refusals(w.root for w in pending)
        return {
            "at": now,
            "states": _counted(phase(w) for w in unfinished),
            "ended24h": _counted(phase(w) for w in ended),
            "pending": _waiting(pending, refusals, now),
            "oldestPending": _oldest(pending, refusals, now),
            "workloads": _paid(running),
            "machines": self._machines(caller, snapshot, now),
            "recoveries24h": _recoveries([*unfinished, *ended], now - DAY_MS),
        }

    def _ended(self, queues: Sequence[str], since: int) -> list[Workload]:
        """Those that have run and ended since then."""
        first = f"{since:013d}"
        keys = [k for q in queues for k in self.query.workloads.ran(q, since=first, limit=ENDED)]
        found = self.query.workloads.get_many(key.partition("#")[2] for key in keys)
        return [w for w in found if w.state not in UNFINISHED]

    def _machines(self, caller: Authority, snapshot: CatalogSnapshot, now: int) -> Json:
        clusters = sorted(snapshot.of("Cluster"))
        plans = [(c, plan) for c in clusters for plan in self.query.pools.plans(c)]
        fleet = visible_fleet(caller, snapshot, plans)
        rows = [
            row
            for cluster in clusters
            for row in self.query.nodes.of(cluster)
            if row.seen_at > now - GONE_MS and fleet.shows(cluster, row.nodepool, row)
        ]
        prices = [float(row.price) for row in rows if row.price]
        return {
            "nodes": len(rows),
            "ready": sum(row.ready for row in rows),
            "spot": sum(row.capacity_type == "spot" for row in rows),
            "usdPerHour": sum(prices),
            "unpriced": len(rows) - len(prices),
        }


def _counted(words: Iterable[str]) -> dict[str, int]:
    return dict(sorted(Counter(words).items()))


def _waiting(pending: Iterable[Workload], refusals: Refusals, now: int) -> list[Json]:
    """By class and code of the reason, the most frequent first; no code: nobody has looked yet."""
    codes = Counter((refusals.reason(w, now) or {}).get("code", "") for w in pending)
    return [
        {"class": code.partition(":")[0], "code": code, "count": count}
        for code, count in sorted(codes.items(), key=lambda each: (-each[1], each[0]))
    ]


def _oldest(pending: Sequence[Workload], refusals: Refusals, now: int) -> Json | None:
    """Who is in its queue for longest; one that is held waits for its user."""
    waiting = [w for w in pending if not w.held]
    if not waiting:
        return None
    oldest = min(waiting, key=lambda w: (queued_at(w), w.id))
    return {
        "id": oldest.id,
        "name": oldest.name,
        "queue": oldest.queue,
        "seconds": (now - queued_at(oldest)) / 1_000,
        "reason": refusals.reason(oldest, now),
    }


def _paid(running: Sequence[Workload]) -> Json:
    """What those on a cluster pay an hour, and how much of their CPU is on spot machines."""
    cores: Counter[str] = Counter()
    for workload in running:
        cpu = requested(workload, present_run(workload)).get("cpu", 0)
        cores[workload.machine.capacity] += cpu
    known = sum(cores.values()) - cores[""]
    prices = [p for w in running if (p := w.machine.usd_per_hour) is not None]
    return {
        "count": len(running),
        "usdPerHour": sum(prices),
        "unpriced": sum(bool(w.started_at) for w in running) - len(prices),
        "spotShare": cores["spot"] / known if known else None,
    }


def _recoveries(workloads: Iterable[Workload], since: int) -> Json:
    """Interrupted runs that others continue, and what of their work was done again."""
    runs = [
        run for w in workloads for run in undone(w.runs) if has_moved(run) and run.ended_at >= since
    ]
    return {
        "count": sum(run.why != RESTORE for run in runs),
        "lostWorkSeconds": sum(run.lost_ms or 0 for run in runs) / 1_000,
        "lossesUntold": sum(run.lost_ms is None for run in runs),
    }
