"""Virtual time: what AWS would have taken, plus the CPU that was used, scaled to a Lambda's share.

Threads are virtual lanes: what is handed to a pool runs at once, its waiting in its own lane, its
CPU on the one processor that all lanes share.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any, TypeVar

Result = TypeVar("Result")

FULL_VCPU_MB = 1769
EPOCH_MS = 1_800_000_000_000


class VirtualClock:
    """`now` is epoch ms for the use cases; `ms` is what has gone by since the last `restart`."""

    def __init__(self, memory_mb: int = FULL_VCPU_MB) -> None:
        self.memory_mb = memory_mb
        self.at = float(EPOCH_MS)
        self.begun = self.at
        self.cpu_ms = 0.0  # of the code under test, as measured on this machine
        self.calls_ms = 0.0
        self._seen = time.thread_time()

    def restart(self) -> None:
        self.settle()
        self.begun, self.cpu_ms, self.calls_ms = self.at, 0.0, 0.0
        self._seen = time.thread_time()

    @property
    def ms(self) -> float:
        self.settle()
        return self.at - self.begun

    def now(self) -> int:
        self.settle()
        return int(self.at)

    def settle(self) -> None:
        """Counts the CPU since the last look."""
        now = time.thread_time()
        spent = 1000 * (now - self._seen)
        self._seen = now
        self.cpu_ms += spent
        self.at += spent * max(1.0, FULL_VCPU_MB / self.memory_mb)

    def skip_cpu(self) -> None:
        """What was computed since the last look is not the code's under test."""
        self._seen = time.thread_time()

    def wait(self, ms: float) -> None:
        self.calls_ms += ms
        self.at += ms

    def pass_ms(self, ms: float) -> None:
        """Time in which nobody does anything."""
        self.settle()
        self.at += ms


class LaneFuture(Future[Any]):
    """Whose result is there only at a certain time."""

    def __init__(self, clock: VirtualClock) -> None:
        super().__init__()
        self._clock, self.ready_at = clock, 0.0

    def result(self, timeout: float | None = None) -> Any:
        self._clock.at = max(self._clock.at, self.ready_at)
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self._clock.at = max(self._clock.at, self.ready_at)
        return super().exception(timeout)


class Lanes(ThreadPoolExecutor):
    """A pool of so many threads in virtual time."""

    def __init__(self, clock: VirtualClock, lanes: int = 8) -> None:
        super().__init__(1)
        self._clock, self._free = clock, [0.0] * lanes

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        clock, done = self._clock, LaneFuture(self._clock)
        clock.settle()
        begun, cpu = clock.at, clock.cpu_ms
        lane = min(range(len(self._free)), key=self._free.__getitem__)
        clock.at = max(begun, self._free[lane])
        try:
            done.set_result(fn(*args, **kwargs))
        except Exception as error:  # noqa: BLE001, as a thread would
            done.set_exception(error)
        clock.settle()
        done.ready_at = self._free[lane] = clock.at
        share = max(1.0, FULL_VCPU_MB / clock.memory_mb)
        clock.at = begun + (clock.cpu_ms - cpu) * share
        return done

    def map(
        self, fn: Callable[..., Result], *iterables: Iterable[Any], **_: Any
    ) -> Iterator[Result]:
        futures = [self.submit(fn, *items) for items in zip(*iterables, strict=False)]
        return iter([future.result() for future in futures])
