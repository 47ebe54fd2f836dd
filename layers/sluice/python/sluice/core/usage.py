"""Usage over time: an exponentially fading average per LocalQueue, exact at any instant.

Between events use is constant, so that one step of any length equals many short ones; no timer is
needed. Source: HTCondor's half-life priority, and Kueue's admission fair sharing for the penalty.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from sluice.core.model import AdmissionFairSharing

MILLICORES = 1000.0


def remaining(elapsed_ms: float, half_life_ms: float) -> float:
    """What is left of an amount after some time: 0.5 ** (elapsed / half life); 0 without one."""
    if half_life_ms <= 0:
        return 0.0
    return float(0.5 ** (max(0.0, elapsed_ms) / half_life_ms))


@dataclass(slots=True)
class _Account:
    """One LocalQueue: consumed up to `at_ms`, in use since then, both per resource."""

    at_ms: int
    consumed: dict[str, float] = field(default_factory=dict)
    in_use: dict[str, int] = field(default_factory=dict)

    def advance(self, now_ms: int, half_life_ms: int) -> None:
        """Fades what was consumed and counts what was in use since."""
        if now_ms <= self.at_ms:
            return
        kept = remaining(now_ms - self.at_ms, half_life_ms)
        for resource in self.consumed.keys() | self.in_use.keys():
            old, used = self.consumed.get(resource, 0.0), self.in_use.get(resource, 0)
            self.consumed[resource] = kept * old + (1 - kept) * used
        self.at_ms = now_ms


class LocalQueueUsage:
    """Past usage of LocalQueues, in the resources' integer units."""

    def __init__(self, settings: AdmissionFairSharing, weights_milli: Mapping[str, int]) -> None:
        self._settings = settings
        self._weights_milli = weights_milli
        self._accounts: dict[str, _Account] = {}
        self._penalties: dict[str, dict[str, tuple[int, Mapping[str, int]]]] = {}

    def set_consumed(self, local_queue: str, consumed: Mapping[str, float], at_ms: int) -> None:
        """Sets what was consumed up to an instant; use since then is counted on top."""
        account = self._account(local_queue, at_ms)
        account.at_ms = at_ms
        account.consumed = dict(consumed)

    def consumed(self, local_queue: str, now_ms: int) -> dict[str, float]:
        """The faded average use per resource, to be stored and given back to `set_consumed`."""
        account = self._account(local_queue, now_ms)
        account.advance(now_ms, self._settings.half_life_ms)
        return dict(account.consumed)

    def start(
        self,
        local_queue: str,
        workload: str,
        used: Mapping[str, int],
        now_ms: int,
        *,
        penalty: bool,
    ) -> None:
        """Counts use from now on; a penalty anticipates one sampling interval of it."""
        account = self._account(local_queue, now_ms)
        account.advance(now_ms, self._settings.half_life_ms)
        for resource, amount in used.items():
            account.in_use[resource] = account.in_use.get(resource, 0) + amount
        if penalty:
            self._penalties.setdefault(local_queue, {})[workload] = (now_ms, used)

    def stop(self, local_queue: str, workload: str, used: Mapping[str, int], now_ms: int) -> None:
        """Ends use; a pending penalty of the workload is dropped."""
        account = self._account(local_queue, now_ms)
        account.advance(now_ms, self._settings.half_life_ms)
        for resource, amount in used.items():
            account.in_use[resource] -= amount
        self._penalties.get(local_queue, {}).pop(workload, None)

    def weighted(self, local_queue: str, now_ms: int) -> float:
        """What orders LocalQueues: lower goes first, infinite at weight 0, 0 without a half-life.

        Sum over resources of weight times (consumed + pending penalty), CPU in whole cores,
        divided by the LocalQueue's weight.
        """
        weight = self._weights_milli.get(local_queue, 1000) / 1000
        if weight <= 0:
            return math.inf
        if self._settings.half_life_ms <= 0:
            return 0.0
        total = 0.0
        account = self._accounts.get(local_queue)
        if account is not None:
            account.advance(now_ms, self._settings.half_life_ms)
            for resource, amount in account.consumed.items():
                total += self._in_whole_units(resource, amount)
        return (total + self._pending_penalty(local_queue, now_ms)) / weight

    def _pending_penalty(self, local_queue: str, now_ms: int) -> float:
        """The part of one sampling interval's use that was not yet consumed."""
        pending = self._penalties.get(local_queue)
        if not pending:
            return 0.0
        interval, half_life = self._settings.sampling_interval_ms, self._settings.half_life_ms
        total = 0.0
        for workload, (since_ms, used) in list(pending.items()):
            if now_ms - since_ms >= interval:
                del pending[workload]
                continue
            share = remaining(now_ms - since_ms, half_life) - remaining(interval, half_life)
            total += share * sum(self._in_whole_units(r, amount) for r, amount in used.items())
        return total

    def _in_whole_units(self, resource: str, amount: float) -> float:
        weight = self._settings.resource_weights.get(resource, 1.0)
        return weight * (amount / MILLICORES if resource == "cpu" else amount)

    def _account(self, local_queue: str, now_ms: int) -> _Account:
        return self._accounts.setdefault(local_queue, _Account(now_ms))
