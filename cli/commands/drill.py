"""`sluice drill`: take a machine away as EC2 would, to see what happens."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import click

from cli.app import pass_app
from cli.errors import CommandError, NotFoundError
from local.endpoints import Endpoints
from local.settings import Layout, default_state

if TYPE_CHECKING:
    from cli.app import App

SECONDS = 10


@click.command()
@click.argument("target")
@click.option("--without-notice", is_flag=True, help="The machine ends at once (embedded only).")
@click.option("--template", default="", help="FIS experiment template to start, on AWS.")
@pass_app
def drill(app: App, *, target: str, without_notice: bool, template: str) -> None:
    """Interrupt the spot instance TARGET: an instance id or the name of a node.

    On the embedded stack the market sends EC2's own events and takes the instance two minutes
    later. On AWS an experiment of the Fault Injection Service does the same for real.
    """
    if app.settings.endpoint_url.value:
        path = "terminate" if without_notice else "interrupt"
        instance = _embedded_instance(target)
        answer = _market(path, {"instanceId": instance})
        until = f"; it ends at {answer['reclaimTime']}" if "reclaimTime" in answer else ""
        click.echo(f"{instance} is interrupted{until}")
        return
    if not template or without_notice:
        raise click.UsageError("on AWS name the FIS experiment template: --template EXT…")
    started = app.aws.client("fis").start_experiment(
        experimentTemplateId=template, tags={"sluice:target": target}
    )
    click.echo(f"experiment {started['experiment']['id']} has begun")


def _embedded_instance(target: str) -> str:
    address = target.removeprefix("ip-").partition(".")[0].replace("-", ".")
    for each in _market("instances"):
        if target == each["instanceId"] or address == each["privateIp"]:
            return str(each["instanceId"])
    raise NotFoundError(f"no instance or node {target}", hint="`kubectl get nodes` lists them")


def _market(path: str, body: dict[str, str] | None = None) -> Any:
    """One request to the market of the embedded EC2."""
    endpoints = Endpoints.read(Layout(default_state()).endpoints)
    data = None if body is None else json.dumps(body).encode()
    request = urllib.request.Request(  # noqa: S310 - the embedded stack's own address
        f"{endpoints.ec2}/_market/{path}", data=data, headers={"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310 - as above
            return json.loads(answer.read())
    except urllib.error.HTTPError as error:
        raise CommandError(error.read().decode(errors="replace").strip()) from error
