"""Starts the parts of one stack, watches them, and stops them: all of them, always.

    python -m local.supervisor STATE       # started by `local.stack`, in a session of its own

Two processes share the work. The *guard* only waits; its child, the *supervisor*, holds the
parts. When the supervisor ends, by whatever cause, the guard kills what it left; when the guard
ends, the supervisor notices and stops the parts. Both hold the lock of the state folder.
If both are killed at once, the kernel kills the parts (on Linux), and what these had started
carries `SLUICE_PART_OF` in its environment, by which the next `up` finds it.

SIGTERM stops the parts with grace, so that they save what they remember; SIGINT at once.

Standard input comes from `up`: as long as nobody has written "keep", its end means that `up` was
killed or interrupted, and the stack stops. Standard output goes there: a line for each event.
"""

import contextlib
import os
import queue
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import psutil

from local import plan
from local.aws import base_environment
from local.endpoints import Endpoints
from local.errors import StartError
from local.files import write_json
from local.parts import Part, Step
from local.settings import Layout, Settings
from local.strays import MARK, adopt_orphans, kill_marked, kill_tree

READY_SECONDS = 120.0  # a part that is not ready by then will not be
POLL_SECONDS = 0.05
WATCH_SECONDS = 0.2
DIE_WITH_PARENT = Path(__file__).with_name("die_with_parent.py")
FALLS = 5  # in a row; a part that keeps falling over is left lying
STEADY_SECONDS = 10.0  # a part that stood this long did not fall over


@dataclass
class Running:
    """A part's process, and what became of it."""

    part: Part
    process: subprocess.Popen[bytes] | None = None
    state: str = "waiting"  # starting, ready, stopped, failed
    ready: threading.Event = field(default_factory=threading.Event)
    spawned: float = 0.0
    restarts: int = 0
    falls: int = 0


