"""`sluice admin ledger`: what a root cohort has given out, counted again from its workloads."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.client.exit_codes import ExitCode

from cli.app import pass_app
from cli.errors import CommandExit
from cli.figures import amounts, between
from cli.output import Column, Json, Row, document, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

AGAIN_SECONDS = 2.0  # an index may lag behind a ledger; a true difference stays


def _verdict(row: Row) -> str:
    if row["moved"]:
        return "is being written; ask again"
    if row["differences"]:
        return f"{row['differences']} cell(s) differ"
    return "agrees"


ROOTS = (
    Column("ROOT", lambda row: row["root"]),
    Column("VERSION", lambda row: str(row["version"])),
    Column("RESERVATIONS", lambda row: str(row["reservations"])),
    Column("RESULT", _verdict),
)
CELLS = (
    Column("CLUSTERQUEUE", lambda row: row["clusterQueue"]),
    Column("FLAVOR", lambda row: row["flavor"]),
    Column("RESOURCE", lambda row: row["resource"]),
    Column("LEDGER", lambda row: row["used"]),
    Column("WORKLOADS", lambda row: row["reserved"]),
    Column("DIFFERENCE", lambda row: row.get("difference", "")),
)


@click.command()
@click.argument("name", required=False, metavar="[COHORT|QUEUE]")
@output_option
@pass_app
def ledger(app: App, *, name: str | None, output: str) -> None:
    """Show a ledger, and verify it: count again what the workloads hold.

    Without a name: all root cohorts. Exit code 1 if a ledger differs from its workloads.
    """
    found = _counted(app, name)
    if name is None:
        items: list[Json] = found["items"]
        rows(items, ROOTS, output, name="root")
        if not items and output in {"table", "wide"}:
            hint("no ledgers; `sluice apply -f FILE` makes queues")
    elif output in {"json", "yaml"}:
        document(found, output)
    else:
        _show(found, int(app.now() * 1_000), output)
    differing = [each for each in _summaries(found) if each["differences"]]
    if differing:
        roots = ", ".join(each["root"] for each in differing)
        hint(f"{roots}: the ledger differs from what the workloads hold; see docs/operations.md")
        raise CommandExit(ExitCode.ERROR)


def _counted(app: App, name: str | None) -> Json:
    """Asks again if a ledger differs: a change in progress does not differ twice."""
    path = ("ledgers",) if name is None else ("ledgers", name)
    found: Json = app.api.get(*path)
    if any(each["differences"] for each in _summaries(found)):
        app.sleep(AGAIN_SECONDS)
        found = app.api.get(*path)
    return found


def _summaries(found: Json) -> list[Json]:
    summaries: list[Json] = found.get("items", [found])
    return summaries


def _show(found: Json, now_ms: int, output: str) -> None:
    if output == "name":
        click.echo(found["root"])
        return
    click.echo(f"Root cohort {found['root']}, version {found['version']}: {_verdict(found)}")
    if found["cells"]:
        click.echo()
        rows(found["cells"], CELLS, output)
    for cell in found["cells"]:
        if "difference" in cell:
            who = ", ".join(cell["holders"]) or "nobody"
            click.echo(
                f"{cell['clusterQueue']} {cell['flavor']}/{cell['resource']}: the ledger says "
                f"{cell['used']}, the workloads hold {cell['reserved']}; held by {who}"
            )
    if found["holders"]:
        click.echo("\nReservations:")
        rows(found["holders"], _holders(now_ms), output)
    if (left := found["reservations"] - len(found["holders"])) > 0:
        hint(f"and {left} more")


def _holders(now_ms: int) -> tuple[Column, ...]:
    return (
        Column("ID", lambda row: row["id"]),
        Column("NAME", lambda row: row["name"]),
        Column("CLUSTERQUEUE", lambda row: row["clusterQueue"]),
        Column("STATUS", lambda row: row["phase"]),
        Column("GEN", lambda row: str(row["generation"])),
        Column("CLUSTER", lambda row: row["cluster"]),
        Column("HOLDS", lambda row: amounts(row["holds"])),
        Column("SINCE", lambda row: between(row["since"], now_ms)),
    )
