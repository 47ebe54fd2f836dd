"""The port Ledgers: one transaction for quota and workloads, or nothing at all."""

from __future__ import annotations

from dataclasses import replace

import pytest
from sluice.core.lifecycle import transitions as lifecycle
from sluice.core.lifecycle.record import State, after
from sluice.core.lifecycle.record_entries import JobResult
from sluice.core.scheduling.past_usage import PastUsage, UsageStart
from sluice.ports import MAX_CHANGES, CatalogEdit, Commit, Committed, LedgerState

from tests.contract.aws.builders import CQ, NOW, ROOT, a_reservation, a_workload
from tests.contract.aws.ports import Ports

USAGE = {CQ: {"spot|cpu": 1000, "spot|memory": 2**34}}


def admission(ports: Ports, *names: str) -> Commit:
    """Admits these workloads on the ledger as it is now."""
    changes = tuple(lifecycle.admit(a_workload(name), a_reservation(), ROOT, NOW) for name in names)
    audit = {"admitted": [[name, 0, CQ, {"spot|cpu": 1000}] for name in names]}
    return Commit(ports.ledgers.read(ROOT), USAGE, changes, audit, NOW)


def pending(ports: Ports, *names: str) -> None:
    for name in names:
        ports.workloads.create(a_workload(name))


def states(ports: Ports, *names: str) -> list[State]:
    return [each.state for each in ports.workloads.get_many(names)]


def test_a_root_without_ledger_is_empty(ports: Ports) -> None:
    assert ports.ledgers.read(ROOT) == LedgerState(ROOT, 0, 0, {})
    assert list(ports.ledgers.batches(ROOT)) == []
    assert ports.ledgers.newest_pass(ROOT) == {}


def test_a_commit_changes_ledger_workloads_and_audit_together(ports: Ports) -> None:
    pending(ports, "a", "b")

    assert ports.ledgers.commit(admission(ports, "a", "b")) == Committed(done=True)

    assert ports.ledgers.read(ROOT) == LedgerState(ROOT, 1, 0, USAGE)
    assert states(ports, "a", "b") == [State.ADMITTED, State.ADMITTED]
    (batch,) = ports.ledgers.batches(ROOT)
    assert (batch["version"], batch["at"]) == (1, NOW)
    assert batch["admitted"][1] == ["b", 0, CQ, {"spot|cpu": 1000}]


def test_of_two_commits_on_one_version_the_second_moves_nothing(ports: Ports) -> None:
    pending(ports, "a", "b")
    first, second = admission(ports, "a"), admission(ports, "b")
    ports.ledgers.commit(first)

    assert ports.ledgers.commit(second) == Committed(done=False, moved=True)

    assert ports.ledgers.read(ROOT).version == 1
    assert states(ports, "b") == [State.PENDING]
    assert len(list(ports.ledgers.batches(ROOT))) == 1


def test_a_commit_again_is_a_lost_race_and_charges_nothing(ports: Ports) -> None:
    pending(ports, "a")
    commit = admission(ports, "a")
    ports.ledgers.commit(commit)

    answer = ports.ledgers.commit(commit)

    assert not answer.done
    assert answer.moved
    assert ports.ledgers.read(ROOT).version == 1


def test_limits_that_moved_stop_a_commit(ports: Ports) -> None:
    pending(ports, "a")
    commit = admission(ports, "a")
    assert ports.catalog.edit(CatalogEdit(0, roots=(ROOT,)))

    assert ports.ledgers.commit(commit) == Committed(done=False, moved=True)
    assert ports.ledgers.read(ROOT) == LedgerState(ROOT, 0, 1, {})

    assert ports.ledgers.commit(admission(ports, "a")).done
    assert ports.ledgers.read(ROOT) == LedgerState(ROOT, 1, 1, USAGE)


def test_limits_of_another_root_do_not_matter(ports: Ports) -> None:
    pending(ports, "a")
    commit = admission(ports, "a")
    assert ports.catalog.edit(CatalogEdit(0, roots=("another",)))

    assert ports.ledgers.commit(commit).done


def test_workloads_that_lost_their_guard_are_named_and_nothing_happens(ports: Ports) -> None:
    pending(ports, "a", "b")
    ports.workloads.apply([lifecycle.cancel_pending(a_workload("b"), "by a user", NOW)])

    answer = ports.ledgers.commit(admission(ports, "a", "b", "missing"))

    assert answer == Committed(done=False, moved=False, lost=frozenset({"b", "missing"}))
    assert ports.ledgers.read(ROOT).version == 0
    assert states(ports, "a", "b") == [State.PENDING, State.CANCELLED]
    assert list(ports.ledgers.batches(ROOT)) == []


