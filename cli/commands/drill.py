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
TAG = "sluice.dev/drill"


@click.command()
@click.argument("target")
@click.option("--without-notice", is_flag=True, help="The machine ends at once (embedded only).")
@pass_app
def drill(app: App, *, target: str, without_notice: bool) -> None:
    """Interrupt a spot instance: TARGET is its id, the name of its node, or a workload on it.

    On the embedded stack the market sends EC2's own events and takes the instance two minutes
    later. On AWS an experiment of the Fault Injection Service does the same for real, if the
    setting `drills` has deployed its template; it needs ec2:CreateTags, ec2:DeleteTags and
    fis:StartExperiment.
    """
    if app.settings.endpoint_url.value:
        path = "terminate" if without_notice else "interrupt"
        instance = _embedded_instance(app, target)
        answer = _market(path, {"instanceId": instance})
        until = f"; it ends at {answer['reclaimTime']}" if "reclaimTime" in answer else ""
        click.echo(f"{instance} is interrupted{until}")
        return
    if without_notice:
        raise click.UsageError("on AWS every drill gives its two minutes of notice")
    template = app.aws.published("drill").value
    instance = _instance_of(app, target)
    click.echo(f"{instance}: experiment {_experiment(app, template, instance)} has begun")


def _experiment(app: App, template: str, instance: str) -> str:
    """Start the experiment on one instance, which bears the tag only until it has begun."""
    from botocore.exceptions import ClientError  # noqa: PLC0415 - a verb pays only for what it uses

    from cli.aws import explained  # noqa: PLC0415 - a verb pays only for what it uses

    ec2, tag = app.aws.client("ec2"), {"Key": TAG, "Value": app.settings.name.value}
    try:
        ec2.create_tags(Resources=[instance], Tags=[tag])
        try:
            started = app.aws.client("fis").start_experiment(
                experimentTemplateId=template, tags={"sluice:instance": instance}
            )
        finally:
            ec2.delete_tags(Resources=[instance], Tags=[tag])
    except ClientError as error:
        raise explained(error) from error
    return str(started["experiment"]["id"])


def _instance_of(app: App, target: str) -> str:
    """The instance of a node or a workload; of several machines of a workload, the first."""
    if target.startswith("i-"):
        return target
    if "." in target:
        found = app.aws.client("ec2").describe_instances(
            Filters=[{"Name": "private-dns-name", "Values": [target]}]
        )
        for reservation in found["Reservations"]:
            for each in reservation["Instances"]:
                return str(each["InstanceId"])
        raise NotFoundError(f"no node {target}", hint="`kubectl get nodes` lists them")
    machines = app.client.ask("workloads", target, "machines")["items"]
    for machine in machines:
        if machine.get("instance"):
            return str(machine["instance"])
    raise NotFoundError(
        f"workload {target} is on no machine that is known", hint=f"`sluice describe {target}`"
    )


def _embedded_instance(app: App, target: str) -> str:
    address = target.removeprefix("ip-").partition(".")[0].replace("-", ".")
    for each in _market("instances"):
        if target == each["instanceId"] or address == each["privateIp"]:
            return str(each["instanceId"])
    if target.startswith("i-") or "." in target:
        raise NotFoundError(f"no instance or node {target}", hint="`kubectl get nodes` lists them")
    return _instance_of(app, target)


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
