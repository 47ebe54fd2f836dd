"""Stops the processes of a dumped run, so that no work is done that is done again elsewhere.

The kubelet leaves a container running after its dump. While CRIU reads processes it traces them;
in the moment in which it lets them go they are stopped, before the archive is even written. They
go on if the dump cannot be kept, and are killed once the pod is told to go because it was kept.
Needs to see and to signal the node's processes, as `agent.signals` does.
"""

import contextlib
import os
import select
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

from agent.orders import Order
from agent.signals import firsts, parents

POLL_SECONDS = 0.005
SAVED_GRACE_SECONDS = 1
"""With so little grace at most Sluice deletes the pods that are saved."""
SECOND_THOUGHTS_SECONDS = 2.0
"""So soon after the deletion of its Job, Sluice shortens the grace of a pod that is saved."""
END_SECONDS = 2.0
"""How long the end of killed processes is waited for; the kernel needs some milliseconds."""
PROC = Path("/proc")


class Hold:
    """The run below one process of this node, from the order on; process 0 stands for nobody.

    In epoch ms: `traced_at`, when CRIU was first seen at work, and `held_at`, when the processes
    worked last; 0 if never, or while they work. Processes are signalled by file descriptors, so
    that nobody else is hit who has got the number of one that was killed. With `dumped` it takes
    over those that an agent which died has held since their dump.
    """

    def __init__(self, first: int, proc: Path = PROC, *, dumped: bool = False) -> None:
        self._first, self._proc = first, proc
        self._lock = threading.Lock()
        self._stopped: dict[int, int] = {}  # pid → file descriptor
        self._settled = threading.Event()  # stopped, or never to be any more
        self._timers: list[threading.Timer] = []
        self.traced_at = self.held_at = self._traced_until = 0
        if first and dumped:
            self._take_over()
        elif first:
            self._wake()
            threading.Thread(target=self._await_dump, daemon=True).start()

    def stop(self) -> None:
        """The dump is there: nothing runs on, if it has not been stopped already."""
        with self._lock:
            if self._settled.is_set() or not self._first:
                return
            self._settled.set()
            now, tried = int(time.time() * 1000), set[int]()
            while fresh := [pid for pid in self._tree() if pid not in tried]:
                for pid in fresh:  # until a look finds no child that was born meanwhile
                    tried.add(pid)
                    with contextlib.suppress(OSError):
                        self._stopped[pid] = os.pidfd_open(pid)
                        signal.pidfd_send_signal(self._stopped[pid], signal.SIGSTOP)
            if self._first in self._stopped:  # since the image they have worked this long
                self.held_at = self.traced_at + now - self._traced_until

    def release(self) -> None:
        """Everything goes on, as if nothing had been."""
        self._end(signal.SIGCONT)

    def kill(self) -> bool:
        """Whether it is proven that nothing of the run executes any more.

        The end of the first process of a container is that of all of its PID namespace; the others
        are waited for as well, since pods may share one.
        """
        with self._lock:
            watched = [os.dup(descriptor) for descriptor in self._stopped.values()]
            whole = self._first in self._stopped
        self._end(signal.SIGKILL)
        try:
            return whole and _have_ended(watched) and not self._found_alive()
        finally:
            for descriptor in watched:
                os.close(descriptor)

    def _found_alive(self) -> bool:
        """Whether the tree has a process that was not killed, such as one born meanwhile."""
        return any(
            status_of(pid, self._proc).get("State", "Z")[:1] not in "ZX" for pid in self._tree()
        )

    def release_in(self, seconds: float) -> None:
        timer = threading.Timer(max(0.0, seconds), self.release)
        timer.daemon = True
        self._timers.append(timer)
        timer.start()

    def _end(self, number: signal.Signals) -> None:
        with self._lock:
            self._settled.set()
            for timer in self._timers:
                timer.cancel()
            for descriptor in self._stopped.values():
                with contextlib.suppress(OSError):
                    signal.pidfd_send_signal(descriptor, number)
                os.close(descriptor)
            self._stopped.clear()
            self.held_at = 0

    def _wake(self) -> None:
        """What an agent that died has left stopped: its dump would be restored as it is."""
        for pid in self._found_stopped():
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGCONT)

    def _take_over(self) -> None:
        self._settled.set()
        for pid in self._found_stopped():
            with contextlib.suppress(OSError):
                self._stopped[pid] = os.pidfd_open(pid)

    def _found_stopped(self) -> list[int]:
        return [
            pid
            for pid in self._tree()
            if status_of(pid, self._proc).get("State", "").startswith("T")
        ]

    def _await_dump(self) -> None:
        """CRIU traces the first process of a tree from when it stops it until it lets it go."""
        while not self._settled.wait(POLL_SECONDS):
            if status_of(self._first, self._proc).get("TracerPid", "0") != "0":
                self._traced_until = int(time.time() * 1000)
                self.traced_at = self.traced_at or self._traced_until
            elif self.traced_at:
                self.stop()

    def _tree(self) -> Iterator[int]:
        return list_tree(self._first, self._proc)


