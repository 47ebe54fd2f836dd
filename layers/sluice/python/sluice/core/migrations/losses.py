"""Machines that were taken away under running work, and how often that happens.

Source of the estimate: facts of Young and Daly: a dump that fits the notice only has to guard
against losses without one.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.migrations.interruption import epoch_ms

HOUR_MS: Final = 3_600_000
WINDOW_MS: Final = 30 * 24 * HOUR_MS
"""How far back losses count, and how long they are remembered."""
SPOT_PRIOR_MS: Final = 24 * HOUR_MS
"""Assumed between two losses of a spot machine before anything was observed: rather too often."""
PRIOR_MS: Final = 30 * 24 * HOUR_MS


@dataclass(frozen=True, slots=True)
class Loss:
    """One machine that went away with work on it; `noticed`: a warning came before. Epoch ms."""

    instance: str
    at: int
    kind: str
    noticed: bool
    capacity_type: str = ""
    nodepool: str = ""
    instance_type: str = ""
    zone: str = ""


def loss_of(row: InventoryRow, at: int, kind: str, *, noticed: bool) -> Loss:
    """From a row of the inventory."""
    return Loss(
        instance=row.instance,
        at=at,
        kind=kind,
        noticed=noticed,
        capacity_type=row.capacity_type,
        nodepool=row.nodepool,
        instance_type=row.type,
        zone=row.zone,
    )


def mean_between_ms(
    inventory: Iterable[InventoryRow],
    losses: Iterable[Loss],
    capacity_type: str,
    now: int,
    *,
    only_unnoticed: bool,
) -> float:
    """Machine time per loss in the window, for one machine of a capacity type.

    The prior counts as one loss in its own time, so that few observations move it little.
    """
    since = now - WINDOW_MS
    prior = SPOT_PRIOR_MS if capacity_type == "spot" else PRIOR_MS
    lived = sum(
        max(0, row.seen_at - max(since, epoch_ms(row.created)))
        for row in inventory
        if row.capacity_type == capacity_type and row.created
    )
    counted = sum(
        loss.capacity_type == capacity_type
        and loss.at > since
        and not (only_unnoticed and loss.noticed)
        for loss in losses
    )
    return (prior + lived) / (1 + counted)
