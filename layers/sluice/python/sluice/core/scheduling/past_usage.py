"""Usage over time: an exponentially fading average per LocalQueue, exact at any instant.

Between events use is constant, so that one step of any length equals many short ones; no timer is
needed. Source: HTCondor's half-life priority, and Kueue's admission fair sharing for the penalty.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from sluice.core.config.policy import AdmissionFairSharing

MILLICORES = 1000.0
# Less than this, in base units, is forgotten, so that accounts end.
NEGLIGIBLE: Final = 1e-6
# The most pending penalties that are kept apart for one LocalQueue.
MOST_STARTS: Final = 16


def remaining(elapsed_ms: float, half_life_ms: float) -> float:
    """What is left of an amount after some time: 0.5 ** (elapsed / half life); 0 without one."""
    if half_life_ms <= 0:
        return 0.0
    return float(0.5 ** (max(0.0, elapsed_ms) / half_life_ms))


@dataclass(frozen=True, slots=True)
class UsageStart:
    """Use that began between two instants and whose penalty is pending; amounts per resource."""

    first_ms: int
    last_ms: int
    used: Mapping[str, int]


@dataclass(frozen=True, slots=True)
class PastUsage:
    """One LocalQueue: consumed up to `at_ms`, in use since then, both per resource.

    A value, so that a ledger can keep it; amounts in base units. `starts` in order of time.
    """

    at_ms: int
    consumed: Mapping[str, float] = field(default_factory=dict)
    in_use: Mapping[str, int] = field(default_factory=dict)
    starts: tuple[UsageStart, ...] = ()

    @property
    def forgotten(self) -> bool:
        """Whether it is as good as none."""
        return not self.consumed and not self.in_use and not self.starts

    def advanced(self, now_ms: int, settings: AdmissionFairSharing) -> PastUsage:
        """Fades what was consumed, counts what was in use since, drops settled penalties."""
        if now_ms <= self.at_ms:
            return self
        kept = remaining(now_ms - self.at_ms, settings.half_life_ms)
        consumed = {}
        for resource in sorted(self.consumed.keys() | self.in_use.keys()):
            old, used = self.consumed.get(resource, 0.0), self.in_use.get(resource, 0)
            amount = kept * old + (1 - kept) * used
            if amount >= NEGLIGIBLE:
                consumed[resource] = amount
        latest = now_ms - settings.sampling_interval_ms
        starts = tuple(each for each in self.starts if each.last_ms > latest)
        return replace(self, at_ms=now_ms, consumed=consumed, starts=starts)

    def started(
        self, used: Mapping[str, int], now_ms: int, settings: AdmissionFairSharing, *, penalty: bool
    ) -> PastUsage:
        """Counts use from now on; a penalty anticipates one sampling interval of it."""
        now = self.advanced(now_ms, settings)
        starts = _joined(now.starts, UsageStart(now_ms, now_ms, used)) if penalty else now.starts
        return replace(now, in_use=_added(now.in_use, used, 1), starts=starts)

    def stopped(
        self, used: Mapping[str, int], since_ms: int, now_ms: int, settings: AdmissionFairSharing
    ) -> PastUsage:
        """Ends use that began at `since_ms`, and its penalty if that is still pending."""
        now = self.advanced(now_ms, settings)
        starts = []
        for each in now.starts:
            left = each.used
            if each.first_ms <= since_ms <= each.last_ms:
                left = _added(left, used, -1)
            if left:
                starts.append(replace(each, used=left))
        return replace(now, in_use=_added(now.in_use, used, -1), starts=tuple(starts))

    def weighted(self, now_ms: int, settings: AdmissionFairSharing) -> float:
        """Sum over resources of weight times (consumed + pending penalty), CPU in whole cores."""
        now = self.advanced(now_ms, settings)
        total = sum(_whole_units(settings, r, amount) for r, amount in now.consumed.items())
        interval, half_life = settings.sampling_interval_ms, settings.half_life_ms
        for start in now.starts:
            share = remaining(now_ms - start.last_ms, half_life) - remaining(interval, half_life)
            total += share * sum(_whole_units(settings, r, n) for r, n in start.used.items())
        return total


def _joined(starts: tuple[UsageStart, ...], new: UsageStart) -> tuple[UsageStart, ...]:
    """Joins starts of one instant; beyond MOST_STARTS, joins the two oldest."""
    if starts and starts[-1].last_ms == new.last_ms:
        last = starts[-1]
        return (*starts[:-1], replace(last, used=_added(last.used, new.used, 1)))
    starts = (*starts, new)
    if len(starts) <= MOST_STARTS:
        return starts
    first, second, *rest = starts
    both = UsageStart(first.first_ms, second.last_ms, _added(first.used, second.used, 1))
    return (both, *rest)


def _added(amounts: Mapping[str, int], more: Mapping[str, int], sign: int) -> dict[str, int]:
    """Sums that are not positive vanish: use that began before anybody counted may end."""
    total = {**amounts}
    for resource, amount in more.items():
        total[resource] = total.get(resource, 0) + sign * amount
    return {resource: amount for resource, amount in total.items() if amount > 0}


def _whole_units(settings: AdmissionFairSharing, resource: str, amount: float) -> float:
    weight = settings.resource_weights.get(resource, 1.0)
    return weight * (amount / MILLICORES if resource == "cpu" else amount)


class LocalQueueUsage:
    """Past usage of LocalQueues, in the resources' integer units."""

    def __init__(self, settings: AdmissionFairSharing, weights_milli: Mapping[str, float]) -> None:
        self._settings = settings
        self._weights_milli = weights_milli
        self._accounts: dict[str, PastUsage] = {}

    def set_account(self, local_queue: str, account: PastUsage) -> None:
        """Replaces all that is known of a LocalQueue, what is in use included."""
        self._accounts[local_queue] = account

    def set_consumed(self, local_queue: str, consumed: Mapping[str, float], at_ms: int) -> None:
        """Sets what was consumed up to an instant; use since then is counted on top."""
        account = self._account(local_queue, at_ms)
        self._accounts[local_queue] = replace(account, at_ms=at_ms, consumed=dict(consumed))

    def consumed(self, local_queue: str, now_ms: int) -> dict[str, float]:
        """The faded average use per resource."""
        return dict(self._account(local_queue, now_ms).advanced(now_ms, self._settings).consumed)

    def start(
        self, local_queue: str, used: Mapping[str, int], now_ms: int, *, penalty: bool
    ) -> None:
        """Counts use from now on; a penalty anticipates one sampling interval of it."""
        account = self._account(local_queue, now_ms)
        self._accounts[local_queue] = account.started(used, now_ms, self._settings, penalty=penalty)

    def stop(self, local_queue: str, used: Mapping[str, int], since_ms: int, now_ms: int) -> None:
        """Ends use that began at `since_ms`; a pending penalty of it is dropped."""
        account = self._account(local_queue, now_ms)
        self._accounts[local_queue] = account.stopped(used, since_ms, now_ms, self._settings)

    def weighted(self, local_queue: str, now_ms: int) -> float:
        """What orders LocalQueues: lower goes first, infinite at weight 0, 0 without a half-life.

        The account's weighted use, divided by the LocalQueue's weight.
        """
        weight = self._weights_milli.get(local_queue, 1000) / 1000
        if weight <= 0:
            return math.inf
        account = self._accounts.get(local_queue)
        if account is None or self._settings.half_life_ms <= 0:
            return 0.0
        account = self._accounts[local_queue] = account.advanced(now_ms, self._settings)
        return account.weighted(now_ms, self._settings) / weight

    def _account(self, local_queue: str, now_ms: int) -> PastUsage:
        return self._accounts.get(local_queue) or PastUsage(now_ms)
