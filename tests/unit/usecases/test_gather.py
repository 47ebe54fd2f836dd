"""A pass reads what it decides, and decides as if it had read everything."""

from __future__ import annotations

import random
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import Any

import pytest
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.indexes import Place
from sluice.core.lifecycle.record import PodSet, State, Workload
from sluice.core.lifecycle.shape_hash import shape_hash
from sluice.core.passes.recording import plain_plan
from sluice.ports import CatalogEdit, News
from sluice.usecases.admitting import admit as admitting
from sluice.usecases.admitting import gather
from sluice.usecases.admitting.admit import Admit
from sluice.usecases.admitting.gather import FEWEST_HEADS, Look
from sluice.usecases.configuration import configured

from tests.fakes import MemoryWorkloads
from tests.records import options_of
from tests.unit.usecases.plane import Plane, a_workload, admitted
from tests.unit.usecases.world import LOCAL_QUEUE, ROOT, queue

PREEMPTION = {"withinClusterQueue": "LowerPriority", "reclaimWithinCohort": "Any"}


@dataclass
class Counted(MemoryWorkloads):
    """Counts the records that are read, and may change one just before the reading."""

    reads: Counter[str] = field(default_factory=Counter)
    meanwhile: Callable[[], None] | None = None
    asked: list[str] = field(default_factory=list)

    def get_many(self, ids: Iterable[str]) -> list[Workload]:
        if self.meanwhile is not None:
            self.meanwhile()
        found = super().get_many(ids)
        self.reads.update(w.id for w in found)
        return found

    def places(self, cq: str, *, limit: int, after: str = "") -> list[Place]:
        found = super().places(cq, limit=limit, after=after)
        self.reads["places"] += len(found)
        self.asked.append(cq)
        return found


def hashed(workload: Workload) -> Workload:
    return replace(workload, shape_hash=shape_hash(workload))


def a_plane(*queues: dict[str, Any]) -> Plane:
    plane = Plane()
    plane.workloads = Counted()
    plane.ledgers.workloads = plane.workloads
    version = plane.catalog.snapshot().version
    put = [("ClusterQueue", each["metadata"]["name"], each) for each in queues]
    assert plane.catalog.edit(CatalogEdit(version, tuple(put), roots=(ROOT,)))
    return plane


def reads(plane: Plane) -> Counter[str]:
    counted = plane.workloads
    assert isinstance(counted, Counted)
    return counted.reads


def one_by_one(admit: Admit) -> Admit:
    """As `admit` was before: every record that it looks at is read, and every holder."""

    class Reading(type(admit)):  # type: ignore[misc]  # mypy knows no computed base
        def decided(
            self, ledger: Any, catalog: Any, config: Any, look: Look, last: Any, **_: Any
        ) -> Any:
            return super().decided(
                ledger, catalog, config, replace(look, unread=False), last, making_room=True
            )

    return Reading(**{name: getattr(admit, name) for name in admit.__dataclass_fields__})


def a_population(seed: int) -> Plane:
    dice = random.Random(seed)
    preemption = dice.choice([{}, {"preemption": PREEMPTION}])
    names = [f"q{number}" for number in range(dice.randrange(1, 4))]
    strategy = {"queueingStrategy": dice.choice(["BestEffortFIFO", "StrictFIFO"])}
    plane = a_plane(*(queue(n, dice.randrange(0, 8), **preemption, **strategy) for n in names))
    for number in range(dice.randrange(1, 60)):
        shape = PodSet("main", dice.randrange(1, 3), {"cpu": 1000 * dice.randrange(1, 4)})
        options = options_of(dice.choice([{}, {}, {"preemptible": False}]))
        workload = a_workload(
            f"w{number:02d}",
            cq=dice.choice(names),
            priority=dice.randrange(3),
            created_at=plane.clock.now() - dice.randrange(1000),
            pod_sets=(shape,),
            options=options,
            submitted_by=dice.choice("ab"),
        )
        plane.workloads.write(hashed(workload) if dice.random() < 0.8 else workload)
    return plane


def history(plane: Plane, make: Callable[[Admit], Admit], seed: int) -> list[Any]:
    """What several passes leave behind while work ends in between."""
    dice = random.Random(seed)
    admit = make(replace(plane.admit(), heads=dice.choice([2, 5, 97])))
    seen: list[Any] = []
    for _ in range(4):
        plane.clock.pass_ms(1000)
        outcome = admit(ROOT)
        states = {name: w.state for name, w in sorted(plane.workloads.rows.items())}
        seen.append((outcome, states, plane.ledgers.read(ROOT).usage))
        running = sorted(name for name, state in states.items() if state is State.ADMITTED)
        for name in dice.sample(running, min(2, len(running))):
            row = plane.record(name)
            plane.workloads.write(replace(row, state=State.FINISHED))
        for name, state in states.items():
            if state is State.RECLAIMING:
                plane.workloads.write(replace(plane.record(name), gone=True))
    return seen


