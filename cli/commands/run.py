"""`sluice run`: one container as a job, without a file."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click
from sluice.client.documents import Source, Submission, submission
from sluice.client.errors import RequestRefusedError
from sluice.core.values.identity import ID_LENGTH

from cli import completing
from cli.app import pass_app
from cli.commands.submit import deliver, delivery_options, namespace_of

if TYPE_CHECKING:
    from cli.app import App
    from cli.output import Json


@click.command(context_settings={"ignore_unknown_options": True})
@click.option("--image", required=True, help="Container image, with digest where policy asks.")
@click.option("--name", default="run", show_default=True, help="Name of the workload.")
@click.option("-q", "--queue", required=True, help="LocalQueue.", shell_complete=completing.queues)
@click.option("-N", "--namespace", help="Namespace; default: your tenant's.")
@click.option("--cpu", default="1", show_default=True, help="CPU per pod, e.g. 4 or 500m.")
@click.option("--memory", help="Memory per pod, e.g. 16Gi.")
@click.option("--gpu", type=click.IntRange(min=1), help="GPUs (nvidia.com/gpu) per pod.")
@click.option("--parallelism", default=1, show_default=True, type=click.IntRange(min=1))
@click.option("--array", metavar="0-N[%M]", help="An array: 0-99%10 runs 100 pods, 10 together.")
@click.option(
    "--after", "dependencies", multiple=True, metavar="ID", help="Start after its success."
)
@click.option("--priority", help="WorkloadPriorityClass.")
@click.option("--env", "environment", multiple=True, metavar="NAME=VALUE")
@click.option(
    "--s3",
    "volumes",
    multiple=True,
    metavar="s3://BUCKET/PREFIX:/PATH",
    help="Mount a bucket prefix; may be repeated.",
)
@click.argument("command", nargs=-1, metavar="-- COMMAND [ARGUMENT]...")
@delivery_options
@pass_app
def run(
    app: App,
    *,
    image: str,
    name: str,
    queue: str,
    namespace: str | None,
    cpu: str,
    memory: str | None,
    gpu: int | None,
    parallelism: int,
    array: str | None,
    dependencies: tuple[str, ...],
    priority: str | None,
    environment: tuple[str, ...],
    volumes: tuple[str, ...],
    command: tuple[str, ...],
    idempotency_key: str | None,
    **delivery: object,
) -> None:
    """Submit one container without a file; what follows `--` is its command."""
    resources: Json = {"cpu": cpu}
    if memory:
        resources["memory"] = memory
    if gpu:
        resources["nvidia.com/gpu"] = gpu
    spec: Json = {"queue": queue, "image": image, "resources": resources}
    if command:
        spec["command"] = list(command)
    if parallelism > 1:
        spec["parallelism"] = parallelism
    if array:
        spec["array"] = array
    if dependencies:
        spec["dependsOn"] = [{"id": _full_id(app, reference)} for reference in dependencies]
    if priority:
        spec["priority"] = priority
    if environment:
        spec["env"] = dict(map(_pair, environment))
    if volumes:
        spec["volumes"] = [{"name": f"s3-{n}"} | _volume(text) for n, text in enumerate(volumes)]
    document = {
        "apiVersion": "sluice.dev/v1",
        "kind": "Workload",
        "metadata": {"name": name},
        "spec": spec,
    }
    made = submission(
        Source("the command line", document),
        key=idempotency_key,
        namespace=namespace_of(app, namespace, delivery),
    )
    _require_valid(made)
    deliver(app, [made], **delivery)  # type: ignore[arg-type]


def _require_valid(made: Submission) -> None:
    """Raises RequestRefusedError before anything is sent: there is no file to correct later."""
    from cli.vetting import checked  # noqa: PLC0415 - slower than the rest of a command line

    if errors := checked(made).get("errors"):
        raise RequestRefusedError("the options make no valid workload", errors=errors)


def _full_id(app: App, reference: str) -> str:
    """The id for a prefix. A full id may be of a workload that has no record yet."""
    return reference if len(reference) == ID_LENGTH else str(app.api.workload(reference)["id"])


def _pair(text: str) -> tuple[str, str]:
    name, separator, value = text.partition("=")
    if not separator:
        raise click.BadParameter(f"{text!r} is not NAME=VALUE", param_hint="--env")
    return name, value


def _volume(text: str) -> Json:
    uri, _, path = text.rpartition(":")
    if not uri.startswith("s3://") or not path.startswith("/"):
        raise click.BadParameter(f"{text!r} is not s3://BUCKET/PREFIX:/PATH", param_hint="--s3")
    bucket, _, prefix = uri.removeprefix("s3://").partition("/")
    return {"s3": {"bucket": bucket, "prefix": prefix}, "mountPath": path}
