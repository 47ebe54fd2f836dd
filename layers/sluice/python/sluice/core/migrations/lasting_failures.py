"""Parts of an error that mean that another try will fail too: of a dump, and of a restore."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

_ALWAYS: Final = (
    ("io_uring", "it uses io_uring"),
    ("--shell-job", "it has a terminal"),
    ("dangling tty", "it has a terminal"),
    ("non-regular mapping", "it has memory of a device mapped"),
    ("Can't dump nested", "it made namespaces of its own"),
)
"""What the program does for as long as it runs."""
_NOW: Final = (
    ("Connected TCP socket", "it has an open TCP connection"),
    ("Can't dump ghost file", "it has a large deleted file open"),
    ("--ext-unix-sk", "it is connected to a UNIX socket outside of its container"),
    ("Can't dump half of stream unix", "it is connected to a UNIX socket outside of its container"),
    ("--file-locks", "it holds a file lock"),
    ("Can't dump file", "it has a file open of a kind that CRIU does not know"),
    ("is being traced", "another process traces it"),
    ("already traced", "another process traces it"),
)
"""What may have ended by the next day, though hardly within the minutes of a notice."""
_DUMP: Final = (*_ALWAYS, *_NOW)
"""Words of CRIU 4's errors, as nodes pass them on, and what they mean.

Source: facts, checkpoint-restore §3, and CRIU's own sources.
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


def standing_cause(why: str) -> str:
    """Why these processes can never be saved; empty if that is not known."""
    return _meaning(_ALWAYS, why)


def lasting_restore_cause(why: str) -> str:
    """Why no run will start from the same checkpoint; empty if another try may help."""
    return _meaning(_RESTORE, why)


def in_plain_words(why: str) -> str:
    """The error of a dump, led by what it means, if that is known."""
    meaning = lasting_cause(why)
    return why if not meaning or why.startswith(meaning) else f"{meaning}: {why}"


def _meaning(known: Sequence[tuple[str, str]], why: str) -> str:
    return next((meaning for words, meaning in known if words in why), "")
