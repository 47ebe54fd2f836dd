"""Whether this node can save processes; Sluice reads it from the node's label and annotation."""

import re
from pathlib import Path

LABEL = "sluice.dev/checkpoint"
CONNECTIONS_LABEL = "sluice.dev/checkpoint-connections"
CLOSE = "close"
"""A checkpoint closes open TCP connections. Without the label CRIU refuses them."""
RUNC_OPTIONS = "etc/criu/runc.conf"
REASON = "sluice.dev/checkpoint-reason"
# Restore during CreateContainer exists from 2.1 on; 2.4 takes it out again.
CONTAINERD = re.compile(r"containerd://2\.(\d+)\.")
ABLE = range(1, 4)
PROGRAMS = ("usr/local/sbin/criu", "usr/local/bin/criu", "usr/sbin/criu", "usr/bin/criu")
HOST = Path("/proc/1/root")


def why_not(runtime: str, host: Path = HOST) -> str:
    """What hinders checkpoints, in one line; empty if nothing is known to.

    `runtime` is the node's `containerRuntimeVersion`, `host` where its root file system is seen.
    """
    found = CONTAINERD.match(runtime)
    if found is None or int(found[1]) not in ABLE:
        return f"{runtime} cannot restore; containerd 2.1 to 2.3 can"
    try:
        installed = any((host / program).exists() for program in PROGRAMS)
    except OSError as error:
        return f"the agent cannot see the node's programs: {error}"
    return "" if installed else "the node has no CRIU; install it with the AMI or its user data"


def closes_connections(host: Path = HOST) -> bool:
    """Whether runc tells CRIU, by its file of options, to close open TCP connections."""
    try:
        lines = (host / RUNC_OPTIONS).read_text().splitlines()
    except OSError:
        return False
    return "tcp-close" in {line.strip().lstrip("-") for line in lines}


def marks(reason: str, *, closes: bool) -> dict[str, dict[str, str | None]]:
    """Labels and annotations for the node; None takes one away.

    `reason` says why the node cannot save; `closes` whether checkpoints close connections.
    """
    return {
        "labels": {
            LABEL: None if reason else "criu",
            CONNECTIONS_LABEL: CLOSE if closes and not reason else None,
        },
        "annotations": {REASON: reason or None},
    }
