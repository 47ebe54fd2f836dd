"""`sluice doctor`: checks a deployment from the caller's side, then the api's."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING

import click
from sluice.client.errors import ObjectNotFoundError, SluiceClientError
from sluice.client.exit_codes import ExitCode
from sluice.message_queues import DEAD_LETTERS

from cli.app import pass_app
from cli.errors import CommandExit
from cli.output import Column, hint, output_option, rows

if TYPE_CHECKING:
    from cli.app import App
    from cli.output import Json

OK, WARN, FAIL = "ok", "warn", "fail"
OLD_MESSAGES = 1_000

COLUMNS = (
    Column("CHECK", lambda row: row["check"]),
    Column("RESULT", lambda row: row["result"]),
    Column("MESSAGE", lambda row: row["message"]),
    Column("ADVICE", lambda row: row["advice"]),
)


# Ten functions, five pollers for each of the queues, and a cluster's observer.
ENOUGH_CONCURRENCY = 100


@dataclass(frozen=True)
class Finding:
    """One line: what was checked, ok, warn or fail, what was seen, and what to do."""

    check: str
    result: str
    message: str
    advice: str = ""


@click.command()
@click.option(
    "--canary", metavar="[NAMESPACE/]QUEUE", help="Also run a one-second job in this LocalQueue."
)
@click.option("--image", default="public.ecr.aws/docker/library/busybox:1.37", show_default=True)
@output_option
@pass_app
def doctor(app: App, *, canary: str | None, image: str, output: str) -> None:
    """Check settings, credentials, the api, queues, configuration and clusters.

    Exit code 1 if anything failed. A canary runs all the same.
    """
    examine(app, canary, image, output)


def examine(app: App, canary: str | None, image: str, output: str) -> None:
    """Raises CommandExit if anything failed, after the canary."""
    findings: list[Json] = []
    for check in CHECKS:
        try:
            findings += [asdict(finding) for finding in check(app)]
        except SluiceClientError as error:
            name = check.__name__.strip("_")
            findings.append(asdict(Finding(name, FAIL, error.message, error.hint)))
    failed = [finding for finding in findings if finding["result"] == FAIL]
    rows(findings, COLUMNS, output, name="check")
    if failed:
        hint(f"{len(failed)} checks failed")
    if canary:
        if failed:
            hint(f"the canary runs nevertheless, in {canary}: it tells whether work gets through")
        _canary(app, canary, image)
    if failed:
        raise CommandExit(ExitCode.ERROR)


def _settings(app: App) -> Iterator[Finding]:
    settings = app.settings
    where = settings.endpoint_url.value or f"AWS, Region {app.aws.region}"
    yield Finding("settings", OK, f"deployment {settings.name.value} on {where}")


def _credentials(app: App) -> Iterator[Finding]:
    from botocore.exceptions import BotoCoreError, ClientError  # noqa: PLC0415 - a verb pays only for what it uses
    from sluice.client.aws import from_aws  # noqa: PLC0415 - a verb pays only for what it uses

    try:
        identity = app.aws.client("sts").get_caller_identity()
    except (BotoCoreError, ClientError) as error:
        raise from_aws(error) from error
    yield Finding("credentials", OK, identity["Arn"])


def _invocation(app: App) -> Iterator[Finding]:
    """Whether these credentials may call the api past its address, as any identity they like."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - a verb pays only for what it uses

    try:
        name = app.aws.published("functions/api").value
        app.aws.client("lambda").invoke(FunctionName=name, InvocationType="DryRun")
    except (ClientError, SluiceClientError):
        yield Finding("direct invoke", OK, "refused: the api is reached by its address only")
        return
    yield Finding(
        "direct invoke",
        WARN,
        "your credentials may invoke the function `api` directly, as any identity: who may do"
        " that is administrator",
        "attach the published policy (output PoliciesSubmitter) instead of lambda:InvokeFunction",
    )


def _concurrency(app: App) -> Iterator[Finding]:
    """Whether the account lets enough functions run at once: new accounts begin with 10."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - a verb pays only for what it uses

    try:
        limits = app.aws.client("lambda").get_account_settings()["AccountLimit"]
        free = int(limits["UnreservedConcurrentExecutions"])
    except (ClientError, SluiceClientError, KeyError):
        yield Finding("concurrency", WARN, "you may not read it", "allow lambda:GetAccountSettings")
        return
    message = f"{free} functions may run at once"
    if free < ENOUGH_CONCURRENCY:
        advice = "ask AWS to raise the quota: warnings of spot instances wait for a free place"
        yield Finding("concurrency", WARN, message, advice)
    else:
        yield Finding("concurrency", OK, message)


def _queues(app: App) -> Iterator[Finding]:
    """Depths of the queues. A dead letter means lost work or a fault of the control plane."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - a verb pays only for what it uses

    sqs = app.aws.client("sqs")
    for name, queue in DEAD_LETTERS.items():
        for kind in ("queues", "dead-letters") if queue.redrivable else ("dead-letters",):
            parameter = f"{kind}/{name}"
            try:
                waiting = _depth(sqs, app.aws.published(parameter).value)
            except ClientError:
                message = "you may not read its depth"
                yield Finding(parameter, WARN, message, "allow sqs:GetQueueAttributes")
                continue
            if kind == "dead-letters" and waiting:
                advice = f"`sluice admin dlq -q {name}` shows them and says what to do"
                yield Finding(parameter, FAIL, f"{waiting} messages", advice)
            elif waiting > OLD_MESSAGES:
                advice = "see the throttles and errors of its function"
                yield Finding(parameter, WARN, f"{waiting} messages wait", advice)
            else:
                yield Finding(parameter, OK, f"{waiting} messages")


def _depth(sqs: object, url: str) -> int:
    name = "ApproximateNumberOfMessages"
    answer = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=[name])  # type: ignore[attr-defined]
    return int(answer["Attributes"][name])


def _api(app: App) -> Iterator[Finding]:
    for item in app.api.get("doctor")["items"]:
        yield Finding(item["check"], item["result"], item["message"], item["advice"])


def _require_queue(app: App, queue: str) -> None:
    """Raises ObjectNotFoundError that lists the known LocalQueues."""
    known = [
        f"{item['metadata']['namespace']}/{item['metadata']['name']}"
        for item in app.api.get("catalog", "LocalQueue")["items"]
    ]
    if not any(queue in {name, name.rpartition("/")[2]} for name in known):
        raise ObjectNotFoundError(
            f"no LocalQueue is named {queue}",
            hint=f"give NAMESPACE/QUEUE; there are {', '.join(known) or 'none'}",
        )


def _canary(app: App, queue: str, image: str) -> None:
    from sluice.client.documents import Source, submission  # noqa: PLC0415 - a verb pays only for what it uses

    from cli.commands.submit import deliver  # noqa: PLC0415 - a verb pays only for what it uses

    namespace = queue.rpartition("/")[0]
    _require_queue(app, queue)
    document = {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": "canary"},
        "spec": {
            "queue": queue,
            "image": image,
            "command": ["sleep", "1"],
            "resources": {"cpu": "100m", "memory": "64Mi"},
        },
    }
    made = submission(
        Source("canary", document), namespace=lambda: namespace or app.default_namespace()
    )
    deliver(
        app,
        [made],
        dry_run=None,
        wait=True,
        follow=False,
        timeout=600,
        transport="sqs",
        output="table",
    )


CHECKS = (_settings, _credentials, _invocation, _concurrency, _queues, _api)
