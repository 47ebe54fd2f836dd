"""CRIU for process nodes: installed where the machine allows it; nothing else depends on it."""

import subprocess
from collections.abc import Callable
from pathlib import Path

from local.node.criu import Criu, probe
from local.toolchain import Progress, locked

SCRIPT = Path(__file__).with_name("install_criu.sh")
INSTALL_SECONDS = 180
WITHOUT = "checkpoint.mode `kubelet` falls back to `application` on process nodes"


def prepare(
    cache: Path,
    progress: Progress,
    *,
    look: Callable[[Path | None, Path], Criu] = probe,
    script: Path = SCRIPT,
) -> Criu:
    """Install CRIU into the cache if the machine has none that works; never raises.

    Says in one line why processes cannot be saved here, whenever that is so.
    """
    found = look(None, cache)
    if found.installable:
        with locked(cache / "criu.lock", progress):
            progress("installing CRIU, which saves processes: some seconds")
            failure = installed(script, cache / "criu")
        found = look(None, cache)
        if failure and not found.program:
            found = Criu(None, "", failure)
    if not found.program:
        progress(f"processes cannot be saved here: {found.reason}; {WITHOUT}")
    return found


def installed(script: Path, folder: Path) -> str:
    """Why the installation failed, in its own last words; empty if it did not."""
    try:
        ended = subprocess.run(
            ["bash", script, folder],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=INSTALL_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return f"installing CRIU took more than {INSTALL_SECONDS} s; see the sources of apt"
    except OSError as error:
        return f"CRIU could not be installed: {error}"
    if not ended.returncode:
        return ""
    words = (ended.stderr or ended.stdout).strip().splitlines()
    return words[-1] if words else f"install_criu.sh ended with {ended.returncode}"
