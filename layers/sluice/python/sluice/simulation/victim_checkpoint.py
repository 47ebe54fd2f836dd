"""What an eviction leaves of a job's work, and how long its victim is saved before it goes.

The same decision as `usecases.migrations.evict_with_checkpoint` makes of pods; every machine is
taken to have CRIU.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from sluice.core.checkpoints.driver import Capability, PodFacts, WorkKept
from sluice.core.checkpoints.drivers import driver_of, usable_driver
from sluice.core.checkpoints.fit import MARGIN_MS, Bandwidth, CheckpointAction
from sluice.core.migrations.checkpointing import size_of

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload

EVERYWHERE = Capability(kubelet=True)


@dataclass(frozen=True, slots=True)
class CheckpointedWork:
    """Milliseconds: `dump_ms` until it is gone, and how much of what it ran is not done again."""

    dump_ms: int
    kept_ms: int


def on_eviction(record: Workload, ran_ms: int, within_ms: int) -> CheckpointedWork:
    """`within_ms` is how long its root's policy waits for a dump."""
    asked = driver_of(record.options)
    if asked.keeps is WorkKept.NOTHING:
        return CheckpointedWork(0, 0)
    if asked.keeps is WorkKept.BY_APPLICATION:
        return CheckpointedWork(0, ran_ms)  # it saves itself within its grace
    gpus = sum(s.requests.get("nvidia.com/gpu", 0) for s in record.pod_sets)
    driver, _ = usable_driver(asked, PodFacts(gpus=gpus), EVERYWHERE)
    weighed = driver.fit(
        size=size_of([], record.pod_sets, 1),
        left_ms=within_ms + MARGIN_MS,
        grace_ms=0,
        bandwidth=Bandwidth(),
    )
    if within_ms and weighed.action is CheckpointAction.DUMP:
        return CheckpointedWork(weighed.needs_ms, ran_ms)
    interval_ms = 1000 * record.options.checkpoint_interval_seconds
    return CheckpointedWork(0, ran_ms - ran_ms % interval_ms if interval_ms else 0)
