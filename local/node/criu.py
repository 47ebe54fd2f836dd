"""CRIU on this machine: is it usable, and how a container's process tree is saved and restored."""

import asyncio
import contextlib
import os
import shlex
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path

LEAST_MAJOR = 4  # 3.17 fails on current kernels
LOG_LINES = 8
PROBE_SECONDS = 20
HARMLESS = "RLIMIT_NOFILE"  # without CAP_SYS_RESOURCE it complains of this and goes on


class CriuError(Exception):
    """CRIU could not do it; the message ends with the last lines of its log."""


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

    def restore_command(self, images: Path, pidfile: Path) -> list[str]:
        """Restores as a child of the caller; `restore.log` lands beside the images."""
        return [
            str(self.program),
            *("restore", "--images-dir", str(images), "--log-file", "restore.log", "-v2"),
            *("--restore-detached", "--restore-sibling", "--pidfile", str(pidfile)),
        ]

    async def dump(
        self, pid: int, images: Path, *, copy: tuple[Path, Path], timeout_seconds: float | None
    ) -> None:
        """Saves the tree below `pid` and leaves it running.

        `copy` names a folder and where to copy it while the tree is frozen, so that its files are
        as the processes last saw them. Raises CriuError.
        """
        script = images.parent / "when-frozen.sh"
        source, target = copy
        script.write_text(
            "#!/bin/sh\n"
            '[ "$CRTOOLS_SCRIPT_ACTION" = post-dump ] || exit 0\n'
            f"exec cp -a {shlex.quote(str(source))} {shlex.quote(str(target))}\n"
        )
        script.chmod(0o700)
        process = await asyncio.create_subprocess_exec(
            str(self.program),
            *("dump", "--tree", str(pid), "--images-dir", str(images), "--leave-running"),
            *("--log-file", "dump.log", "-v2", "--action-script", str(script)),
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


def probe(named: Path | None, cache: Path) -> Criu:
    """The named CRIU, else the installed one of `install_criu.sh`, else the machine's own."""
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
