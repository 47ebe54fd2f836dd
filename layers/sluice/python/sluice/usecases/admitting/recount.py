"""Count a ledger again from the reservations that it is the sum of."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from sluice.core.lifecycle.indexes import release_key
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.reservations import Cells, held_by
from sluice.ports import Ledgers, LedgerState, Usage, Workloads

DUE: Final = 10_000  # ended workloads of a root whose release waits


@dataclass(frozen=True, slots=True)
class Recount:
    """A ledger as it stood before and after `holders` were read; `moved` if it did not stand."""

    ledger: LedgerState
    holders: tuple[Workload, ...]
    moved: bool

    @property
    def reserved(self) -> Mapping[str, Cells]:
        """What the holders have, as the ledger should say it."""
        total: Usage = {}
        for workload in self.holders:
            if workload.reservation:
                of_queue = total.setdefault(workload.reservation.cq, {})
                for key, amount in held_by(workload).items():
                    of_queue[key] = of_queue.get(key, 0) + amount
        return total

    @property
    def differences(self) -> Mapping[str, int]:
        """Ledger minus reservations, per "queue|flavor|resource"; empty if it moved meanwhile.

        Indexes may lag, so a difference counts only if the ledger stood still.
        """
        if self.moved:
            return {}
        said, counted = self.ledger.usage, self.reserved
        cells = {(cq, key) for usage in (said, counted) for cq, row in usage.items() for key in row}
        found = {
            f"{cq}|{key}": said.get(cq, {}).get(key, 0) - counted.get(cq, {}).get(key, 0)
            for cq, key in cells
        }
        return {cell: amount for cell, amount in sorted(found.items()) if amount}


def recount(
    root: str, clusters: Sequence[str], *, ledgers: Ledgers, workloads: Workloads
) -> Recount:
    """Reads a ledger, then everybody who holds quota of it, then the ledger once more."""
    before = ledgers.read(root)
    ids = [i for cluster in clusters for i in workloads.active(cluster, root)]
    ids += workloads.inbox(release_key(root), limit=DUE)
    found = workloads.get_many(dict.fromkeys(ids))
    holders = tuple(w for w in found if w.reservation and w.root == root)
    return Recount(before, holders, ledgers.read(root).version != before.version)