@pytest.mark.parametrize("seed", range(60))
def test_what_is_not_read_changes_no_decision(seed: int) -> None:
    plane, other = a_population(seed), a_population(seed)

    assert history(plane, lambda each: each, seed) == history(other, one_by_one, seed)


def test_of_equal_ones_that_wait_for_one_end_only_that_many_are_read() -> None:
    plane = a_plane(queue("a", 2))
    for number in range(300):
        plane.workloads.write(hashed(a_workload(f"w{number:03d}", created_at=number)))
    admit = plane.admit()
    assert admit(ROOT).admitted == 2
    plane.workloads.write(replace(plane.record("w000"), state=State.FINISHED))
    reads(plane).clear()

    assert admit(ROOT).admitted == 1

    assert {name for name in reads(plane) if name != "places"} == {"w000", "w002"}


def test_all_queues_together_are_looked_at_so_deep_and_no_deeper(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(gather, "MOST_PLACES", 50)
    names = [f"q{number:03d}" for number in range(30)]
    plane = a_plane(*(queue(name, 0) for name in names))
    for name in names:
        for number in range(20):
            plane.workloads.write(hashed(a_workload(f"{name}-{number}", cq=name)))
    reads(plane).clear()

    plane.admit()(ROOT)

    # One look admits two that borrow, one nobody, and one has a window behind the heads, too.
    heads, window = len(names) * FEWEST_HEADS, gather.MOST_WIDENED * (FEWEST_HEADS + 1)
    assert reads(plane)["places"] <= 3 * heads + window
    assert sum(reads(plane).values()) - reads(plane)["places"] < len(names)


def test_what_stands_behind_thousands_that_are_held_back_has_its_turn_in_some_passes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(admitting, "MOST_PLACES", 20)
    plane = a_plane(queue("a", 2))
    held = LOCAL_QUEUE | {"spec": {"clusterQueue": "a", "stopPolicy": "Hold"}}
    version = plane.catalog.snapshot().version
    assert plane.catalog.edit(CatalogEdit(version, (("LocalQueue", "team/queue", held),)))
    for number in range(100):
        plane.workloads.write(
            hashed(a_workload(f"w{number:03d}", created_at=number, queue="team/queue"))
        )
    plane.workloads.write(hashed(a_workload("behind", created_at=200)))
    admit = replace(plane.admit(), heads=10)

    passes = next(number for number in range(1, 9) if admit(ROOT).admitted)

    assert passes == 5  # ten heads, and twenty more each time
    assert plane.record("behind").state is State.ADMITTED


@pytest.mark.parametrize("change", ["cancelled", "another shape", "gone"])
def test_who_changed_meanwhile_is_decided_again_by_what_it_is(change: str) -> None:
    plane = a_plane(queue("a", 2))
    for number in range(3):
        plane.workloads.write(hashed(a_workload(f"w{number}", created_at=number)))
    counted = plane.workloads
    assert isinstance(counted, Counted)

    def meanwhile() -> None:
        if "w0" not in counted.reads or counted.rows["w1"].state is not State.PENDING:
            return
        counted.meanwhile = None
        if change == "cancelled":
            counted.apply([lifecycle.cancel_pending(plane.record("w1"), "enough", 1)])
        elif change == "another shape":
            larger = (PodSet("main", 1, {"cpu": 2000}),)
            counted.write(replace(plane.record("w1"), pod_sets=larger))
        else:
            del counted.rows["w1"]

    counted.meanwhile = meanwhile
    plane.admit()(ROOT)

    states = {name: w.state for name, w in plane.workloads.rows.items()}
    admitted_now = {name for name, state in states.items() if state is State.ADMITTED}
    assert admitted_now == {"w0", "w2"}
    assert plane.ledgers.read(ROOT).usage == {"a": {"spot|cpu": 2000}}


@pytest.mark.parametrize(("waiting", "read"), [(1, False), (2, True)])
def test_holders_are_read_only_once_somebody_is_left_who_might_evict_them(
    waiting: int, read: bool
) -> None:
    plane = a_plane(queue("a", 2, preemption=PREEMPTION))
    plane.put(admitted("running"))
    admit = plane.admit()
    admit(ROOT)
    for number in range(waiting):
        plane.workloads.write(hashed(a_workload(f"w{number}", priority=1)))
    reads(plane).clear()

    outcome = admit(ROOT)

    assert ("running" in reads(plane)) is read
    assert (outcome.admitted, outcome.preempted) == (1, waiting - 1)


def test_a_kick_that_is_older_than_the_newest_pass_is_not_followed() -> None:
    plane = a_plane(queue("a", 2))
    admit = plane.admit()
    began = plane.clock.now()
    admit(ROOT)
    plane.workloads.write(hashed(a_workload("w")))

    assert admit(ROOT, sent_at=began - 5_000).admitted == 0
    assert admit(ROOT, sent_at=began + 1).admitted == 1


def test_a_plan_that_takes_too_long_is_begun_and_goes_on_with_the_next_kick() -> None:
    plane = a_plane(queue("a", 1000))
    for number in range(97 * 3):
        plane.workloads.write(hashed(a_workload(f"w{number:03d}", created_at=number)))
    quick = replace(plane.admit(), heads=500, budget_ms=-1)

    outcome = quick(ROOT)

    assert (outcome.admitted, plane.kicks.roots) == (97, [ROOT])
    assert [quick(ROOT).admitted for _ in range(3)] == [97, 97, 0]


def test_a_place_tells_the_shape_only_of_what_is_as_it_was_submitted() -> None:
    plane = Plane()
    fresh = hashed(a_workload("fresh"))
    for workload in (fresh, replace(fresh, id="again", generation=1), a_workload("older")):
        plane.workloads.write(workload)

    shapes = {place.id: place.shape_hash for place in plane.workloads.places("a", limit=9)}

    assert shapes == {"fresh": fresh.shape_hash, "again": "", "older": ""}
    assert shape_hash(a_workload(options={"deadlines": {"max_pending_seconds": 60}})) == ""


def test_a_cycle_over_unread_ones_is_recorded_so_that_it_can_be_decided_again() -> None:
    plane = a_plane(queue("a", 2))
    for number in range(3):
        plane.workloads.write(hashed(a_workload(f"w{number}", created_at=number)))
    admit = plane.admit()
    config = configured(plane.catalog.snapshot())
    ledger = plane.ledgers.read(ROOT)

    _, unread = admit.decided(
        ledger, plane.catalog.snapshot(), config, Look(unread=True), {}, making_room=False
    )
    _, read = admit.decided(ledger, plane.catalog.snapshot(), config, Look(), {}, making_room=True)

    assert plain_plan(unread) == plain_plan(read)


def test_only_queues_with_news_or_a_backlog_are_looked_at() -> None:
    others = [f"q{number}" for number in range(9)]
    plane = a_plane(queue("a", 1), *(queue(name, 0) for name in others))
    plane.workloads.write(hashed(a_workload("w0")))
    plane.workloads.write(hashed(a_workload("w1")))
    asked: list[str] = []
    counted = plane.workloads
    assert isinstance(counted, Counted)
    counted.asked = asked
    admit = plane.admit()
    admit(ROOT)
    assert set(asked) == {"a", *others}
    asked.clear()
    plane.workloads.write(hashed(a_workload("w2", cq="q3")))

    admit(ROOT, news=News(frozenset({"q3"}), frozenset()))

    assert set(asked) == {"a", "q3"}


@pytest.mark.parametrize("why", ["a minute", "a change", "a kick without names"])
def test_all_queues_are_looked_at_now_and_then(why: str) -> None:
    plane = a_plane(queue("a", 1), queue("b", 1))
    admit = plane.admit()
    admit(ROOT)
    plane.workloads.write(hashed(a_workload("lost", cq="b")))
    news: News | None = News(frozenset({"a"}), frozenset())
    assert admit(ROOT, news=news).admitted == 0
    if why == "a minute":
        plane.clock.pass_ms(60_001)
    elif why == "a change":
        version = plane.catalog.snapshot().version
        assert plane.catalog.edit(CatalogEdit(version, (("ClusterQueue", "a", queue("a", 2)),)))
    else:
        news = None

    assert admit(ROOT, news=news).admitted == 1


def test_an_old_kick_is_followed_if_it_tells_of_a_queue_that_no_pass_looked_at() -> None:
    plane = a_plane(queue("a", 1), queue("b", 1))
    admit = plane.admit()
    admit(ROOT)
    sent_at = plane.clock.now()
    plane.clock.pass_ms(10_000)
    admit(ROOT, news=News(frozenset({"a"}), frozenset()))
    plane.workloads.write(hashed(a_workload("w", cq="b")))

    assert admit(ROOT, sent_at=sent_at, news=News(frozenset({"a"}), frozenset())).admitted == 0
    assert admit(ROOT, sent_at=sent_at, news=News(frozenset({"b"}), frozenset())).admitted == 1
