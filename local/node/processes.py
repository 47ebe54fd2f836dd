"""The pods' processes for the event loop: started, signalled, awaited through the keeper."""

import asyncio
import contextlib
import fcntl
import json
import os
import signal
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.node import keeper
from local.node.containers import Container, Layers
from local.settings import CLONE

KILLED = 128 + signal.SIGKILL
KEEPER = (
    "import sys; sys.path.insert(0, sys.argv[1]); from local.node.keeper import main; "
    "main(sys.argv[2])"
)


class StartFailedError(Exception):
    """The program could not be executed; the message is the system's."""


@dataclass(frozen=True)
class Launch:
    """One container start: what to run, where, and where its output goes."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: Path
    log: Path
    root: Path
    container: Container | None = None  # then `cwd` and `log` are paths in it
    join: int | None = None  # the first process of the container to run in


class Process:
    """A started container; `exit_code` resolves to its code, 128 + n after signal n."""

    def __init__(self, processes: "Processes", identity: str, pid: int) -> None:
        self._processes, self._identity = processes, identity
        self.pid = pid
        self.exit_code: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    def signal(self, number: int) -> None:
        if not self.exit_code.done():
            self._processes.send({"op": "signal", "id": self._identity, "signal": number})


class Processes:
    """Owns the keeper program; if that is killed, all containers count as killed with it."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._count = 0
        self._starting: dict[str, asyncio.Future[Process]] = {}
        self._running: dict[str, Process] = {}
        self._closing = False
        self._open = asyncio.Event()

    async def open(self) -> None:
        """Waits until a predecessor's processes are all gone, then starts the keeper."""
        lock = self._folder / "keeper.lock"
        await asyncio.to_thread(_await_predecessor, lock)
        await asyncio.to_thread(kill_leftovers, self._folder)
        self._keeper = await asyncio.create_subprocess_exec(
            sys.executable,
            "-I",
            "-S",
            "-c",
            KEEPER,
            str(CLONE),
            str(lock),
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            start_new_session=True,  # Ctrl-C reaches the node program only
            limit=1 << 20,
        )
        self._reader = asyncio.create_task(self._read())
        self._open.set()

    async def close(self) -> None:
        """Ends every process; returns when none is left."""
        self._closing = True
        if self._keeper.stdin:
            self._keeper.stdin.close()
        await self._keeper.wait()
        await self._reader

    def send(self, command: dict[str, Any]) -> None:
        if self._keeper.stdin and not self._closing:
            self._keeper.stdin.write(json.dumps(command).encode() + b"\n")

    async def start(self, launch: Launch) -> Process:
        """Raises StartFailedError if the program cannot be executed."""
        command = {
            "op": "start",
            "argv": list(launch.argv),
            "env": dict(launch.env),
            "cwd": str(launch.cwd),
            "log": str(launch.log),
            "root": str(launch.root),
            "container": launch.container.document() if launch.container else None,
            "join": launch.join,
        }
        return await self._ask(command)

    async def restore(
        self, argv: Sequence[str], *, pidfile: Path, log: Path, root: Path, layers: Layers
    ) -> Process:
        """Runs CRIU; the tree it restores is the container. Raises StartFailedError."""
        command = {
            "op": "restore",
            "argv": list(argv),
            "pidfile": str(pidfile),
            "log": str(log),
            "root": str(root),
            "layers": layers.document(),
        }
        return await self._ask(command)

    async def _ask(self, command: dict[str, Any]) -> Process:
        await self._open.wait()
        self._count += 1
        identity = str(self._count)
        future: asyncio.Future[Process] = asyncio.get_running_loop().create_future()
        self._starting[identity] = future
        self.send({**command, "id": identity})
        return await future

    async def _read(self) -> None:
        stream = self._keeper.stdout
        while stream and (line := await stream.readline()):
            self._heed(json.loads(line))
        self._open.clear()
        await self._keeper.wait()
        for future in self._starting.values():
            future.set_exception(StartFailedError("the node's keeper program ended"))
        for process in self._running.values():
            process.exit_code.set_result(KILLED)
        self._starting.clear()
        self._running.clear()
        if not self._closing:
            await self.open()

    def _heed(self, report: dict[str, Any]) -> None:
        match report:
            case {"started": identity, "pid": pid}:
                self._running[identity] = Process(self, identity, pid)
                self._starting.pop(identity).set_result(self._running[identity])
            case {"failed": identity, "error": error}:
                self._starting.pop(identity).set_exception(StartFailedError(error))
            case {"exited": identity, "code": code}:
                self._running.pop(identity).exit_code.set_result(code)


def _await_predecessor(lock: Path) -> None:
    """A keeper that lost its node program is still killing: it holds the lock until done."""
    lock.parent.mkdir(parents=True, exist_ok=True)
    with lock.open("a+") as file:
        for _ in range(200):
            with contextlib.suppress(BlockingIOError):
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            time.sleep(0.05)
    raise SystemExit(f"another node program uses {lock.parent}: its keeper holds {lock}")


def kill_leftovers(folder: Path) -> None:
    """Kills processes that say they live below `folder`: keeper and node were both killed."""
    for pid in keeper.sessions():
        root = keeper.pod_root(pid)
        if root is not None and Path(root).is_relative_to(folder):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