@dataclass(frozen=True)
class HeldRuns:
    """The runs that are held on the agent's nodes, by the UID of their pods."""

    known: dict[str, Hold] = field(default_factory=dict)

    def begin(self, order: Order) -> Hold:
        """Nobody is held beyond the end of the machine, whatever becomes of Sluice meanwhile."""
        if (before := self.known.get(order.uid)) is not None:
            before.release()
        return self._keep(order, Hold(first_of(order)))

    def resume(self, order: Order) -> None:
        """Hold on to what a former agent has held for this order, until it is told otherwise."""
        if order.uid not in self.known:
            self._keep(order, Hold(first_of(order), dumped=True))

    def _keep(self, order: Order, hold: Hold) -> Hold:
        self.known[order.uid] = hold
        if order.deadline:
            hold.release_in(order.deadline / 1000 - time.time())
        return hold

    def going(self, uid: str, grace_seconds: int, order: Order | None) -> bool:
        """The pod was told to go; whether it was killed here, which is proof of its end.

        A pod that is not saved, or was given up, hears its SIGTERM.

        `order`: what it bears. A kubelet that has begun to wait for the end of a pod waits for as
        long as it was told first, so who is saved and works on is ended here too.
        """
        hold = self.known.get(uid)
        if grace_seconds > SAVED_GRACE_SECONDS:
            if hold is not None:
                hold.release_in(SECOND_THOUGHTS_SECONDS)
            return False
        if hold is not None:
            return hold.kill()
        if order is not None:
            self.known[uid] = working = Hold(first_of(order, certainly=True))
            working.stop()
            working.kill()
        return False

    def recalled(self, uid: str) -> None:
        """Its order was taken back, as another member of its gang could not be saved."""
        if (hold := self.known.pop(uid, None)) is not None:
            hold.release()

    def forget(self, uid: str) -> None:
        """The pod is no more."""
        if (hold := self.known.pop(uid, None)) is not None:
            hold.kill()


def _have_ended(descriptors: list[int], seconds: float = END_SECONDS) -> bool:
    """Whether all of these processes have ended, by the end of these seconds."""
    poll, waited = select.poll(), set(descriptors)
    for descriptor in descriptors:
        poll.register(descriptor, select.POLLIN)
    deadline = time.monotonic() + seconds
    while waited and (left := deadline - time.monotonic()) > 0:
        for descriptor, _ in poll.poll(left * 1000):
            poll.unregister(descriptor)
            waited.discard(descriptor)
    return not waited


def list_tree(first: int, proc: Path = PROC) -> Iterator[int]:
    """A process and all below it, parents before their children."""
    children: dict[int, list[int]] = {}
    for pid, parent in parents(proc).items():
        children.setdefault(parent, []).append(pid)
    waiting = [first]
    while waiting:
        pid = waiting.pop(0)
        yield pid
        waiting += children.get(pid, [])


def first_of(order: Order, proc: Path = PROC, *, certainly: bool = False) -> int:
    """The first process of the pod's container; 0 if it is not the only one that it may be.

    What was restored has the generation of its dump in its environment, so only the workload
    counts; of several pods of a workload the cgroup tells, where the runtime names it after pods.
    With `certainly` it has to: the pod may have ended, and its successor run here.
    """
    found = firsts(order.workload, None, proc)
    if certainly or len(found) > 1:
        names = (order.uid, order.uid.replace("-", "_"))
        found = [pid for pid in found if any(name in cgroup_of(pid, proc) for name in names)]
    return found[0] if len(found) == 1 else 0


def untraced(order: Order, seconds: float, proc: Path = PROC) -> bool:
    """Whether nobody traces the run, by the end of these seconds.

    The dump of an agent that died goes on without it. Its end is not that of the dump that comes
    next, and CRIU cannot trace whom somebody else does.
    """
    first, deadline = first_of(order, proc), time.monotonic() + seconds
    while first and status_of(first, proc).get("TracerPid", "0") != "0":
        if time.monotonic() > deadline:
            return False
        time.sleep(POLL_SECONDS)
    return True


def cgroup_of(pid: int, proc: Path) -> str:
    with contextlib.suppress(OSError):
        return (proc / str(pid) / "cgroup").read_text()
    return ""


def status_of(pid: int, proc: Path) -> dict[str, str]:
    """The lines of /proc/PID/status; none if it has ended."""
    with contextlib.suppress(OSError):
        lines = (proc / str(pid) / "status").read_text().splitlines()
        return {name: text.strip() for name, _, text in (line.partition(":") for line in lines)}
    return {}
