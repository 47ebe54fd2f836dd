"""The flavors that a queue offers to a workload, by the numbers of its quota tree."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import ClusterQueue
from sluice.core.lifecycle.record import Workload
from sluice.core.lifecycle.reservations import held_by, total
from sluice.core.scheduling.quota import QuotaTree


@dataclass(frozen=True, slots=True)
class FlavorRoom:
    """One flavor that could provide some of a workload's resources, with the tree's numbers.

    Everything is by resource, in base units; `cells` are the tree's (cell, amount).
    """

    flavor: str
    request: Mapping[str, int]
    nominal: Mapping[str, int]
    used: Mapping[str, int]
    available: Mapping[str, int]
    potential: Mapping[str, int]
    cells: tuple[tuple[int, int], ...]

    @property
    def fits(self) -> bool:
        return all(self.available[r] >= amount for r, amount in self.request.items())

    @property
    def possible(self) -> bool:
        return all(self.potential[r] >= amount for r, amount in self.request.items())


def tree_in_use(
    queues: QueueCatalog, root: str, usage: Mapping[str, Mapping[str, int]]
) -> QuotaTree:
    """The quota tree of a root with the usage of its ledger."""
    tree = QuotaTree(queues, root)
    for cq, amounts in usage.items():
        if cq in tree.index:
            tree.add(tree.index[cq], _cells(tree, amounts))
    return tree


def tree_cells(tree: QuotaTree, workload: Workload) -> tuple[tuple[int, int], ...]:
    """What a workload holds, as cells of the tree."""
    return _cells(tree, held_by(workload))


def _cells(tree: QuotaTree, amounts: Mapping[str, int]) -> tuple[tuple[int, int], ...]:
    found = []
    for key, amount in amounts.items():
        flavor, _, resource = key.partition("|")
        cell = tree.cell_index.get((flavor, resource))
        if cell is not None:  # a flavor that was taken out of the tree limits nobody
            found.append((cell, amount))
    return tuple(found)


def list_flavor_rooms(
    workload: Workload, queue: ClusterQueue, tree: QuotaTree
) -> Iterator[FlavorRoom]:
    """Every flavor that the queue offers for the workload, in the order in which it is tried."""
    node = tree.index[queue.name]
    asked = total(workload.pod_sets)
    allowed = {flavor for pod_set in workload.pod_sets for flavor in pod_set.flavors}
    pods = sum(pod_set.count for pod_set in workload.pod_sets)
    for group in queue.resource_groups:
        covered = [r for r in group.covered_resources if r in asked or r == "pods"]
        request = {r: asked.get(r, pods) for r in covered}
        for flavor in group.flavors if request else ():
            if allowed and flavor.name not in allowed:
                continue
            cell = {r: tree.cell_index[flavor.name, r] for r in request}
            yield FlavorRoom(
                flavor=flavor.name,
                request=request,
                nominal={r: tree.nominal[c][node] for r, c in cell.items()},
                used={r: tree.usage[c][node] for r, c in cell.items()},
                available={r: tree.available(node, c) for r, c in cell.items()},
                potential={r: tree.potential[c][node] for r, c in cell.items()},
                cells=tuple((c, request[r]) for r, c in cell.items()),
            )


def list_flavor_choices(
    workload: Workload, queue: ClusterQueue, tree: QuotaTree
) -> list[list[tuple[tuple[int, int], ...]]]:
    """By group of resources, what each flavor would have to give."""
    groups: dict[tuple[str, ...], list[tuple[tuple[int, int], ...]]] = {}
    for option in list_flavor_rooms(workload, queue, tree):
        groups.setdefault(tuple(option.request), []).append(option.cells)
    return list(groups.values())


def fewest_endings(
    workload: Workload, option: FlavorRoom, holders: Sequence[Workload], tree: QuotaTree
) -> list[Workload]:
    """The fewest of the largest holders whose end makes room; none if even all do not."""
    node = tree.index[workload.cq]
    ended: list[Workload] = []
    for holder in holders:
        if tree.fits(node, option.cells) or holder.reservation is None:
            break
        tree.remove(tree.index[holder.reservation.cq], tree_cells(tree, holder))
        ended.append(holder)
    enough = tree.fits(node, option.cells)
    for holder in ended:  # the tree is shared: leave it as it was
        if holder.reservation is not None:
            tree.add(tree.index[holder.reservation.cq], tree_cells(tree, holder))
    return ended if enough else []
