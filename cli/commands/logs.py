"""`sluice logs`: a workload's logs, live or from the archive."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

import click
from sluice.client.errors import ObjectNotFoundError
from sluice.client.log_reader import LogReader
from sluice.client.watching import WorkloadWatcher

from cli.app import pass_app
from cli.output import hint
from cli.selection import ENDED, find, one_workload
from cli.watching import PhaseLines, interruptible

if TYPE_CHECKING:
    from cli.app import App
    from cli.output import Json


@click.command()
@one_workload
@click.option("-f", "--follow", is_flag=True, help="Follow until the workload ends.")
@click.option("-p", "--previous", is_flag=True, help="Logs of the generation before this one.")
@click.option("-g", "--generation", type=click.IntRange(min=0), help="Logs of this generation.")
@click.option("--pod", default="", help="Only this pod.")
@click.option("-c", "--container", default="", help="Only this container.")
@pass_app
def logs(
    app: App,
    *,
    workload: str | None,
    name: str | None,
    follow: bool,
    previous: bool,
    generation: int | None,
    pod: str,
    container: str,
) -> None:
    """Print a workload's logs: from running pods, or from the archive.

    The logs of all generations are joined, with a line between them; of one that went on from a
    dump of its processes only what was not printed before.
    """
    found = find(app.api, workload, name, outcome=True)
    if previous:
        generation = found["generation"] - 1
        if generation < 0:
            raise ObjectNotFoundError(f"workload {found['id']} has run only once")
    reader = LogReader(app, found["id"], generation, pod, container)
    if follow:
        with interruptible([reader.id]):
            for part in reader.follow():
                _print(part)
        return
    printed = sum(map(_print, reader.new_text()))
    if not printed:
        hint(_none(found, generation))


def _none(found: Json, generation: int | None) -> str:
    """Why there are no logs."""
    if generation is not None and generation > found["generation"]:
        last = found["generation"]
        return f"workload {found['id']} has no generation {generation}; its newest is {last}"
    past = found["phase"] in ENDED or generation not in {None, found["generation"]}
    of = "" if generation is None else f" of generation {generation}"
    none = "no logs are kept" if past else "no logs yet"
    return f"{none}{of}; workload {found['id']} is {found['phase']}"


def follow_to_the_end(
    app: App, workload_id: str, digests: Mapping[str, str], timeout_seconds: float | None
) -> None:
    """Prints the logs of a workload that was sent just now, until its end or the timeout."""
    until = None if timeout_seconds is None else app.now() + timeout_seconds
    with interruptible([workload_id]):
        WorkloadWatcher(
            app, [workload_id], "running", timeout_seconds, fresh=True, digests=digests
        )(PhaseLines())
        for part in LogReader(app, workload_id, None, "", "").follow(until):
            _print(part)


def _print(part: tuple[str, str]) -> int:
    label, text = part
    if label:
        text = "".join(f"[{label}] {line}" for line in text.splitlines(keepends=True))
    click.echo(text, nl=False)
    return len(text)
