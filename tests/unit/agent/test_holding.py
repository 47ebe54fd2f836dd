"""A run that moves stands still from its dump on, until that is lost or its pod is told to go."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from kubernetes import client
from sluice.core.migrations.pod_annotations import EVICT, MIGRATE

from agent import orders
from agent.holding import PROC, HeldRuns, Hold, cgroup_of, first_of, untraced
from agent.orders import Order, order_of
from agent.program import OrderController, ServedNodes
from agent.saving import Saver
from tests.unit.agent.test_agent import ORDERED, FakeMachine, a_pod

pytestmark = pytest.mark.skipif(not Path("/proc/self/stat").exists(), reason="needs /proc")
PATIENCE_SECONDS = 10
UID = "u-1"
WORKLOAD = uuid.uuid4().hex  # other tests of this machine have processes of their own
# A parent whose child works on as well; nobody has to be told to.
PROGRAM = """
import subprocess, sys, time
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], env={})
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.fixture
def run() -> Iterator[tuple[subprocess.Popen[str], int]]:
    """The first process of a run, restored from generation 0, and its child."""
    named = {"SLUICE_WORKLOAD_ID": WORKLOAD, "SLUICE_GENERATION": "0"}
    process = subprocess.Popen(
        [sys.executable, "-c", PROGRAM],
        env={**os.environ, **named},
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    yield process, int(process.stdout.readline())
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    process.stdout.close()


def until(ready: Callable[[], Any]) -> None:
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not ready():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def state(pid: int) -> str:
    """`T` stopped, `S` at work, `Z` ended and not waited for, empty if it is no more."""
    try:
        found = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return ""
    return "S" if found in "RD" else found


def an_order(**annotations: str) -> Order:
    order = order_of(a_pod(**(ORDERED | annotations)))
    assert order is not None
    return replace(order, workload=WORKLOAD)


def saver_of(machine: FakeMachine, holds: HeldRuns) -> Saver:
    return Saver(lambda _: machine, machine, lambda: None, (ConnectionError,), holds)


def told(holds: HeldRuns, machine: FakeMachine, **annotations: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(saver_of(machine, holds).save(an_order(**annotations)))
    return answer


def test_all_that_a_run_has_started_is_held_once_it_is_saved(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    first, child = run

    answer = told(HeldRuns(), FakeMachine(tmp_path))

    until(lambda: [state(first.pid), state(child)] == ["T", "T"])
    assert answer["held"] >= answer["at"] > 0


def test_a_checkpoint_without_a_move_lets_the_run_go_on(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    answer = told(HeldRuns(), FakeMachine(tmp_path), checkpoint_order="periodic-1-1")

    assert state(run[0].pid) == "S"
    assert answer["held"] == 0


@pytest.mark.parametrize("where", ["kubelet", "bucket"])
def test_a_run_whose_dump_is_lost_goes_on(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int], where: str
) -> None:
    class Failing(FakeMachine):
        def put_object(self, **_: Any) -> None:  # type: ignore[override]
            until(lambda: state(run[0].pid) == "T")
            raise ConnectionError("the bucket is away")

    machine = Failing(tmp_path, refuses="criu" if where == "kubelet" else "")

    answer = told(HeldRuns(), machine)

    assert "error" in answer
    until(lambda: [state(run[0].pid), state(run[1])] == ["S", "S"])


@pytest.mark.parametrize(("grace", "killed"), [(1, True), (30, False)])
def test_who_is_saved_is_killed_and_who_is_given_up_hears_its_signal(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int], grace: int, killed: bool
) -> None:
    first, child = run
    holds = HeldRuns()
    told(holds, FakeMachine(tmp_path))

    holds.going("another pod", 1, None)
    until(lambda: state(first.pid) == "T")
    proven = holds.going(UID, grace, an_order())

    assert proven is killed
    until(lambda: state(first.pid) == ("Z" if killed else "S"))
    until(lambda: state(child) in (("", "Z") if killed else ("S",)))


@pytest.mark.parametrize(("grace", "killed"), [(1, True), (30, False)])
def test_who_is_saved_and_works_on_is_killed_when_its_kubelet_would_wait(
    run: tuple[subprocess.Popen[str], int], grace: int, killed: bool
) -> None:
    first, child = run
    holds, order = HeldRuns(), replace(an_order(), uid=cgroup_of(first.pid, PROC).strip())

    holds.going(order.uid, grace, order)
    holds.going("another pod", grace, replace(order, uid="another pod"))

    until(lambda: state(first.pid) == ("Z" if killed else "S"))
    until(lambda: state(child) in (("", "Z") if killed else ("S",)))


def test_a_run_whose_order_is_taken_back_goes_on(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    holds, machine = HeldRuns(), FakeMachine(tmp_path)
    done = told(holds, machine)
    until(lambda: state(run[0].pid) == "T")
    agent = OrderController(client.CoreV1Api(), ServedNodes("node-1"), saver_of(machine, holds))

    agent.look(a_pod(**ORDERED, checkpoint_done=json.dumps(done)))
    assert state(run[0].pid) == "T"
    agent.look(a_pod(**{name: text for name, text in ORDERED.items() if "order" not in name}))

    until(lambda: [state(run[0].pid), state(run[1])] == ["S", "S"])


@pytest.mark.parametrize(
    ("change", "then"),
    [
        ({"annotations": {}}, ["S", "S"]),
        ({"deletionTimestamp": "now", "deletionGracePeriodSeconds": 30}, ["S", "S"]),
        ({"deletionTimestamp": "now", "deletionGracePeriodSeconds": 1}, ["Z", ""]),
    ],
    ids=["taken back", "given up", "saved"],
)
def test_an_agent_that_starts_again_holds_on_to_whom_the_former_has_held(
    tmp_path: Path,
    run: tuple[subprocess.Popen[str], int],
    change: dict[str, Any],
    then: list[str],
) -> None:
    machine = FakeMachine(tmp_path)
    done = told(HeldRuns(), machine)
    until(lambda: [state(run[0].pid), state(run[1])] == ["T", "T"])
    pod = a_pod(**ORDERED, checkpoint_done=json.dumps(done))
    pod["metadata"]["labels"]["sluice.dev/workload"] = WORKLOAD
    agent = OrderController(
        client.CoreV1Api(), ServedNodes("node-1"), saver_of(machine, HeldRuns())
    )

    agent.look(pod)
    assert [state(run[0].pid), state(run[1])] == ["T", "T"]
    agent.look({**pod, "metadata": {**pod["metadata"], **change}})

    until(lambda: state(run[0].pid) == then[0] and state(run[1]).strip("Z") == then[1])


def test_an_agent_that_starts_again_leaves_alone_who_was_not_held(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    order = {**ORDERED, "checkpoint_order": "periodic-1-1"}
    machine = FakeMachine(tmp_path)
    done = told(HeldRuns(), machine, checkpoint_order="periodic-1-1")
    pod = a_pod(**order, checkpoint_done=json.dumps(done))
    pod["metadata"]["labels"]["sluice.dev/workload"] = WORKLOAD
    holds = HeldRuns()

    OrderController(client.CoreV1Api(), ServedNodes("node-1"), saver_of(machine, holds)).look(pod)

    assert not holds.known


def test_a_grace_that_is_shortened_at_once_leaves_no_time_to_go_on(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    holds = HeldRuns()
    told(holds, FakeMachine(tmp_path))

    holds.going(UID, 30, an_order())  # by the garbage collector, when its Job is deleted
    until(lambda: state(run[0].pid) == "T")
    holds.going(UID, 1, an_order())

    assert run[0].wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_nobody_is_held_beyond_the_end_of_the_machine(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    soon = int(time.time() * 1000) + 5_000

    told(HeldRuns(), FakeMachine(tmp_path), leaving=str(soon))

    until(lambda: state(run[0].pid) == "T")
    until(lambda: state(run[0].pid) == "S")
    assert time.time() * 1000 >= soon - 1


def test_it_is_stopped_as_soon_as_criu_lets_it_go(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    first = run[0].pid
    of_first = tmp_path / str(first)
    of_first.mkdir()
    (of_first / "stat").write_text(Path(f"/proc/{first}/stat").read_text())

    def traced_by(pid: int) -> None:
        fresh = tmp_path / "status"
        fresh.write_text(f"State:\tS (sleeping)\nTracerPid:\t{pid}\n")
        fresh.replace(of_first / "status")

    traced_by(0)
    hold = Hold(first, tmp_path)
    traced_by(4711)
    until(lambda: hold.traced_at)
    assert state(first) == "S"
    traced_by(0)
    until(lambda: hold.held_at)

    until(lambda: state(first) == "T")
    assert hold.held_at >= hold.traced_at
    hold.stop()
    hold.release()
    until(lambda: state(first) == "S")


def test_what_an_agent_left_stopped_when_it_died_is_woken_before_it_is_dumped(
    tmp_path: Path, run: tuple[subprocess.Popen[str], int]
) -> None:
    first, child = run
    told(HeldRuns(), FakeMachine(tmp_path))
    seen: list[str] = []

    class Looking(FakeMachine):
        def checkpoint(self, *names: str, seconds: int) -> Path:
            until(lambda: state(first.pid) == "S")
            seen.extend([state(first.pid), state(child)])
            return super().checkpoint(*names, seconds=seconds)

    told(HeldRuns(), Looking(tmp_path))

    assert seen == ["S", "S"]


def test_the_dump_of_an_agent_that_died_is_waited_for(tmp_path: Path) -> None:
    folder = tmp_path / "11"
    folder.mkdir()
    (folder / "stat").write_text("11 (python) S 1 1 1")
    (folder / "environ").write_bytes(f"SLUICE_WORKLOAD_ID={WORKLOAD}\0".encode())
    (folder / "status").write_text("TracerPid:\t4711\n")
    order = an_order()

    assert not untraced(order, 0.02, tmp_path)
    with ThreadPoolExecutor(1) as beside:
        waiting = beside.submit(untraced, order, PATIENCE_SECONDS, tmp_path)
        time.sleep(0.05)
        assert not waiting.done()
        (folder / "status").write_text("TracerPid:\t0\n")
        assert waiting.result()


def test_of_several_runs_of_a_workload_only_the_cgroup_tells_which_is_meant(
    tmp_path: Path,
) -> None:
    for pid, uid in ((11, "u_1"), (12, "other")):
        folder = tmp_path / str(pid)
        folder.mkdir()
        (folder / "stat").write_text(f"{pid} (python) S 1 1 1")
        (folder / "environ").write_bytes(
            f"SLUICE_WORKLOAD_ID={WORKLOAD}\0SLUICE_GENERATION=2\0".encode()
        )
        (folder / "cgroup").write_text(f"0::/kubepods.slice/kubepods-pod{uid}.slice\n")

    assert first_of(an_order(), tmp_path) == 11
    (tmp_path / "11" / "cgroup").write_text("0::/\n")
    assert first_of(an_order(), tmp_path) == 0, "nobody is stopped on a guess"
    (tmp_path / "12" / "stat").unlink()
    assert first_of(an_order(), tmp_path) == 11
    assert first_of(an_order(), tmp_path, certainly=True) == 0, "nor killed in place of another"
    assert (MIGRATE, EVICT) == orders.HOLDING
