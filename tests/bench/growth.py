"""The frame of `bench_growth`: what one call of a function costs while one parameter grows.

How to add rows: write a module `tests/bench/growth_<area>.py` with a function `rows()` that yields
`Row`s, and name it in `bench_growth.MODULES`. A `Row` names the function, the parameter and its
sizes; its `prepare(size)` builds a `MeteredAWS` (tests/bench/metered/aws.py) in the state to be
measured and returns a `Case`: the account, and the call to measure. Build use cases on the real
adapters over `aws.client("dynamodb")`, with `aws.clock` as their clock and `aws.pool()` in place of
every ThreadPoolExecutor (theirs and their adapters'); load tables with
`aws.dynamodb.tables["Nodes"].load(items)`, which costs nothing. `memory_mb` scales the CPU as
Lambda does. Loading and answering are not counted. What talks to Kubernetes takes a fake cluster
and adds its time itself: `aws.clock.wait(ms)` inside of it. A `Case` may carry `notes`: numbers of
its own, such as messages sent, that are printed beside the others.

    def prepare(size: int) -> Case:
        aws = MeteredAWS(memory_mb=1024)
        aws.dynamodb.tables["Nodes"].load(...)
        fleet = Fleet(nodes=DynamoDBNodes(aws.client("dynamodb"), "Nodes"), clock=aws.clock)
        return Case(aws, lambda: fleet(snapshot))

    yield Row("admit: machines", "machines", (100, 1_000), prepare, timeout_seconds=20)

`python -m tests.bench.bench_growth [WORD...] [--save FILE] [--against FILE]` runs the rows whose
name holds a word, and compares them with those that an earlier run saved.
"""

from __future__ import annotations

import json
import math
import tracemalloc
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any, Final

import click

from tests.bench.metered.aws import MeteredAWS

BEFORE: Final = Path(__file__).with_name("growth_before.json")
HALF: Final = 0.5  # of a limit: nothing may come nearer
COLUMNS: Final = ("calls", "RRU", "WRU", "CPU ms", "ms", "largest KB")


@dataclass(frozen=True)
class Case:
    """One size: `call` is measured; it may return numbers that are shown as notes."""

    aws: MeteredAWS
    call: Callable[[], object]
    notes: Mapping[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Row:
    """One function and one parameter. `timeout_seconds` 0: nothing bounds it."""

    name: str
    parameter: str
    sizes: Sequence[int]
    prepare: Callable[[int], Case]
    timeout_seconds: float = 0


@dataclass(frozen=True)
class Cost:
    """Of one call: requests of all services, units, CPU and virtual time in ms."""

    size: int
    calls: int
    read: float
    write: float
    cpu_ms: float
    ms: float
    largest: int
    notes: Mapping[str, float] = field(default_factory=dict)
    failed: str = ""

    @property
    def cells(self) -> tuple[str, ...]:
        numbers = (self.calls, self.read, self.write, self.cpu_ms, self.ms, self.largest / 1024)
        return tuple(f"{number:,.0f}" for number in numbers)


def measure(row: Row, size: int) -> Cost:
    """A call that fails is told with its costs until then."""
    case = row.prepare(size)
    aws, units = case.aws, case.aws.dynamodb.units
    units.read = units.write = units.largest = 0
    aws.calls.clear()
    aws.clock.restart()
    answer: object = None
    failed = ""
    try:
        answer = case.call()
    except Exception as error:  # noqa: BLE001, a cliff is a result
        failed = f"{type(error).__name__}: {error}"[:120]
    aws.clock.settle()
    notes = dict(case.notes) | (dict(answer) if isinstance(answer, dict) else {})
    clock, calls = aws.clock, sum(aws.calls.values())
    spent = (units.read, units.write, round(clock.cpu_ms, 1), round(clock.ms, 1))
    return Cost(size, calls, *spent, units.largest, notes, failed)


def megabytes(work: Callable[[], object]) -> float:
    """The most memory that a call holds at once beyond what was there; slow."""
    tracemalloc.start()
    try:
        work()
        return tracemalloc.get_traced_memory()[1] / 1e6
    finally:
        tracemalloc.stop()


def order(costs: Sequence[Cost], of: Callable[[Cost], float]) -> float:
    """The exponent with which a cost grows over the upper half of the sizes: 0 flat, 1 linear."""
    usable = [(cost.size, of(cost)) for cost in costs if cost.size > 0 and of(cost) > 0]
    if len(usable) < 2:
        return 0.0
    (low, before), (high, after) = usable[(len(usable) - 1) // 2], usable[-1]
    if low == high:
        (low, before) = usable[0]
    return math.log(after / before) / math.log(high / low)


def run(rows: Iterable[Row], *, save: str = "", against: str = "") -> list[str]:
    """Prints every row; the cliffs among them: beyond half of a timeout, or failed."""
    path = Path(against) if against else BEFORE
    before: dict[str, Any] = json.loads(path.read_text()) if path.exists() else {}
    saved: dict[str, Any] = {}
    cliffs: list[str] = []
    for row in rows:
        click.echo(f"\n{row.name}, by {row.parameter}")
        click.echo(
            f"{'':>10} " + " ".join(f"{name:>10}" for name in COLUMNS) + "   before: ms, RRU"
        )
        costs = []
        for size in row.sizes:
            cost = measure(row, size)
            costs.append(cost)
            was = before.get(row.name, {}).get(str(size))
            then = f"   {was['ms']:,.0f} {was['read']:,.0f} {was['failed']}" if was else ""
            notes = " ".join(f"{name}={number:,.4g}" for name, number in cost.notes.items())
            cells = " ".join(f"{cell:>10}" for cell in cost.cells)
            click.echo(f"{size:>10,} {cells}{then} {notes} {cost.failed}".rstrip())
            if cost.failed or (row.timeout_seconds and cost.ms > 1000 * HALF * row.timeout_seconds):
                cliffs.append(f"{row.name} at {size:,}: {cost.ms:,.0f} ms {cost.failed}".rstrip())
        fitted = {"calls": order(costs, lambda c: c.calls), "RRU": order(costs, lambda c: c.read)}
        fitted |= {"ms": order(costs, lambda c: c.ms)}
        click.echo("     order " + ", ".join(f"{name} n^{of:.2f}" for name, of in fitted.items()))
        saved[row.name] = {str(cost.size): asdict(cost) for cost in costs}
    if save:
        Path(save).write_text(json.dumps(saved, indent=1, sort_keys=True) + "\n")
    return cliffs
