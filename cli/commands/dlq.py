"""`sluice admin dlq`: lists, redrives and purges dead letters."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.client.errors import RequestRefusedError
from sluice.client.exit_codes import ExitCode

from cli.app import pass_app
from cli.confirmation import require_yes
from cli.errors import CommandExit
from cli.figures import between
from cli.output import Column, Json, Row, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App

BODY = 60  # characters in a table

RESULTS = (
    Column("QUEUE", lambda row: row["queue"]),
    Column("TAKEN", lambda row: str(row["taken"])),
    Column("REFUSED", lambda row: str(row["refused"])),
    Column("LEFT", lambda row: str(row["left"])),
    Column("WHY", lambda row: row["why"]),
)
PURGED = (
    Column("QUEUE", lambda row: row["queue"]),
    Column("RESULT", lambda row: row["result"]),
)


@click.group(invoke_without_command=True)
@click.option("-q", "--queue", default="", help="Only the messages of this queue.")
@click.option(
    "--limit",
    default=10,
    show_default=True,
    type=click.IntRange(1, 200),
    help="How many messages of a queue are shown.",
)
@output_option
@pass_app
@click.pass_context
def dlq(ctx: click.Context, app: App, *, queue: str, limit: int, output: str) -> None:
    """List messages that no function could process; they are kept for 14 days.

    An invalid document is never a dead letter: it becomes a REJECTED workload.
    """
    if ctx.invoked_subcommand:
        return
    query = {"limit": str(limit)}
    found = (
        [app.api.get("dead-letters", queue, **query)]
        if queue
        else app.api.get("dead-letters")["items"]
    )
    filled = [each for each in found if each["count"]]
    if output in {"json", "yaml"}:
        rows(found, (), output)
        return
    messages = [message | {"queue": each["queue"]} for each in filled for message in each["items"]]
    if messages:
        rows(messages, _columns(int(app.now() * 1_000)), output)
    for each in filled:
        shown = len(each["items"])
        more = f", {shown} shown (--queue {each['queue']} --limit N)" * (shown < each["count"])
        hint(f"{each['queue']}: {each['count']}{more}; {each['advice']}")
    if not filled:
        hint(f"no messages in {queue or 'any dead-letter queue'}")


def _columns(now_ms: int) -> tuple[Column, ...]:
    return (
        Column("QUEUE", lambda row: row["queue"]),
        Column("AGE", lambda row: between(row["sentAt"], now_ms)),
        Column("WHY", _why),
        Column("BODY", lambda row: _head(row["body"])),
        Column("ID", lambda row: row["id"], wide=True),
        Column("SENDER", lambda row: row["sender"], wide=True),
        Column("BYTES", lambda row: str(row["size"]), wide=True),
    )


def _why(row: Row) -> str:
    return row["why"] or "not known; see the log of its function"


def _head(body: str) -> str:
    line = " ".join(body.split())
    return line if len(line) <= BODY else f"{line[:BODY]}…"


@dlq.command()
@click.argument("queue")
@click.option("--dry-run", is_flag=True, help="Only show what would be tried again.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
@pass_app
def redrive(app: App, *, queue: str, dry_run: bool, yes: bool, output: str) -> None:
    """Hand the dead letters of QUEUE to its function again.

    Each is deleted only once it has been dealt with, under its first sender and message id: nothing
    is lost, and nothing runs twice. Exit code 1 if some were refused again; they stay.
    """
    found = app.api.get("dead-letters", queue, limit="10")
    if not found["redrivable"]:
        raise RequestRefusedError(
            f"the messages of {queue} cannot be redriven", hint=found["advice"]
        )
    if dry_run or not found["count"]:
        _tell(found, "would be tried again", output)
        return
    require_yes(f"try {found['count']} message(s) of {queue} again", yes=yes)
    total: Json = {"queue": queue, "taken": 0, "refused": 0, "left": 0, "why": ""}
    while True:
        done = app.api.post("dead-letters", queue, "redrive")
        total |= {name: total[name] + done[name] for name in ("taken", "refused")}
        total |= {"left": done["left"], "why": done["why"] or total["why"]}
        if not (done["taken"] or done["refused"]):
            break
        hint(f"{total['taken']} taken, {total['refused']} refused, {total['left']} left")
    rows([total], RESULTS, output, name="queue")
    if total["refused"]:
        hint(f"fix the cause first: `sluice doctor`, and the log of {found['function']}")
        raise CommandExit(ExitCode.ERROR)


@dlq.command()
@click.argument("queue")
@click.option("--dry-run", is_flag=True, help="Only say how many would be deleted.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@output_option
@pass_app
def purge(app: App, *, queue: str, dry_run: bool, yes: bool, output: str) -> None:
    """Delete all dead letters of QUEUE, for good."""
    found = app.api.get("dead-letters", queue, limit="1")
    if dry_run or not found["count"]:
        _tell(found, "would be deleted", output)
        return
    loss = (
        "Nobody else has what stands in them: what was submitted so is lost."
        if found["data"]
        else f"Nothing is lost by it: {found['advice']}."
    )
    require_yes(f"delete {found['count']} message(s) of {queue}", yes=yes, warning=loss)
    done = app.api.post("dead-letters", queue, "purge")
    row = {"queue": queue, "purged": done["purged"], "result": f"{done['purged']} deleted"}
    rows([row], PURGED, output, name="queue")


def _tell(found: Json, what: str, output: str) -> None:
    row = {"queue": found["queue"], "count": found["count"], "result": f"{found['count']} {what}"}
    rows([row], PURGED, output, name="queue")
