"""When the last of a line gets its quota."""

from __future__ import annotations

from sluice.core.config.catalog import QueueCatalog
from sluice.core.config.model import ResourceFlavor
from sluice.core.lifecycle.record import State, Workload
from sluice.core.passes.wait_estimate import (
    QueuedEstimate,
    Range,
    RunningEstimate,
    estimate_wait,
    remaining_runtime,
)
from sluice.core.scheduling.quota import QuotaTree

from tests.records import options_of
from tests.unit.core.builders import a_queue

MINUTE = 60_000


def tree(cores: int, *, used: int) -> QuotaTree:
    catalog = QueueCatalog(
        flavors=[ResourceFlavor("default")], cluster_queues=[a_queue("q", cores)]
    )
    made = QuotaTree(catalog, "q")
    made.add(0, ((0, 1000 * used),))
    return made


def holds(cores: int, *lasts: int | None) -> RunningEstimate:
    least, most = lasts
    return RunningEstimate(0, ((0, 1000 * cores),), (least or 0, most))


def asks(cores: int, lasts: Range = (0, None)) -> QueuedEstimate:
    return QueuedEstimate(0, [[((0, 1000 * cores),)]], lasts)


def test_it_waits_for_the_ends_that_make_room_and_for_no_other() -> None:
    holding = [holds(1, MINUTE, MINUTE), holds(2, 3 * MINUTE, 4 * MINUTE), holds(1, 0, None)]

    assert estimate_wait(tree(4, used=4), holding, [asks(3)], strict=False) == (
        3 * MINUTE,
        4 * MINUTE,
    )


def test_who_is_ahead_takes_its_room_first_for_as_long_as_it_lasts() -> None:
    line = [asks(2, (5 * MINUTE, 6 * MINUTE)), asks(2)]

    assert estimate_wait(tree(2, used=2), [holds(2, MINUTE, MINUTE)], line, strict=False) == (
        6 * MINUTE,
        7 * MINUTE,
    )


def test_smaller_work_passes_a_large_head_unless_the_queue_is_strict() -> None:
    holding, line = [holds(3, MINUTE, MINUTE)], [asks(4, (MINUTE, MINUTE)), asks(1)]

    assert estimate_wait(tree(4, used=3), holding, line, strict=False) == (0, 0)
    assert estimate_wait(tree(4, used=3), holding, line, strict=True) == (2 * MINUTE, 2 * MINUTE)


def test_without_a_known_end_there_is_no_upper_bound_and_the_tree_stays_as_it_was() -> None:
    used = tree(2, used=2)

    assert estimate_wait(used, [holds(2, MINUTE, None)], [asks(2)], strict=False) == (MINUTE, None)
    assert used.usage == [[2000]]


def test_another_flavor_or_all_resources_together_decide() -> None:
    either = QueuedEstimate(0, [[((0, 9000),), ((0, 1000),)]], (0, None))
    both = QueuedEstimate(0, [[((0, 1000),)], [((0, 1000),)]], (0, None))
    holding = [holds(1, MINUTE, MINUTE)]

    assert estimate_wait(tree(2, used=1), holding, [either], strict=False) == (0, 0)
    assert estimate_wait(tree(2, used=1), holding, [both], strict=False) == (MINUTE, MINUTE)


def test_what_it_expects_of_itself_counts_until_it_has_run_longer() -> None:
    expects = options_of({"deadlines": {"expected_runtime_seconds": 600}})
    record = Workload(
        "id",
        "name",
        "red",
        "red/batch",
        State.DISPATCHED,
        started_at=MINUTE,
        options=expects,
    )
    of_others = [30 * MINUTE] * 3

    assert remaining_runtime(record, of_others, 3 * MINUTE) == (8 * MINUTE, 8 * MINUTE)
    assert remaining_runtime(record, of_others, 12 * MINUTE) == (19 * MINUTE, 19 * MINUTE)
    assert remaining_runtime(record, of_others[:2], 12 * MINUTE) == (0, None)
