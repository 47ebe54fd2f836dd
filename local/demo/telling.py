"""Commands that are typed and shown, and claims that are checked."""

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from local.settings import CLONE

SLUICE = Path(sys.executable).with_name("sluice")
PATIENCE_SECONDS = 600
BEGAN = time.monotonic()


class DemoError(Exception):
    """A claim of the demo did not hold."""


def say(text: str) -> None:
    print(f"{time.monotonic() - BEGAN:6.1f} s  {text}", flush=True)


def sluice(*arguments: str, show: bool = True) -> str:
    """Run the command as a user would; its output, after printing both."""
    if show:
        print(f"\n$ sluice {' '.join(arguments)}", flush=True)
    ran = subprocess.run(
        [SLUICE, *arguments],
        cwd=CLONE,
        text=True,
        stdout=subprocess.PIPE,
        stderr=None if show else subprocess.PIPE,
        check=False,
    )
    if show and ran.stdout:
        print(ran.stdout.rstrip(), flush=True)
    if ran.returncode:
        command = f"sluice {' '.join(arguments)}"
        raise DemoError(f"`{command}` ended with {ran.returncode}: {(ran.stderr or '').strip()}")
    return ran.stdout


def answer(*arguments: str) -> Any:
    return json.loads(sluice(*arguments, "-o", "json", show=False))


def check(claim: str, *, holds: bool, found: object = "") -> None:
    if not holds:
        raise DemoError(f"{claim}: not so{f', found {found}' if found != '' else ''}")
    say(f"✓ {claim}")


def until(what: str, ready: Callable[[], Any]) -> Any:
    """The first true answer of `ready`; raises DemoError when patience ends."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        if found := ready():
            return found
        time.sleep(0.3)
    raise DemoError(
        f"{what} did not happen within {PATIENCE_SECONDS} s; see `sluice local status` and"
        " `sluice local logs aws`"
    )
