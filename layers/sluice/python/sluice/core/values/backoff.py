"""How long a workload waits before it is tried again."""

from __future__ import annotations

BACKOFF_BASE_MS = 60_000
BACKOFF_MAX_MS = 3_600_000


def backoff_ms(requeues: int) -> int:
    """60·2^(n−1) s, at most an hour. Source: Kueue's waitForPodsReady."""
    return int(min(BACKOFF_BASE_MS * 2 ** min(requeues, 10), BACKOFF_MAX_MS))
