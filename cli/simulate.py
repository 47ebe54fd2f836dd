"""`sluice simulate`: scenarios and generated load on the scheduling core, in virtual time."""

from __future__ import annotations

import gc
import json
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
from sluice.client.errors import RequestRefusedError, SluiceClientError, UsageError
from sluice.client.exit_codes import ExitCode
from sluice.client.yaml_stream import parse_yaml
from sluice.core.config.document import DocumentError
from sluice.core.values.quantity import parse_duration
from sluice.simulation.engine import Simulation
from sluice.simulation.expectation import differences
from sluice.simulation.report import report
from sluice.simulation.roots import NeverAtRestError
from sluice.simulation.scenario import parse_scenario

from cli.errors import CommandError
from cli.simulation_progress import SimulationProgress
from cli.simulation_table import simulation_table

if TYPE_CHECKING:
    from sluice.simulation.expectation import Expectation
    from sluice.simulation.scenario import Scenario

if TYPE_CHECKING:
    MillisecondsParameter = click.ParamType[int]
else:  # older releases of click have no generic class
    MillisecondsParameter = click.ParamType

STDIN = Path("-")


class GoDuration(MillisecondsParameter):
    """A length of time as Kubernetes writes it, such as 90s or 30ms; in milliseconds."""

    name = "duration"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> int:
        if isinstance(value, int):
            return value
        try:
            return parse_duration(str(value))
        except ValueError as error:
            self.fail(str(error), param, ctx)


@click.command()
@click.argument(
    "files",
    nargs=-1,
    required=True,
    type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path),
)
@click.option(
    "-o",
    "--output",
    type=click.Choice(["table", "json"]),
    default="table",
    show_default=True,
    help="A table with a plot, or one line of JSON for each file.",
)
@click.option("--until", type=GoDuration(), help="Stop at this virtual time.")
@click.option(
    "--commit-latency",
    type=GoDuration(),
    default=0,
    show_default="0s",
    help="How long a pass takes to come into force; passes of one root cohort follow each other.",
)
@click.option("--check", is_flag=True, help="Compare with the file's Expectation; differences: 1.")
@click.option(
    "--timing/--no-timing",
    default=None,
    help="Measure the CPU time of decisions. Default: only for files with a Load, so that the "
    "output of a listed Scenario is equal byte for byte whenever its input is.",
)
def simulate(files: tuple[Path, ...], **flags: Any) -> None:
    """Run queues and work in virtual time; nothing of AWS or Kubernetes is touched.

    FILE (`-` is stdin) is a stream of YAML documents: Kueue's objects, a Scenario, Loads and an
    Expectation.
    Exit codes: 0 fine, 1 the result differs from the Expectation, 2 usage, an empty file, or no
    Expectation to check, 5 a file is invalid.
    """
    worst, settings, well = ExitCode.OK, _Settings(**flags), 0
    for path in files:
        try:
            code = _simulate(path, settings)
        except SluiceClientError as error:
            CommandError(error).show()
            code = error.exit_code
        worst = max(worst, code)
        well += code is ExitCode.OK
    if settings.check and len(files) > 1:
        click.echo(f"{well} of {len(files)} files as expected", err=settings.output == "json")
    if worst is not ExitCode.OK:
        raise click.exceptions.Exit(worst)


@dataclass(frozen=True)
class _Settings:
    """The command's flags; times in milliseconds."""

    output: str
    until: int | None
    commit_latency: int
    check: bool
    timing: bool | None


def _simulate(path: Path, settings: _Settings) -> ExitCode:
    scenario = read_scenario(path)
    if settings.check and scenario.expectation is None:
        raise UsageError(
            f"{path} has no Expectation, so there is nothing to check",
            hint="add a document of kind Expectation, or leave out --check",
        )
    for notice in scenario.notices:
        click.echo(f"note: {path}: {notice}", err=True)
    measured = scenario.generated if settings.timing is None else settings.timing
    progress = SimulationProgress(scenario)
    simulation = Simulation(
        scenario,
        commit_latency_ms=settings.commit_latency,
        until_ms=settings.until,
        cpu_clock=time.process_time if measured else float,
        watch=progress,
    )
    # A million workloads that never die would be searched for garbage again and again.
    gc.collect()
    gc.freeze()
    try:
        result = report(scenario, simulation.run())
    except NeverAtRestError as error:
        progress.close()
        click.echo(f"{path}: {error}", err=True)
        return ExitCode.ERROR
    finally:
        gc.unfreeze()
    progress.close()
    if settings.output == "json":
        click.echo(json.dumps(result, ensure_ascii=False, separators=(",", ":")))
    elif not settings.check:
        click.echo(simulation_table(result, progress))
    if settings.check and scenario.expectation is not None:
        return _compare(path, scenario.expectation, result, settings)
    return ExitCode.OK


def read_scenario(path: Path) -> Scenario:
    """Reads a scenario file. Raises RequestRefusedError with all flaws, or UsageError if empty."""
    raw = sys.stdin.buffer.read() if path == STDIN else path.read_bytes()
    try:
        documents = parse_yaml(raw.decode("utf-8"))
        if all(document is None for document in documents):
            raise UsageError(
                f"{path} is empty",
                hint="write queues and a Scenario or a Load into it; see docs/simulate.md",
            )
        return parse_scenario(documents, "stdin" if path == STDIN else path.stem)
    except DocumentError as error:
        errors = [
            {"field": ": ".join(filter(None, (one.document, one.field))), "message": one.message}
            for one in error.flaws
        ]
        raise RequestRefusedError(f"{path} is not a scenario", errors=errors) from error
    except UnicodeDecodeError as error:
        line = error.object[: error.start].count(b"\n") + 1
        raise RequestRefusedError(
            f"{path}: line {line} is not UTF-8; save the file as UTF-8"
        ) from error
    except ValueError as error:
        raise RequestRefusedError(f"{path} is not YAML: {error}") from error


def _compare(
    path: Path, expectation: Expectation, result: dict[str, Any], settings: _Settings
) -> ExitCode:
    """Prints the differences from the Expectation, beside JSON on stderr."""
    aside = settings.output == "json"
    found = list(differences(expectation, result))
    if found or not aside:
        many = "1 difference" if len(found) == 1 else f"{len(found)} differences"
        verdict = many if found else "as expected"
        click.echo(f"{path}: {verdict}", err=aside)
    for line in found:
        click.echo(f"  {line}", err=aside)
    return ExitCode.ERROR if found else ExitCode.OK
