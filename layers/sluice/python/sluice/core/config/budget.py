"""Dollar budgets of queues: one more resource, which time gives back instead of finished work."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from sluice.core.config.model import Assignment, WorkloadInfo

HOUR_MS = 3_600_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What a queue may spend in each window; amounts are micro-dollars.

    Exactly one of `cluster_queue` and `local_queue` names the queue. Windows follow each other
    from `starts_ms` on. A workload without a maximum run time is taken to run `assumed_run_ms`.
    """

    name: str
    limit_microusd: int
    window_ms: int
    cluster_queue: str | None = None
    local_queue: str | None = None
    starts_ms: int = 0
    assumed_run_ms: int = HOUR_MS

    def covers(self, workload: WorkloadInfo) -> bool:
        if self.local_queue is not None:
            return workload.local_queue == self.local_queue
        return workload.cluster_queue == self.cluster_queue

    def expected(self, workload: WorkloadInfo, per_hour: int) -> int:
        """Micro-dollars that a workload is taken to cost."""
        runs_ms = workload.max_runtime_ms or self.assumed_run_ms
        return -(-per_hour * runs_ms // HOUR_MS)

    def window(self, now_ms: int) -> int:
        """The number of the window that an instant falls into."""
        return (now_ms - self.starts_ms) // self.window_ms

    def next_window_ms(self, now_ms: int) -> int:
        """When the next window begins."""
        return self.starts_ms + (self.window(now_ms) + 1) * self.window_ms


def hourly_price(workload: WorkloadInfo, assignment: Assignment) -> int:
    """Micro-dollars an hour: the dearest of the assigned flavors, each priced for the whole."""
    prices = workload.cost_microusd_per_hour
    return max((prices.get(flavor, 0) for flavor in assignment.flavors), default=0)


@dataclass(slots=True)
class _Charge:
    budget: Budget
    window: int
    microusd: int
    per_hour: int
    since_ms: int

    def cost(self, now_ms: int) -> int:
        """Of the time until now."""
        return -(-self.per_hour * max(0, now_ms - self.since_ms) // HOUR_MS)

    def beyond(self, now_ms: int) -> int:
        """By how much the time until now cost more than was committed."""
        return max(0, self.cost(now_ms) - self.microusd)


@dataclass(slots=True)
class Spending:
    """What was spent and committed per budget and window.

    A workload is charged its expected cost when it is admitted, in the window of its admission;
    when it stops, the charge becomes what the time it ran has cost.
    """

    budgets: tuple[Budget, ...]
    _spent: dict[tuple[str, int], int] = field(default_factory=dict)
    _open: dict[str, list[_Charge]] = field(default_factory=dict)

    def of(self, workload: WorkloadInfo) -> list[Budget]:
        return [budget for budget in self.budgets if budget.covers(workload)]

    def spent(self, budget: Budget, now_ms: int) -> int:
        """Micro-dollars spent or committed in the present window.

        Who runs longer than was assumed counts as it runs.
        """
        window = budget.window(now_ms)
        longer = (
            each.beyond(now_ms)
            for charges in self._open.values()
            for each in charges
            if each.budget is budget and each.window == window
        )
        return self._spent.get((budget.name, window), 0) + sum(longer)

    def set_spent(self, budget: Budget, microusd: int, now_ms: int) -> None:
        """Sets what the present window has cost so far, without what is charged from now on."""
        self._spent[budget.name, budget.window(now_ms)] = microusd

    def exceeded(self, workload: WorkloadInfo, now_ms: int) -> dict[str, tuple[Budget, int]]:
        """The flavors that a budget has not enough left for: flavor → that budget, expected cost.

        A workload costs what the dearest of its flavors costs, so each flavor is judged alone.
        """
        found: dict[str, tuple[Budget, int]] = {}
        for budget in self.of(workload):
            left = budget.limit_microusd - self.spent(budget, now_ms)
            for flavor, per_hour in workload.cost_microusd_per_hour.items():
                cost = budget.expected(workload, per_hour)
                if cost > max(0, left):
                    found.setdefault(flavor, (budget, cost))
        return found

    def charge(self, workload: WorkloadInfo, assignment: Assignment, now_ms: int) -> None:
        """Commits the expected cost of an admission."""
        per_hour = hourly_price(workload, assignment)
        charges = []
        for budget in self.of(workload):
            cost = budget.expected(workload, per_hour)
            window = budget.window(now_ms)
            self._add(budget, window, cost)
            charges.append(_Charge(budget, window, cost, per_hour, now_ms))
        if charges:
            self._open[workload.id] = charges

    def settle(self, workload_id: str, now_ms: int) -> None:
        """Replaces a commitment by the cost of the time that the workload ran."""
        for each in self._open.pop(workload_id, ()):
            self._add(each.budget, each.window, each.cost(now_ms) - each.microusd)

    def _add(self, budget: Budget, window: int, microusd: int) -> None:
        key = (budget.name, window)
        self._spent[key] = self._spent.get(key, 0) + microusd


def covering(budgets: Iterable[Budget], cluster_queue: str, local_queues: Iterable[str]) -> bool:
    """Whether any budget concerns a ClusterQueue or one of its LocalQueues."""
    keys = set(local_queues)
    return any(b.cluster_queue == cluster_queue or b.local_queue in keys for b in budgets)
