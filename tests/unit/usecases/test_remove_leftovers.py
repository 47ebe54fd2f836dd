"""`sweep` removes archives that no catalogue names, when it is certain that none will."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sluice.core.checkpoints.driver import CheckpointMode
from sluice.core.lifecycle.record import State
from sluice.core.migrations.checkpointing import Checkpoint, Part
from sluice.core.migrations.orphaned_archives import OLD_MS, StoredArchive
from sluice.usecases.running.remove_leftovers import LOOK_MS, LOOKS, RemoveLeftovers

from tests.fakes import FakeClock, MemoryArchives, MemoryMigrations, MemoryWorkloads
from tests.unit.usecases.plane import admitted

ID = "wabc"
HOUR_MS = 3_600_000


@dataclass
class Bucket:
    """Archives of one workload, some days old."""

    clock: FakeClock = field(default_factory=FakeClock)
    archives: MemoryArchives = field(default_factory=MemoryArchives)
    migrations: MemoryMigrations = field(default_factory=MemoryMigrations)
    workloads: MemoryWorkloads = field(default_factory=MemoryWorkloads)

    def holds(self, name: str, generation: int = 0, hours: float = 48) -> str:
        uri = f"s3://b/checkpoints/{ID}/{generation}/{name}"
        at = self.clock.now() - int(hours * HOUR_MS)
        self.archives.bucket.append(StoredArchive(uri, ID, generation, at))
        return uri

    def names(self, *uris: str, generation: int = 0, hours: float = 48, **fields: Any) -> None:
        """A checkpoint of these archives, in the catalogue."""
        at = self.clock.now() - int(hours * HOUR_MS)
        parts = tuple(Part(str(n), uri) for n, uri in enumerate(uris)) if uris[1:] else ()
        uri = uris[0].rpartition("/")[0] + "/" if parts else uris[0]
        made = Checkpoint(ID, generation, uri, at, CheckpointMode.KUBELET, parts=parts, **fields)
        self.migrations.keep(made, retain=3)

    def runs(self, state: State = State.DISPATCHED, generation: int = 0) -> None:
        self.workloads.write(replace(admitted(ID), state=state, generation=generation))

    def swept(self) -> list[str]:
        """What a whole day of sweeps removes."""
        removing = RemoveLeftovers(
            archives=self.archives,
            migrations=self.migrations,
            workloads=self.workloads,
            clock=self.clock,
        )
        found = []
        for _ in range(len(LOOKS)):
            found += removing()
            self.clock.pass_ms(LOOK_MS)
        left = {each.uri for each in self.archives.bucket}
        assert not left & set(found)
        return found


def test_what_the_catalogue_names_stays() -> None:
    bucket = Bucket()
    bucket.runs(State.FINISHED)
    single, one, two = (bucket.holds(name) for name in ("a/p.tar", "b/p.tar", "b/q.tar"))
    bucket.names(single)
    bucket.names(one, two)

    assert bucket.swept() == []


@pytest.mark.parametrize("state", [State.FINISHED, State.CANCELLED])
def test_a_torn_set_goes_with_the_end_of_its_workload(state: State) -> None:
    bucket = Bucket()
    bucket.runs(state)
    torn = bucket.holds("move-0/p.tar")

    assert bucket.swept() == [torn]


def test_a_torn_set_goes_when_another_generation_runs() -> None:
    bucket = Bucket()
    bucket.runs(generation=1)
    torn, new = bucket.holds("move-0/p.tar"), bucket.holds("move-1/p.tar", generation=1)

    assert bucket.swept() == [torn]
    assert [each.uri for each in bucket.archives.bucket] == [new]


def test_a_torn_set_of_a_run_goes_when_a_later_one_of_it_is_whole() -> None:
    bucket = Bucket()
    bucket.runs()
    torn = bucket.holds("periodic-1/p.tar", hours=50)
    assert bucket.swept() == [], "its report may be on its way"
    bucket.names(bucket.holds("periodic-2/p.tar", hours=30), hours=30)

    assert bucket.swept() == [torn]


def test_an_earlier_checkpoint_says_nothing_of_a_later_archive() -> None:
    bucket = Bucket()
    bucket.runs()
    bucket.names(bucket.holds("periodic-1/p.tar", hours=50), hours=50)
    bucket.holds("periodic-2/p.tar", hours=30)

    assert bucket.swept() == []


def test_nothing_goes_within_a_day() -> None:
    bucket = Bucket()
    bucket.runs(State.FINISHED)
    fresh = bucket.holds("move-0/p.tar", hours=0)
    removing = RemoveLeftovers(
        archives=bucket.archives,
        migrations=bucket.migrations,
        workloads=bucket.workloads,
        clock=bucket.clock,
    )

    for _ in range(OLD_MS // LOOK_MS):
        assert removing() == []
        bucket.clock.pass_ms(LOOK_MS)
    bucket.clock.pass_ms(1)

    assert bucket.swept() == [fresh]


def test_what_nobody_remembers_goes() -> None:
    bucket = Bucket()
    left = bucket.holds("move-0/p.tar")

    assert bucket.swept() == [left]


def test_archives_of_a_success_that_could_not_be_removed_go() -> None:
    bucket = Bucket()
    bucket.runs(State.FINISHED)
    left = bucket.holds("move-0/p.tar")
    bucket.names(left)
    bucket.migrations.drop(ID)

    assert bucket.swept() == [left]


def test_a_process_lists_a_part_of_the_bucket_once_in_its_turn() -> None:
    bucket = Bucket()
    removing = RemoveLeftovers(
        archives=bucket.archives,
        migrations=bucket.migrations,
        workloads=bucket.workloads,
        clock=bucket.clock,
    )
    bucket.clock.pass_ms(LOOK_MS * LOOKS.index(ID[0]) - bucket.clock.now() % (LOOK_MS * len(LOOKS)))
    removing()
    bucket.holds("move-0/p.tar")

    assert removing() == [], "its turn is over"
    bucket.clock.pass_ms(LOOK_MS * len(LOOKS))
    assert len(removing()) == 1
