"""The wall clock."""

from __future__ import annotations

import time


class SystemClock:
    def now(self) -> int:
        """Milliseconds since the epoch."""
        return time.time_ns() // 1_000_000
