"""`sluice replay`: decides a recorded pass again and compares the plans."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sluice.core.plain import digest
from sluice.core.recording import decide, first_difference, plain_plan, read_recording

from cli.app import pass_app
from cli.errors import RefusedError
from cli.exit_codes import Exit

if TYPE_CHECKING:
    from cli.app import App


@click.command()
@click.argument("files", nargs=-1, type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.option("--root", help="Ask the api for a pass over this root cohort instead.")
@click.option("--version", type=int, help="The ledger version that the pass made; with --root.")
@pass_app
def replay(app: App, *, files: tuple[Path, ...], root: str | None, version: int | None) -> None:
    """Decide recorded passes again: the same snapshot must give the same plan.

    FILE is a recorded pass as JSON. Exit codes: 0 same plan, 1 another plan, 2 usage, 5 a file is
    no recording.
    """
    if bool(files) == bool(root) or (root is None) != (version is None):
        raise click.UsageError("name either files, or --root and --version")
    recordings = [(str(path), _read(path)) for path in files]
    if root is not None:
        place = f"{root} version {version}"
        recordings.append((place, app.client.ask("passes", root, str(version))))
    same = [_replay(place, document) for place, document in recordings]
    if not all(same):
        raise click.exceptions.Exit(Exit.ERROR)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except ValueError as error:
        raise RefusedError(f"{path} is no JSON: {error}") from error


def _replay(place: str, document: Any) -> bool:
    """Whether the plan came out again; raises RefusedError for what is no recording."""
    try:
        recording = read_recording(document)
    except ValueError as error:
        raise RefusedError(f"{place}: {error}") from error
    replayed = plain_plan(decide(recording.snapshot))
    difference = first_difference(recording.plan, replayed)
    if difference is None:
        snapshot = recording.snapshot
        click.echo(
            f"{place}: same plan {digest(replayed)}: {len(replayed['admissions'])} admitted, "
            f"{len(replayed['preemptions'])} preempted; {len(snapshot.waiting)} waited and "
            f"{len(snapshot.holdings)} held quota in {snapshot.root}"
        )
    else:
        click.echo(f"{place}: another plan came out, first at {difference}")
    return difference is None
