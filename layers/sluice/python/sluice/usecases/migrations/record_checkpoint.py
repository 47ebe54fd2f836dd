"""Record what became of a checkpoint that was ordered without a migration."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from sluice.core.checkpoints.drivers import driver_of
from sluice.core.lifecycle import job_status
from sluice.core.lifecycle.happenings import Happening
from sluice.core.lifecycle.record import Workload
from sluice.core.migrations import gangs
from sluice.core.migrations.lasting_failures import in_plain_words
from sluice.core.migrations.migration import PodCheckpoint
from sluice.core.migrations.migration_timeline import checkpoint_summary
from sluice.core.migrations.pod_annotations import checkpoint_result, result_at
from sluice.ports import Document, Timeline
from sluice.usecases.migrations.checkpoint_catalog import CheckpointCatalog


@dataclass(frozen=True)
class RecordCheckpoint:
    catalog: CheckpointCatalog
    timeline: Timeline

    def __call__(self, workload: Workload, pod: Document, pods: Sequence[Document]) -> None:
        """`pods` are all of its generation: a gang is saved when the last has answered."""
        found = checkpoint_result(pod)
        if found is None:
            return
        order, done = found
        if not isinstance(done, PodCheckpoint) or not done.uri:
            self.record_other(workload, pod, done)
            return
        running = (one for one in pods if job_status.running_pod(one))
        results = [result for one in running if (result := checkpoint_result(one))]
        parts = [
            one for to, one in results if to == order and isinstance(one, PodCheckpoint) and one.uri
        ]
        made = self.catalog.describe(workload, parts, driver_of(workload.options).mode)
        if made is not None and self.catalog.enter(workload, made):
            detail = {"uri": made.uri, "bytes": made.size}
            text = checkpoint_summary(parts)
            ended = made.at + made.took_ms
            event = Happening(workload, ended, "CheckpointCompleted", text, detail)
            self.timeline.append([event])

    def record_other(self, workload: Workload, pod: Document, done: PodCheckpoint | str) -> None:
        """A failure, or a signal that left no archive; at the time that the answer names."""
        if at := result_at(pod):
            what = "CheckpointFailed" if isinstance(done, str) else "CheckpointSignalled"
            of = f"{pod['metadata']['name']}: " if gangs.members(workload) > 1 else ""
            message = "the application was told to save itself"
            if isinstance(done, str):
                message = f"{of}{in_plain_words(done)}"
                self.catalog.refuse(workload, at, message)
            self.timeline.append([Happening(workload, at, what, message)])
