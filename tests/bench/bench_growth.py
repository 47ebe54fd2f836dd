"""How costs grow: each function by each parameter, in calls, units, CPU and virtual time.

`python -m tests.bench.bench_growth [WORD...] [--save FILE] [--against FILE]`; the frame and how
rows are added: tests/bench/growth.py. Units and waiting are those of AWS by its documentation, with
5 ms a read, 8 ms a conditional write and 20 ms a transaction of 100; CPU is this machine's, scaled
to the share of a vCPU that the function has. No TLS, cold start or throttling.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

import click

from tests.bench.growth import run

MODULES: Final = ("growth_admission",)


@click.command()
@click.argument("words", nargs=-1)
@click.option("--save", default="", help="File for the numbers of this run.")
@click.option("--against", default="", help="File of an earlier run.")
def main(words: tuple[str, ...], save: str, against: str) -> None:
    found = [row for name in MODULES for row in import_module(f"tests.bench.{name}").rows()]
    chosen = [row for row in found if not words or any(word in row.name for word in words)]
    cliffs = run(chosen, save=save, against=against)
    click.echo(f"\n{len(cliffs)} beyond half of a limit")
    for cliff in cliffs:
        click.echo(f"  {cliff}")


if __name__ == "__main__":
    main()
