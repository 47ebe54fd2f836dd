"""Records as the api shows them: plain JSON, times in epoch milliseconds, quantities as text."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from sluice.core.accounting.costs import Bill
from sluice.core.accounting.recovery import interruptions, recovery, undone
from sluice.core.accounting.usage_intervals import IntervalKind, usage_intervals
from sluice.core.lifecycle import checks, dependencies
from sluice.core.lifecycle.inventory_row import InventoryRow
from sluice.core.lifecycle.record import State, Workload, phase
from sluice.core.lifecycle.reservations import total
from sluice.core.lifecycle.runs import first_admitted_at, waited_ms
from sluice.core.values.plain import to_plain
from sluice.core.values.quantity import format_quantity
from sluice.core.values.reasons import Action, Reason

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from sluice.core.accounting.recovery import Recovery
    from sluice.core.lifecycle.record import PodSet
    from sluice.core.lifecycle.run import Run

Json = dict[str, Any]


class Refusals:
    """Why workloads wait: code, message and how many are ahead, by workload."""

    def __init__(self, by_workload: Mapping[str, tuple[str, str, int]]) -> None:
        self.by_workload = by_workload

    def position(self, workload: Workload) -> int | None:
        """1 is the head of its queue."""
        refusal = self.by_workload.get(workload.id)
        return refusal[2] + 1 if refusal and workload.state is State.PENDING else None

    def reason(self, workload: Workload, now: int) -> Json | None:
        """Why the workload is not running, if it is not."""
        if workload.gated:
            return reason(Reason.ADMISSION_CHECK, checks.waits_for(workload))
        if workload.state is not State.PENDING:
            return (
                reason(workload.reason.code, workload.reason.message)
                if workload.reason.code
                else None
            )
        if workload.held and workload.reason.code == Reason.ADMISSION_CHECK:
            said = workload.reason.message
            told = reason(Reason.ADMISSION_CHECK, f"{said}; `sluice release` asks again")
            return told | {"action": Action.RELEASE.value}
        if workload.held:
            return reason(Reason.HELD_BY_USER, "held; `sluice release` lets it queue again")
        if workload.blocked:
            waits = dependencies.waits_for(workload.options.depends_on)
            why = workload.reason or waits
            return reason(why.code, why.message)
        if workload.not_before > now:
            seconds = (workload.not_before - now) // 1_000
            said = workload.reason.message
            message = f"queues again in {seconds} s" + (f" ({said})" if said else "")
            return reason(Reason.BACKOFF_UNTIL, message)
        if refusal := self.by_workload.get(workload.id):
            return reason(refusal[0], refusal[1])
        return (
            reason(workload.reason.code, workload.reason.message) if workload.reason.code else None
        )


def reason(code: str, message: str = "") -> Json:
    """A reason with what its reader may do about it."""
    try:
        known = Reason(code)
    except ValueError:
        return {"code": code, "message": message, "action": Action.WAIT.value}
    return {"code": known.value, "message": message or known.sentence, "action": known.action.value}


def quantities(amounts: Mapping[str, int]) -> dict[str, str]:
    return {name: format_quantity(name, amount) for name, amount in amounts.items()}


def workload_view(workload: Workload, refusals: Refusals, now: int) -> Json:
    """One workload; keys without a value are left out."""
    view: Json = {
        "id": workload.id,
        "name": workload.name,
        "namespace": workload.namespace,
        "queue": workload.queue,
        "clusterQueue": workload.cq,
        "root": workload.root,
        "kind": workload.kind,
        "phase": phase(workload),
        "state": workload.state.value,
        "generation": workload.generation,
        "priority": workload.priority,
        "priorityClass": workload.priority_class,
        "user": workload.submitted_by,
        "digest": workload.digest,
        "tenant": workload.tenant,
        "labels": dict(workload.labels),
        "reason": refusals.reason(workload, now),
        "position": refusals.position(workload),
        "held": workload.held,
        "request": quantities(total(workload.pod_sets)),
        "podSets": [_pod_set(each, workload) for each in workload.pod_sets],
        "flavors": _flavors(workload),
        "cluster": workload.cluster,
        "checks": {name: each.value for name, each in checks.states(workload).items()}
        if workload.reservation
        else {},
        "placed": workload.placed if workload.reservation else "",
        "recoveries": interruptions(workload),
        "createdAt": workload.created_at,
        "firstAdmittedAt": first_admitted_at(workload),
        "admittedAt": workload.admitted_at,
        "waitedMs": waited_ms(workload, now),
        "dispatchedAt": workload.dispatched_at,
        "startedAt": workload.started_at,
        "finishedAt": workload.finished_at,
        "time": time_view(workload, now),
        "lastCheckpointAt": workload.checkpoint_at,
        "result": workload.result.as_json(),
        "errors": to_plain(workload.errors),
        "runs": [_run(run) for run in undone(workload.runs)],
        "interruptions": _interruptions(recovery(workload)),
    }
    always = {"generation", "priority", "recoveries", "waitedMs"}
    return {key: value for key, value in view.items() if value or key in always}


def hardware(
    workload: Workload,
    flavors: Mapping[str, Mapping[str, Any]],
    nodes: Mapping[str, InventoryRow],
    now: int,
) -> Json:
    """What a workload runs or ran on, as far as its flavors and the inventory tell.

    `flavors` are ResourceFlavor documents, `nodes` the inventory by node name. Dollars are those
    of all of its runs, as far as their prices are known (core.accounting.costs).
    """
    labels: dict[str, str] = {}
    for flavor in _flavors(workload).values():
        labels |= (flavors.get(flavor, {}).get("spec") or {}).get("nodeLabels") or {}
    used = [nodes[name] for name in workload.result.nodes if name in nodes]
    bill = Bill()
    for stretch in usage_intervals(workload, now):
        bill.add(stretch, workload)
    view: Json = {
        "nodepool": _words(used, "nodepool") or labels.get("karpenter.sh/nodepool"),
        "capacity": _words(used, "capacity_type") or labels.get("karpenter.sh/capacity-type"),
        "instance": _words(used, "type"),
        "zone": _words(used, "zone"),
        "costUsd": round(bill.total.usd, 6),
        "savedUsd": round(bill.saved_usd, 6),
        "unpricedSeconds": bill.unpriced.ms / 1_000,
        "costPerHourUsd": workload.machine.usd_per_hour,
    }
    return {key: value for key, value in view.items() if value}


def time_view(workload: Workload, now: int) -> Json:
    """Where the time from its submission to its end, or to now, went; parts add up to `seconds`."""
    parts: dict[IntervalKind, int] = {}
    for stretch in usage_intervals(workload, now):
        parts[stretch.kind] = parts.get(stretch.kind, 0) + stretch.ms
    return {
        "seconds": sum(parts.values()) / 1_000,
        "parts": [
            {"what": kind.value, "seconds": parts[kind] / 1_000}
            for kind in IntervalKind
            if kind in parts
        ],
    }


def _words(nodes: Iterable[InventoryRow], attribute: str) -> str:
    return ",".join(sorted({getattr(node, attribute) for node in nodes} - {""}))


def _pod_set(pod_set: PodSet, workload: Workload) -> Json:
    view: Json = {
        "name": pod_set.name,
        "count": pod_set.count,
        "requests": quantities(pod_set.requests),
    }
    if pod_set.min_count is not None:
        view["minCount"] = pod_set.min_count
    if workload.reservation:
        for assigned in workload.reservation.pod_sets:
            if assigned.name == pod_set.name:
                view["admitted"] = assigned.count
                view["flavors"] = sorted(set(assigned.flavors.values()))
    return view


def _flavors(workload: Workload) -> dict[str, str]:
    if workload.reservation is None:
        return {}
    return {
        resource: flavor
        for assigned in workload.reservation.pod_sets
        for resource, flavor in assigned.flavors.items()
    }


def _interruptions(total: Recovery) -> Json:
    """Sums over all moves, in seconds and dollars; empty if there was none."""
    if not total.moves:
        return {}
    view: Json = {
        "moves": total.moves,
        "lostWorkSeconds": total.lost_ms / 1_000,
        "standstillSeconds": total.standstill_ms / 1_000,
        "lostSeconds": (total.lost_ms + total.standstill_ms) / 1_000,
    }
    if total.untold:
        view["lostWorkUnknown"] = total.untold
    if total.saved_usd is not None:
        view["spotSavedUsd"] = round(total.saved_usd, 6)
    if total.not_repeated_usd is not None:
        view["notRepeatedUsd"] = round(total.not_repeated_usd, 6)
    return view


def _run(run: Run) -> Json:
    always = {"generation"} if run.lost_ms is None else {"generation", "lost_ms"}
    return {_camel(key): value for key, value in asdict(run).items() if value or key in always}


def _camel(key: str) -> str:
    first, *rest = key.split("_")
    return first + "".join(word.title() for word in rest)
