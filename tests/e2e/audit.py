"""Adds up the audit records of a ledger: was quota ever exceeded, was all of it given back?"""

from __future__ import annotations

from dataclasses import dataclass, field

from tests.e2e.stack import Stack

Cell = tuple[str, str]
"""(ClusterQueue, "flavor|resource")."""


@dataclass
class Audit:
    """Use after every batch, from nothing; who was admitted, preempted and released how often.

    `together` is the most that all ClusterQueues used at once, by "flavor|resource".
    """

    usage: dict[Cell, int] = field(default_factory=dict)
    most: dict[Cell, int] = field(default_factory=dict)
    together: dict[str, int] = field(default_factory=dict)
    admitted: list[tuple[str, int]] = field(default_factory=list)
    preempted: list[tuple[str, int]] = field(default_factory=list)
    released: list[tuple[str, int]] = field(default_factory=list)

    def count(self, cq: str, cells: dict[str, int]) -> None:
        """Add what a line took; a release takes less than nothing."""
        for name, amount in cells.items():
            self.usage[cq, name] = self.usage.get((cq, name), 0) + amount


def audit(stack: Stack, root: str) -> Audit:
    """Every batch of a root, oldest first; versions must have no gap."""
    found, version = Audit(), 0
    for batch in stack.ledgers.batches(root):
        assert batch["version"] == version + 1, f"batch {version + 1} of {root} is missing"
        version += 1
        for lines in ("released", "admitted", "preempted"):
            kept = getattr(found, lines)
            for workload, generation, cq, cells in batch.get(lines, []):
                kept.append((workload, generation))
                found.count(cq, cells)
        for cell, amount in found.usage.items():
            assert amount >= 0, f"batch {version} released {cell} twice"
            found.most[cell] = max(found.most.get(cell, 0), amount)
        for name in {name for _, name in found.usage}:
            amount = sum(n for (_, each), n in found.usage.items() if each == name)
            found.together[name] = max(found.together.get(name, 0), amount)
    assert version == stack.ledgers.read(root).version
    return found
