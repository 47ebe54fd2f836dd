"""Removes archives that no catalogue names, once it is certain that none will."""

from __future__ import annotations

from dataclasses import dataclass

from sluice.core.migrations.orphaned_archives import OLD_MS, StoredArchive, orphaned_archives
from sluice.ports import Archives, Clock, Migrations, Workloads

LOOKS = "abcdefghijklmnopqrstuvwxyz234567"  # the first characters of ids
LOOK_MS = 2_700_000  # so that all of them have their turn within a day


@dataclass
class RemoveLeftovers:
    """Called every minute; lists one part of the bucket in each turn of 45 minutes.

    A turn that is repeated, or left out for a day, does no harm.
    """

    archives: Archives
    migrations: Migrations
    workloads: Workloads
    clock: Clock
    last_turn: int = -1
    """The last turn of this process."""

    def __call__(self) -> list[str]:
        """The addresses of what was removed. Raises SluiceError."""
        now = self.clock.now()
        turn = now // LOOK_MS
        if turn == self.last_turn:
            return []
        of: dict[str, list[StoredArchive]] = {}
        for each in self.archives.stored(LOOKS[turn % len(LOOKS)]):
            if now - each.at > OLD_MS:
                of.setdefault(each.workload, []).append(each)
        records = {w.id: w for w in self.workloads.get_many(of)}
        found = [
            uri
            for workload, stored in of.items()
            for uri in orphaned_archives(
                stored, records.get(workload), self.migrations.checkpoints(workload), now
            )
        ]
        for uri in found:
            self.archives.discard(uri)
        self.last_turn = turn
        return found
