"""What budgets count: commitments when quota is given, true costs once it comes back.

The ledger keeps `spent`, changed in the transaction that gives or takes the quota; the record
keeps what it was charged for. So a budget is one more resource of the same ledger.
Source of the arithmetic: core/config/budget.py, which the simulation uses too.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from sluice.core.clusters.fleet import cost
from sluice.core.config.budget import HOUR_MS, Budget, hourly_price
from sluice.core.config.document import DocumentError, Fields, Flaw
from sluice.core.config.model import Gate
from sluice.core.lifecycle.cost_limit import limit_microusd
from sluice.core.lifecycle.record_entries import OWN_BUDGET, Charge
from sluice.core.lifecycle.runs import accrued
from sluice.core.values.reasons import Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from sluice.core.clusters.fleet import Site
    from sluice.core.config import model
    from sluice.core.lifecycle.record import Change, Workload

KIND = "Budget"
API_VERSION = "sluice.dev/v1"
KEPT_WINDOWS = 2  # the present one, and the one before for those that started in it

Spent = dict[str, dict[str, int]]
"""Budget → window → micro-dollars."""


def read(fields: Fields) -> Budget:
    """`spec`: `clusterQueue` or `localQueue`, `limitUSD`, `window`, `start`, `assumedRuntime`."""
    if fields.text("apiVersion", required=True) != API_VERSION:
        fields.wrong("apiVersion", f"must be {API_VERSION}")
    fields.ignore("kind", "status")
    metadata, spec = fields.map("metadata", required=True), fields.map("spec", required=True)
    metadata.ignore("labels", "annotations", "namespace")
    cluster_queue, local_queue = spec.name("clusterQueue"), spec.text("localQueue")
    if bool(cluster_queue) == bool(local_queue):
        spec.wrong("clusterQueue", "name either a clusterQueue or a localQueue (NAMESPACE/NAME)")
    if local_queue and local_queue.count("/") != 1:
        spec.wrong("localQueue", f"{local_queue!r} is not NAMESPACE/NAME")
    limit = spec.milli("limitUSD", 0)
    if limit == 0:
        spec.wrong("limitUSD", "must be an amount of dollars above 0; for example 400")
    window = spec.duration("window", HOUR_MS, required=True) or 0
    if window < HOUR_MS:
        spec.wrong("window", "must be at least 1h; for example 24h, 168h or 720h")
    assumed = spec.duration("assumedRuntime", HOUR_MS) or 0
    if assumed <= 0:
        spec.wrong("assumedRuntime", "must be above 0; for example 1h")
    budget = Budget(
        name=metadata.name("name", required=True),
        limit_microusd=limit * 1000,
        window_ms=max(window, HOUR_MS),
        cluster_queue=cluster_queue or None,
        local_queue=local_queue or None,
        starts_ms=spec.instant("start"),
        assumed_run_ms=assumed,
    )
    for each in (fields, metadata, spec):
        each.close()
    return budget


def parse(document: Mapping[str, Any]) -> Budget:
    """Raises DocumentError with every flaw."""
    flaws: list[Flaw] = []
    budget = read(Fields(document, "", flaws))
    if flaws:
        raise DocumentError(flaws)
    return budget


def covering(budgets: Iterable[Budget], workload: model.WorkloadInfo) -> list[Budget]:
    return [budget for budget in budgets if budget.covers(workload)]


def priced(
    asking: model.WorkloadInfo,
    workload: Workload,
    queue: model.ClusterQueue,
    sites: Sequence[Site],
    budgets: Sequence[Budget],
) -> model.WorkloadInfo:
    """The workload with what it costs on each flavor, if a budget wants to know.

    The dearest cluster that offers a flavor counts. A flavor whose price nobody knows is left
    aside where its group has others; without any price the workload waits until there is one.
    """
    if not covering(budgets, asking) and limit_microusd(workload) is None:
        return asking
    costs = _costs(asking, sites)
    longest = workload.options.deadlines.max_runtime_seconds
    known = replace(
        asking, cost_microusd_per_hour=costs, max_runtime_ms=1000 * longest if longest else None
    )
    groups = [[each.name for each in group.flavors] for group in queue.resource_groups]
    offered = [name for group in groups for name in group]
    if not costs.keys() & set(offered):
        return replace(known, gate=_no_price(offered))
    if costs.keys() >= set(offered):
        return known
    usable = [f for group in groups for f in ([f for f in group if f in costs] or group)]
    pod_sets = tuple(
        replace(s, flavors=tuple(f for f in (s.flavors or usable) if f in usable))
        for s in known.pod_sets
    )
    return replace(known, pod_sets=pod_sets)


def _costs(asking: model.WorkloadInfo, sites: Sequence[Site]) -> dict[str, int]:
    """Flavor → micro-dollars an hour for all pods."""
    request: dict[str, int] = {}
    for pod_set in asking.pod_sets:
        for resource, amount in pod_set.requests.items():
            request[resource] = request.get(resource, 0) + amount * pod_set.count
    costs: dict[str, int] = {}
    for site in sites:
        for flavor, rate in site.rates.items():
            if (here := cost(request, rate)) is not None:
                costs[flavor] = max(here, costs.get(flavor, 0))
    return costs


def _no_price(flavors: Sequence[str]) -> Gate:
    message = (
        f"a budget limits it, and no price is known of {', '.join(flavors)}; state it as "
        "annotation sluice.dev/usd-per-cpu-hour of the ResourceFlavor"
    )
    return Gate(Reason.PRICE_UNKNOWN, message)


def charges(
    budgets: Iterable[Budget],
    asking: model.WorkloadInfo,
    assignment: model.Assignment,
    workload: Workload,
    now: int,
) -> tuple[Charge, ...]:
    """What an admission commits: a charge for each budget.

    Nothing is committed for the workload's own: it counts as it runs (core.lifecycle.cost_limit).
    """
    per_hour = hourly_price(asking, assignment)
    own = Charge(OWN_BUDGET, window=0, microusd=0, per_hour=per_hour)
    limited = (own,) if limit_microusd(workload) is not None else ()
    return limited + tuple(
        Charge(budget.name, budget.window(now), budget.expected(asking, per_hour), per_hour)
        for budget in covering(budgets, asking)
    )


def spent_after(
    spent: Mapping[str, Mapping[str, int]],
    changes: Iterable[Change],
    budgets: Iterable[Budget],
    now: int,
) -> Spent:
    """The accounts once these admissions and releases are done; old windows are forgotten."""
    total: Spent = {name: dict(windows) for name, windows in spent.items()}

    def add(charge: Charge, microusd: int) -> None:
        windows = total.setdefault(charge.budget, {})
        window = str(charge.window)
        windows[window] = windows.get(window, 0) + microusd

    for change in changes:
        for charge in change.set.get("charges", ()):
            add(charge, charge.microusd)
        if "charges" in change.remove:
            for charge in change.before.charges:
                add(charge, accrued(change.before, charge, now) - charge.microusd)
    kept = {}
    for budget in budgets:
        first = budget.window(now) - KEPT_WINDOWS + 1
        if windows := {w: n for w, n in total.get(budget.name, {}).items() if int(w) >= first}:
            kept[budget.name] = windows
    return kept


def spent_now(
    budget: Budget,
    spent: Mapping[str, Mapping[str, int]],
    holders: Iterable[Workload],
    now: int,
) -> int:
    """Micro-dollars of the present window; who runs longer than was assumed counts as it runs."""
    window = budget.window(now)
    total = spent.get(budget.name, {}).get(str(window), 0)
    for holder in holders:
        for charge in holder.charges:
            if charge.budget == budget.name and charge.window == window:
                total += max(0, accrued(holder, charge, now) - charge.microusd)
    return total
