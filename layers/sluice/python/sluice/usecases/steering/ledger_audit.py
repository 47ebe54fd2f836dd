"""Show the ledger of a root cohort, and whether it is the sum of what its workloads hold."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from sluice.core.lifecycle.record import Workload, phase
from sluice.core.lifecycle.reservations import held_by
from sluice.core.values.quantity import format_quantity
from sluice.usecases.admitting.recount import Recount, recount
from sluice.usecases.configuration import configured
from sluice.usecases.request_errors import NotFoundError
from sluice.usecases.views import Json

if TYPE_CHECKING:
    from sluice.core.config.catalog import QueueCatalog
    from sluice.usecases.callers import Authority
    from sluice.usecases.reading.query import Query

ATTEMPTS: Final = 4  # a ledger that moves is counted again
MOST_SHOWN: Final = 2_000  # reservations in one answer
Cell = tuple[str, str, str]
"""ClusterQueue, flavor, resource."""


@dataclass(frozen=True)
class LedgerAudit:
    """Reads only: there is no command that repairs a ledger, on purpose."""

    query: Query

    def listed(self, caller: Authority) -> Json:
        """Every root cohort with the version of its ledger and how many cells differ."""
        caller.require_admin("reading ledgers")
        queues = configured(self.query.catalog.snapshot()).queues
        return {"items": [_summary(self._count(root)) for root in sorted(queues.roots())]}

    def of(self, caller: Authority, name: str) -> Json:
        """One root cohort, by its own name, or by that of a cohort or queue below it.

        Raises NotFoundError.
        """
        caller.require_admin("reading ledgers")
        found = self._count(_root(configured(self.query.catalog.snapshot()).queues, name))
        cells = _cells(found)
        shown = sorted(found.holders, key=lambda w: (w.reservation and w.reservation.at, w.id))
        return _summary(found) | {
            "cells": [_row(cell, *amounts, found.holders) for cell, amounts in cells.items()],
            "holders": [_holder(each) for each in shown[:MOST_SHOWN]],
            "spent": {budget: dict(windows) for budget, windows in found.ledger.spent.items()},
        }

    def _count(self, root: str) -> Recount:
        clusters = sorted(self.query.catalog.snapshot().of("Cluster"))
        for _ in range(ATTEMPTS):
            found = recount(
                root, clusters, ledgers=self.query.ledgers, workloads=self.query.workloads
            )
            if not found.moved:
                break
        return found


def _root(queues: QueueCatalog, name: str) -> str:
    if name in queues.local_queues:
        name = queues.local_queues[name].cluster_queue
    if name in queues.cluster_queues:
        return queues.root_of(name)
    if name in queues.cohorts:
        return queues.root_of_cohort(name)
    if name in (roots := sorted(queues.roots())):
        return name
    raise NotFoundError(
        f"no cohort and no queue is named {name}",
        hint=f"root cohorts: {', '.join(roots) or 'none'}; a LocalQueue is NAMESPACE/NAME",
    )


def _summary(found: Recount) -> Json:
    return {
        "root": found.ledger.root,
        "version": found.ledger.version,
        "reservations": len(found.holders),
        "differences": len(found.differences),
        "moved": found.moved,
    }


def _cells(found: Recount) -> dict[Cell, tuple[int, int]]:
    """What the ledger says of each cell, and what the reservations add up to."""
    reserved = found.reserved
    names = {
        (cq, *_parted(key))
        for usage in (found.ledger.usage, reserved)
        for cq, row in usage.items()
        for key in row
    }
    return {
        (cq, flavor, resource): (
            _amount(found.ledger.usage, cq, flavor, resource),
            _amount(reserved, cq, flavor, resource),
        )
        for cq, flavor, resource in sorted(names)
    }


def _parted(key: str) -> tuple[str, str]:
    flavor, _, resource = key.partition("|")
    return flavor, resource


def _amount(usage: Mapping[str, Mapping[str, int]], cq: str, flavor: str, resource: str) -> int:
    return usage.get(cq, {}).get(f"{flavor}|{resource}", 0)


def _row(cell: Cell, used: int, reserved: int, holders: tuple[Workload, ...]) -> Json:
    """One cell; `holders` are named where it differs, for they are who to look at."""
    cq, flavor, resource = cell
    row: Json = {
        "clusterQueue": cq,
        "flavor": flavor,
        "resource": resource,
        "used": format_quantity(resource, used),
        "reserved": format_quantity(resource, reserved),
    }
    if used != reserved:
        row["difference"] = ("+" if used > reserved else "-") + format_quantity(
            resource, abs(used - reserved)
        )
        row["holders"] = [
            each.id
            for each in holders
            if each.reservation
            and each.reservation.cq == cq
            and f"{flavor}|{resource}" in held_by(each)
        ]
    return row


def _holder(workload: Workload) -> Json:
    reservation = workload.reservation
    held = {
        key.replace("|", "/"): format_quantity(_parted(key)[1], amount)
        for key, amount in held_by(workload).items()
    }
    return {
        "id": workload.id,
        "name": workload.name,
        "queue": workload.queue,
        "phase": phase(workload),
        "generation": workload.generation,
        "clusterQueue": reservation.cq if reservation else "",
        "cluster": reservation.cluster if reservation else "",
        "since": reservation.at if reservation else None,
        "holds": held,
    }
