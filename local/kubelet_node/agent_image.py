"""The node agent's image for the nodes of this machine, made as agent/Dockerfile says.

That file stays the one list of what goes in: folders and requirements are those that it copies,
entry point, user and environment those that it sets. Only the layer below is another one, the
Debian that the nodes' jobs have, since there is no registry to fetch the official Python from.
"""

import hashlib
import json
import os
import re
import shlex
import shutil
import sys
import tarfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from local.errors import PreparationError
from local.kubelet_node import debian
from local.kubelet_node.registry import Images
from local.settings import CLONE
from local.toolchain import Progress, locked, run

DOCKERFILE = CLONE / "agent/Dockerfile"
NAME = "sluice/agent"
LIBRARIES = "libraries"  # below the root; the Dockerfile copies it from its first stage
# Compiled by the interpreter that will run it, which sees them where they will lie.
COMPILE = f"""mount --bind "$1" "$2/mnt"
chroot "$2" python3 -m compileall -q --invalidation-mode unchecked-hash -s /mnt -p /{LIBRARIES} /mnt
"""


@dataclass(frozen=True)
class Recipe:
    """What a Dockerfile of two stages says, the first of which fills /libraries."""

    requirements: Path
    package: Path
    config: dict[str, Any]  # of the image


def recipe(dockerfile: Path = DOCKERFILE) -> Recipe:
    """Read the Dockerfile. Raises PreparationError for what is not understood here."""
    text = re.sub(r"\\\n\s*", "", dockerfile.read_text())
    lines = [line.split(maxsplit=1) for line in text.splitlines() if line and line[0] != "#"]
    last = max(number for number, (word, _) in enumerate(lines) if word == "FROM")
    copied = [shlex.split(rest) for word, rest in lines[:last] if word == "COPY"]
    config: dict[str, Any] = {"Env": [f"PATH={debian.SEARCH_PATH}"]}
    for word, rest in lines[last + 1 :]:
        if word == "ENV":
            config["Env"] += shlex.split(rest)
        elif word == "USER":
            config["User"] = rest
        elif word == "ENTRYPOINT":
            config["Entrypoint"] = json.loads(rest)
        elif (word, rest) != ("COPY", f"--from=built /{LIBRARIES} /{LIBRARIES}"):
            raise PreparationError(f"{dockerfile}: {word} {rest} is not understood here")
    folder = dockerfile.parents[1]
    named = {target: folder / source for source, target in copied}
    try:
        requirements, package = named.pop("/agent.txt"), named.pop(f"/{LIBRARIES}/agent")
    except KeyError as missing:
        raise PreparationError(f"{dockerfile} copies nothing to {missing}") from missing
    if named:
        raise PreparationError(f"{dockerfile} copies more than is understood here: {list(named)}")
    return Recipe(requirements, package, config)


def store(images: Images, cache: Path, progress: Progress) -> str:
    """Put the image of this clone's agent into the registry; its name there, by digest.

    Raises PreparationError when the libraries cannot be had.
    """
    made = recipe()
    libraries = _libraries(made.requirements, cache, progress)
    package = images.drafts / "agent.tar"
    _pack(made.package, made.package.glob("*.py"), package, f"{LIBRARIES}/agent")
    try:
        layers = (debian.layer(cache, "python"), libraries, package)
        digest = images.add(f"{NAME}:latest", layers, made.config)
    finally:
        package.unlink()
    return f"{NAME}@{digest}"


def _libraries(requirements: Path, cache: Path, progress: Progress) -> Path:
    """The layer with the libraries, compiled; made once for these pins and this Debian."""
    base = debian.base(cache)
    digest = hashlib.sha256(requirements.read_bytes() + base.name.encode()).hexdigest()[:12]
    ready = cache / f"agent-libraries-{digest}.tar"
    if ready.exists():
        return ready
    with locked(cache / "agent-libraries.lock", progress):
        if not ready.exists():
            progress("installing the node agent's libraries for the nodes' Python")
            _install(requirements, base, ready)
    return ready


def _install(requirements: Path, base: Path, ready: Path) -> None:
    folder, partial = ready.with_suffix(".folder"), ready.with_suffix(".partial")
    shutil.rmtree(folder, ignore_errors=True)
    (python,) = base.glob("usr/bin/python3.*[0-9]")
    uv = Path(sys.executable).with_name("uv")
    options = ("--quiet", "--no-deps", "--require-hashes", "--only-binary", ":all:")
    target = ("--target", folder, "--python-version", python.name.removeprefix("python"))
    run([uv, "pip", "install", *options, *target, "--requirement", requirements], "the agent")
    run(["unshare", "--mount", "sh", "-euc", COMPILE, "sh", folder, base], "the agent")
    _pack(folder, (one for one in folder.rglob("*") if one.is_file()), partial, LIBRARIES)
    partial.rename(ready)
    shutil.rmtree(folder)


def _pack(folder: Path, files: Iterable[Path], target: Path, name: str) -> None:
    """The same bytes for the same content, as the digest of the image is what pods name."""
    with tarfile.open(target, "w") as tar:
        for path in sorted(files):
            entry = tar.gettarinfo(path, f"{name}/{path.relative_to(folder)}")
            entry.uid = entry.gid = entry.mtime = 0
            entry.uname = entry.gname = ""
            entry.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as file:
                tar.addfile(entry, file)
