"""What a machine must have to hold real kubelets, in words that say what to do."""

import os
import shutil
import sys
from pathlib import Path

PROGRAMS = {
    "gcc": "gcc and libc6-dev",
    "unshare": "util-linux",
    "mount": "util-linux",
    "dpkg-query": "dpkg",
}
CAP_SYS_ADMIN = 21  # linux/capability.h


def lacking() -> str | None:
    """Why this machine cannot hold real kubelets, in one line; None if it can.

    What has to be downloaded is not looked at here: see `debian.prepare`.
    """
    if sys.platform != "linux":
        return f"real kubelets need Linux, and this is {sys.platform}: use --nodes process"
    if os.geteuid() != 0:
        return "real kubelets need root: run as root, or use --nodes process"
    if not may_mount():
        return "real kubelets need the capability SYS_ADMIN, which this root lacks"
    if absent := [name for name in PROGRAMS if not shutil.which(name)]:
        packages = ", ".join(dict.fromkeys(PROGRAMS[name] for name in absent))
        return f"real kubelets need {', '.join(absent)}: install {packages}"
    if "overlay" not in Path("/proc/filesystems").read_text():
        return "real kubelets need the overlay file system: modprobe overlay"
    return None


def may_mount() -> bool:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("CapEff:"):
            return bool(int(line.split()[1], 16) >> CAP_SYS_ADMIN & 1)
    return False
