"""The cgroups of the nodes of one stack: one folder in each hierarchy, named after the stack."""

import contextlib
import hashlib
import os
import time
from collections.abc import Iterator
from pathlib import Path

PATIENCE_SECONDS = 5.0
MOUNTS = Path("/proc/self/mounts")


def name_of(state: Path) -> str:
    """The cgroup of the stack with this state folder, below the root of every hierarchy."""
    return f"sluice-{hashlib.sha256(str(state).encode()).hexdigest()[:12]}"


def folders(name: str) -> Iterator[Path]:
    """The cgroup in each hierarchy: version 1 has one per controller."""
    lines = MOUNTS.read_text().splitlines() if MOUNTS.exists() else []
    for line in lines:
        _, mounted_at, kind, *_ = line.split()
        if kind in {"cgroup", "cgroup2"}:
            yield Path(mounted_at, name)


def make(name: str) -> None:
    for folder in folders(name):
        folder.mkdir(parents=True, exist_ok=True)


def remove(name: str) -> bool:
    """Remove the cgroup with all below it, once its processes are dead; False if some are not."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while any(map(_occupied, folders(name))):
        if time.monotonic() > deadline:
            return False
        time.sleep(0.05)
    return True


def _occupied(folder: Path) -> bool:
    """Whether something is left of it, after trying to remove it."""
    for path, _, _ in os.walk(folder, topdown=False):
        with contextlib.suppress(OSError):  # it still holds a dying process
            Path(path).rmdir()
    return folder.exists()
