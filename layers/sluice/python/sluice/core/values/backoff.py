"""How long a workload waits before it is tried again."""

from __future__ import annotations

from hashlib import sha256

BACKOFF_BASE_MS = 60_000
BACKOFF_MAX_MS = 3_600_000


def backoff_ms(requeues: int, base_ms: int = BACKOFF_BASE_MS, most_ms: int = BACKOFF_MAX_MS) -> int:
    """60·2^(n−1) s, at most an hour. Source: Kueue's waitForPodsReady."""
    return int(min(base_ms * 2 ** min(requeues, 32), most_ms))


def jitter_ms(wait_ms: int, who: str) -> int:
    """Up to a fifth of a wait, always the same for `who`.

    Two gangs that held half of the last machines each would meet again without it.
    """
    share = int.from_bytes(sha256(who.encode()).digest()[:4], "big")
    return wait_ms * share // (5 * 2**32)
