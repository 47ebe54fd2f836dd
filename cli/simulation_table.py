"""A simulation's report as text: counts, a plot over time, workloads, queues."""

from __future__ import annotations

from heapq import merge
from itertools import islice
from typing import TYPE_CHECKING, Any

from sluice.simulation.curve import Curve, blocks

from cli.output import table

if TYPE_CHECKING:
    from cli.simulation_progress import SimulationProgress

_PLOT_COLUMNS = 60
_LISTED = 20  # the JSON output has everything


def simulation_table(result: dict[str, Any], progress: SimulationProgress) -> str:
    summary = result["summary"]
    counts = {
        "workloads": summary["workloads"],
        "admissions": summary["admissions"],
        "preemptions": summary["preemptions"],
        "finished": len(result["finished"]),
        "waiting": len(result["pending"]),
    }
    virtual, makespan = result["virtualSeconds"], summary["makespanSeconds"]
    lines = [
        f"{result['scenario']}: " + ", ".join(f"{n:,} {what}" for what, n in counts.items()),
        f"{result['passes']:,} passes in {virtual:,g} s of virtual time, makespan {makespan:,g} s",
        f"at most {summary['peakPending']:,} waiting at once",
    ]
    if summary["decisionCpuSeconds"]:
        lines.append(
            f"decisions took {summary['decisionCpuSeconds']:.3f} s of CPU, "
            f"{1000 * summary['cpuSecondsPerAdmission']:.4f} ms for each admission"
        )
    parts = [
        "\n".join(lines),
        _plot(result, progress),
        _listing(result),
        _waits(summary["waitSeconds"]),
        _queues(result),
        _budgets(result),
    ]
    return "\n\n".join(part for part in parts if part) + "\n"


def _plot(result: dict[str, Any], progress: SimulationProgress) -> str:
    """Use of each resource and the number waiting over virtual time."""
    end_ms = round(result["virtualSeconds"] * 1000)
    waiting = progress.pending.averages(end_ms, _PLOT_COLUMNS)
    if not waiting:
        return ""
    rows = []
    for resource, used in result["summary"]["utilisation"].items():
        curve = progress.in_use.get(resource, Curve()).averages(end_ms, _PLOT_COLUMNS)
        capacity = progress.scenario.capacity.get(resource, 0)
        rows.append((resource, blocks(curve, capacity), f"{used:.1%} useful"))
    rows.append(("waiting", blocks(waiting, max(waiting)), f"a full bar is {max(waiting):,.1f}"))
    width = max(len(name) for name, _, _ in rows)
    lines = [f"{name.ljust(width)} │{bars}│ {note}" for name, bars, note in rows]
    axis = f"0 s{result['virtualSeconds']:>{_PLOT_COLUMNS - 4},g} s"
    return "\n".join([*lines, f"{' ' * width}  {axis}"])


def _listing(result: dict[str, Any]) -> str:
    """What happened to single workloads, up to the number that a person reads."""
    # In the order of time; a preempted workload stands before the one that preempted it.
    happened = merge(
        ((one["phase"].lower(), one) for one in result.get("ended", ())),
        (("preempted", one) for one in result["preempted"]),
        (("admitted", one) for one in result["admitted"]),
        key=lambda entry: entry[1]["at"],
    )
    rows = [
        [
            one["workload"],
            one["clusterQueue"],
            what,
            f"{one['at']:g} s",
            _detail(what, one),
        ]
        for what, one in islice(happened, 2 * _LISTED)
    ]
    rows += [
        [one["workload"], one["clusterQueue"], "waiting", "", f"{one['reason']}: {one['message']}"]
        for one in result["pending"][:_LISTED]
    ]
    if not rows:
        return ""
    text = table(["WORKLOAD", "CLUSTERQUEUE", "WHAT", "AT", "DETAIL"], rows)
    keys = ("admitted", "preempted", "ended", "pending")
    total = sum(len(result.get(key, ())) for key in keys)
    more = f"\n… and {total - len(rows):,} more; -o json lists all" if total > len(rows) else ""
    return text + more


def _detail(what: str, one: dict[str, Any]) -> str:
    match what:
        case "admitted":
            return _pods(one) + (f" in {one['cluster']}" if "cluster" in one else "")
        case "preempted":
            return f"{one['reason']} by {one['by']}"
    return f"{one['reason']}: {one['message']}"


def _pods(admission: dict[str, Any]) -> str:
    return ", ".join(
        f"{pods['count']} x {pods['name']} on {'/'.join(dict.fromkeys(pods['flavors'].values()))}"
        for pods in admission["podSets"]
    )


def _waits(waits: dict[str, dict[str, float]]) -> str:
    keys = ["p50", "p90", "p99", "mean", "max"]
    rows = [[name, *(f"{one[key]:,.3g} s" for key in keys)] for name, one in waits.items()]
    return table(["WAIT", *(key.upper() for key in keys)], rows)


def _queues(result: dict[str, Any]) -> str:
    nodes = [(one, "") for one in result["clusterQueues"]]
    nodes += [(one, "cohort") for one in result["cohorts"]]
    rows = [
        [
            one["name"],
            kind,
            _cells(one["usage"]),
            _cells(one["available"]),
            _cells(one["potential"]),
            f"{one['share']['value']} {one['share']['resource']}".rstrip(),
        ]
        for one, kind in nodes[:_LISTED]
    ]
    text = table(["QUEUE", "KIND", "USED", "AVAILABLE", "POTENTIAL", "SHARE"], rows)
    more = len(nodes) - len(rows)
    return text + (f"\n… and {more:,} more" if more > 0 else "")


def _budgets(result: dict[str, Any]) -> str:
    rows = [
        [one["name"], f"${one['spentUSD']:,.2f}", f"${one['limitUSD']:,.2f}"]
        for one in result.get("budgets", ())
    ]
    return table(["BUDGET", "SPENT", "LIMIT"], rows) if rows else ""


def _cells(flavors: dict[str, dict[str, str]]) -> str:
    return ", ".join(
        f"{flavor}/{resource} {amount}"
        for flavor, resources in flavors.items()
        for resource, amount in resources.items()
    )
