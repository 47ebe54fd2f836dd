"""How this machine isolates containers: their layers, what they do not see, what they share.

With root on Linux every container of a pod has mount, PID, IPC and UTS namespaces and a root of
its own: an overlay with the machine's file system below, read only, and the container's layer
above (see container_root.py). Home folders, temporary folders and the state of the stack are
hidden. The network is the machine's.
"""

import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.node import init
from local.settings import CLONE

HIDDEN = tuple(map(Path, ("/tmp", "/var/tmp", "/run", "/root", "/home")))  # noqa: S108
"""Folders of the machine of which a pod gets empty ones of its own, such as /tmp."""
WORLD_WRITABLE = 0o1777
LOGS = Path("/run/sluice/logs")
HOME = Path("/root")
INIT = Path("/usr/local/libexec/sluice-init.py")
PROBE_SECONDS = 20
MOUNTS = Path("/proc/self/mountinfo")
# File systems with files of the machine. Kernel interfaces and memory are not shared.
SHARED_KINDS = ("ext", "xfs", "btrfs", "zfs", "overlay", "nfs", "9p", "virtiofs", "fuse")
PYTHONS = ("python", "python3")


@dataclass(frozen=True)
class Bind:
    """A file or folder of the machine that a container sees at `target`."""

    source: Path
    target: Path
    read_only: bool

    def document(self) -> dict[str, Any]:
        return {
            "source": str(self.source),
            "target": str(self.target),
            "read_only": self.read_only,
        }


@dataclass(frozen=True)
class Layers:
    """The folder of one container: `upper` holds all that it writes to its root."""

    folder: Path

    @property
    def upper(self) -> Path:
        return self.folder / "upper"

    def document(self) -> dict[str, str]:
        return {name: str(self.folder / name) for name in ("upper", "work", "merged")}

    def make(self) -> None:
        """Keeps the upper layer if there is one; the others are made afresh."""
        self.upper.mkdir(parents=True, exist_ok=True)
        for name in ("work", "merged"):
            shutil.rmtree(self.folder / name, ignore_errors=True)
            (self.folder / name).mkdir()


@dataclass(frozen=True)
class Container:
    """What the keeper needs to know of one container: its name in the network, layers, mounts."""

    hostname: str
    layers: Layers
    binds: tuple[Bind, ...]  # those below others come after them

    def document(self) -> dict[str, Any]:
        return {
            "hostname": self.hostname,
            "root": self.layers.document(),
            "binds": [bind.document() for bind in self.binds],
        }


@dataclass(frozen=True)
class Isolation:
    """What containers see of this machine, or the reason why it cannot isolate them."""

    reason: str  # empty if it can
    hidden: tuple[Path, ...] = ()
    shared: tuple[Bind, ...] = ()

    @property
    def available(self) -> bool:
        return not self.reason

    def start_afresh(self, layers: Layers) -> None:
        """An upper layer with empty folders where the machine's are hidden, and an interpreter."""
        shutil.rmtree(layers.folder, ignore_errors=True)
        layers.make()
        for path in self.hidden:
            hide(layers.upper, path)
        for name in PYTHONS:
            script = shadow(layers.upper, Path("/usr/local/bin")) / name
            script.write_text(f'#!/bin/sh\nexec "{sys.executable}" "$@"\n')
            script.chmod(0o755)
        shutil.copy(init.__file__, shadow(layers.upper, INIT.parent) / INIT.name)


def shadow(upper: Path, path: Path) -> Path:
    """The folder `path` in an upper layer, with the attributes that it has on the machine."""
    for folder in (*reversed(path.parents), path):
        copy = upper / folder.relative_to("/")
        if not copy.exists():
            copy.mkdir()
            if folder.exists():
                shutil.copystat(folder, copy)
                known = folder.stat()
                os.chown(copy, known.st_uid, known.st_gid)
    return upper / path.relative_to("/")


def hide(upper: Path, path: Path) -> None:
    """Containers find an empty folder there, and none of the machine's files."""
    os.setxattr(shadow(upper, path), "trusted.overlay.opaque", b"y")


def mounted_file_systems(text: str, hidden: Sequence[Path]) -> list[Path]:
    """Mount points below / with files of the machine, as /proc/self/mountinfo lists them."""
    found = []
    for line in text.splitlines():
        fields = line.split()
        kind = fields[fields.index("-") + 1]
        point = Path(fields[4].replace("\\040", " "))
        if point != Path("/") and kind.startswith(SHARED_KINDS) and not below(point, hidden):
            found.append(point)
    return sorted(set(found))


def below(path: Path, folders: Iterable[Path]) -> bool:
    return any(path.is_relative_to(folder) for folder in folders)


def plan(state: Path, private: Sequence[Path], mounts: str) -> Isolation:
    """What to hide and to share; `private` folders are hidden beside the state of the node."""
    folders = {folder.resolve() for folder in (*HIDDEN, state, *private) if folder.is_dir()}
    hidden = tuple(sorted(one for one in folders if not below(one, folders - {one})))
    wanted = [Path(sys.prefix).resolve(), Path(sys.base_prefix).resolve()]
    shared = [*mounted_file_systems(mounts, hidden), *(one for one in wanted if below(one, hidden))]
    binds = (Bind(path, path, read_only=True) for path in dict.fromkeys(shared))
    return Isolation("", hidden, tuple(binds))


def probe(state: Path, private: Sequence[Path] = ()) -> Isolation:
    """Tries it: a container is started that ends at once. `state` is where layers will be."""
    if sys.platform != "linux":
        return Isolation(f"containers need Linux, and this is {sys.platform}")
    if os.geteuid() != 0:
        return Isolation("containers need root")
    isolation = plan(state, private, MOUNTS.read_text())
    state.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=state) as folder:
        layers = Layers(Path(folder) / "container")
        try:
            isolation.start_afresh(layers)
            failure = _attempt(isolation, layers)
        except OSError as error:
            failure = str(error)
    return Isolation(f"containers cannot be isolated here: {failure}") if failure else isolation


def _attempt(isolation: Isolation, layers: Layers) -> str:
    """In a program of its own, because the namespaces are those of the process that enters."""
    code = (
        "import os, sys\n"
        "sys.path.insert(0, sys.argv[1])\n"
        "from local.node import container_root\n"
        "import json\n"
        "pid = container_root.clone()\n"
        "if pid == 0:\n"
        "    try:\n"
        "        container_root.enter(json.loads(sys.argv[2]))\n"
        "        os._exit(0)\n"
        "    except BaseException as error:\n"
        "        os.write(2, str(error).encode())\n"
        "        os._exit(1)\n"
        "os._exit(os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]))\n"
    )
    spec = Container("probe", layers, isolation.shared).document()
    ended = subprocess.run(
        [sys.executable, "-I", "-S", "-c", code, str(CLONE), json.dumps(spec)],
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
        check=False,
    )
    return (ended.stderr.strip() or f"exit code {ended.returncode}") if ended.returncode else ""
