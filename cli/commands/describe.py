"""`sluice describe`: everything that is known about a workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click
from sluice.core.values.mistakes import mistake

from cli.app import pass_app
from cli.commands.events import EVENT_COLUMNS
from cli.figures import amounts, between, cost, span
from cli.output import Json, clean, document, output_option, paint, table
from cli.selection import find, one_workload

if TYPE_CHECKING:
    from cli.app import App


@click.command()
@one_workload
@output_option
@pass_app
def describe(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Show everything known about a workload: state, quota, runs, result, timeline."""
    found = find(app.api, workload, name)
    events = app.api.get("workloads", found["id"], "events")["items"]
    if output in {"json", "yaml"}:
        document(found | {"events": events}, output)
        return
    now_ms = int(app.now() * 1_000)
    saving = app.api.get("workloads", found["id"], "checkpoints")
    told = (*_facts(found, now_ms), *_saving(saving, now_ms))
    facts = [(label, value) for label, value in told if value]
    width = max(len(label) for label, _ in facts) + 2
    for label, value in facts:
        click.echo(f"{label + ':':<{width}}{paint(clean(value))}")
    if parts := (found.get("time") or {}).get("parts"):
        click.echo(f"\nTime: {span(found['time']['seconds'])}, of which")
        click.echo(_time(parts))
    if found.get("podSets"):
        click.echo("\nPod sets:")
        click.echo(_pod_sets(found["podSets"]))
    if found.get("runs"):
        click.echo("\nRuns:")
        click.echo(_runs(found["runs"]))
    if counts := (found.get("result") or {}).get("exit_code_counts"):
        ended_with = ", ".join(f"{count} × {code}" for code, count in counts.items())
        click.echo(f"\nExit codes of its containers: {ended_with}")
    if codes := (found.get("result") or {}).get("exit_codes"):
        click.echo("\nExit codes:")
        click.echo(_exit_codes(codes))
    for error in found.get("errors") or ():
        click.echo("\n" + clean(f"Error: {mistake(error)}"))
    click.echo("\nEvents:")
    click.echo(
        table(
            [c.heading for c in EVENT_COLUMNS], [[c.cell(e) for c in EVENT_COLUMNS] for e in events]
        )
    )


