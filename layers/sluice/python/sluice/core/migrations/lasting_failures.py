"""Parts of an error that mean that another try will fail too: of a dump, and of a restore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_DUMP: Final = (
    ("io_uring", "it uses io_uring"),
    ("Connected TCP socket", "it has an open TCP connection"),
    ("--shell-job", "it has a terminal"),
    ("dangling tty", "it has a terminal"),
)
"""Words of CRIU 4's errors, as process nodes pass them on, and what they mean.

Source: facts, checkpoint-restore §3. A kubelet says no more than that CRIU failed.
"""
_RESTORE: Final = (
    ("has bad size", "a file that it has open has changed since the dump"),
    ("Not Found", "its archive is gone"),
    ("NoSuchKey", "its archive is gone"),
    ("manifest unknown", "its image is gone"),
)
"""What no other machine cures. Another CPU, a busy registry or a full disk may be cured by one."""


def lasting_cause(why: str) -> str:
    """Why it is hopeless to save the same processes again; empty if it is not known to be."""
    return _meaning(_DUMP, why)


def lasting_restore_cause(why: str) -> str:
    """Why no run will start from the same checkpoint; empty if another try may help."""
    return _meaning(_RESTORE, why)


def _meaning(known: Sequence[tuple[str, str]], why: str) -> str:
    return next((meaning for words, meaning in known if words in why), "")
