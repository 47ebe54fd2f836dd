"""Jobs as the scheduler sees them at a time: with their wishes, prices, and what clusters take."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from sluice.core.clusters.can_be_late import changes_at
from sluice.core.clusters.fallback import Market, choose
from sluice.core.clusters.fleet import Site, busier, choose_cluster
from sluice.core.config.model import Gate
from sluice.core.lifecycle.runs import queued_at
from sluice.core.passes.cluster_feasibility import explain_unplaced
from sluice.core.passes.cycle_plan import CycleInput
from sluice.core.passes.pending_deadline import deadline_ms
from sluice.core.passes.placement_preferences import allowed_clusters
from sluice.core.passes.scheduler_state import pending_workload_info, workload_info

if TYPE_CHECKING:
    from sluice.core.config import model
    from sluice.core.config.catalog import QueueCatalog
    from sluice.core.lifecycle.record import Workload as Submitted
    from sluice.simulation.installation import Installation
    from sluice.simulation.job import Job


@dataclass(slots=True)
class QueuedView:
    """The arithmetic of `admit` for one job, on the places that a file describes."""

    catalog: QueueCatalog
    installation: Installation
    market: Market
    sites: dict[str, Site]
    where: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, catalog: QueueCatalog, installation: Installation) -> QueuedView:
        sites = {site.name: site for site in installation.sites(catalog.flavors)}
        return cls(catalog, installation, installation.market(catalog.flavors, 0), sites)

    @property
    def plain(self) -> bool:
        """Whether a job without wishes is what its scenario says, at any time."""
        stated = self.installation
        named = stated.labels is not None
        return not (stated.budgets or stated.clusters or stated.machines or named)

    def seen(self, job: Job, record: Submitted, now: int) -> model.WorkloadInfo:
        """The job in the scheduler's eyes; `now` is an instant in epoch ms."""
        queue = self.catalog.cluster_queues[record.cq]
        gathered = CycleInput(
            root=self.catalog.root_of(record.cq),
            usage={},
            releasing=(),
            waiting=(),
            holders=(),
            market=replace(self.market, now=now),
            sites=tuple(self.sites.values()),
            now=now,
            labels=self.installation.labels or {},
        )
        choice = choose(record, queue, gathered.market, {})
        entry = workload_info(record, job.workload.sequence, choice)
        own = replace(
            entry,
            queued_at_ms=job.workload.queued_at_ms,
            local_queue=job.workload.local_queue,
        )
        return pending_workload_info(self.catalog, gathered, record, own)

    def changes(self, record: Submitted, now: int) -> Iterator[int]:
        """Instants at which time alone makes something else of a waiting job."""
        if (deadline := deadline_ms(record)) is not None:
            yield deadline + 1
        for entry in record.options.placement:
            yield record.created_at + 1000 * entry.after_pending_seconds
        for rule in record.options.pending_policy:
            yield queued_at(record) + 1000 * rule.after_seconds
        yield from changes_at(record, now)

    def place(self, record: Submitted, assignment: model.Assignment, now: int) -> Gate | None:
        """Notes the cluster of an assignment, or says why it has none."""
        if not self.installation.clusters:
            return None
        placement = choose_cluster(
            record,
            assignment.pod_sets,
            list(self.sites.values()),
            allowed=allowed_clusters(record, assignment.flavors, now),
            now=now,
        )
        if placement.cluster is None:
            return Gate(*explain_unplaced(assignment.flavors, self.market, placement))
        self.where[record.id] = placement.cluster
        self.sites[placement.cluster] = busier(
            self.sites[placement.cluster], record, assignment.pod_sets
        )
        return None

    def leave(self, job: Job, amounts: Mapping[str, int]) -> None:
        """The end of a stay on its cluster."""
        if (name := self.where.pop(job.workload.id, None)) is not None:
            site = self.sites[name]
            self.sites[name] = replace(site, busy=site.busy - amounts.get("cpu", 0))
