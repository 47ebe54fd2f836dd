"""What releases and admissions change in the ledger: usage, and past usage of LocalQueues."""

from __future__ import annotations

from typing import TYPE_CHECKING

from sluice.core.lifecycle.reservations import added, held_by, negative, per_resource
from sluice.core.scheduling.past_usage import PastUsage

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sluice.core.config.policy import AdmissionFairSharing
    from sluice.core.lifecycle.reservations import Cells
    from sluice.core.passes.cycle_plan import CycleInput, LedgerStep


def usage_after(
    usage: Mapping[str, Mapping[str, int]], steps: Iterable[LedgerStep]
) -> dict[str, Cells]:
    """Raises ValueError if a release finds less in the ledger than it gives back."""
    total = {cq: dict(amounts) for cq, amounts in usage.items()}
    for step in steps:
        if step.weight:
            total = added(total, step.cq, step.weight)
    return total


def past_usage_accounts(
    gathered: CycleInput, settings: AdmissionFairSharing
) -> Mapping[str, PastUsage]:
    """Past usage as the ledger has it; where it has none, counting begins with the holders."""
    if gathered.past is not None:
        return gathered.past
    opened: dict[str, PastUsage] = {}
    for holder in gathered.holders:
        account = opened.get(holder.queue, PastUsage(gathered.now))
        used = per_resource(held_by(holder))
        opened[holder.queue] = account.started(used, gathered.now, settings, penalty=False)
    return opened


def past_usage_after(
    past: Mapping[str, PastUsage],
    steps: Iterable[LedgerStep],
    settings: AdmissionFairSharing,
    now: int,
) -> dict[str, PastUsage]:
    """The accounts once these steps are done; one that is as good as none vanishes."""
    total = dict(past)
    for step in steps:
        if not step.weight:
            continue
        before = step.change.before
        account = total.get(before.queue, PastUsage(now))
        if before.reservation is None:
            used = per_resource(step.weight)
            account = account.started(used, now, settings, penalty=True)
        else:
            used = per_resource(negative(step.weight))
            account = account.stopped(used, before.reservation.at, now, settings)
        total[before.queue] = account
    faded = {queue: account.advanced(now, settings) for queue, account in total.items()}
    return {queue: account for queue, account in faded.items() if not account.forgotten}
