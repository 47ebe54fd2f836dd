"""Let those who wait for admission checks start, wait or stop, as the answers so far say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.lifecycle import checks
from sluice.core.lifecycle.indexes import checks_key

if TYPE_CHECKING:
    from sluice.core.config.catalog import QueueCatalog
    from sluice.ports import Clock, Workloads

LOOKED_AT = 1_000


def decide_gated(workloads: Workloads, clock: Clock, queues: QueueCatalog, root: str) -> int:
    """Do what the answers so far ask for; how many records changed."""
    gated = workloads.get_many(workloads.inbox(checks_key(root), limit=LOOKED_AT))
    steps = list(checks.steps(gated, queues, clock.now()))
    return sum(workloads.apply(steps)) if steps else 0