class Supervisor:
    def __init__(
        self, layout: Layout, endpoints: Endpoints, parts: list[Part], steps: list[Step]
    ) -> None:
        self.layout, self.endpoints = layout, endpoints
        self.parts = {part.name: Running(part) for part in parts}
        self.steps = {step.name: step for step in steps}
        self.done = {name: threading.Event() for name in self.steps}
        self.failure: str | None = None
        # Plain, because a signal's handler sets it: a lock could be held by the very code, or the
        # very handler, that the next signal interrupts.
        self.stopping = False
        self.writing = threading.Lock()
        self.began = time.monotonic()
        self.spawns: queue.Queue[tuple[Running, threading.Event]] = queue.Queue()

    # Starting

    def start(self) -> None:
        """Start everything, each thing as soon as what it needs is there. Raises StartError."""
        threads = [
            threading.Thread(target=self.guarded, args=(self.launch, running), daemon=True)
            for running in self.parts.values()
        ]
        threads += [
            threading.Thread(target=self.guarded, args=(self.perform, step), daemon=True)
            for step in self.steps.values()
        ]
        for thread in threads:
            thread.start()
        while any(thread.is_alive() for thread in threads):
            if self.failure or self.stopping:
                break
            self.serve_spawns(POLL_SECONDS)
        if self.failure:
            raise StartError(self.failure)

    def guarded(self, action: Callable[[Any], None], subject: Any) -> None:
        try:
            action(subject)
        except StartError as error:
            self.failure = self.failure or str(error)
        except Exception as error:  # noqa: BLE001 - a thread's last words; the stack stops on them
            self.failure = self.failure or f"{subject.name}: {type(error).__name__}: {error}"

    def await_needs(self, after: tuple[str, ...]) -> None:
        for name in after:
            event = self.done[name] if name in self.done else self.parts[name].ready
            while not event.wait(0.5):
                if self.failure or self.stopping:
                    raise StartError(self.failure or "stopped")

    def perform(self, step: Step) -> None:
        self.await_needs(step.after)
        step.run()
        self.done[step.name].set()
        self.say(f"{step.name} done")

    def launch(self, running: Running) -> None:
        self.await_needs(running.part.after)
        self.spawn(running)
        self.await_health(running)

    def spawn(self, running: Running) -> None:
        """Have the part's process started by the main thread, and wait for that."""
        spawned = threading.Event()
        self.spawns.put((running, spawned))
        while not spawned.wait(0.5):
            if self.stopping:
                raise StartError("stopped")

    def serve_spawns(self, seconds: float) -> None:
        """Start what was asked for: parts die with the thread that started them."""
        with contextlib.suppress(queue.Empty):
            running, spawned = self.spawns.get(timeout=seconds)
            self.spawn_here(running)
            spawned.set()

    def spawn_here(self, running: Running) -> None:
        part = running.part
        environment = base_environment(self.endpoints) | part.environment
        environment[MARK] = str(self.layout.state)
        with self.layout.log(part.name).open("ab") as log:
            running.process = subprocess.Popen(
                [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), *part.command],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                env=environment,
                cwd=self.layout.state,
                start_new_session=True,
            )
        running.spawned = time.monotonic()
        self.note(running, "starting")

    def await_health(self, running: Running) -> None:
        part, process = running.part, running.process
        deadline = time.monotonic() + READY_SECONDS
        while part.health and not part.health.is_good():
            if process is None or process.poll() is not None:
                raise StartError(
                    f"{part.name} stopped while starting; see {self.layout.log(part.name)}"
                )
            if self.stopping:
                return
            if time.monotonic() > deadline:
                raise StartError(
                    f"{part.name} was not ready after {READY_SECONDS:.0f} s; "
                    f"see {self.layout.log(part.name)}"
                )
            time.sleep(POLL_SECONDS)
        self.note(running, "ready")
        running.ready.set()
        self.say(f"{part.name} is ready")

    # Watching

    def watch(self) -> None:
        """Until told to stop: bring back parts that died and parts that are wanted again."""
        while not self.stopping:
            self.serve_spawns(WATCH_SECONDS)
            for running in self.parts.values():
                self.tend(running)

    def tend(self, running: Running) -> None:
        if running.process is None or running.state == "starting":
            return
        if running.process.poll() is None:
            return
        name = running.part.name
        held = (self.layout.held / name).exists()
        if running.state == "ready":
            code = running.process.returncode
            self.say(f"{name} ended with {code}" + (", held" if held else ""))
            running.ready.clear()
            self.note(running, "stopped")
        if held or running.state == "failed":
            return
        steady = time.monotonic() - running.spawned > STEADY_SECONDS
        running.falls = 0 if steady else running.falls + 1
        if not running.part.restartable or running.falls >= FALLS:
            self.note(running, "failed")
            self.say(f"{name} stays down; see {self.layout.log(name)}")
            return
        running.restarts += 1
        running.state = "starting"
        threading.Thread(target=self.guarded_restart, args=(running,), daemon=True).start()

    def guarded_restart(self, running: Running) -> None:
        try:
            self.spawn(running)
            self.await_health(running)
        except (StartError, OSError) as error:
            self.say(str(error))
            self.note(running, "stopped")

    # Stopping

    def stop(self, *, grace: bool) -> None:
        """SIGTERM to every part, then SIGKILL to what is left of them; without grace at once."""
        self.stopping = True
        waiting = [running for running in reversed(self.parts.values()) if running.process]
        trees = {running.part.name: tree(running.process) for running in waiting}
        for running in waiting:
            if running.process and running.process.poll() is None:
                running.process.send_signal(signal.SIGTERM if grace else signal.SIGKILL)
        began = time.monotonic()
        for running in waiting:
            if running.process is None:
                continue
            left = running.part.grace_seconds - (time.monotonic() - began)
            try:
                running.process.wait(max(left, 0.1))
            except subprocess.TimeoutExpired:
                running.process.kill()
                running.process.wait()
            kill_tree(trees[running.part.name])
            self.note(running, "stopped")

    # Telling

    def note(self, running: Running, state: str) -> None:
        running.state = state
        with self.writing:
            write_json(self.layout.parts, [described(one) for one in self.parts.values()])

    def say(self, text: str) -> None:
        line = f"{time.monotonic() - self.began:6.2f} s  {text}"
        with self.layout.log("supervisor").open("a") as log:
            log.write(line + "\n")
        try:
            print(line, flush=True)
        except (BrokenPipeError, ValueError):
            return  # `up` has gone; the log has it


