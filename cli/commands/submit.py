"""`sluice submit`: sends job documents and prints the ids of their workloads."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import click
from sluice.core.lifecycle.completion import withheld
from sluice.core.values.identity import digest
from sluice.core.values.mistakes import mistake

from cli.app import pass_app
from cli.documents import Source, Submission, read, submission
from cli.errors import CliError, CommandExit, RequestRefusedError
from cli.exit_codes import ExitCode
from cli.output import Column, Json, hint, output_option, rows
from cli.parameters import DURATION
from cli.references import referenced, refers
from cli.sender import BY_REFERENCE, SubmissionMessage, encode_message, too_large
from cli.watching import batched_ids, key_reused

if TYPE_CHECKING:
    from cli.app import App

SHOWN = 10
REFUSED = "would be rejected"

COLUMNS = (
    Column("ID", lambda row: row["id"]),
    Column("NAMESPACE", lambda row: row["namespace"]),
    Column("NAME", lambda row: row["name"]),
    Column("RESULT", lambda row: row["result"]),
)


def delivery_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """The flags that `submit` and `run` share."""
    for option in (
        output_option,
        click.option(
            "--transport",
            type=click.Choice(["sqs", "events"]),
            default="sqs",
            show_default=True,
            help="How documents are sent.",
        ),
        click.option("--idempotency-key", help="Key of the (only) document: same key, same id."),
        click.option("--follow", is_flag=True, help="Print the logs until the end (one document)."),
        click.option("--timeout", type=DURATION, help="With --wait: give up after (code 101)."),
        click.option("--wait", is_flag=True, help="Wait for the end; report the outcome."),
        click.option(
            "--dry-run",
            type=click.Choice(["client", "server"]),
            help="Only check: the fields here, or also policy, quota and flavors there.",
        ),
    ):
        command = option(command)
    return command


@click.command()
@click.option(
    "-f",
    "--filename",
    "files",
    multiple=True,
    required=True,
    metavar="FILE|-|DIR",
    help="YAML or JSON, several documents allowed; may be repeated.",
)
@click.option("-N", "--namespace", help="Namespace of documents that name none.")
@delivery_options
@pass_app
def submit(
    app: App,
    *,
    files: tuple[str, ...],
    namespace: str | None,
    idempotency_key: str | None,
    **delivery: object,
) -> None:
    """Submit job documents: Workload, Job or JobSet.

    The ids are printed at once. The record of a workload shows whether its document was accepted
    (`sluice get ID`, or --wait).
    """
    sources = read(files)
    if idempotency_key and len(sources) > 1:
        raise click.UsageError(f"--idempotency-key is for one document, not {len(sources)}")

    def namespace_of_caller() -> str:
        return namespace or default_namespace(app)

    submissions = [_submission(app, s, idempotency_key, namespace_of_caller) for s in sources]
    deliver(app, submissions, **delivery)  # type: ignore[arg-type]


def _submission(
    app: App, source: Source, key: str | None, namespace: Callable[[], str]
) -> Submission:
    if not refers(source):
        return submission(source, key=key, namespace=namespace)
    if key:
        raise click.UsageError("--idempotency-key: write the key into the document in S3 instead")
    return referenced(app, source, default_namespace=lambda: default_namespace(app))


def default_namespace(app: App) -> str:
    """The namespace of the tenant that the caller's messages count as.

    Raises RequestRefusedError if there is none.
    """
    found = app.client.get("identity").get("home")
    if not found:
        raise RequestRefusedError(
            "the document names no namespace and your tenant has none of its own",
            hint="write metadata.namespace, or give --namespace",
        )
    return str(found)


def deliver(
    app: App,
    submissions: Sequence[Submission],
    *,
    dry_run: str | None,
    wait: bool,
    follow: bool,
    timeout: float | None,
    transport: str,
    output: str,
) -> None:
    """Sends, prints the ids, and then waits or follows if that was asked for."""
    if follow and len(submissions) != 1:
        raise click.UsageError("--follow is for one document")
    _require_distinct(submissions)
    messages = [encode_message(each.document, each.id, each.namespace) for each in submissions]
    if dry_run:
        _check(app, submissions, messages, dry_run, output)
        return
    known = _before(app, submissions)
    app.sender(transport)(messages)
    sent_at = app.now()
    ids = [each.id for each in submissions]
    named = " ".join(ids[:SHOWN]) + (" …" if len(ids) > SHOWN else "")
    if not (wait or follow):
        _show(submissions, [_sent(known.get(i)) for i in ids], output)
        if output in {"table", "wide"}:
            hint(f"follow with `sluice wait {named}`, or `sluice why {ids[0]}` while it waits")
    else:
        hint(f"submitted {named}")
    digests = {each.id: digest(withheld(each.judged)) for each in submissions}
    if follow:
        from cli.commands.logs import follow_to_the_end  # noqa: PLC0415 - only if asked

        follow_to_the_end(app, ids[0], digests, timeout)
    if wait or follow:
        from cli.commands.wait import follow as follow_states  # noqa: PLC0415 - as above

        left = None if timeout is None else max(0.0, sent_at + timeout - app.now())
        follow_states(app, ids, timeout_seconds=left, form=output, digests=digests)


def _require_distinct(submissions: Sequence[Submission]) -> None:
    """Raises RequestRefusedError if two documents of one call have the same key."""
    places: dict[str, str] = {}
    for each in submissions:
        first = places.setdefault(each.id, each.source.place)
        if first != each.source.place:
            raise RequestRefusedError(
                f"{first} and {each.source.place} have the same idempotency key"
            )


def _before(app: App, submissions: Sequence[Submission]) -> dict[str, Json]:
    """By id, the records of keys that were used before, for the same documents.

    A caller that may send but not use the api sees it in the records. Raises
    IdempotencyKeyReusedError if another document has the key: the REJECTED record would have an id
    that the sender cannot know.
    """
    keyed = {each.id: each for each in submissions if each.keyed}
    known: dict[str, Json] = {}
    try:
        for some in batched_ids(list(keyed)):
            found = app.client.get("workloads", ids=",".join(some))["items"]
            known |= {each["id"]: each for each in found if each["id"] in keyed}
    except CliError:
        return {}
    for identity, record in known.items():
        same = record.get("digest") == digest(withheld(keyed[identity].judged))
        if not same and record["phase"] != "REJECTED":
            raise key_reused(identity)
    return known


def _sent(before: Json | None) -> str:
    """A corrected document replaces a rejected record."""
    if before is None or before["phase"] == "REJECTED":
        return "submitted"
    return f"the same as before, {before['phase']}"


def _check(
    app: App,
    submissions: Sequence[Submission],
    messages: Sequence[SubmissionMessage],
    where: str,
    output: str,
) -> None:
    """Prints for each document whether it would be accepted. Exit code 5 if one would not."""
    verdicts: list[Json] = []
    if where == "client":
        from cli.vetting import checked  # noqa: PLC0415 - a verb pays only for what it uses

        for each, sent in zip(submissions, messages, strict=True):
            flaw = {"field": "", "message": f"{too_large(sent)}; {BY_REFERENCE}"}
            verdicts.append(
                {"result": REFUSED, "errors": [flaw]} if too_large(sent) else checked(each)
            )
    else:
        documents = [each.judged for each in submissions]
        verdicts = app.client.post("whatif", body={"documents": documents})["items"]
    _show(submissions, [verdict["result"] for verdict in verdicts], output)
    for each, verdict in zip(submissions, verdicts, strict=True):
        for error in verdict.get("errors", ()):
            hint(f"{each.source.place}: {mistake(error)}")
        if message := verdict.get("message"):
            hint(f"{each.id}: {message}")
    if any(verdict.get("errors") for verdict in verdicts):
        raise CommandExit(ExitCode.REFUSED)


def _show(submissions: Sequence[Submission], results: Sequence[str], form: str) -> None:
    items: list[Json] = [
        {"id": each.id, "namespace": each.namespace, "name": each.name, "result": result}
        for each, result in zip(submissions, results, strict=True)
    ]
    rows(items, COLUMNS, form)
