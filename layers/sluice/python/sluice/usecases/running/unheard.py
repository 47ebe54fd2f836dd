"""Say what EC2 did not: word of a machine's end may be lost; Kubernetes just finds it silent.

Karpenter may even have removed the node of a machine whose pods still count as running.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from sluice.ports import Interruptions, Machines


@dataclass(frozen=True)
class Unheard:
    """Kubernetes never proves that a silent machine runs nothing; EC2 does."""

    machines: Machines
    interruptions: Interruptions

    def __call__(
        self,
        present: Sequence[Mapping[str, Any]],
        occupied: Collection[str],
        inventory: Callable[[], Iterable[Mapping[str, Any]]],
    ) -> None:
        """Of machines that are silent, or whose nodes were removed, under pods of ours.

        `present`: rows of the nodes that Kubernetes has; `occupied`: the names of those that pods
        of ours run on; `inventory` is asked for the machines of nodes that it has no more.
        """
        silent = [r["instance"] for r in present if not r["ready"] and r["node"] in occupied]
        if vanished := set(occupied) - {r["node"] for r in present}:
            known = sorted(inventory(), key=lambda r: str(r.get("created", "")))
            newest = {r["node"]: r["instance"] for r in known if r.get("node") in vanished}
            silent += [newest[node] for node in sorted(newest)]
        for event in self.machines.ended(silent) if silent else ():
            self.interruptions.send(event)