def described(running: Running) -> dict[str, Any]:
    """One entry of parts.json."""
    process, part = running.process, running.part
    alive = process is not None and process.poll() is None
    return {
        "name": part.name,
        "state": running.state,
        "pid": process.pid if process and alive else None,
        "started": started_at(process.pid) if process and alive else None,
        "port": part.port,
        "restarts": running.restarts,
        "grace": part.grace_seconds,
        "restartable": part.restartable,
        "health": part.health.url if part.health else None,
        "authority": str(part.health.authority) if part.health and part.health.authority else None,
    }


def started_at(pid: int) -> float | None:
    try:
        return psutil.Process(pid).create_time()
    except psutil.NoSuchProcess:
        return None


def tree(process: subprocess.Popen[bytes] | None) -> list[psutil.Process]:
    try:
        return psutil.Process(process.pid).children(recursive=True) if process else []
    except psutil.NoSuchProcess:
        return []


def supervise(state: Path, guard: int) -> int:
    """The supervisor's life; returns its exit code."""
    layout = Layout(state)
    settings = Settings.read(layout.settings)
    endpoints, parts, steps = plan.stack(settings)
    supervisor = Supervisor(layout, endpoints, parts, steps)
    heard_of: set[int] = set()

    def heard(number: int, _: Any) -> None:
        heard_of.add(number)
        supervisor.stopping = True

    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, heard)
    threading.Thread(target=heed, args=(supervisor, guard), daemon=True).start()
    code = 0
    try:
        supervisor.start()
        if not supervisor.stopping:
            write_json(layout.endpoints, endpoints.document())
            supervisor.say("up")
            supervisor.watch()
    except StartError as error:
        supervisor.say(f"failed: {error}")
        code = 1
    supervisor.stop(grace=signal.SIGTERM in heard_of)
    supervisor.say("down")
    return code


def heed(supervisor: Supervisor, guard: int) -> None:
    """Stop when the guard dies, or when `up` ends without having said "keep"."""
    kept = False
    while not supervisor.stopping:
        if os.getppid() != guard:
            break
        if kept:
            time.sleep(WATCH_SECONDS)
            continue
        readable, _, _ = select.select([sys.stdin], [], [], WATCH_SECONDS)
        if readable:
            kept = os.read(0, 64).startswith(b"keep")
            if not kept:
                break
    supervisor.stopping = True


def guard_and_supervise(state: Path) -> int:
    """Fork the supervisor, outlive it, and leave nothing of it behind."""
    own = os.getpid()
    adopt_orphans()
    child = os.fork()
    if child == 0:
        os._exit(run_to_the_end(state, own))
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda number, _: os.kill(child, number))
    status = reap_until(child)
    kill_tree(psutil.Process(own).children(recursive=True))
    kill_marked(state)
    return os.waitstatus_to_exitcode(status)


def reap_until(child: int) -> int:
    """Bury the orphans that come here, until the child itself ends; returns its status."""
    while True:
        pid, status = os.wait()
        if pid == child:
            return status


def run_to_the_end(state: Path, guard: int) -> int:
    try:
        return supervise(state, guard)
    except BaseException as error:  # noqa: BLE001 - after a fork nothing may climb further
        print(f"failed: {type(error).__name__}: {error}", flush=True)
        return 1


if __name__ == "__main__":
    sys.exit(guard_and_supervise(Path(sys.argv[1])))
