"""What follows from a notice: for each workload on the machine a migration, or its end."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from sluice.core.accounting.machines import PRICES, share
from sluice.core.accounting.recovery import interruptions
from sluice.core.checkpoints.fit import CheckpointAction, fits_twice
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import Intent, IntentKind, State, Workload
from sluice.core.migrations.assessment import CheckpointAssessment
from sluice.core.migrations.at_risk import AtRisk
from sluice.core.migrations.interruption import LOSSES, NOTICE_MS, Notice, NoticeKind
from sluice.core.migrations.migration import Migration
from sluice.core.migrations.pod_annotations import LEAVING, MIGRATE, ORDER, order_of, under_way
from sluice.core.values.reasons import Reason


@dataclass(frozen=True, slots=True)
class MigrationPlan:
    """The migration of one workload, or the intent that ends it instead."""

    at_risk: AtRisk
    migration: Migration
    end: Intent | None = None


def plan_interruption(
    notice: Notice,
    cluster: str,
    machine: InventoryRow,
    assessed: Iterable[tuple[AtRisk, CheckpointAssessment]],
    now: int,
    checkpoint: str = "",
) -> tuple[MigrationPlan, ...]:
    """One plan for each workload, in the same order.

    `machine` is the inventory row of the machine of the notice; `checkpoint` is what a user
    restores instead of what is there.
    """
    return tuple(
        MigrationPlan(
            at_risk,
            _migration(notice, cluster, machine, at_risk, assessment, now, checkpoint),
            _end(notice, at_risk.workload),
        )
        for at_risk, assessment in assessed
    )


def left_ms(notice: Notice, now: int) -> int:
    """How long the machine still runs."""
    return 0 if notice.kind in LOSSES else _deadline(notice, now) - now


def _deadline(notice: Notice, now: int) -> int:
    return notice.deadline if notice.deadline is not None else now + NOTICE_MS


def _end(notice: Notice, workload: Workload) -> Intent | None:
    """Of a workload that was interrupted as often as it allows."""
    most = workload.options.max_recoveries
    if notice.kind is NoticeKind.REQUEST or workload.state is not State.DISPATCHED or most is None:
        return None
    interrupted = interruptions(workload)
    if interrupted < most:
        return None
    why = f"interrupted again after {interrupted} of at most {most} recoveries"
    return Intent(IntentKind.FAIL, Reason.RECOVERY_EXHAUSTED, why)


def _migration(
    notice: Notice,
    cluster: str,
    machine: InventoryRow,
    at_risk: AtRisk,
    assessment: CheckpointAssessment,
    now: int,
    checkpoint: str,
) -> Migration:
    workload, deadline = at_risk.workload, _deadline(notice, now)
    # A migration on request loses no machine, so it waits for no replacement.
    # A second dump of the same processes would only begin when the first has ended.
    waits = assessment.dumped and notice.kind is not NoticeKind.REQUEST
    extra = under_way(at_risk.all_pods) if waits else ""
    twice = waits and (bool(extra) or fits_twice(assessment.fit))
    numbers = {**assessment.numbers, "left_ms": deadline - now, **prices(workload, machine)}
    return Migration(
        workload=workload.id,
        generation=workload.generation,
        cluster=cluster,
        instance=notice.instance,
        node=machine.node,
        kind=notice.kind.value,
        noticed_at=notice.at,
        received_at=now,
        deadline=deadline,
        driver=assessment.driver,
        action=assessment.fit.action,
        reason=assessment.reason,
        numbers=numbers,
        instance_type=machine.type,
        zone=machine.zone,
        grace_ms=assessment.grace_ms,
        pods=assessment.pods,
        first_order=extra,
        last_at=now if assessment.dumped and not twice else 0,
        checkpoint=checkpoint,
    )


def prices(workload: Workload, machine: InventoryRow) -> dict[str, float]:
    """Dollars per hour for the whole workload, where known: as noted, else as on this machine."""
    if workload.machine.usd_per_hour:
        noted = {name: getattr(workload.machine, name) for name in PRICES}
        return {name: price for name, price in noted.items() if price is not None}
    parts = [
        each.count * (share(each.requests, machine.allocatable) or 0.0)
        for each in workload.pod_sets
    ]
    return {
        name: round(float(price) * sum(parts), 6)
        for name, attribute in PRICES.items()
        if sum(parts) and (price := getattr(machine, attribute))
    }


def order_annotations(migration: Migration, workload: Workload) -> dict[str, str]:
    """What the node agent has to know: until when, and whether to save."""
    annotations = {LEAVING: str(migration.deadline)}
    if migration.action is CheckpointAction.DUMP:
        annotations[ORDER] = order_of(migration)
    elif workload.options.checkpoint_signal:
        annotations[ORDER] = f"{MIGRATE}{migration.generation}"
    return annotations
