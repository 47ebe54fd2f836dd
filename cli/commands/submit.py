"""`sluice submit`: sends job documents and prints the ids of their workloads."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click
from sluice.client.documents import Submission, read
from sluice.client.exit_codes import ExitCode
from sluice.client.sender import BY_REFERENCE, SubmissionMessage, encode_message, too_large
from sluice.client.submitting import digests, prepare, require_distinct, send
from sluice.core.values.mistakes import mistake

from cli.app import pass_app
from cli.errors import CommandExit
from cli.output import Column, Json, hint, output_option, rows
from cli.parameters import DURATION

if TYPE_CHECKING:
    from cli.app import App

SHOWN = 10
REFUSED = "would be rejected"
NAMESPACE_OF_CALLER = "namespace-of-caller"  # a dry run here does not know which one that is

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

    submissions = [
        prepare(
            app,
            source,
            key=idempotency_key,
            namespace=namespace_of(app, namespace, delivery),
        )
        for source in sources
    ]
    deliver(app, submissions, **delivery)  # type: ignore[arg-type]


def namespace_of(
    app: App, namespace: str | None, delivery: Mapping[str, object]
) -> Callable[[], str]:
    """The namespace of documents that name none; a dry run on this machine asks no api."""
    if namespace:
        return lambda: namespace
    return (
        (lambda: NAMESPACE_OF_CALLER) if delivery["dry_run"] == "client" else app.default_namespace
    )


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
    if dry_run:
        require_distinct(submissions)
        messages = [encode_message(item.document, item.id, item.namespace) for item in submissions]
        _check(app, submissions, messages, dry_run, output)
        return
    before = send(app, submissions, transport)
    sent_at = app.now()
    ids = [each.id for each in submissions]
    named = " ".join(ids[:SHOWN]) + (" …" if len(ids) > SHOWN else "")
    if not (wait or follow):
        _show(submissions, [_sent(before.get(i)) for i in ids], output)
        if output in {"table", "wide"}:
            hint(f"follow with `sluice wait {named}`, or `sluice why {ids[0]}` while it waits")
    else:
        hint(f"submitted {named}")
    sent = digests(submissions)
    if follow:
        from cli.commands.logs import follow_to_the_end  # noqa: PLC0415 - only if asked

        follow_to_the_end(app, ids[0], sent, timeout)
    if wait or follow:
        from cli.commands.wait import follow as follow_states  # noqa: PLC0415 - as above

        left = None if timeout is None else max(0.0, sent_at + timeout - app.now())
        follow_states(app, ids, timeout_seconds=left, form=output, digests=sent)


def _sent(phase_before: str | None) -> str:
    return "submitted" if phase_before is None else f"the same as before, {phase_before}"


def _check(
    app: App,
    submissions: Sequence[Submission],
    messages: Sequence[SubmissionMessage],
    where: str,
    output: str,
) -> None:
    """Prints for each document whether it would be accepted. Exit code 5 if one would not."""
    verdicts: list[Json]
    if where == "client":
        verdicts = list(map(_check_here, submissions, messages))
    else:
        documents = [item.judged for item in submissions]
        verdicts = app.api.post("whatif", body={"documents": documents})["items"]
    machine = output in {"json", "yaml"}
    details = [
        {name: verdict[name] for name in ("errors", "message") if machine and verdict.get(name)}
        for verdict in verdicts
    ]
    _show(submissions, [verdict["result"] for verdict in verdicts], output, details)
    for item, verdict in zip(submissions, verdicts, strict=True):
        for error in verdict.get("errors", ()):
            hint(f"{item.source.place}: {mistake(error)}")
        if message := verdict.get("message"):
            hint(f"{item.id}: {message}")
    if any(verdict.get("errors") for verdict in verdicts):
        raise CommandExit(ExitCode.REFUSED)


def _check_here(item: Submission, message: SubmissionMessage) -> Json:
    """The verdict on one document without a call to AWS."""
    from cli.vetting import checked  # noqa: PLC0415 - a verb pays only for what it uses

    if why := too_large(message):
        return {"result": REFUSED, "errors": [{"field": "", "message": f"{why}; {BY_REFERENCE}"}]}
    return checked(item)


def _show(
    submissions: Sequence[Submission],
    results: Sequence[str],
    form: str,
    details: Sequence[Json] | None = None,
) -> None:
    items: list[Json] = [
        _identity(item) | {"name": item.name, "result": result} | more
        for item, result, more in zip(
            submissions, results, details or [{}] * len(results), strict=True
        )
    ]
    rows(items, COLUMNS, form)


def _identity(item: Submission) -> Json:
    """Id and namespace; both are empty where only the api knows the namespace of the caller."""
    if item.namespace == NAMESPACE_OF_CALLER:
        return {"id": "", "namespace": ""}
    return {"id": item.id, "namespace": item.namespace}