def _facts(found: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    reason = found.get("reason") or {}
    result = found.get("result") or {}
    yield "Id", found["id"]
    yield "Name", found["name"]
    yield "Namespace", found["namespace"]
    yield "Queue", found["queue"]
    yield "ClusterQueue", found.get("clusterQueue", "")
    yield "Cohort", found.get("root", "")
    yield "Status", found["phase"]
    yield "Reason", ": ".join(filter(None, (reason.get("code"), reason.get("message"))))
    yield "Position", str(found.get("position") or "")
    yield "Priority", f"{found['priority']} {found.get('priorityClass', '')}".strip()
    yield "Request", amounts(found.get("request") or {})
    yield "Submitted by", found.get("user", "")
    yield "Submitted", f"{between(found['createdAt'], now_ms)} ago"
    yield "Waited", span(found["waitedMs"] / 1_000)
    began = found.get("startedAt") or (found.get("finishedAt") and found.get("dispatchedAt"))
    yield "Runtime", between(began, found.get("finishedAt") or now_ms)
    yield "Generation", str(found["generation"])
    yield "Recoveries", str(found.get("recoveries") or "")
    yield "Cluster", found.get("cluster", "")
    yield "Placed", found.get("placed", "")
    pool = found.get("nodepool")
    machine = (
        found.get("instance"),
        found.get("capacity"),
        f"NodePool {pool}" if pool else "",
        found.get("zone"),
    )
    yield "Machine", ", ".join(filter(None, machine))
    yield "Flavors", amounts(found.get("flavors") or {})
    saved = between(found.get("lastCheckpointAt"), now_ms)
    yield "Last checkpoint", saved and f"{saved} ago"
    yield "Cost", money(found.get("costUsd"))
    yield "Spot saves", money(found.get("savedUsd"))
    if moves := found.get("interruptions"):
        yield "Lost to migrations", _lost(moves)
        yield "Saved in migrations", _saved(moves)
    yield "Result", ": ".join(filter(None, (result.get("reason"), result.get("message"))))
    indexes = result.get("indexes") or {}
    yield "Array", "; ".join(f"{what} {which}" for what, which in indexes.items())


def _saving(saving: Json, now_ms: int) -> Iterator[tuple[str, str]]:
    """Whether a checkpoint saves it, as the last one showed."""
    if not (last := saving.get("canBeSaved")):
        return
    ago = f" ({between(last['at'], now_ms)} ago)" if last.get("at") else ""
    text = "not known before its first checkpoint, soon after its start"
    if last["answer"] == "yes":
        text = f"yes, {last['bytes'] / 1e6:.0f} MB, {last['tookMs'] / 1000:.1f} s{ago}"
    elif last["answer"] == "no":
        text = f"no: {last['why']}{ago}"
    yield "Can be saved", text
    yield "Connections", saving.get("connections", "")


def _lost(moves: Json) -> str:
    """`1m12s: 60s of work done again, 12s of downtime`."""
    work, still = round(moves["lostWorkSeconds"]), round(moves["standstillSeconds"])
    parts = f"{span(work)} of work done again, {span(still)} of downtime"
    text = f"{span(work + still)}: {parts}"
    if unknown := moves.get("lostWorkUnknown"):
        text += (
            f"; for {unknown} of {moves['moves']} migrations only the application knows the loss"
        )
    return text


def _saved(moves: Json) -> str:
    spot, kept = moves.get("spotSavedUsd"), moves.get("notRepeatedUsd")
    parts = (
        f"{cost(spot)} against on-demand until then" if spot is not None else "",
        f"{cost(kept)} of work not repeated" if kept is not None else "",
    )
    return ", ".join(filter(None, parts))


def money(amount: float | None) -> str:
    return "" if amount is None else cost(amount)


TIMES = {
    "waiting": "waiting for quota",
    "placing": "with quota, without a machine",
    "starting": "with a machine, starting",
    "useful": "running",
    "failed": "running work that failed or was cancelled",
    "redone": "running work that was done again",
    "moving": "being checkpointed, or between two machines",
}


def _time(parts: list[Json]) -> str:
    """One line for each part, in seconds, so that they visibly add up."""
    cells = [[f"{part['seconds']:,.1f} s".rjust(12), TIMES[part["what"]]] for part in parts]
    return "\n".join("  ".join(row) for row in cells)


def _pod_sets(pod_sets: list[Json]) -> str:
    cells = [
        [
            pod_set["name"],
            str(pod_set["count"]),
            str(pod_set.get("minCount") or ""),
            amounts(pod_set["requests"]),
            ",".join(pod_set.get("flavors") or ()),
        ]
        for pod_set in pod_sets
    ]
    return table(["NAME", "COUNT", "MIN", "REQUEST", "FLAVORS"], cells)


def _exit_codes(codes: dict[str, dict[str, int]]) -> str:
    cells = [
        [pod, container, str(code)]
        for pod, containers in sorted(codes.items())
        for container, code in sorted(containers.items())
    ]
    return table(["POD", "CONTAINER", "EXIT-CODE"], cells)


def _runs(runs: list[Json]) -> str:
    cells = [
        [
            str(run["generation"]),
            run.get("cluster", ""),
            between(run.get("admittedAt"), run.get("startedAt") or run.get("dispatchedAt")),
            between(run.get("startedAt") or run.get("dispatchedAt"), run.get("endedAt")),
            run.get("outcome", ""),
            run.get("node", ""),
            span(run["lostMs"] / 1_000) if "lostMs" in run else "",
        ]
        for run in runs
    ]
    headings = ["GENERATION", "CLUSTER", "START-UP", "RUNTIME", "OUTCOME", "NODE", "LOST"]
    return table(headings, cells)
