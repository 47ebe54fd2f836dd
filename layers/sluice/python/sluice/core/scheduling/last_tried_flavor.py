"""Where the search for a flavor goes on after a refusal.

A search that ended before the last flavor of a resource group, and did not lead to an admission,
resumes after that flavor in the next pass. Source: Kueue's last tried flavor index.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Mapping

# (pod set, resource group) → the flavor to begin with; groups that begin with the first are absent.
Starts: TypeAlias = "Mapping[tuple[int, int], int]"


@dataclass(slots=True)
class _Scan:
    starts: Starts
    next_pass: int
    begun: set[frozenset[tuple[tuple[int, int], int]]] = field(default_factory=set)


class FlavorScans:
    """The searches of one root that have flavors left to try."""

    def __init__(self) -> None:
        self._scans: dict[str, _Scan] = {}

    def __bool__(self) -> bool:
        return bool(self._scans)

    def starts(self, workload_id: str, pass_number: int) -> Starts | None:
        """Where the search begins in a pass; None for the first flavors."""
        scan = self._scans.get(workload_id)
        return scan.starts if scan is not None and scan.next_pass == pass_number else None

    def resume(self, workload_id: str, starts: Starts, pass_number: int) -> bool:
        """Has the next pass begin there; False if nothing is left that was not tried.

        A search that reached the last flavor from a later start begins with the first once more,
        for others have moved meanwhile. Groups that resume in turns could go round for ever; a
        search that would begin as it did before is over.
        """
        scan = self._scans.pop(workload_id, None)
        if scan is None or scan.next_pass != pass_number:
            if not starts:
                return False
            scan = _Scan({}, pass_number)
        beginning = frozenset(starts.items())
        if beginning in scan.begun:
            return False
        scan.begun.add(beginning)
        scan.starts, scan.next_pass = starts, pass_number + 1
        self._scans[workload_id] = scan
        return True

    def forget(self) -> None:
        """Something was released: every search begins anew."""
        self._scans.clear()
