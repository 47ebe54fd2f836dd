"""The protocol's invariants hold on the real use cases under crashes, losses and repetitions."""

from __future__ import annotations

import os

import pytest

from tests.unit.usecases.world import World, queue

SEEDS = int(os.environ.get("SLUICE_SEEDS", "150"))


@pytest.mark.parametrize("block", range(10))
def test_nothing_is_lost_doubled_or_overcommitted(block: int) -> None:
    most = 0
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        world = World(seed)
        for number in range(6):
            after = f"w{number - 1}" if number in (3, 4) else ""
            world.submit(f"w{number}", "ab"[number % 2], 1 + number % 2, after=after)
        for _ in range(120):
            world.step()
        world.settle()
        most = max(most, world.running_seen)
    assert most >= 2, "the runs never had two workloads at work: they prove nothing"


@pytest.mark.parametrize("block", range(5))
def test_nothing_is_lost_or_doubled_when_machines_end(block: int) -> None:
    moved = 0
    for seed in range(block * SEEDS // 5, (block + 1) * SEEDS // 5):
        world = World(seed, machines_end=True)
        for number in range(4):
            mode = ["", "none", "application", "kubelet"][number]
            world.submit(f"w{number}", "ab"[number % 2], 1 + number % 2, mode=mode)
        for _ in range(160):
            world.step()
        world.settle()
        moved += world.moved_seen
    assert moved, "no workload ever moved: the runs prove nothing"


@pytest.mark.parametrize("block", range(5))
def test_no_gang_ever_runs_from_a_torn_set(block: int) -> None:
    """Agents answer late, fail or are silent for single members, and machines end at any moment."""
    restored = 0
    for seed in range(block * SEEDS // 5, (block + 1) * SEEDS // 5):
        world = World(seed, machines_end=True, queues=(queue("a", 6),))
        for number in range(2):
            world.submit(f"w{number}", "a", 1, mode="kubelet", members=3)
        for _ in range(160):
            world.step_of_a_gang()
        world.settle()
        restored += world.restored_seen
    assert restored, "no gang ever ran from a set: the runs prove nothing"


@pytest.mark.parametrize("members", [1, 3])
def test_nothing_is_lost_or_doubled_between_two_dumps(members: int) -> None:
    """Sources that were saved, or could not be, work on until they are saved for the last time."""
    saved_twice = 0
    for seed in range(SEEDS):
        world = World(seed, machines_end=True, queues=(queue("a", 6),))
        for number in range(2):
            world.submit(f"w{number}", "a", 1, mode="kubelet", members=members)
        for _ in range(160):
            world.step_of_a_move()
        world.settle()
        saved_twice += world.last_dumps_seen
    assert saved_twice, "no source was saved for the last time: the runs prove nothing"


@pytest.mark.parametrize("members", [1, 3])
def test_nothing_is_lost_or_doubled_when_victims_are_saved(members: int) -> None:
    """Whatever happens between the word to go and the end: others' notices, cancels, crashes."""
    saved = 0
    for seed in range(SEEDS // 2):
        world = World(seed, machines_end=True, queues=(queue("a", 3),))
        for number in range(2 if members > 1 else 4):
            world.submit(f"w{number}", "a", 1, mode="kubelet", members=members)
        for _ in range(160):
            world.step_of_a_victim()
        world.settle()
        saved += world.victims_saved_seen
    assert saved, "nobody was saved before it gave way: the runs prove nothing"


@pytest.mark.parametrize("members", [1, 3])
def test_what_cannot_be_restored_stops_nobody(members: int) -> None:
    """Of archives from which nothing starts no workload fails, and none waits behind them."""
    unusable = 0
    for seed in range(SEEDS // 3):
        world = World(seed, machines_end=True, queues=(queue("a", 6),), damage=0.5)
        for number in range(2):
            world.submit(f"w{number}", "a", 1, mode="kubelet", members=members)
        for _ in range(160):
            world.step_of_a_gang()
        world.settle()
        unusable += world.damage_seen
    assert unusable, "every archive could be restored: the runs prove nothing"


@pytest.mark.parametrize("block", range(4))
def test_no_job_is_claimed_before_its_checks_said_ready(block: int) -> None:
    most = 0
    for seed in range(block * SEEDS // 10, (block + 1) * SEEDS // 10):
        world = World(seed, checked=True)
        for number in range(4):
            world.submit(f"w{number}", "ab"[number % 2], 1)
        for _ in range(120):
            world.step()
        world.settle()
        most = max(most, world.running_seen)
    assert most, "nothing ever ran: the runs prove nothing"


@pytest.mark.parametrize("block", range(5))
def test_nothing_is_lost_or_doubled_when_somebody_else_restores_the_pods(block: int) -> None:
    """Cedana is slow and fails, couriers die between any two words, users cancel in between."""
    restored = 0
    for seed in range(block * SEEDS // 15, (block + 1) * SEEDS // 15):
        world = World(seed, machines_end=True, with_cedana=True, queues=(queue("a", 4),))
        for number in range(3):
            world.submit(f"w{number}", "a", 1, mode="cedana")
        for _ in range(250):
            world.step_beside_cedana()
        world.settle()
        restored += sum("-restored-" in name for name in world.adopted_seen)
    assert restored, "nothing that Cedana restored was ever taken over: the runs prove nothing"
