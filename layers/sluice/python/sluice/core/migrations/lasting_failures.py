"""What of a failed dump says that another one would fail alike."""

from __future__ import annotations

from typing import Final

_LASTING: Final = (
    ("io_uring", "it uses io_uring"),
    ("Connected TCP socket", "it has an open TCP connection"),
    ("--shell-job", "it has a terminal"),
    ("dangling tty", "it has a terminal"),
)
"""Words of CRIU 4's errors, as process nodes pass them on, and what they mean.

Source: facts, checkpoint-restore §3. A kubelet says no more than that CRIU failed.
"""


def lasting_cause(why: str) -> str:
    """Why it is hopeless to save the same processes again; empty if it is not known to be."""
    return next((meaning for words, meaning in _LASTING if words in why), "")
