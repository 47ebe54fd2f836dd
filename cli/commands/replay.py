"""`sluice replay`: decides a recorded pass again and compares the plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sluice.client.errors import ObjectNotFoundError, RequestRefusedError
from sluice.client.exit_codes import ExitCode
from sluice.core.passes.recording import decide, differences, plain_plan, read_recording
from sluice.core.values.plain import digest

from cli.app import pass_app
from cli.figures import moment
from cli.output import Column, rows

if TYPE_CHECKING:
    from cli.app import App

SHOWN = 20
COLUMNS = (
    Column("VERSION", lambda row: str(row["version"])),
    Column("AT", lambda row: moment(row["at"])),
    Column("ADMITTED", lambda row: str(row["admitted"])),
    Column("PREEMPTED", lambda row: str(row["preempted"])),
    Column("SNAPSHOT", lambda row: row["digest"]),
)


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--root", help="Ask the api for a pass over this root cohort instead.")
@click.option("--version", type=int, help="The ledger version that it made; the newest recorded.")
@click.option("--list", "listing", is_flag=True, help="With --root: list the recorded passes.")
@click.option("--save", type=click.Path(dir_okay=False, path_type=Path), help="Keep it as a file.")
@pass_app
def replay(
    app: App,
    *,
    files: tuple[Path, ...],
    root: str | None,
    version: int | None,
    listing: bool,
    save: Path | None,
) -> None:
    """Decide recorded passes again: the same snapshot must give the same plan.

    FILE is a recorded pass as JSON. Exit codes: 0 same plan, 1 another plan, 2 usage, 3 there is
    no such recording, 5 a file is no recording.
    """
    if bool(files) == bool(root):
        raise click.UsageError("name either files, or --root")
    if root is None and (version is not None or listing or save):
        raise click.UsageError("--version, --list and --save go with --root")
    recordings = [(str(path), _read(path)) for path in files]
    if root is not None:
        known = app.api.get("passes", root)["items"] if version is None or listing else []
        if listing:
            rows(known, COLUMNS, "table")
            return
        if version is None:
            if not known:
                raise ObjectNotFoundError(f"no pass over {root} was recorded in the last month")
            version = known[-1]["version"]
        document = app.api.get("passes", root, str(version))
        if save is not None:
            save.write_text(json.dumps(document), encoding="utf-8")
        recordings.append((f"{root} version {version}", document))
    same = [_replay(place, document) for place, document in recordings]
    if not all(same):
        raise click.exceptions.Exit(ExitCode.ERROR)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RequestRefusedError(f"{path} is no JSON: {error}") from error


def _replay(place: str, document: Any) -> bool:
    """Whether the plan is the same. Raises RequestRefusedError if the document is no recording."""
    try:
        recording = read_recording(document)
    except ValueError as error:
        raise RequestRefusedError(f"{place}: {error}") from error
    replayed = plain_plan(decide(recording.snapshot))
    found = list(differences(recording.plan, replayed))
    if not found:
        gathered = recording.snapshot.gathered
        counts = ", ".join(f"{len(steps)} {kind}" for kind, steps in replayed.items())
        click.echo(
            f"{place}: same plan {digest(replayed)}: {counts}; {len(gathered.waiting)} waited and "
            f"{len(gathered.holders)} holders were looked at in {gathered.root}"
        )
        return True
    click.echo(f"{place}: another plan, {len(found)} differences")
    for difference in found[:SHOWN]:
        click.echo(f"  {difference}")
    return False
