"""`sluice apply` and `sluice delete`: queues, flavors, tenants; Kueue's own YAML is accepted."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.client.documents import read
from sluice.client.exit_codes import ExitCode
from sluice.usecases.steering.apply import KINDS

from cli.app import pass_app
from cli.confirmation import require_yes
from cli.output import Column, Json, clean, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

COLUMNS = (
    Column("KIND", lambda row: row["kind"]),
    Column("NAME", lambda row: row["name"]),
    Column("RESULT", lambda row: row["result"]),
)


files_option = click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|-|DIR",
    help="YAML, JSON.",
)
prune_option = click.option(
    "--prune",
    is_flag=True,
    help="Also delete applied objects of the same kinds that the files do not name.",
)


@click.command()
@files_option
@click.option("--dry-run", is_flag=True, help="Validate and show the changes without writing.")
@prune_option
@click.option("-y", "--yes", is_flag=True, help="Do not ask before --prune deletes.")
@output_option
@pass_app
def apply(
    app: App, *, files: tuple[str, ...], dry_run: bool, prune: bool, yes: bool, output: str
) -> None:
    """Apply configuration: all of it at once, or nothing.

    Kinds: Kueue's ClusterQueue, Cohort, LocalQueue, ResourceFlavor, WorkloadPriorityClass and
    AdmissionCheck (v1beta1, v1beta2); Cluster, Tenant, SchedulingPolicy and Budget of
    sluice.dev/v1.
    """
    documents = [source.document for source in read(files)]
    body = {"documents": documents, "dryRun": dry_run, "prune": prune}
    if prune and not dry_run:
        planned = app.api.post("catalog", body=body | {"dryRun": True})["items"]
        if gone := [f"{i['kind']} {i['name']}" for i in planned if i["result"] == "deleted"]:
            require_yes(f"delete {', '.join(gone)}", yes=yes)
    answer = app.api.post("catalog", body=body)
    rows(answer["items"], COLUMNS, output, name="name")
    for item in answer["items"]:
        for warning in item["warnings"]:
            hint(f"warning: {warning}")
    if output in {"table", "wide"}:
        _show_changes(answer["items"])
        if dry_run:
            hint("dry run: nothing was written")


@click.command()
@files_option
@prune_option
@click.option("--exit-code", is_flag=True, help="End with code 1 if anything would change.")
@output_option
@pass_app
@click.pass_context
def diff(
    ctx: click.Context,
    app: App,
    *,
    files: tuple[str, ...],
    prune: bool,
    exit_code: bool,
    output: str,
) -> None:
    """Show what `sluice apply` would change, and change nothing."""
    documents = [source.document for source in read(files)]
    body = {"documents": documents, "dryRun": True, "prune": prune}
    items = app.api.post("catalog", body=body)["items"]
    changed = [item for item in items if item["result"] != "unchanged"]
    if changed or output not in {"table", "wide"}:
        rows(changed, COLUMNS, output, name="name")
    else:
        hint("no differences")
    if output in {"table", "wide"}:
        _show_changes(changed)
    if changed and exit_code:
        ctx.exit(ExitCode.ERROR)


def _show_changes(items: list[Json]) -> None:
    """The fields that change, as a diff."""
    for item in items:
        if item["diff"]:
            click.echo("\n" + clean(f"{item['kind']} {item['name']}:"))
        for change in item["diff"]:
            for sign, colour, value in (("-", "red", "before"), ("+", "green", "after")):
                if change[value] is not None:
                    line = clean(f"{sign} {change['field']}: {change[value]}")
                    click.echo(f"  {click.style(line, fg=colour)}")


@click.command()
@click.argument("kind", type=click.Choice(KINDS, case_sensitive=False), metavar="KIND")
@click.argument("name", metavar="NAME|NAMESPACE/NAME")
@click.option("--dry-run", is_flag=True, help="Check whether the object is in use.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@pass_app
def delete(app: App, *, kind: str, name: str, dry_run: bool, yes: bool) -> None:
    """Delete one applied object; refused while something uses it."""
    require_yes(f"delete {kind} {name}", yes=yes or dry_run)
    app.api.delete("catalog", kind, *name.split("/"), dryRun=str(dry_run).lower())
    click.echo(f"{kind} {name} {'could be deleted' if dry_run else 'deleted'}")
