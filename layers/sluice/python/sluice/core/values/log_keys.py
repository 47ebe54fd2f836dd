"""Where logs of pods lie in the bucket: whoever writes, reads or may touch them says so by this.

The node agent, which holds nothing of Sluice, spells the folder itself (agent/logs.py); a test
compares both.
"""

from __future__ import annotations

import re
from typing import Final

LOGS: Final = "logs/"
_SUFFIX: Final = ".log.gz"
_PIECE: Final = ".part-"
"""Of a log that grows, as its node stores it: `.part-0000.gz` and so on, to be joined."""
_ENDING: Final = re.compile(r"\.(log|part-\d{4})\.gz$")


def workload_folder(workload: str) -> str:
    return f"{LOGS}{workload}/"


def generation_folder(workload: str, generation: int | str) -> str:
    return f"{workload_folder(workload)}{generation}/"


def log_key(workload: str, generation: int, pod: str, container: str) -> str:
    return f"{generation_folder(workload, generation)}{pod}/{container}{_SUFFIX}"


def piece_prefix(workload: str, generation: int, pod: str, container: str) -> str:
    """How the keys of all pieces of a growing log begin."""
    return f"{generation_folder(workload, generation)}{pod}/{container}{_PIECE}"


def short_name(key: str) -> str:
    """`<generation>/<pod>/<container>` of a key."""
    return _ENDING.sub("", key.removeprefix(LOGS).partition("/")[2])
