"""CRIU alone on the counting program: the least that saving a process from outside can cost."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil

from local.node.criu import Criu
from tests.ticking import program, trace
from tests.ticking.trace import Tick

COUNTING_SECONDS = 3.0


def dumped_and_restored(criu: Criu, folder: Path, megabytes: int) -> tuple[list[Tick], int]:
    """The trace of a process that was dumped and at once restored, and the bytes of its image."""
    path, images = folder / "bare", folder / "images"
    images.mkdir()
    # PID 1 of a namespace of its own, as in a pod: it comes back with the same PID on any node.
    command = ["unshare", "--pid", "--fork", "setsid", sys.executable, "-I", program.__file__]
    arguments = [str(path), str(10**9), "--megabytes", str(megabytes)]
    quiet = subprocess.DEVNULL
    parent = subprocess.Popen([*command, *arguments], stdin=quiet, stdout=quiet, stderr=quiet)
    _await(path, 0)
    (child,) = psutil.Process(parent.pid).children()
    subprocess.run(
        [
            str(criu.program),
            *("dump", "--tree", str(child.pid), "--images-dir", str(images)),
            *("--log-file", "dump.log", "-v2"),
        ],
        check=True,
    )
    parent.wait()
    known = len(trace.read(path))
    subprocess.run(criu.restore_command(images, folder / "pid", Path("/"), {}), check=True)
    restored = int((folder / "pid").read_text())
    try:
        _await(path, known)
    finally:
        os.kill(restored, signal.SIGKILL)
    return trace.read(path), sum(file.stat().st_size for file in images.iterdir())


def _await(path: Path, known: int) -> None:
    """Wait until it has counted for a while beyond the known steps."""
    while len(trace.read(path)) < known + COUNTING_SECONDS / program.PERIOD_SECONDS:
        time.sleep(0.1)
