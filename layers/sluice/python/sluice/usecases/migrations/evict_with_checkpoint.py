"""End runs that are not to go on here; who comes back is saved first, where there is time for it.

Who makes room is dumped in the time that its root's SchedulingPolicy gives it (`saveVictimsWithin`)
and goes on from there, whenever and wherever it is admitted again. Whoever is not saved in time, or
cannot be, hears SIGTERM and has its grace.
"""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.checkpoints.fit import MARGIN_MS
from sluice.core.lifecycle.record import Change, Workload
from sluice.core.migrations import at_risk, migration, migration_timeline, victim_checkpoint
from sluice.core.migrations.at_risk import AtRisk
from sluice.core.migrations.decisions import SourceStep
from sluice.core.migrations.interruption import NoticeKind
from sluice.core.migrations.migration import Migration
from sluice.ports import Catalog, Clock, Cluster, Document
from sluice.usecases.configuration import configured
from sluice.usecases.migrations.assess_checkpoint import AssessCheckpoint, with_gang
from sluice.usecases.migrations.migrate import Migrate
from sluice.usecases.migrations.pods_of_run import pods_of
from sluice.usecases.migrations.stop_run import stop


@dataclass(frozen=True, kw_only=True)
class EvictWithCheckpoint:
    """Level-triggered like `act`: looks at record and cluster, and does what is due."""

    migrate: Migrate
    weigh: AssessCheckpoint
    catalog: Catalog
    clock: Clock

    def __call__(self, cluster: Cluster, workload: Workload) -> Change | None:
        """What is proven of its end, if anything; see `stopping.stop`."""
        record = (
            self.record_of(cluster, workload) if victim_checkpoint.may_be_saved(workload) else None
        )
        if record is None:
            return stop(cluster, workload, self.clock.now())
        record, step = self.migrate.look_after(cluster, workload, record)
        if step is SourceStep.WAIT:
            return None
        if not record.stopping_at:  # once more, for the lines of who died after a step
            self.migrate.timeline.append(list(migration_timeline.timeline_events(record, workload)))
        return self.migrate.end(cluster, workload, record)

    def record_of(self, cluster: Cluster, workload: Workload) -> Migration | None:
        """The account of its last dump, begun at the first look; None if none is tried."""
        migrations = self.migrate.migrations
        known = migrations.get(migration.eviction_id(workload.id, workload.generation))
        if known is not None:
            return known
        policies = configured(self.catalog.snapshot()).policies
        within_ms = policies.save_victims_ms(workload.root)
        pods = tuple(pods_of(cluster, workload))
        if not (within_ms and pods and all(map(can_be_dumped, pods))):
            return None
        now = self.clock.now()
        kept = migrations.checkpoints(workload.id)
        unsaved = at_risk.unsaved_ms(workload, max((each.at for each in kept), default=0), now)
        each = with_gang(cluster, AtRisk(workload, pods, unsaved))
        node = pods[0]["spec"].get("nodeName", "")
        row = self.weigh.row_of(workload.cluster, node)
        deadline = now + within_ms + MARGIN_MS  # so that the dump itself has all of the time
        weighed = self.weigh(workload.cluster, row, each, deadline - now)
        made = Migration(
            workload=workload.id,
            generation=workload.generation,
            cluster=workload.cluster,
            instance=row.instance,
            node=node,
            kind=NoticeKind.EVICTION.value,
            noticed_at=now,
            received_at=now,
            deadline=deadline,
            driver=weighed.driver,
            action=weighed.fit.action,
            reason=weighed.reason,
            numbers=weighed.numbers,
            grace_ms=weighed.grace_ms,
            pods=weighed.pods,
            last_at=now if weighed.dumped else 0,
        )
        begun = migrations.create(made)
        self.migrate.timeline.append(list(migration_timeline.timeline_events(begun, workload)))
        return begun


def can_be_dumped(pod: Document) -> bool:
    """Whether there is something to save, and nobody has told the pod to go yet."""
    running = (pod.get("status") or {}).get("phase") == "Running"
    return running and not pod["metadata"].get("deletionTimestamp")
