"""CRIU on this machine: is it usable, and how a container's process tree is saved and restored."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from local.node import containers
from local.node.containers import Isolation

LEAST_MAJOR = 4  # 3.17 fails on current kernels
LOG_LINES = 8
PROBE_SECONDS = 20
HARMLESS = "RLIMIT_NOFILE"  # without CAP_SYS_RESOURCE it complains of this and goes on


COMMON = ("--file-locks", "--manage-cgroups=ignore")
GHOST_BYTES = 1 << 30  # of a deleted file that is open; CRIU's own limit is 1 MB


class CriuError(Exception):
    """CRIU could not do it; the message ends with the last lines of its log."""


@dataclass(frozen=True)
class DumpRequest:
    """How to save one container.

    `mounts` maps names to the paths in the container where files of the machine are mounted.
    `copies` are sources and targets of folders that are copied while the processes are frozen, so
    that their files are as the processes last saw them.
    """

    mounts: Mapping[str, str]
    copies: Sequence[tuple[Path, Path]]
    closes_connections: bool  # established TCP connections break; otherwise CRIU refuses
    timeout_seconds: float | None


@dataclass(frozen=True)
class Criu:
    """A working CRIU, or the reason why there is none."""

    program: Path | None
    version: str  # "4.2.1"; empty without one
    reason: str  # empty with one
    installable: bool = False  # there is none, and install_criu.sh may help

    @property
    def label(self) -> str:
        """Value of the node's label `sluice.dev/checkpoint`."""
        return f"criu-{self.version}" if self.program else "unavailable"

    def restore_command(
        self, images: Path, pidfile: Path, root: Path, mounts: Mapping[str, Path]
    ) -> list[str]:
        """Restores as a child of the caller; `restore.log` lands beside the images.

        `root` is where the container's root is mounted, `mounts` maps the names of the mounts of
        the machine in it to their sources.
        """
        external = [f"--external=mnt[{name}]:{source}" for name, source in mounts.items()]
        return [
            str(self.program),
            *("restore", "--images-dir", str(images), "--log-file", "restore.log", "-v2"),
            *("--restore-detached", "--restore-sibling", "--pidfile", str(pidfile)),
            *("--root", str(root), *external, *COMMON, "--tcp-close"),
        ]

    async def dump(self, pid: int, images: Path, request: DumpRequest) -> None:
        """Saves the tree below `pid` and leaves it running. Raises CriuError."""
        script = images.parent / "when-frozen.sh"
        copies = (
            f"cp -a {shlex.quote(str(source))} {shlex.quote(str(target))} || exit 1\n"
            for source, target in request.copies
        )
        script.write_text(
            f'#!/bin/sh\n[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0\n{"".join(copies)}'
        )
        script.chmod(0o700)
        timeout_seconds = request.timeout_seconds
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            *("dump", "--tree", str(pid), "--images-dir", str(images), "--leave-running"),
            *("--log-file", "dump.log", "-v2", "--action-script", str(script)),
            *(f"--external=mnt[{target}]:{name}" for name, target in request.mounts.items()),
            *(f"--irmap-scan-path={folder}" for folder in ("/tmp", *request.mounts.values())),  # noqa: S108
            *(*COMMON, "--link-remap", f"--ghost-limit={GHOST_BYTES}"),
            *(("--tcp-close", "--skip-in-flight") if request.closes_connections else ()),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            code = await asyncio.wait_for(process.wait(), timeout_seconds)
        except TimeoutError:
            process.terminate()
            await process.wait()
            raise CriuError(f"criu dump took more than {timeout_seconds:.0f} s") from None
        if code:
            raise CriuError(f"criu dump ended with {code}: {last_lines(images / 'dump.log')}")


def last_lines(log: Path) -> str:
    """The errors of a CRIU log, or else its last lines."""
    with contextlib.suppress(OSError):
        lines = log.read_text(errors="replace").splitlines()
        errors = [line for line in lines if "Error" in line and HARMLESS not in line]
        return " | ".join((errors or lines)[-LOG_LINES:])
    return f"no {log.name}"


def probe(named: Path | None, cache: Path, isolation: Isolation | None = None) -> Criu:
    """The named CRIU, else the installed one of `install_criu.sh`, else the machine's own.

    `isolation` is what was found for the nodes of this machine, if that was asked already.
    """
    if sys.platform != "linux":
        return Criu(None, "", f"CRIU needs Linux, and this is {sys.platform}")
    if os.geteuid() != 0:
        return Criu(None, "", "CRIU needs root")
    own = cache / "criu" / "criu"
    found = named or (own if own.exists() else None) or _which()
    if found is None:
        why = f"no CRIU: run local/node/install_criu.sh {own.parent}"
        return Criu(None, "", why, installable=True)
    try:
        shown = _output(found, "--version")
        version = shown.partition("Version:")[2].split()[0]
        if int(version.split(".")[0]) < LEAST_MAJOR:
            why = f"CRIU {version} is older than {LEAST_MAJOR}"
            return Criu(None, "", why, installable=found not in (named, own))
        _output(found, "check")
    except (OSError, subprocess.SubprocessError, ValueError, IndexError) as error:
        return Criu(None, "", f"{found} does not work here: {error}"[:250])
    isolation = isolation or containers.probe(cache)
    if not isolation.available:
        return Criu(None, "", f"processes are saved in containers only: {isolation.reason}")
    return Criu(found, version, "")


def _which() -> Path | None:
    path = shutil.which("criu")
    return Path(path) if path else None


def _output(program: Path, *arguments: str) -> str:
    return subprocess.run(
        [str(program), *arguments],
        check=True,
        capture_output=True,
        text=True,
        timeout=PROBE_SECONDS,
    ).stdout
