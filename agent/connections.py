"""Open TCP connections of a run, as the kernel lists them below /proc."""

import contextlib
from collections.abc import Iterable
from pathlib import Path

PROC = Path("/proc")
LISTEN, CLOSED = "0A", "07"
TABLES = ("net/tcp", "net/tcp6")


def count_connections(processes: Iterable[int], proc: Path = PROC) -> int:
    """How many connected TCP sockets these processes hold."""
    connected: set[str] = set()
    for pid in processes:
        folder = proc / str(pid)
        sockets = set(_open_files(folder))
        connected |= {
            inode for inode in _connected_inodes(folder) if f"socket:[{inode}]" in sockets
        }
    return len(connected)


def _open_files(process: Path) -> Iterable[str]:
    """What the file descriptors of a process stand for, as far as they are still open."""
    with contextlib.suppress(OSError):  # it has ended
        for file in (process / "fd").iterdir():
            with contextlib.suppress(OSError):
                yield str(file.readlink())


def _connected_inodes(process: Path) -> Iterable[str]:
    """Of the network namespace of the process, which may be that of others too."""
    for table in TABLES:
        with contextlib.suppress(OSError):
            for line in (process / table).read_text().splitlines()[1:]:
                fields = line.split()
                state, inode = fields[3], fields[9]
                if state not in (LISTEN, CLOSED):
                    yield inode
