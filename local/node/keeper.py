"""Starts the pods' processes for the node program, and ends every one of them when it dies.

A program of its own, on the standard library only and with one thread: it forks cheaply, and
because it is the subreaper of all that it starts, nothing can escape it by becoming a daemon.
Commands come as JSON lines on stdin, reports go out as JSON lines on stdout:

    {"op": "start", "id": ID, "argv": [...], "env": {...}, "cwd": DIR, "log": FILE,
     "root": POD_DIR, "container": {...} or null, "join": PID or null}
                                                    -> {"started": ID, "pid": N} or {"failed": ID}
    {"op": "restore", "id": ID, "argv": [...], "pidfile": FILE, "log": FILE, "root": POD_DIR,
     "layers": {...}}
    {"op": "signal", "id": ID, "signal": N}         -> nothing
                                                    -> {"exited": ID, "code": N}

The code is the exit status, or 128 + n after signal n. End of file on stdin ends everything.
A `container` is described in containers.py; without one a process is the machine's own. With
`join` it runs beside the processes of a container, whose first process that is. `cwd` and `log`
are paths in the container.
"""

import contextlib
import ctypes
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any, NoReturn

from local.node import container_root
from local.node.init import READY

PR_SET_PDEATHSIG = 1
PR_SET_CHILD_SUBREAPER = 36
# A sweep reads all of /proc: in a burst, ended containers are reported in batches.
SWEEP_SECONDS = 0.1
# The environment variable by which a daemonised process is known to belong to a pod.
ROOT_VARIABLE = b"SLUICE_POD_ROOT="

libc = ctypes.CDLL(None, use_errno=True)


def exit_code(status: int) -> int:
    code = os.waitstatus_to_exitcode(status)
    return code if code >= 0 else 128 - code


def sessions() -> dict[int, tuple[int, int]]:
    """Parent and session of every process of the machine, by process id."""
    found = {}
    for name in os.listdir("/proc"):  # noqa: PTH208 - names only, and often
        if not name.isdigit():
            continue
        with contextlib.suppress(OSError):
            fields = Path("/proc", name, "stat").read_bytes().rpartition(b")")[2].split()
            found[int(name)] = (int(fields[1]), int(fields[3]))
    return found


def pod_root(pid: int) -> str | None:
    """The pod that a process says it belongs to in its environment."""
    with contextlib.suppress(OSError):
        for variable in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if variable.startswith(ROOT_VARIABLE):
                return os.fsdecode(variable[len(ROOT_VARIABLE) :])
    return None


