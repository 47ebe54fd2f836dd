"""Say what EC2 did not: word of a machine's end may be lost; Kubernetes just finds it silent."""

from __future__ import annotations

from collections.abc import Container, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from sluice.ports import Interruptions, Machines


@dataclass(frozen=True)
class Unheard:
    """Kubernetes never proves that a silent machine runs nothing; EC2 does."""

    machines: Machines
    interruptions: Interruptions

    def __call__(self, inventory: Iterable[Mapping[str, Any]], occupied: Container[str]) -> None:
        """`inventory` as of now, and the names of the nodes with pods of ours."""
        silent = [r["instance"] for r in inventory if not r["ready"] and r["node"] in occupied]
        for event in self.machines.ended(silent) if silent else ():
            self.interruptions.send(event)
