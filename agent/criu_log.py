"""What CRIU itself said when a dump failed: a kubelet passes on only where its log is.

runc's shim leaves it at the path that it names in its error, and containerd in the folder of the
container; both are files of the machine.
"""

import contextlib
import re
from pathlib import Path

HOST = Path("/proc/1/root")
NAMED = re.compile(r"(/[\w./@:-]*dump\.log)")
CONTAINERS = "var/lib/containerd/io.containerd.grpc.v1.cri/containers"
ERROR = re.compile(r"^\([\d.]+\)\s+(?:\d+:\s*)?Error \(([^)]*)\):\s*(.*)$")
HARMLESS = ("RLIMIT_NOFILE", "Dumping FAILED")
LINES = 3
LOG_BYTES = 4_000_000


def explain(answer: str, container_id: str, host: Path = HOST) -> str:
    """CRIU's errors after a kubelet's `answer`, the first ones first; empty if there are none."""
    named = [host / path.lstrip("/") for path in NAMED.findall(answer)]
    own = [host / CONTAINERS / container_id / "dump.log"] if container_id else []
    for log in (*named, *own):
        with contextlib.suppress(OSError):
            if found := errors_of(log):
                return "; ".join(found)
    return ""


def errors_of(log: Path) -> list[str]:
    """The first errors of a CRIU log, without its times and places. Raises OSError."""
    with log.open("rb") as file:
        lines = file.read(LOG_BYTES).decode(errors="replace").splitlines()
    errors = [found[2].strip() for line in lines if (found := ERROR.match(line))]
    return [error for error in errors if not any(word in error for word in HARMLESS)][:LINES]
