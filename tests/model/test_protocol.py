"""The protocol as designed is safe in every small world, and no rule of it is idle."""

from __future__ import annotations

from dataclasses import fields
from functools import cache

import pytest

from tests.model import quota
from tests.model.__main__ import main
from tests.model.configuration import (
    CONFIGURATIONS,
    LENDING,
    NOT_LENDING,
    TWO_LEVELS,
    Configuration,
)
from tests.model.explorer import Result, explore
from tests.model.mutants import MUTANTS, REDUNDANT, Mutant, without
from tests.model.rules import Rules


@cache
def as_designed(name: str) -> Result:
    return explore(CONFIGURATIONS[name])


@pytest.mark.parametrize("name", CONFIGURATIONS)
def test_no_interleaving_breaks_an_invariant_and_every_workload_can_always_end(name: str) -> None:
    result = as_designed(name)

    assert result.violation is None
    assert result.exhausted
    assert result.ended > 0
    assert result.stuck == 0, result.stuck_trace


@pytest.mark.parametrize("mutant", MUTANTS.values(), ids=MUTANTS)
def test_a_missing_rule_breaks_the_invariant_that_it_guards(mutant: Mutant) -> None:
    result = explore(CONFIGURATIONS[mutant.configuration], mutant.rules)

    assert result.violation is not None
    assert result.violation.fault.startswith(mutant.breaks)


@pytest.mark.parametrize("rule", REDUNDANT.values(), ids=REDUNDANT)
@pytest.mark.parametrize("name", ["migration", "limits"])
def test_a_rule_that_repeats_another_may_go_alone(rule: str, name: str) -> None:
    result = explore(CONFIGURATIONS[name], without(rule))

    assert result.violation is None
    assert result.exhausted
    assert result.stuck == 0


def test_every_rule_is_either_needed_or_known_to_repeat_another() -> None:
    needed = {rule for mutant in MUTANTS.values() for rule in mutant.without}

    assert needed | set(REDUNDANT.values()) == {rule.name for rule in fields(Rules)}


@pytest.mark.parametrize(
    ("name", "step"),
    [
        ("one_workload", "w0 complete in its grace"),
        ("one_workload", "w0 fails in its grace"),
        ("one_workload", "w0 unsuspend, lost response (g0)"),
        ("one_workload", "w0 give up"),
        ("one_workload", "w0 claim refused (g0)"),
        ("one_workload", "commit refused: version"),
        ("contention", "settle w0 + admit w1"),
        ("contention", "requeue w0 + admit w1"),
        ("contention", "end w0 + admit w1, lost response"),
        ("contention", "commit refused: workload"),
        ("migration", "w0 fence"),
        ("migration", "w0 pod replaced"),
        ("preemption", "preempt w0"),
        ("preemption", "requeue w0 + admit w1"),
        ("checks", "w0 check says Retry"),
        ("checks", "w0 checks passed"),
        ("checks_contention", "w0 check says Rejected"),
        ("cluster_loss", "w0 declare lost"),
        ("cluster_loss", "w0 cluster silent (g0)"),
        ("limits", "limits edited"),
        ("borrowing", "admit w0 + admit w1"),
        ("two_levels", "admit w0 + admit w1 + admit w3"),
        ("reclaim_over_two_levels", "preempt w0 + preempt w1"),
        ("reclaim_over_two_levels", "requeue w1 + admit w2, lost response"),
    ],
)
def test_the_search_meets_what_it_claims_to_cover(name: str, step: str) -> None:
    assert step in as_designed(name).labels


def test_without_a_progress_step_workloads_are_reported_as_stuck() -> None:
    never_dispatched = Configuration(dispatchers=0, cancels=False, jobs_per_generation=1)
    nobody_admits = Configuration(admitters=0, dispatchers=0)

    assert explore(never_dispatched).stuck == 0
    assert explore(nobody_admits).stuck == 1


def test_a_truncated_search_does_not_count_as_exhausted() -> None:
    assert not explore(CONFIGURATIONS["contention"], max_states=100).exhausted


@pytest.mark.parametrize(
    ("tree", "used", "queue", "expected"),
    [
        (LENDING, (0, 1, 0), 1, 1),
        (LENDING, (0, 2, 0), 2, 0),
        (NOT_LENDING, (0, 1, 0), 1, 0),
        (NOT_LENDING, (0, 1, 0), 2, 1),
        (TWO_LEVELS, (0, 0, 0, 1, 0), 3, 1),
        (TWO_LEVELS, (0, 0, 0, 2, 0), 3, 0),
        (TWO_LEVELS, (0, 0, 2, 1, 0), 3, 0),
    ],
)
def test_what_is_available_is_exactly_what_the_auditor_still_accepts(
    tree: quota.Tree, used: quota.Used, queue: int, expected: int
) -> None:
    one_more = tuple(units + (node == queue) for node, units in enumerate(used))

    assert quota.available(tree, used, queue) == expected
    assert (quota.overdrawn(tree, one_more) is None) == (expected > 0)


def test_the_command_line_prints_the_figures_and_says_whether_it_is_safe(
    capsys: pytest.CaptureFixture[str],
) -> None:
    assert main(["limits"]) == 0
    assert "stuck states (I4) 0" in capsys.readouterr().out

    assert main(["limits", "--without", "release_waits_for_gone"]) == 1
    assert "VIOLATION         I3" in capsys.readouterr().out
