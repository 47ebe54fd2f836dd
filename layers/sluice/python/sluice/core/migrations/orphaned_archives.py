"""Archives that nobody starts from: of sets that were never whole, and of what came too late.

The catalogue alone says what a run may start from. An archive that it does not name may still be
on its way into it; that is over when its run is, or when a later checkpoint of the run is there,
since pods bear one order at a time.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from sluice.core.lifecycle.record import TERMINAL, Workload
from sluice.core.migrations.checkpointing import Checkpoint

OLD_MS: Final = 24 * 3_600_000
"""Nobody is in a hurry: whoever looks for what became of a dump finds it for a day."""


@dataclass(frozen=True, slots=True)
class StoredArchive:
    """One archive of a pod, as the bucket lists it; `at` is when it was complete (epoch ms)."""

    uri: str
    workload: str
    generation: int
    at: int


def orphaned_archives(
    stored: Iterable[StoredArchive], record: Workload | None, kept: Sequence[Checkpoint], now: int
) -> list[str]:
    """Addresses of those archives of one workload that are to be removed.

    `record` is None for a workload that is not there any more; `kept` is its catalogue, read after
    the archives were listed.
    """
    whole = [each for each in kept if not each.removed]
    named = {piece.uri for each in whole for piece in each.pieces}

    def is_over(archive: StoredArchive) -> bool:
        if record is None or record.state in TERMINAL or archive.generation < record.generation:
            return True
        return any(e.generation == archive.generation and e.at > archive.at for e in whole)

    return [
        each.uri
        for each in stored
        if each.uri not in named and now - each.at > OLD_MS and is_over(each)
    ]
