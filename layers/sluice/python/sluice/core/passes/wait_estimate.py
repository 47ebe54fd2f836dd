"""About how long a workload waits: whose quota comes back when, and who of its queue goes first.

What nobody can know is left out: newcomers, other queues' heads, preemption, and the time that
machines take to start.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from sluice.core.lifecycle.record import Workload
    from sluice.core.scheduling.quota import Cells, QuotaTree

ENOUGH = 3  # finished runs that say something about the next one

Range: TypeAlias = tuple[int, int | None]  # ms, at least and at most; None: nobody knows


@dataclass(frozen=True, slots=True)
class QueuedEstimate:
    """One in line: for each of its groups of resources the flavors that it may get, in order."""

    node: int
    groups: Sequence[Sequence[Cells]]
    lasts: Range


@dataclass(frozen=True, slots=True)
class RunningEstimate:
    """One that holds quota, and how long it still does."""

    node: int
    cells: Cells
    lasts: Range


def remaining_runtime(workload: Workload, runtimes: Sequence[int], now: int) -> Range:
    """How long it still runs; `runtimes` in ms are those of finished runs of its queue.

    By its own `deadlines.expectedRuntime`, else between the quartiles of the runtimes that are
    longer than it has run so far; at most its `deadlines.maxRuntime`.
    """
    deadlines = workload.options.deadlines
    ran = max(0, now - workload.started_at) if workload.started_at else 0
    expected = 1000 * (deadlines.expected_runtime_seconds or 0)
    longer = sorted(each for each in runtimes if each > ran)
    least, most = 0, None
    if expected > ran:
        least = most = expected - ran
    elif len(longer) >= ENOUGH:
        least, most = longer[len(longer) // 4] - ran, longer[3 * len(longer) // 4] - ran
    if (limit := deadlines.max_runtime_seconds) is not None:
        left = max(0, 1000 * limit - ran)
        least, most = min(least, left), left if most is None else min(most, left)
    return least, most


def estimate_wait(
    tree: QuotaTree,
    holding: Sequence[RunningEstimate],
    line: Sequence[QueuedEstimate],
    *,
    strict: bool,
) -> Range:
    """When the last of the line gets its quota; the tree counts the holders and is left alone."""
    least = _wait(tree.copy_with_usage(), holding, line, strict=strict, at_most=False)
    most = _wait(tree.copy_with_usage(), holding, line, strict=strict, at_most=True)
    return least or 0, most if most is None else max(most, least or 0)


def _wait(
    tree: QuotaTree,
    holding: Sequence[RunningEstimate],
    line: Sequence[QueuedEstimate],
    *,
    strict: bool,
    at_most: bool,
) -> int | None:
    """`tree` is used up. None if it never has its turn, as far as is known."""
    ends: list[tuple[int, int, int, Cells]] = []  # when, a number that orders, where, what
    for number, each in enumerate(holding):
        if (end := each.lasts[at_most]) is not None:
            ends.append((end, number, each.node, each.cells))
    heapify(ends)
    waiting, now, number = list(line), 0, len(holding)
    while True:
        for one, cells in _starting(tree, waiting, strict=strict):
            if one is line[-1]:
                return now
            waiting.remove(one)
            number += 1
            if (length := one.lasts[at_most]) is not None:
                heappush(ends, (now + length, number, one.node, cells))
        if not ends:
            return None
        now = ends[0][0]
        while ends and ends[0][0] == now:
            _, _, node, cells = heappop(ends)
            tree.remove(node, cells)


def _starting(
    tree: QuotaTree, waiting: Sequence[QueuedEstimate], *, strict: bool
) -> Iterator[tuple[QueuedEstimate, Cells]]:
    """Those who get their quota now; the tree counts them from then on."""
    for one in list(waiting):
        cells = _taken(tree, one)
        if cells is not None:
            yield one, cells
        elif strict:
            return


def _taken(tree: QuotaTree, one: QueuedEstimate) -> Cells | None:
    """Takes the first flavors that fit, all groups or none."""
    taken: list[tuple[int, int]] = []
    for options in one.groups:
        cells = next((each for each in options if tree.fits(one.node, each)), None)
        if cells is None:
            tree.remove(one.node, tuple(taken))
            return None
        tree.add(one.node, cells)
        taken += cells
    return tuple(taken)
