"""`sluice metrics`: what Prometheus scrapes, with your own credentials."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import click
import uvicorn
from sluice.client.errors import SluiceClientError
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.responses import PlainTextResponse, Response
from starlette.routing import Route

from cli.app import pass_app
from cli.metrics import exposition
from cli.output import hint

if TYPE_CHECKING:
    from starlette.requests import Request as HttpRequest

    from cli.app import App

CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


@click.command()
@click.option("--serve", is_flag=True, help="Answer GET /metrics until Ctrl-C.")
@click.option("--address", default="127.0.0.1", show_default=True, help="Where --serve listens.")
@click.option("--port", type=click.IntRange(0, 65535), default=9478, show_default=True)
@pass_app
def metrics(app: App, *, serve: bool, address: str, port: int) -> None:
    """Print metrics of queues, quota, waiting, cost and recoveries for Prometheus.

    The endpoint has no authentication of its own: whoever reaches its address reads what your
    credentials may see.
    """
    text = exposition(app.api)  # errors of settings and credentials belong into the terminal
    if not serve:
        click.echo(text.decode(), nl=False)
        return
    with socket.create_server((address, port)) as listener:
        host, bound = listener.getsockname()[:2]
        click.echo(f"http://{host}:{bound}/metrics")
        hint("Ctrl-C ends it")
        config = uvicorn.Config(application(app), log_level="error", access_log=False)
        uvicorn.Server(config).run(sockets=[listener])


def application(app: App) -> Starlette:
    """The endpoint; while the api does not answer, a scrape fails with its message."""

    async def scrape(_: HttpRequest) -> Response:
        try:
            return Response(await run_in_threadpool(exposition, app.api), media_type=CONTENT_TYPE)
        except SluiceClientError as error:
            return PlainTextResponse(error.message, status_code=503)

    return Starlette(routes=[Route("/metrics", scrape)])
