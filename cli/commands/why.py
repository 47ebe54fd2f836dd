"""`sluice why`: the reason why a workload does not run, with its arithmetic."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.figures import amounts, between, span
from cli.output import Json, clean, document, output_option, table
from cli.selection import ENDED, find, one_workload

if TYPE_CHECKING:
    from cli.app import App


@click.command()
@one_workload
@output_option
@pass_app
def why(app: App, *, workload: str | None, name: str | None, output: str) -> None:
    """Explain why a workload does not run: quota, its holders, the queue ahead, what would help."""
    found = find(app.api, workload, name)
    answer = app.api.get("workloads", found["id"], "why")
    if output in {"json", "yaml"}:
        document(answer, output)
        return
    for line in lines(answer, int(app.now() * 1_000)):
        click.echo(line)


def lines(answer: Json, now_ms: int) -> Iterator[str]:
    """The answer as lines of text; empty parts are left out."""
    yield clean(answer["headline"])
    if answer.get("placed"):
        yield "\n" + clean(f"Placed:  {answer['placed']}")
    if reason := answer.get("reason"):
        over = answer["phase"] in ENDED and reason["action"] == "WAIT"
        yield f"\nReason:  {reason['code']}" + ("" if over else f" ({reason['action']})")
        if answer.get("toDo"):
            yield f"         {answer['toDo']}"
    yield from _start(answer)
    if answer.get("quota"):
        yield f"\nQuota of {answer['clusterQueue']}:"
        yield _quota(answer["quota"])
    if answer.get("holders"):
        yield "\nHeld by:"
        yield _people(answer["holders"], now_ms, "HELD-FOR", "since")
    if answer.get("ahead"):
        yield "\nAhead in the queue:"
        yield _people(answer["ahead"], now_ms, "WAITING", "createdAt")
    yield from _outlook(answer)


def _start(answer: Json) -> Iterator[str]:
    """Of a workload that starts: the pods without a machine, and how long it is waited for them."""
    if answer.get("unplacedPods"):
        yield f"\nPods without a node ({len(answer['unplacedPods'])} of {answer['pods']}):"
    for pod in answer.get("unplacedPods", ()):
        said = f": {pod['message']}" if pod["message"] else ""
        yield clean(f"  {pod['pod']}, for {span(pod['waitedMs'] / 1_000)}{said}")
        if pod.get("karpenter"):
            yield clean(f"    Karpenter: {pod['karpenter']}")
    if ready := answer.get("podsReady"):
        most, left = span(ready["timeoutMs"] / 1_000), span(ready["leftMs"] / 1_000)
        yield f"\nAll pods have to be ready within {most} (waitForPodsReady); {left} are left."


def _outlook(answer: Json) -> Iterator[str]:
    if answer.get("position"):
        yield f"\nPosition: {answer['position']} of {answer['waiting']} in {answer['clusterQueue']}"
    if estimate := answer.get("approximateWaitSeconds"):
        yield f"Approximate wait: {_between(estimate)}"
    if answer.get("attempts"):
        yield "\nEarlier attempts:"
    for attempt in answer.get("attempts", ()):
        yield clean(f"  generation {attempt['generation']}: {attempt['outcome']}")
    if answer.get("wouldHelp"):
        waits = answer["phase"] == "PENDING"
        yield "\nWhat would admit it:" if waits else "\nWhat would help:"
    for step in answer.get("wouldHelp", ()):
        yield clean(f"  - {step}")
    if answer.get("commands"):
        yield "\nCommands:"
        width = max(len(each["command"]) for each in answer["commands"])
        for each in answer["commands"]:
            yield clean(f"  {each['command']:{width}}  {each['purpose']}")


def _between(seconds: Json) -> str:
    least, most = span(seconds["least"]), span(seconds["most"])
    if seconds["most"] is None:
        return f"at least {least}"
    if not seconds["least"]:
        return f"at most {most}"
    return least if least == most else f"{least} to {most}"


def _quota(lines: list[Json]) -> str:
    headings = ["FLAVOR", "RESOURCE", "REQUEST", "NOMINAL", "USED", "AVAILABLE", "POTENTIAL"]
    names = ["flavor", "resource", "request", "nominal", "used", "available", "potential"]
    return table(headings, [[str(line.get(name, "")) for name in names] for line in lines])


def _people(workloads: list[Json], now_ms: int, heading: str, since: str) -> str:
    cells = [
        [
            workload["id"],
            workload["name"],
            workload["queue"],
            str(workload["priority"]),
            amounts(workload["request"]),
            between(workload.get(since), now_ms),
        ]
        for workload in workloads
    ]
    return table(["ID", "NAME", "QUEUE", "PRIORITY", "REQUEST", heading], cells)