def test_a_transaction_takes_as_many_changes_as_a_plan_may_have(ports: Ports) -> None:
    names = [f"w{number}" for number in range(MAX_CHANGES)]
    pending(ports, *names)

    assert ports.ledgers.commit(admission(ports, *names)).done
    assert set(states(ports, *names)) == {State.ADMITTED}


def test_roots_have_ledgers_of_their_own(ports: Ports) -> None:
    pending(ports, "a")
    ports.ledgers.commit(admission(ports, "a"))

    assert ports.ledgers.read("another") == LedgerState("another", 0, 0, {})
    assert list(ports.ledgers.batches("another")) == []


@pytest.mark.parametrize("after", [0, 1, 11, 12, 99])
def test_batches_come_oldest_first_after_a_version(ports: Ports, after: int) -> None:
    for version in range(12):
        ledger = ports.ledgers.read(ROOT)
        ports.ledgers.commit(Commit(ledger, USAGE, (), {"note": version}, NOW + version))

    found = list(ports.ledgers.batches(ROOT, after=after))

    assert [each["version"] for each in found] == list(range(after + 1, 13))
    assert [each["note"] for each in found] == list(range(after, 12))


def test_a_pass_replaces_the_one_before_and_is_no_batch(ports: Ports) -> None:
    ports.ledgers.record_pass(ROOT, {"at": NOW, "version": 3, "refusals": b"\x00\xff", "old": 1})
    ports.ledgers.record_pass(ROOT, {"at": NOW + 1, "version": 4, "refusals": b"new"})

    newest = ports.ledgers.newest_pass(ROOT)

    assert (newest["at"], newest["version"], newest["refusals"]) == (NOW + 1, 4, b"new")
    assert "old" not in newest
    assert ports.ledgers.read(ROOT).version == 0
    assert list(ports.ledgers.batches(ROOT)) == []


def test_a_commit_never_makes_a_workload_that_is_not_there(ports: Ports) -> None:
    assert not ports.ledgers.commit(admission(ports, "ghost")).done
    assert ports.workloads.get("ghost") is None


def test_a_release_and_an_admission_share_one_transaction(ports: Ports) -> None:
    pending(ports, "a", "b")
    ports.ledgers.commit(admission(ports, "a"))
    (a,) = ports.workloads.get_many(["a"])
    ports.workloads.apply([lifecycle.claim(a, "uid-1", NOW)])
    claimed = after(lifecycle.claim(a, "uid-1", NOW))
    done = lifecycle.finish(claimed, JobResult(succeeded=True), NOW)
    ports.workloads.apply([done])
    commit = admission(ports, "b")
    both = (lifecycle.release(after(done), NOW), *commit.changes)

    assert ports.ledgers.commit(replace(commit, changes=both)).done

    a, b = ports.workloads.get_many(["a", "b"])
    assert (a.state, a.reservation) == (State.FINISHED, None)
    assert (b.state, b.reservation) == (State.ADMITTED, a_reservation())


def test_what_budgets_have_spent_is_kept_with_the_quota(ports: Ports) -> None:
    ledger = ports.ledgers.read(ROOT)
    assert ledger.spent == {}
    spent = {"monthly": {"20650": 2**40}}
    assert ports.ledgers.commit(Commit(ledger, USAGE, (), {}, NOW, None, spent)).done

    assert ports.ledgers.read(ROOT).spent == spent


def test_past_use_is_kept_until_a_commit_ends_it(ports: Ports) -> None:
    start = UsageStart(NOW - 10, NOW, {"cpu": 2000})
    use = PastUsage(NOW, {"cpu": 0.12345678901234567, "memory": 2.0**34}, {"cpu": 2000}, (start,))
    ledger = ports.ledgers.read(ROOT)
    assert ports.ledgers.commit(Commit(ledger, USAGE, (), {}, NOW, {"team/x": use})).done

    kept = ports.ledgers.read(ROOT)
    assert kept.past == {"team/x": use}

    assert ports.ledgers.commit(Commit(kept, USAGE, (), {}, NOW)).done
    assert ports.ledgers.read(ROOT).past is None
