"""Orders a checkpoint of every running workload whose interval is over."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.clusters.cluster_state import ClusterState
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.record import Workload
from sluice.core.migrations import gangs, periodic
from sluice.core.migrations.interruption import CHECKPOINT_REQUESTED, request_event
from sluice.core.migrations.periodic import Observed
from sluice.ports import Clock, Document, Interruptions, Losses, Nodes

KEPT_MS = 300_000


@dataclass
class OrderCheckpoints:
    """Orders take the way of users' requests; a lost one is sent again at the next call."""

    nodes: Nodes
    losses: Losses
    interruptions: Interruptions
    clock: Clock
    kept: dict[str, Observed] = field(default_factory=dict)
    """What `observed` read last, by cluster."""

    def __call__(
        self, cluster: str, records: Iterable[Workload], state: ClusterState
    ) -> dict[str, int]:
        """Returns when each workload is to be looked at next (epoch ms), if that is known."""
        now, next_look = self.clock.now(), dict[str, int]()
        for workload in records:
            if not periodic.can_be_ordered(workload.options):
                continue
            pods = state.pods_of(workload.id, workload.generation)
            if not self.can_be_saved(workload, pods, state):
                continue
            rhythm = periodic.rhythm(workload, pods, self.observed(cluster, now))
            order = periodic.due(workload, pods, rhythm.every_ms, now) if rhythm else None
            if rhythm is None or order is None:
                continue
            next_look[workload.id] = order.following if order.at <= now else order.at
            if order.at <= now and not periodic.borne(order, pods):
                detail = {
                    "workload": workload.id,
                    "generation": workload.generation,
                    "order": order.name,
                    "reason": periodic.reason_of(order, rhythm),
                }
                self.interruptions.send(request_event(CHECKPOINT_REQUESTED, order.at, detail))
        return next_look

    def can_be_saved(
        self, workload: Workload, pods: Sequence[Document], state: ClusterState
    ) -> bool:
        """A gang is dumped only as a whole; an application is told through any pod that runs."""
        if not driver_of(workload.options).dumps:
            return True
        job = state.jobs.get((workload.id, workload.generation))
        running = [pod for pod in pods if job_status.running_pod(pod)]
        return not gangs.why_no_set(workload, job, running)

    def observed(self, cluster: str, now: int) -> Observed:
        """The inventory and the losses of a cluster, read again every few minutes."""
        known = self.kept.get(cluster)
        if known is None or now - known.now > KEPT_MS:
            known = Observed(self.nodes.of(cluster), self.losses.of(cluster), now)
            self.kept[cluster] = known
        return known
