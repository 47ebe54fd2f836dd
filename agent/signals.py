"""Signals to the processes of a run, found by the environment that Sluice gave them.

The agent has to see the node's processes: `hostPID` in its DaemonSet.
"""

import contextlib
import os
import signal
from pathlib import Path


class UnheardError(Exception):
    """Nobody was told, with the reason in one line."""


def tell(workload: str, generation: str, name: str, proc: Path = Path("/proc")) -> int:
    """Send a signal to the first process of each container of a run; how many there were.

    Raises UnheardError if the signal is unknown or nobody is there.
    """
    try:
        number = signal.Signals[name]
    except KeyError as error:
        raise UnheardError(f"this machine knows no signal {name}") from error
    told = 0
    for pid in firsts(workload, generation, proc):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)
            told += 1
    if not told:
        raise UnheardError(f"no process of {workload} runs on this node")
    return told


def firsts(workload: str, generation: str | None, proc: Path) -> list[int]:
    """Processes of a run (of any, without a generation) whose parents are none of it."""
    wanted = {f"SLUICE_WORKLOAD_ID={workload}".encode()}
    if generation is not None:
        wanted.add(f"SLUICE_GENERATION={generation}".encode())
    found: dict[int, int] = {}
    for pid, parent in parents(proc).items():
        with contextlib.suppress(OSError):  # it ended meanwhile
            if wanted <= set((proc / str(pid) / "environ").read_bytes().split(b"\0")):
                found[pid] = parent
    return sorted(pid for pid, parent in found.items() if parent not in found)


def parents(proc: Path) -> dict[int, int]:
    """The parent of every process of the machine."""
    found: dict[int, int] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit():
            with contextlib.suppress(OSError):  # it ended meanwhile
                # The name in parentheses may hold blanks, so count from its end.
                fields = (folder / "stat").read_text().rpartition(")")[2].split()
                found[int(folder.name)] = int(fields[1])
    return found
