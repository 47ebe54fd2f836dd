"""`sluice logs`: a workload's logs, live or from the archive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING

import click

from cli.app import pass_app
from cli.errors import ObjectNotFoundError
from cli.output import hint
from cli.selection import ENDED, find, one_workload
from cli.watching import PhaseLines, WorkloadWatcher, interruptible

if TYPE_CHECKING:
    from cli.app import App
    from cli.output import Json

FOLLOW_SECONDS = 1.0
LOOKS_AFTER_END = 5


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
    """Print a workload's logs: from running pods, or from the archive."""
    found = find(app.client, workload, name, outcome=True)
    if previous:
        generation = found["generation"] - 1
        if generation < 0:
            raise ObjectNotFoundError(f"workload {found['id']} has run only once")
    reader = LogReader(app, found["id"], generation, pod, container)
    if follow:
        with interruptible([reader.id]):
            _follow(app, reader)
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


class LogReader:
    """Reads new text of a workload's logs; it keeps an offset for each container."""

    def __init__(
        self, app: App, workload_id: str, generation: int | None, pod: str, container: str
    ) -> None:
        self.app, self.id, self.generation = app, workload_id, generation
        self.pod, self.container = pod, container
        self.offsets: dict[tuple[int, str, str], int] = {}

    def new_text(self) -> Iterator[tuple[str, str]]:
        """(pod/container, new text) for each log that has grown."""
        wanted = {} if self.generation is None else {"generation": str(self.generation)}
        listed = self.app.client.get("workloads", self.id, "logs", **wanted)["items"]
        chosen = [log for log in listed if self._chosen(log)]
        for log in chosen:
            label = f"{log['pod']}/{log['container']}" if len(chosen) > 1 else ""
            for text in self._rest(log):
                yield label, text

    def _chosen(self, log: Json) -> bool:
        return self.pod in {"", log["pod"]} and self.container in {"", log["container"]}

    def _rest(self, log: Json) -> Iterator[str]:
        key = (int(log["generation"]), str(log["pod"]), str(log["container"]))
        while True:
            part = self.app.client.get(
                "workloads",
                self.id,
                "logs",
                generation=str(key[0]),
                pod=key[1],
                container=key[2],
                offset=str(self.offsets.get(key, 0)),
            )
            self.offsets[key] = part["offset"]
            if part["text"]:
                yield part["text"]
            if not part["more"]:
                return


def follow_to_the_end(
    app: App, workload_id: str, digests: Mapping[str, str], timeout_seconds: float | None
) -> None:
    """Prints the logs of a workload that was sent just now, until its end or the timeout."""
    until = None if timeout_seconds is None else app.now() + timeout_seconds
    with interruptible([workload_id]):
        WorkloadWatcher(
            app, [workload_id], "running", timeout_seconds, fresh=True, digests=digests
        )(PhaseLines())
        _follow(app, LogReader(app, workload_id, None, "", ""), until)


def _follow(app: App, reader: LogReader, until: float | None = None) -> None:
    """Reads a few times more after the end of a workload without logs: the archive may be late."""
    printed = looks_after_end = 0
    while True:
        ended = app.client.workload(reader.id)["phase"] in ENDED
        printed += sum(map(_print, reader.new_text()))
        looks_after_end += ended
        if ended and (printed or looks_after_end > LOOKS_AFTER_END):
            return
        if until is not None and app.now() >= until:
            return
        app.sleep(FOLLOW_SECONDS)


def _print(part: tuple[str, str]) -> int:
    label, text = part
    if label:
        text = "".join(f"[{label}] {line}" for line in text.splitlines(keepends=True))
    click.echo(text, nl=False)
    return len(text)
