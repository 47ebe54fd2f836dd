"""Brings the embedded default up and down.

    python -m local.stack up|down|status|restart PART|kubeconfig

`up` starts, on 127.0.0.1 only: MiniStack (AWS), moto with a market (EC2), etcd, the API server
with a token webhook for EKS tokens, controllers, scheduler and Karpenter; it writes
`.local/endpoints.json` and `.local/kubeconfig`, applies local/manifests, and returns. The parts
go on under a supervisor until `down`. If `up` is interrupted or killed, they stop.
"""

import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import psutil

from local.endpoints import Endpoints
from local.files import write_json
from local.parts import Health
from local.settings import CLONE, Layout, Settings, default_cache, default_state
from local.strays import kill_marked
from local.toolchain import PreparationFailed, environment, tool_folders

STOP_SECONDS = 30.0


class StackFailed(Exception):
    """The stack is not up; the message says why and what to look at."""


def tell(text: str) -> None:
    """Progress is for people: standard error."""
    print(text, file=sys.stderr, flush=True)


def is_running(layout: Layout) -> bool:
    """Whether a supervisor holds the lock."""
    if not layout.lock.exists():
        return False
    with layout.lock.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
    return False


def up(settings: Settings, *, fresh: bool = False) -> Endpoints:
    """Start the stack, or find it running. Raises StackFailed and PreparationFailed."""
    layout = Layout(settings.state)
    layout.state.mkdir(parents=True, exist_ok=True)
    environment(settings.cache, "ministack", tell)
    tool_folders(settings.cache, tell)
    lock = os.open(layout.lock, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(lock)
        return running(layout)
    try:
        kill_marked(layout.state)
        clear(layout, everything=fresh or not layout.kept.exists())
        layout.kept.unlink(missing_ok=True)
        for folder in (layout.logs, layout.held, layout.data):
            folder.mkdir(parents=True, exist_ok=True)
        write_json(layout.settings, settings.document())
        start(layout, lock)
    finally:
        os.close(lock)
    return Endpoints.read(layout.endpoints)


def running(layout: Layout) -> Endpoints:
    """The endpoints of a stack that runs already. Raises StackFailed if it is not up yet."""
    if not layout.endpoints.exists():
        raise StackFailed(f"another `up` is starting the stack in {layout.state}; wait for it")
    tell("the stack is up already")
    return Endpoints.read(layout.endpoints)


def clear(layout: Layout, *, everything: bool) -> None:
    """Forget the last run; its data, too, unless it was stopped cleanly to be kept."""
    for path in (layout.endpoints, layout.parts):
        path.unlink(missing_ok=True)
    for folder in (layout.held, layout.logs):
        shutil.rmtree(folder, ignore_errors=True)
    if everything:
        for folder in (layout.data, layout.certs):
            shutil.rmtree(folder, ignore_errors=True)
        for path in (layout.ports, layout.kubeconfig):
            path.unlink(missing_ok=True)


def start(layout: Layout, lock: int) -> None:
    """Start the supervisor, pass its words on, and let it go on alone once all is up.

    An exception here, KeyboardInterrupt included, closes the pipe, on which it stops everything.
    """
    command = [sys.executable, "-m", "local.supervisor", str(layout.state)]
    with subprocess.Popen(
        command,
        cwd=CLONE,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=layout.log("supervisor").open("ab"),
        pass_fds=(lock,),
        start_new_session=True,
        text=True,
    ) as supervisor:
        assert supervisor.stdin  # noqa: S101 - it is a pipe
        assert supervisor.stdout  # noqa: S101 - so is this
        failure = f"the supervisor died; see {layout.log('supervisor')}"
        for line in supervisor.stdout:
            _, _, event = line.rstrip().partition(" s  ")
            tell(line.rstrip())
            if event == "up":
                supervisor.stdin.write("keep\n")
                supervisor.stdin.flush()
                # Popen's exit would wait for it, but now it is to go on.
                supervisor.returncode = 0
                return
            if event.startswith("failed: "):
                failure = event.removeprefix("failed: ")
    raise StackFailed(failure)


def down(state: Path, *, keep: bool = False) -> bool:
    """Stop the stack; False if none was running. Leaves no process, whatever it finds.

    With `keep`, the parts save what they remember, and the next `up` resumes it.
    """
    layout = Layout(state)
    was_running = is_running(layout)
    if was_running:
        for process in supervisors(layout):
            process.send_signal(signal.SIGTERM)
        deadline = time.monotonic() + STOP_SECONDS
        while is_running(layout) and time.monotonic() < deadline:
            time.sleep(0.05)
    clean = was_running and not is_running(layout)
    kill_marked(state)
    layout.endpoints.unlink(missing_ok=True)
    if keep and clean:
        layout.kept.touch()
    elif not keep:
        clear(layout, everything=True)
    return was_running


def supervisors(layout: Layout) -> list[psutil.Process]:
    """The guard of the stack with this state folder."""
    wanted = ["-m", "local.supervisor", str(layout.state)]
    found = []
    for process in psutil.process_iter():
        try:
            if process.cmdline()[1:] == wanted:
                found.append(process)
        except psutil.Error:
            continue
    return found


@dataclass(frozen=True)
class PartStatus:
    name: str
    state: str  # ready, starting, unhealthy, stopped, failed
    pid: int | None
    port: int | None
    restarts: int


def status(state: Path) -> list[PartStatus]:
    """What every part is doing now: the process is looked for, the health asked for."""
    layout = Layout(state)
    if not layout.parts.exists() or not is_running(layout):
        return []
    return [observed(entry) for entry in json.loads(layout.parts.read_text())]


def observed(entry: dict[str, Any]) -> PartStatus:
    state = entry["state"]
    if state == "ready" and not psutil.pid_exists(entry["pid"] or -1):
        state = "stopped"
    elif state == "ready" and entry["health"]:
        authority = entry["authority"]
        health = Health(entry["health"], Path(authority) if authority else None)
        state = "ready" if health.is_good() else "unhealthy"
    return PartStatus(entry["name"], state, entry["pid"], entry["port"], entry["restarts"])


def main() -> None:
    command, *arguments = sys.argv[1:] or ["help"]
    state = default_state()
    try:
        match command:
            case "up":
                up(Settings(state, default_cache()), fresh="--fresh" in arguments)
            case "down":
                down(state, keep="--keep" in arguments)
            case "status":
                for part in status(state):
                    print(part.name, part.state, part.pid, part.port)
            case _:
                sys.exit(__doc__)
    except (StackFailed, PreparationFailed) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
