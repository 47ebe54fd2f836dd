"""One node as a process: started in namespaces of its own, ended by one SIGKILL."""

import contextlib
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil

from local.kubelet_node import cgroups, configuration
from local.kubelet_node.configuration import Plan

HERE = Path(__file__).resolve().parent
DIE_WITH_PARENT = HERE.parent / "die_with_parent.py"
END_SECONDS = 20.0


class Node:
    """The folder, the process and the cgroup of one node."""

    def __init__(self, plan: Plan, folder: Path) -> None:
        self.plan = plan
        self.folder = folder
        self.process: subprocess.Popen[bytes] | None = None

    @property
    def name(self) -> str:
        return self.plan.instance.node_name

    @property
    def runs(self) -> bool:
        return self.process is not None and self.process.poll() is None

    def start(self, base: Path, kubelet: Path) -> None:
        """Start it, again if need be: a folder that is there is the disk of a machine that reboots.

        To be called by the thread that lives longest: the node dies with it.
        """
        for name in ("work", "root", "containerd", "kubelet", "log"):
            (self.folder / name).mkdir(parents=True, exist_ok=True, mode=0o700)
        configuration.write(self.plan, self.folder / "upper")
        cgroups.make(self.plan.cgroup)
        self.process = self._spawn(
            *(shutil.which("unshare") or "", "--mount", "--pid", "--fork", "--kill-child"),
            *(str(HERE / "node_init.sh"), str(base), str(self.folder), str(kubelet)),
            *(self.name, self.plan.instance.provider_id),
        )

    def _spawn(self, *command: str) -> subprocess.Popen[bytes]:
        """A process that dies with this one."""
        with (self.folder / "log/init.log").open("ab") as output:
            return subprocess.Popen(
                [sys.executable, "-I", "-S", str(DIE_WITH_PARENT), str(os.getpid()), *command],
                stdout=output,
                stderr=subprocess.STDOUT,
                stdin=subprocess.DEVNULL,
                start_new_session=True,
            )

    def kill(self) -> None:
        """As if its power were cut: every process of it is dead when this returns."""
        if self.process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            # Process 1 of the node; `unshare`, which waits for it, ends when all the others have.
            for child in psutil.Process(self.process.pid).children():
                child.send_signal(signal.SIGKILL)
        try:
            self.process.wait(END_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def remove(self) -> None:
        """Its disk and its cgroup."""
        cgroups.remove(self.plan.cgroup)
        shutil.rmtree(self.folder, ignore_errors=True)
