"""`sluice admin` and `cordon`: what operators see, are asked, and may undo."""

from __future__ import annotations

import json
from collections.abc import Callable

from sluice.core.lifecycle.record import State
from sluice.ports import DeadLetter

from tests.unit.api.control_plane import ADMIN, RED, ControlPlane, cluster, native
from tests.unit.cli.terminal import Terminal, items


def an_operator(plane: ControlPlane | None = None) -> Terminal:
    return Terminal(plane=plane or ControlPlane(), signer=ADMIN)


def with_letters(queue: str, count: int) -> Terminal:
    terminal = an_operator()
    sent = {"SentTimestamp": str(terminal.plane.clock.now() - 90_000), "SenderId": "AROARED:x"}
    terminal.plane.dead_letters.queues[queue] = [
        DeadLetter(f"m-{n}", f"r-{n}", json.dumps({"n": n, "long": "x" * 100}), sent)
        for n in range(count)
    ]
    return terminal


class TestDeadLetters:
    def test_an_empty_office_says_so_and_prints_nothing(self) -> None:
        result = an_operator()("admin", "dlq")

        assert (result.exit_code, result.stdout) == (0, "")
        assert "no messages in any dead-letter queue" in result.stderr

    def test_letters_are_listed_with_age_and_what_to_do(self) -> None:
        result = with_letters("kicks", 12)("admin", "dlq")

        assert result.stdout.splitlines()[0].split() == ["QUEUE", "AGE", "WHY", "BODY"]
        assert len(result.stdout.splitlines()) == 1 + 10
        assert "1m30s" in result.stdout
        assert "kicks: 12, 10 shown" in result.stderr
        assert "purge" in result.stderr

    def test_one_queue_and_all_of_it(self) -> None:
        terminal = with_letters("kicks", 12)

        shown = terminal("admin", "dlq", "-q", "kicks", "--limit", "50", "-o", "name")

        assert shown.stdout.split() == [f"m-{n}" for n in range(12)]
        assert items(terminal("admin", "dlq", "-o", "json"))[2]["count"] == 12
        assert terminal("admin", "dlq", "-q", "none").exit_code == 3

    def test_redriving_goes_on_until_nothing_is_left(self) -> None:
        terminal = with_letters("submissions", 23)

        assert (
            "23 would be tried again"
            in terminal("admin", "dlq", "redrive", "submissions", "--dry-run").stdout
        )
        assert "confirm with -y" in terminal("admin", "dlq", "redrive", "submissions").stderr
        assert terminal.plane.consumers.handed == []

        done = terminal("admin", "dlq", "redrive", "submissions", "-y", "-o", "json")

        (row,) = items(done)
        assert (row["taken"], row["refused"], row["left"]) == (23, 0, 0)

    def test_what_is_refused_again_stays_and_is_an_error(self) -> None:
        terminal = with_letters("submissions", 12)
        terminal.plane.consumers.refusing = {"m-3"}
        terminal.plane.consumers.why = "no such table"

        done = terminal("admin", "dlq", "redrive", "submissions", "-y")

        assert done.exit_code == 1
        assert done.stdout.splitlines()[1].split()[:4] == ["submissions", "11", "1", "1"]
        assert "no such table" in done.stdout
        assert terminal.plane.dead_letters.count("submissions") == 1

    def test_nobody_takes_reports_of_failed_calls(self) -> None:
        result = with_letters("failures", 1)("admin", "dlq", "redrive", "failures", "-y")

        assert result.exit_code == 5
        assert "the messages of failures cannot be redriven" in result.stderr

    def test_purging_says_what_is_lost(self) -> None:
        terminal = with_letters("events", 2)

        asked = terminal("admin", "dlq", "purge", "events")
        assert asked.exit_code == 2
        assert "what was submitted so is lost" in asked.stderr
        assert (
            "2 would be deleted" in terminal("admin", "dlq", "purge", "events", "--dry-run").stdout
        )
        assert terminal.plane.dead_letters.count("events") == 2

        assert "2 deleted" in terminal("admin", "dlq", "purge", "events", "-y").stdout
        assert "0 would be deleted" in terminal("admin", "dlq", "purge", "events", "-y").stdout