class Keeper:
    def __init__(self) -> None:
        self.leaders: dict[int, str] = {}  # first process of a container -> its id
        self.roots: dict[str, str] = {}  # id -> pod's folder
        self.ended: set[int] = set()  # sessions whose leader is gone
        self.restoring: dict[int, dict[str, Any]] = {}  # CRIU's process -> its command
        self.strays: dict[int, int] = {}  # exit codes of restored leaders not yet announced
        self.exits: list[tuple[str, int]] = []  # reported when nothing of them is left
        self.swept = 0.0

    def report(self, **message: object) -> None:
        sys.stdout.write(json.dumps(message) + "\n")
        sys.stdout.flush()

    def obey(self, command: dict[str, Any]) -> None:
        if command["op"] == "start":
            self.start(command)
        elif command["op"] == "restore":
            self.roots[command["id"]] = command["root"]
            pid = os.fork()
            if pid == 0:
                become({**command, "cwd": "/", "env": dict(os.environ)}, ready=None)
            self.restoring[pid] = command
        elif command["op"] == "signal":
            for pid, identity in self.leaders.items():
                if identity == command["id"]:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, command["signal"])

    def start(self, command: dict[str, Any]) -> None:
        parent, child = os.pipe()
        try:
            pid = container_root.clone() if command["container"] else os.fork()
        except OSError as error:
            os.close(parent)
            os.close(child)
            self.report(failed=command["id"], error=str(error))
            return
        if pid == 0:
            become(command, ready=child)
        os.close(child)
        with os.fdopen(parent) as pipe:  # closed by a successful exec
            complaint = pipe.read()
        self.ended.discard(pid)
        if complaint:
            os.waitpid(pid, 0)
            self.report(failed=command["id"], error=complaint)
        else:
            self.lead(pid, command)

    def lead(self, pid: int, command: dict[str, Any]) -> None:
        self.leaders[pid] = command["id"]
        self.roots[command["id"]] = command["root"]
        self.report(started=command["id"], pid=pid)

    def reap(self) -> None:
        """Collects every child that ended; with a container's leader goes all of its group."""
        with contextlib.suppress(ChildProcessError):
            while info := os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT):
                pid = info.si_pid
                if pid in self.leaders:  # still a zombie, so its group id cannot be another's
                    with contextlib.suppress(ProcessLookupError, PermissionError):
                        os.killpg(pid, signal.SIGKILL)
                code = exit_code(os.waitpid(pid, 0)[1])
                if command := self.restoring.pop(pid, None):
                    self.restored(command, code)
                elif pid in self.leaders:
                    self.finish(pid, code)
                elif self.restoring:
                    self.strays[pid] = code

    def finish(self, pid: int, code: int) -> None:
        identity = self.leaders.pop(pid)
        del self.roots[identity]
        self.ended.add(pid)
        self.exits.append((identity, code))

    def restored(self, command: dict[str, Any], code: int) -> None:
        if code:
            del self.roots[command["id"]]
            self.report(failed=command["id"], error=f"criu restore ended with {code}")
            return
        pid = int(Path(command["pidfile"]).read_text())
        self.lead(pid, command)
        if pid in self.strays:
            self.finish(pid, self.strays.pop(pid))

    def sweep(self) -> None:
        """Kills what outlived its container, by its session or else by its pod; then reports."""
        mine, living, remaining = os.getpid(), set(self.roots.values()), set()
        for pid, (parent, session) in sessions().items():
            if pid in self.leaders or pid in self.restoring or session in self.leaders:
                continue
            if session in self.ended:
                remaining.add(session)
            elif parent != mine or (root := pod_root(pid)) is None or root in living:
                continue
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        self.ended = remaining
        self.swept = time.monotonic()
        for identity, code in self.exits:
            self.report(exited=identity, code=code)
        self.exits.clear()

    def end_everything(self) -> None:
        """Kills all descendants; those of the dead become children here until none is left."""
        while True:
            mine = os.getpid()
            for pid, (parent, _) in sessions().items():
                if parent == mine:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(pid, signal.SIGKILL)
            try:
                os.waitpid(-1, 0)
                while os.waitpid(-1, os.WNOHANG) != (0, 0):
                    pass
            except ChildProcessError:
                return

    def run(self) -> None:
        wake, wakened = os.pipe()
        os.set_blocking(wake, False)
        os.set_blocking(wakened, False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        signal.set_wakeup_fd(wakened, warn_on_full_buffer=False)
        unread = b""
        while True:
            due = self.swept + SWEEP_SECONDS - time.monotonic()
            rest = max(0, due) if self.exits or self.ended else None
            readable, _, _ = select.select([0, wake], [], [], rest)
            if wake in readable:
                os.read(wake, 4096)
                self.reap()
            if 0 in readable:
                received = os.read(0, 1 << 20)
                if not received:
                    return
                *lines, unread = (unread + received).split(b"\n")
                for line in lines:
                    self.obey(json.loads(line))
            if (self.exits or self.ended) and time.monotonic() >= self.swept + SWEEP_SECONDS:
                self.sweep()


def become(command: dict[str, Any], *, ready: int | None) -> NoReturn:
    """Turns the forked child into the program; an error is written to `ready`."""
    try:
        os.setsid()
        if ready is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        os.umask(0o022)
        if container := command.get("container"):
            container_root.enter(container)
            os.makedirs(command["cwd"], exist_ok=True)  # noqa: PTH103
        elif layers := command.get("layers"):
            container_root.show_root(layers)
        for number in signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP}:
            if signal.getsignal(number) not in (signal.SIG_DFL, None):
                signal.signal(number, signal.SIG_DFL)  # what is ignored stays so through exec
        if joined := command.get("join"):
            container_root.join(joined)
            follow(os.fork())
        os.chdir(command["cwd"])
        log = os.open(command["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
        os.dup2(log, 1)
        os.dup2(log, 2)
        if ready is not None:
            ready = os.dup2(ready, READY, inheritable=bool(container))
        os.execvpe(  # noqa: S606 - the pod's program, not a shell
            command["argv"][0], command["argv"], command["env"]
        )
    except BaseException as error:  # noqa: BLE001 - a child must never return into the parent's loop
        os.write(2 if ready is None else ready, str(error).encode())
    os._exit(127)


def follow(child: int) -> None:
    """Ends as the child does; returns in the child."""
    if child == 0:
        libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        return
    os.closerange(3, os.sysconf("SC_OPEN_MAX"))
    os._exit(exit_code(os.waitpid(child, 0)[1]))


def main(lock_file: str) -> None:
    """The lock is free when everything has ended: so a successor is told."""
    with Path(lock_file).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        lock.write(str(os.getpid()))
        lock.flush()
        if libc.prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0):
            sys.exit("cannot become the subreaper of the pods' processes")
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, signal.SIG_IGN)  # it ends with the node program, not before
        keeper = Keeper()
        try:
            keeper.run()
        finally:
            keeper.end_everything()
