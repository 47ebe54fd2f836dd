"""Preemptors, victims, and what every search for victims does with the quota tree."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.config.model import ClusterQueue, PreemptionReason, WorkloadInfo
    from sluice.core.scheduling.quota import Cells, QuotaTree
    from sluice.core.scheduling.quota_holders import QuotaHolder


@dataclass(frozen=True, slots=True)
class Preemptor:
    """A waiting workload that may evict others for `cells`; `contested` are those short of room.

    `pass_number` is the pass that searches.
    """

    node: int
    queue: ClusterQueue
    workload: WorkloadInfo
    cells: Cells
    contested: frozenset[int]
    now_ms: int
    pass_number: int


@dataclass(frozen=True, slots=True)
class Target:
    """A victim and Kueue's reason for it."""

    holder: QuotaHolder
    reason: PreemptionReason


@dataclass(slots=True)
class ExcludedHolders:
    """Holders that a search left out although the rules of the queue allow them.

    `protected_until_ms` is when the first protection among them ends. `same_pass` says that the
    pass admitted one of them itself, so that it is an ordinary candidate in the next pass.
    """

    protected_until_ms: int | None = None
    same_pass: bool = False

    def note_protection(self, end_ms: int | None) -> None:
        if end_ms is not None and (
            self.protected_until_ms is None or end_ms < self.protected_until_ms
        ):
            self.protected_until_ms = end_ms


class VictimSearch(Protocol):
    """Finds victims in a tree; leaves usage as it found it."""

    def find(self, preemptor: Preemptor, excluded: ExcludedHolders) -> list[Target]:
        """A locally minimal set of victims that makes the preemptor fit; empty if there is none.

        Notes in `excluded` whom it left out.
        """


def preemptor_fits(tree: QuotaTree, preemptor: Preemptor, *, borrowing: bool) -> bool:
    """Whether the preemptor has room, with or without `borrowing` from its cohort."""
    node = preemptor.node
    for cell, amount in preemptor.cells:
        if not borrowing and tree.borrows_with(node, cell, amount):
            return False
        if amount > tree.available(node, cell):
            return False
    return True


def fill_back(
    tree: QuotaTree, preemptor: Preemptor, removed: list[Target], *, borrowing: bool
) -> list[Target]:
    """Spares, in reverse order, every victim whose return still leaves room; restores usage."""
    kept = [removed[-1]]
    for target in removed[-2::-1]:
        tree.add(target.holder.node, target.holder.cells)
        if not preemptor_fits(tree, preemptor, borrowing=borrowing):
            tree.remove(target.holder.node, target.holder.cells)
            kept.append(target)
    restore_usage(tree, kept)
    kept.reverse()
    return kept


def restore_usage(tree: QuotaTree, targets: Iterable[Target]) -> None:
    for target in targets:
        tree.add(target.holder.node, target.holder.cells)


def remove_usage(tree: QuotaTree, targets: Iterable[Target]) -> None:
    for target in targets:
        tree.remove(target.holder.node, target.holder.cells)
