"""`sluice local`: the embedded stack on this machine, from nothing to deployed and back."""

import time
from collections.abc import Callable
from dataclasses import asdict
from functools import wraps
from pathlib import Path
from typing import ParamSpec, TypeVar, get_args

import click
from sluice.client.errors import SluiceClientError

from cli.output import Column, hint, output_option, rows
from local import stack
from local.add_ons import ADD_ONS, kinds_of
from local.errors import LocalError
from local.settings import Layout, NodeKind, Settings, default_cache, default_state

FOLLOW_SECONDS = 0.2
P = ParamSpec("P")
R = TypeVar("R")

PART_COLUMNS = (
    Column("PART", lambda row: row["name"]),
    Column("STATE", lambda row: row["state"]),
    Column("PID", lambda row: str(row["pid"] or "-")),
    Column("PORT", lambda row: str(row["port"] or "-")),
    Column("RESTARTS", lambda row: str(row["restarts"])),
)


nodes_option = click.option(
    "--nodes",
    type=click.Choice(get_args(NodeKind)),
    default="process",
    show_default=True,
    help="How nodes run pods: as processes, not at all (for tests at scale), or as real kubelets "
    "with containerd (Linux, root).",
)


def names_of_add_ons(
    _context: click.Context, _option: click.Parameter, value: str | None
) -> tuple[str, ...]:
    """The names of `--with`, in the order of the table."""
    asked = [name.strip() for name in (value or "").split(",") if name.strip()]
    for name in asked:
        if name not in ADD_ONS:
            raise click.BadParameter(f"{name!r} is not one of {', '.join(ADD_ONS)}")
    return tuple(name for name in ADD_ONS if name in asked)


def explained(action: Callable[P, R]) -> Callable[P, R]:
    """Show the stack's own errors as messages; anything else is a fault of ours."""

    @wraps(action)
    def wrapped(*positional: P.args, **named: P.kwargs) -> R:
        try:
            return action(*positional, **named)
        except LocalError as error:
            raise SluiceClientError(str(error)) from error

    return wrapped


@click.group()
def local() -> None:
    """Start and stop the embedded stack: AWS, a real control plane, Karpenter, nodes.

    Everything listens on 127.0.0.1 and keeps its files in .local (SLUICE_STATE); programs built
    once for this machine are in ~/.cache/sluice (SLUICE_CACHE).
    """


@local.command()
@click.option("--fresh", is_flag=True, help="Forget the state kept by `down --keep`.")
@click.option("--deploy/--no-deploy", default=True, help="Deploy the stacks with the CDK.")
@nodes_option
@click.option(
    "--time-scale",
    type=click.FloatRange(min=0, min_open=True),
    default=1.0,
    show_default=True,
    help="Of the 120 s between a spot warning and the end of the instance.",
)
@click.option(
    "--instance-delay",
    type=click.FloatRange(min=0),
    default=2.0,
    show_default=True,
    help="Seconds from launch to running; EC2 takes 35 to 60.",
)
@click.option("--aws-port", type=int, help="Port of the embedded AWS (default: a free one).")
@click.option(
    "--cedana", is_flag=True, help="With a stand-in for Cedana's service, carried out by CRIU."
)
@click.option(
    "--with",
    "add_ons",
    metavar="NAME[,NAME]",
    callback=names_of_add_ons,
    help=f"Also build and start controllers of further kinds of jobs: {', '.join(ADD_ONS)}.",
)
@click.option(
    "--karpenter-queue",
    metavar="NAME",
    help="Give Karpenter an interruption queue of its own; normally Sluice answers warnings.",
)
@explained
def up(
    *,
    fresh: bool,
    deploy: bool,
    nodes: NodeKind,
    time_scale: float,
    instance_delay: float,
    aws_port: int | None,
    cedana: bool,
    add_ons: tuple[str, ...],
    karpenter_queue: str | None,
) -> None:
    """Start everything and deploy; finds a running stack and deploys again."""
    settings = Settings(
        state=default_state(),
        cache=default_cache(),
        nodes=nodes,
        time_scale=time_scale,
        instance_delay=instance_delay,
        aws_port=aws_port,
        cedana=cedana,
        add_ons=add_ons,
        interruption_queue=karpenter_queue,
    )
    endpoints = stack.up(settings, hint, fresh=fresh, deploy=deploy)
    if add_ons:
        kinds = ", ".join(kinds_of(add_ons))
        hint(f"write the kinds into spec.kinds of the Cluster object: [{kinds}]")
    hint(f"kubectl: export KUBECONFIG={endpoints.kubeconfig}")


@local.command()
@click.option("--keep", is_flag=True, help="Let the next `up` go on from this state (no machines).")
@explained
def down(keep: bool) -> None:
    """Stop everything and forget it, except the logs."""
    if not stack.down(default_state(), keep=keep):
        hint("no stack was running")


@local.command()
@output_option
@explained
def status(output: str) -> None:
    """Show every part: process, port, health. Exit code 1 unless all are ready."""
    parts = stack.status(default_state())
    if parts or output != "table":
        rows([asdict(part) for part in parts], PART_COLUMNS, output, name="name")
    if not parts:
        raise SluiceClientError("no stack is running", hint="start one with `sluice local up`")
    if any(part.state != "ready" for part in parts):
        raise SluiceClientError("not all parts are ready", hint="see `sluice local logs PART`")


@local.command()
@click.argument("part")
@click.option("-f", "--follow", is_flag=True, help="Go on as the log grows.")
@click.option(
    "-n",
    "--lines",
    default=50,
    show_default=True,
    type=click.IntRange(min=1),
    help="Lines from the end.",
)
@explained
def logs(part: str, follow: bool, lines: int) -> None:
    """Print the log of one part, or of `supervisor` or `cdk`."""
    layout = Layout(default_state())
    path = layout.log(part)
    known = sorted(file.stem for file in layout.logs.glob("*.log"))
    if part not in known:
        raise SluiceClientError(f"there is no log of {part!r}", hint=f"logs: {', '.join(known)}")
    show(path, lines, follow=follow)


def show(path: Path, lines: int, *, follow: bool) -> None:
    with path.open(errors="replace") as file:
        click.echo("".join(file.readlines()[-lines:]), nl=False)
        while follow:
            text = file.read()
            click.echo(text, nl=False)
            if not text:
                time.sleep(FOLLOW_SECONDS)


@local.command()
@explained
def kubeconfig() -> None:
    """Print the path of the kubeconfig."""
    path = Layout(default_state()).kubeconfig
    if not path.exists():
        raise SluiceClientError("no stack is running", hint="start one with `sluice local up`")
    click.echo(path)


@local.command()
@click.argument("part")
@click.option("--kill", is_flag=True, help="By SIGKILL, as a crash would.")
@explained
def stop(part: str, kill: bool) -> None:
    """Stop one part and leave it stopped."""
    stack.stop_part(default_state(), part, kill=kill)


@local.command()
@click.argument("part")
@explained
def start(part: str) -> None:
    """Start a part that was stopped, and wait until it is ready."""
    stack.start_part(default_state(), part)


@local.command()
@click.argument("part")
@click.option("--kill", is_flag=True, help="By SIGKILL, as a crash would.")
@explained
def restart(part: str, kill: bool) -> None:
    """Stop one part, start it again, and wait until it is ready."""
    stack.restart_part(default_state(), part, kill=kill)


@local.command()
@nodes_option
@explained
def prepare(nodes: NodeKind) -> None:
    """Install and build what `up` needs, and start nothing."""
    stack.prepare(default_cache(), hint, nodes)
