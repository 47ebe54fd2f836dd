"""Which records of a cluster an observer reads again, and which only an event can change. Pure.

A workload that runs undisturbed needs no look: its end is an event of the cluster. What time alone
changes (late pods, lost commands, budgets, checkpoints) is looked at every few seconds. All others
are read again one after the other, so that each has its turn within `WALK_MS`.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import islice
from typing import Final

from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.cost_limit import limit_microusd
from sluice.core.lifecycle.record import ON_CLUSTER, State, Workload
from sluice.core.migrations.periodic import can_be_ordered

WALK_MS: Final = 300_000
"""Within this time every record of the cluster is compared with the cluster once more."""


@dataclass
class Watchlist:
    """Ids of workloads; `due`: when a settled one is to be looked at (epoch ms)."""

    settled: set[str] = field(default_factory=set)
    open: dict[str, None] = field(default_factory=dict)
    ended: set[str] = field(default_factory=set)
    """Their records say that they ended; their Jobs still lie on the cluster."""
    due: dict[str, int] = field(default_factory=dict)
    queue: dict[str, None] = field(default_factory=dict)
    """To be read now, in this order."""
    walk: list[str] = field(default_factory=list)

    def ask(self, ids: Iterable[str]) -> None:
        """Have these read."""
        for each in ids:
            self.queue[each] = None

    def take(self, most: int) -> list[str]:
        """Those to read next."""
        taken = list(islice(self.queue, most))
        for each in taken:
            del self.queue[each]
        return taken

    def ask_due(self, now: int) -> None:
        self.ask(i for i, at in self.due.items() if at <= now)

    def ask_all(self, active: Iterable[str], state: ClusterState) -> None:
        """Have read who is new here, and those of whose Jobs no active record is known."""
        here = set(active)
        self.settled &= here
        self.ask(here - self.settled)
        self.ask(state.keys.keys() - here - self.ended)
        self.ended &= state.keys.keys()

    def ask_again(self, passed_ms: int) -> None:
        """Have those read that time alone can change, and the next few of all others."""
        self.ask(self.open)
        if not self.walk:
            self.walk = sorted(self.settled, reverse=True)
        share = -(-len(self.settled) * passed_ms // WALK_MS)
        self.ask(self.walk.pop() for _ in range(min(share, len(self.walk))))

    def note(
        self,
        asked: Iterable[str],
        found: Iterable[Workload],
        cluster: str,
        state: ClusterState,
        due: Mapping[str, int],
    ) -> None:
        """These records were read; `due` as `OrderCheckpoints` says."""
        for each in asked:
            for known in (self.open, self.due):
                known.pop(each, None)
            self.settled.discard(each)
        self.due |= due
        for workload in found:
            if workload.state not in ON_CLUSTER or workload.cluster != cluster:
                if has_ended(workload, state):
                    self.ended.add(workload.id)
            elif only_events_change(workload, state, due):
                self.settled.add(workload.id)
            else:
                self.open[workload.id] = None

    def unsettle(self, ids: Iterable[str]) -> None:
        """Something happened to these."""
        for each in ids:
            if each in self.settled:
                self.settled.discard(each)
                self.open[each] = None


def has_ended(workload: Workload, state: ClusterState) -> bool:
    """Whether its record says of the only Job that is here that it ended."""
    if workload.state is not State.FINISHED:
        return False  # somebody has to delete the Job
    key = workload.id, workload.generation
    job = state.jobs.get(key) if state.keys.get(workload.id) == (key,) else None
    return job is not None and job["metadata"]["uid"] == workload.uid


def only_events_change(workload: Workload, state: ClusterState, due: Mapping[str, int]) -> bool:
    """Whether nothing is to be done for it before its cluster or its record tells something new.

    A command for a record that changed may be lost: the walk over all records finds that.
    """
    if workload.state is State.ADMITTED:
        return workload.gated
    if workload.state is not State.DISPATCHED or not workload.started_at:
        return False
    job = state.jobs.get((workload.id, workload.generation))
    if job is None or job["metadata"]["uid"] != workload.uid or job_status.outcome(job) is not None:
        return False
    if not job_status.all_ready(job, state.pods_of(workload.id, workload.generation)):
        return False  # it may have to recover within a time
    watched = can_be_ordered(workload.options) and workload.id not in due
    return not watched and limit_microusd(workload) is None
