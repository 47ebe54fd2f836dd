"""`sluice declare-lost`: only meant, only by administrators, only of a silent cluster."""

from __future__ import annotations

from sluice.core.clusters.fleet import SILENT_MS
from sluice.core.lifecycle.record import State

from tests.unit.api.control_plane import ADMIN, RED, ControlPlane, native
from tests.unit.cli.terminal import Terminal

WORDS = ("declare-lost", "batch-1", "--reason", "it burnt down")


def a_terminal() -> tuple[Terminal, str]:
    plane = ControlPlane()
    job = plane.send(native("job", 8))
    plane.run(job)
    return Terminal(plane=plane, signer=ADMIN), job


def test_it_is_said_in_so_many_words_and_then_work_leaves_the_cluster() -> None:
    terminal, job = a_terminal()
    assert "it is not lost" in terminal(*WORDS, "-y").stderr
    terminal.plane.silent.add("batch-1")
    terminal.plane.clock.pass_ms(SILENT_MS + 1)

    assert "1 workload(s) would leave batch-1" in terminal(*WORDS, "--dry-run").stdout
    assert "confirm with -y" in terminal(*WORDS).stderr
    assert terminal.plane.workloads.rows[job].state is State.DISPATCHED

    assert "1 workload(s) leave it" in terminal(*WORDS, "-y").stdout
    terminal.plane.settle()
    assert terminal.plane.workloads.rows[job].state is State.PENDING
    assert "0 workload(s) leave it" in terminal(*WORDS, "-y").stdout


def test_tenants_may_not() -> None:
    terminal, _ = a_terminal()
    terminal.signer = RED

    assert "administrator" in terminal(*WORDS, "-y").stderr
