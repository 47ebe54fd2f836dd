"""Parts start in order, come back when they fall, and all go in the end."""

import sys
import threading
import time

import psutil
import pytest

from local.endpoints import Endpoints
from local.errors import StartError
from local.parts import Health, Part, Step
from local.ports import choose_ports
from local.settings import Layout
from local.supervisor import Supervisor

PATIENCE = 20.0
SERVER = (sys.executable, "-m", "http.server", "--bind", "127.0.0.1")
SLEEPER = ("/bin/sleep", "600")
PARENT_OF_A_SLEEPER = ("/bin/sh", "-c", "sleep 600 & wait")


def endpoints_at(folder):
    return Endpoints(
        aws="http://127.0.0.1:1",
        ec2="http://127.0.0.1:2",
        region="us-east-1",
        account="123456789012",
        access_key_id="key",
        secret_access_key="secret",
        kubeconfig="kubeconfig",
        cluster_name="batch-1",
        cluster_endpoint="https://127.0.0.1:3",
        certificate_authority="",
        state=str(folder),
        path="/usr/bin:/bin",
    )


@pytest.fixture
def layout(tmp_path):
    layout = Layout(tmp_path)
    for folder in (layout.logs, layout.held):
        folder.mkdir()
    return layout


@pytest.fixture
def supervise(layout):
    made = []

    def make(parts, steps=()):
        supervisor = Supervisor(layout, endpoints_at(layout.state), list(parts), list(steps))
        made.append(supervisor)
        return supervisor

    yield make
    for supervisor in made:
        supervisor.stop(grace=False)


def a_part(name, command=SLEEPER, **options):
    return Part(name, command, port=None, health=None, **options)


def a_server(name, port, **options):
    health = Health(f"http://127.0.0.1:{port}/")
    return Part(name, (*SERVER, str(port)), port=port, health=health, **options)


def eventually(supervisor, happened):
    deadline = time.monotonic() + PATIENCE
    while not happened():
        assert time.monotonic() < deadline, "it never happened"
        for running in supervisor.parts.values():
            supervisor.tend(running)
        supervisor.serve_spawns(0.05)


def pid(supervisor, name):
    process = supervisor.parts[name].process
    return process.pid if process and process.poll() is None else None


def test_what_needs_another_part_starts_when_that_is_ready(supervise, layout) -> None:
    port = choose_ports(layout.ports, ["server"], {})["server"]
    order = []
    supervisor = supervise(
        [a_part("last", after=("between",)), a_server("server", port)],
        [Step("between", lambda: order.append(pid(supervisor, "last")), after=("server",))],
    )

    supervisor.start()

    assert order == [None]  # the part that waits for the step had no process yet
    assert {running.state for running in supervisor.parts.values()} == {"ready"}


def test_a_part_that_stops_while_starting_fails_the_start_and_names_its_log(
    supervise, layout
) -> None:
    port = choose_ports(layout.ports, ["broken"], {})["broken"]
    broken = Part("broken", ("/bin/false",), port, Health(f"http://127.0.0.1:{port}/"))

    with pytest.raises(StartError, match=r"broken stopped while starting; see .*broken\.log"):
        supervise([broken, a_part("other")]).start()


def test_a_step_that_fails_fails_the_start(supervise) -> None:
    def fail():
        raise ValueError("no such bucket")

    with pytest.raises(StartError, match="prepare: ValueError: no such bucket"):
        supervise([], [Step("prepare", fail, after=())]).start()


def test_a_part_that_is_killed_comes_back(supervise) -> None:
    supervisor = supervise([a_part("worker")])
    supervisor.start()
    first = pid(supervisor, "worker")

    psutil.Process(first).kill()
    eventually(supervisor, lambda: pid(supervisor, "worker") not in (None, first))

    assert supervisor.parts["worker"].restarts == 1


def test_a_part_that_is_held_stays_down_until_it_is_wanted_again(supervise, layout) -> None:
    supervisor = supervise([a_part("worker")])
    supervisor.start()
    (layout.held / "worker").touch()

    psutil.Process(pid(supervisor, "worker")).terminate()
    eventually(supervisor, lambda: supervisor.parts["worker"].state == "stopped")
    supervisor.tend(supervisor.parts["worker"])
    assert pid(supervisor, "worker") is None

    (layout.held / "worker").unlink()
    eventually(supervisor, lambda: pid(supervisor, "worker") is not None)


def test_a_part_that_keeps_falling_over_is_left_lying(supervise) -> None:
    supervisor = supervise([a_part("worker", ("/bin/false",))])
    supervisor.start()

    eventually(supervisor, lambda: supervisor.parts["worker"].state == "failed")

    assert 1 <= supervisor.parts["worker"].restarts <= 5


def test_a_part_whose_memory_is_lost_is_not_started_again(supervise) -> None:
    supervisor = supervise([a_part("aws", restartable=False)])
    supervisor.start()

    psutil.Process(pid(supervisor, "aws")).kill()
    eventually(supervisor, lambda: supervisor.parts["aws"].state == "failed")

    assert supervisor.parts["aws"].restarts == 0


@pytest.mark.parametrize("grace", [True, False])
def test_stopping_takes_the_children_of_the_parts_along(supervise, grace) -> None:
    supervisor = supervise([a_part("parent", PARENT_OF_A_SLEEPER)])
    supervisor.start()
    parent = psutil.Process(pid(supervisor, "parent"))
    eventually(supervisor, parent.children)
    (child,) = parent.children()

    supervisor.stop(grace=grace)

    assert not parent.is_running()
    assert not child.is_running() or child.status() == psutil.STATUS_ZOMBIE


def test_with_grace_a_part_can_save_what_it_remembers(supervise, layout) -> None:
    saved = layout.state / "saved"
    ready = layout.state / "ready"
    script = f"trap 'echo yes > {saved}; exit' TERM; echo > {ready}; while :; do sleep 0.05; done"
    supervisor = supervise([a_part("keeper", ("/bin/sh", "-c", script))])
    supervisor.start()
    eventually(supervisor, ready.exists)

    supervisor.stop(grace=True)

    assert saved.read_text() == "yes\n"


def test_stopping_during_the_start_ends_it(supervise) -> None:
    over = threading.Event()

    def wait_for_it() -> None:
        over.wait()

    supervisor = supervise([a_part("worker", after=("long",))], [Step("long", wait_for_it, ())])
    threading.Timer(0.3, setattr, (supervisor, "stopping", True)).start()

    supervisor.start()
    over.set()

    assert pid(supervisor, "worker") is None


def test_parts_see_nothing_of_their_users_credentials(supervise, layout, monkeypatch) -> None:
    monkeypatch.setenv("AWS_SESSION_TOKEN", "a real one")
    seen = layout.state / "seen"
    supervisor = supervise(
        [a_part("worker", ("/bin/sh", "-c", f"env > {seen}.new; mv {seen}.new {seen}; sleep 600"))]
    )

    supervisor.start()
    eventually(supervisor, seen.exists)

    assert "AWS_SESSION_TOKEN" not in seen.read_text()
    assert f"SLUICE_PART_OF={layout.state}" in seen.read_text()
