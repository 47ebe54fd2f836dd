"""`sluice ui`: the pages in a browser, served on 127.0.0.1."""

from __future__ import annotations

import socket
import webbrowser
from typing import TYPE_CHECKING, Any

import click
import uvicorn

from cli.app import pass_app
from cli.commands.drill import interrupt
from cli.output import hint
from cli.ui.guard import SessionGuard
from cli.ui.server import application

if TYPE_CHECKING:
    from cli.app import App

HOST = "127.0.0.1"


@click.command()
@click.option("--port", type=click.IntRange(0, 65535), default=0, help="Default: a free one.")
@click.option("--open/--no-open", "opened", default=True, help="Open the address in a browser.")
@pass_app
def ui(app: App, *, port: int, opened: bool) -> None:
    """Serve the pages on 127.0.0.1 until Ctrl-C, with your own credentials.

    The printed address opens one session, once. Nothing is loaded from other hosts.
    """
    app.api.get("identity")  # errors of settings and credentials belong into the terminal

    def interrupted(target: str) -> dict[str, Any]:
        instance, experiment = interrupt(app, target)
        return {"instance": instance, "experiment": experiment}

    with socket.create_server((HOST, port)) as listener:
        guard = SessionGuard(listener.getsockname()[1])
        click.echo(guard.address)
        hint("Ctrl-C ends it")
        if opened:
            webbrowser.open(guard.address)
        config = uvicorn.Config(
            application(app, guard, interrupted), log_level="error", access_log=False
        )
        uvicorn.Server(config).run(sockets=[listener])