class TestLedger:
    def test_a_ledger_that_agrees(self) -> None:
        terminal = an_operator()
        job = terminal.plane.send(native("job", 8))

        all_roots = terminal("admin", "ledger")
        one = terminal("admin", "ledger", "red/batch")

        assert all_roots.stdout.splitlines()[1].split() == ["company", "1", "1", "agrees"]
        assert one.exit_code == 0
        assert "Root cohort company, version 1: agrees" in one.stdout
        assert job in one.stdout
        assert "spot/cpu=8" in one.stdout

    def test_one_that_differs_is_named_and_fails(self) -> None:
        terminal = an_operator()
        job = terminal.plane.send(native("job", 8))
        terminal.plane.ledgers.ledgers["company"].usage["red-cq"]["spot|cpu"] += 2_000

        result = terminal("admin", "ledger", "company")

        assert result.exit_code == 1
        assert f"the ledger says 10, the workloads hold 8; held by {job}" in result.stdout
        assert terminal("admin", "ledger").exit_code == 1
        assert terminal("admin", "ledger", "-o", "json").exit_code == 1

    def test_what_was_only_late_is_no_difference(self) -> None:
        terminal = an_operator()
        terminal.plane.send(native("job", 8))
        usage = terminal.plane.ledgers.ledgers["company"].usage["red-cq"]
        usage["spot|cpu"] += 2_000
        terminal.sleeping = lambda: usage.update({"spot|cpu": 8_000})

        assert terminal("admin", "ledger").exit_code == 0

    def test_tenants_may_not(self) -> None:
        assert Terminal(signer=RED)("admin", "ledger").exit_code == 4


class TestDrain:
    def a_cluster_at_work(self, sleeping: Callable[[ControlPlane, str], None]) -> Terminal:
        plane = ControlPlane((*ControlPlane().objects, cluster("batch-2")))
        job = plane.send(native("job", 64))
        plane.run(job)
        terminal = an_operator(plane)
        terminal.sleeping = lambda: sleeping(plane, job)
        return terminal

    def test_it_waits_until_the_cluster_is_empty(self) -> None:
        def stop(plane: ControlPlane, job: str) -> None:
            plane.stopped(job)

        terminal = self.a_cluster_at_work(stop)
        words = ("admin", "drain", "batch-1", "--reason", "new kernel")

        plan = terminal(*words, "--dry-run")
        assert "in another cluster" in plan.stdout
        assert "1 workload(s) would leave" in plan.stderr
        assert terminal(*words).exit_code == 2, "nobody is there to be asked"

        done = terminal(*words, "-y")

        assert done.exit_code == 0, done.output
        assert done.stderr.splitlines() == ["1 workload(s) left on batch-1", "batch-1 is empty"]
        (record,) = terminal.plane.workloads.rows.values()
        assert (record.state, record.cluster) == (State.ADMITTED, "batch-2")
        assert "uncordoned" in terminal("uncordon", "batch-1").stdout
        assert "was not cordoned" in terminal("uncordon", "batch-1").stdout

    def test_a_timeout_says_what_is_there_still(self) -> None:
        terminal = self.a_cluster_at_work(lambda plane, job: None)

        done = terminal("admin", "drain", "batch-1", "-y", "--timeout", "10s")

        assert done.exit_code == 101
        assert "1 workload(s) left" in done.stdout

    def test_ctrl_c_says_that_it_goes_on(self) -> None:
        def interrupt(plane: ControlPlane, job: str) -> None:
            raise KeyboardInterrupt

        done = self.a_cluster_at_work(interrupt)("admin", "drain", "batch-1", "-y")

        assert done.exit_code == 130
        assert "stays cordoned" in done.stderr
        assert "sluice uncordon batch-1" in done.stderr


def test_a_cordon_is_set_and_undone() -> None:
    terminal = an_operator()

    assert "would be cordoned" in terminal("cordon", "batch-1", "--dry-run").stdout
    assert "  cordoned" in terminal("cordon", "batch-1", "--reason", "rest").stdout
    assert "is cordoned already" in terminal("cordon", "batch-1").stdout
    assert terminal("cordon", "none").exit_code == 3
