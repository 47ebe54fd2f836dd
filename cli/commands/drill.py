"""`sluice drill`: interrupts a spot instance as EC2 would."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import click
from sluice.client.errors import NotDeployedError, ObjectNotFoundError, SluiceClientError

from cli.app import pass_app
from local.endpoints import Endpoints
from local.settings import Layout, default_state

if TYPE_CHECKING:
    from sluice.client.connection import Connection

    from cli.app import App

SECONDS = 10
TAG = "sluice.dev/drill"
PATIENCE_SECONDS, POLL_SECONDS = 60.0, 0.5
BEGUN = {"running", "completed"}
ENDED = {"completed", "failed", "stopped", "cancelled"}


@click.command()
@click.argument("target")
@click.option("--without-notice", is_flag=True, help="The machine ends at once (embedded only).")
@pass_app
def drill(app: App, *, target: str, without_notice: bool) -> None:
    """Interrupt a spot instance: TARGET is its id, the name of its node, or a workload on it.

    An experiment of the Fault Injection Service has EC2 warn the instance and take it two minutes
    later, for real on AWS, in the embedded market on the embedded stack. The setting `drills`
    deploys its template; it needs ec2:DescribeInstances, ec2:CreateTags, ec2:DeleteTags,
    fis:StartExperiment, fis:TagResource and fis:GetExperiment.
    """
    if without_notice:
        if not app.settings.endpoint_url.value:
            raise click.UsageError("on AWS every drill gives its two minutes of notice")
        instance = _instance_of(app, target)
        _terminate(instance)
        click.echo(f"{instance} has ended")
        return
    instance, experiment = interrupt(app, target)
    click.echo(f"{instance} is interrupted by experiment {experiment}; it ends in two minutes")


def interrupt(app: Connection, target: str) -> tuple[str, str]:
    """Has EC2 interrupt the instance of `target`; returns the instance and the experiment."""
    template = _template(app)
    instance = _instance_of(app, target)
    return instance, _experiment(app, template, instance)


def _template(app: Connection) -> str:
    try:
        return str(app.aws.published("drill").value)
    except NotDeployedError as error:
        raise SluiceClientError(
            "no experiment template for drills is deployed",
            hint="set `drills: true` in sluice.yaml, then `make deploy`",
        ) from error


def _experiment(app: Connection, template: str, instance: str) -> str:
    """Runs the experiment on one instance, which has the tag until it is warned.

    FIS selects its targets some time after the start, and only among tagged instances.
    """
    from botocore.exceptions import ClientError  # noqa: PLC0415 - a verb pays only for what it uses
    from sluice.client.aws import from_aws  # noqa: PLC0415 - a verb pays only for what it uses

    ec2, tag = app.aws.client("ec2"), {"Key": TAG, "Value": app.settings.name.value}
    fis = app.aws.client("fis")
    try:
        ec2.create_tags(Resources=[instance], Tags=[tag])
        try:
            experiment = str(
                fis.start_experiment(
                    experimentTemplateId=template, tags={"sluice:instance": instance}
                )["experiment"]["id"]
            )
            _await_begin(fis, experiment)
        finally:
            ec2.delete_tags(Resources=[instance], Tags=[tag])
    except ClientError as error:
        raise from_aws(error) from error
    return experiment


def _await_begin(fis: Any, experiment: str) -> None:
    """Waits until the action runs. Raises SluiceClientError with the reason of FIS."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        found = fis.get_experiment(id=experiment)["experiment"]
        acts = {action["state"]["status"] for action in found["actions"].values()}
        if acts <= BEGUN:
            return
        state = found["state"]
        if state["status"] in ENDED:
            raise SluiceClientError(
                f"experiment {experiment} {state['status']}: {state.get('reason', 'no reason')}",
                hint="only running spot instances can be interrupted; `sluice capacity` lists the "
                "machines",
            )
        time.sleep(POLL_SECONDS)
    raise SluiceClientError(
        f"experiment {experiment} has not begun within {PATIENCE_SECONDS:.0f} s; its machine is "
        "not marked any more",
        hint=f"aws fis get-experiment --id {experiment}",
    )


def _instance_of(app: Connection, target: str) -> str:
    """The instance of a node or a workload; the first of several."""
    if target.startswith("i-"):
        return target
    if "." in target:
        found = app.aws.client("ec2").describe_instances(
            Filters=[{"Name": "private-dns-name", "Values": [target]}]
        )
        for reservation in found["Reservations"]:
            for instance in reservation["Instances"]:
                return str(instance["InstanceId"])
        raise ObjectNotFoundError(f"no node {target}", hint="`kubectl get nodes` lists them")
    machines = app.api.get("workloads", target, "machines")["items"]
    for machine in machines:
        if machine.get("instance"):
            return str(machine["instance"])
    raise ObjectNotFoundError(
        f"workload {target} is on no machine that is known", hint=f"`sluice describe {target}`"
    )


def _terminate(instance: str) -> None:
    """Terminates an instance in the embedded EC2 at once."""
    endpoints = Endpoints.read(Layout(default_state()).endpoints)
    request = urllib.request.Request(  # noqa: S310 - the embedded stack's own address
        f"{endpoints.ec2}/_market/terminate",
        data=json.dumps({"instanceId": instance}).encode(),
        headers={"Content-Type": "application/json"},
    )
    try:
        urllib.request.urlopen(request, timeout=SECONDS).close()  # noqa: S310 - as above
    except urllib.error.HTTPError as error:
        raise SluiceClientError(error.read().decode(errors="replace").strip()) from error
