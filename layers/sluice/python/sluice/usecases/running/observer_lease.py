"""The right to observe one cluster: one observer at a time, renewed while it works."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from sluice.ports import Clock, Leases
from sluice.usecases.running.archive_logs import ArchiveLogs

LEASE_MS = 8_000


@dataclass
class ObserverLease:
    """Held from `take` to `release`; `ended` is set as soon as the lease is lost or over.

    The newest observer takes over, so that no time passes between one run and the next; the former
    one ends when it fails to renew. Two at once would waste reads, but break nothing.
    """

    leases: Leases
    clock: Clock
    cluster: str
    owner: str
    until: int
    logs: ArchiveLogs
    """The lease tells the next observer up to which time all logs are archived."""
    ended: threading.Event = field(default_factory=threading.Event)

    def take(self) -> int:
        """Takes and keeps the lease; returns until when (epoch ms) logs are archived already."""
        until = self.clock.now() + LEASE_MS
        archived = self.leases.take(self.cluster, self.owner, until=until)
        # A thread of its own, since the marking of records may take longer than the lease.
        threading.Thread(target=self._hold, daemon=True).start()
        return archived

    def release(self) -> None:
        self.ended.set()
        self._renew(until=0)
        self.logs.abandon()  # the next observer copies what is pending

    def _hold(self) -> None:
        try:
            while not self.ended.wait(LEASE_MS / 3000) and self.clock.now() < self.until:
                if not self._renew(until=self.clock.now() + LEASE_MS):
                    self.logs.abandon()
                    return
        finally:
            self.ended.set()

    def _renew(self, *, until: int) -> bool:
        done = self.logs.complete_until()
        now = self.clock.now()
        return self.leases.acquire(self.cluster, self.owner, now=now, until=until, done=done)
