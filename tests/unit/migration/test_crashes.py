"""Every Lambda dies once at every moment of a move: it runs again, once, with what was saved."""

from __future__ import annotations

import pytest

from tests.unit.migration.town import CrashingTown

SAVED = {
    ("application", 1): "",
    ("kubelet", 1): "s3://bucket/move-0/w-w-g0-pod.tar",
    ("kubelet", 3): "s3://bucket/w/0/move-0/",
}
DEADLINE_MS = 121_000
# Just after each call of a port; just before the next one nothing else has happened.
MOMENTS = range(1, 1_000, 2)


def interrupted(town: CrashingTown, mode: str, members: int, moment: int, *, again: bool) -> None:
    """Notice, first dump, replacement, last dump, stop, restart; then the machine ends, and some
    quiet minutes.
    """
    node = town.runs("w", mode, members)
    town.tell()
    event = town.notice(node)
    town.countdown.left = moment

    town.attempt(lambda: town.hear(event), again=again)
    for step in (town.tell, town.drain, lambda: town.obey("w")):
        town.attempt(step, again=again)
    town.save()
    town.clock.pass_ms(9_000)
    for step in (town.observe, town.drain, lambda: town.obey("w")):
        town.attempt(step, again=again)
    town.kubernetes.provide()
    town.attempt(lambda: town.obey("w"), again=again)
    town.save()
    for step in (lambda: town.obey("w"), town.tell, town.admit, town.drain, town.observe):
        town.attempt(step, again=again)

    town.clock.pass_ms(DEADLINE_MS)
    town.kubernetes.vanish(node)
    for state in ("shutting-down", "terminated"):
        ended = town.ended(node, state)
        town.attempt(lambda ended=ended: town.hear(ended), again=again)  # type: ignore[misc]
    for _ in range(5):
        town.clock.pass_ms(20_000)
        town.kubernetes.provide()
        for lambda_ in (town.tell, town.sweep, town.admit, town.observe, town.drain):
            town.attempt(lambda_, again=again)


@pytest.mark.parametrize(("mode", "members"), SAVED)
def test_a_lambda_that_dies_anywhere_is_made_good_by_its_message(mode: str, members: int) -> None:
    for moment in MOMENTS:
        town = CrashingTown()
        interrupted(town, mode, members, moment, again=True)
        town.runs_once_more("w", saved=SAVED[mode, members])
        if not town.countdown.came:
            break
    assert 50 < moment < max(MOMENTS), "the moments were not all tried, or there were none"


@pytest.mark.parametrize(("mode", "members"), SAVED)
def test_a_message_that_is_lost_with_its_lambda_loses_no_workload(mode: str, members: int) -> None:
    for moment in MOMENTS:
        town = CrashingTown()
        interrupted(town, mode, members, moment, again=False)
        assert town.kubernetes.running() == ["w"]
        assert town.row("w").generation >= 1
        assert town.row("w").restore_from in town.saved_seen
        assert town.row("w").restore_from or town.saved_seen == {""}, "what was saved is lost"
        if not town.countdown.came:
            break
    assert 50 < moment < max(MOMENTS), "the moments were not all tried, or there were none"
